//! `helio alerts`: becomes the program `helio-alerts`, which brings Arrow; this one does not.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::args::AlertsArgs;
use crate::error::{CliError, CliResult};
use crate::worker::own_program;

/// The program.
const PROGRAM: &str = "helio-alerts";

/// Replaces this process by the program, so that signals and its exit code need no forwarding: the
/// one beside this program, or else the one in PATH.
pub(crate) fn run(args: &AlertsArgs, url: Option<&str>) -> CliResult {
    let own = own_program()?;
    let beside = own.with_file_name(PROGRAM);
    let program = if beside.is_file() { beside } else { PROGRAM.into() };
    let mut command = Command::new(&program);
    command.args(&args.arguments);
    if let Some(url) = url {
        command.env("HELIO_URL", url);
    }
    let error = command.exec();
    Err(match error.kind() {
        ErrorKind::NotFound => CliError::NotFound(format!(
            "{PROGRAM} is neither beside {} nor in PATH; `make build` builds both",
            own.display()
        )),
        _ => CliError::Failure(format!("cannot run {}: {error}", program.display())),
    })
}
