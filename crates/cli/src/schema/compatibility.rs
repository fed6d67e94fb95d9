//! `helio schema compatibility`: the levels of a registry.

use helio_kafka::registry::client::{Client, ClientOptions, RegistryError};
use serde_json::json;

use crate::args::CompatibilityArgs;
use crate::error::{CliError, CliResult};
use crate::out::Out;

/// Shows or sets a level.
pub(super) fn run(args: &CompatibilityArgs) -> CliResult {
    let options = ClientOptions { user_info: args.user.clone(), authority: args.ca.clone() };
    let client = Client::new(&args.registry, options).map_err(CliError::Usage)?;
    let subject = args.subject.as_deref();
    if let Some(level) = args.set {
        client.set_compatibility(subject, level).map_err(failed)?;
    }
    let own = client.compatibility(subject).map_err(failed)?;
    let (level, inherited) = match own {
        Some(level) => (level, false),
        None => match client.compatibility(None).map_err(failed)? {
            Some(level) => (level, true),
            None => return Err(CliError::NotFound("the registry names no level".to_owned())),
        },
    };
    let mut out = Out::new();
    if args.output.json {
        let level = level.name();
        out.json(&json!({"subject": subject, "compatibility": level, "inherited": inherited}))?;
    } else {
        out.line(level.name())?;
    }
    out.flush()
}

fn failed(error: RegistryError) -> CliError {
    match error {
        RegistryError::Refused { status: 404, .. } => CliError::NotFound(error.to_string()),
        RegistryError::Refused { .. } => CliError::Refused(error.to_string()),
        RegistryError::Unreachable { .. } => CliError::Failure(error.to_string()),
    }
}
