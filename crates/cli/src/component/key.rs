//! `helio component key`: callers' keys.

use helio_component::{KeyFileError, make_caller_key, read_caller_key, user_at_host};
use serde_json::json;

use crate::args::component::KeyArgs;
use crate::error::{CliError, CliResult};
use crate::out::Out;

/// Runs `helio component key`.
pub(crate) fn run(args: &KeyArgs) -> CliResult {
    let key = if args.new { make_caller_key(&args.file) } else { read_caller_key(&args.file) };
    let public = key.map_err(from_key_file)?.public().to_string();
    let caller = args.caller.clone().unwrap_or_else(user_at_host);
    let mut out = Out::new();
    if args.output.json {
        out.json(&json!({"caller": caller, "key": public}))
    } else {
        // A JSON text is a YAML key, whatever is in the name.
        out.line(&format!("{}: {public}", json!(caller)))
    }
}

/// An error of a key file as a command's error.
pub(crate) fn from_key_file(error: KeyFileError) -> CliError {
    match error {
        KeyFileError::File(..) => CliError::NotFound(error.to_string()),
        KeyFileError::Key(..) | KeyFileError::Open(..) => CliError::Refused(error.to_string()),
    }
}
