//! Workers in Python: embedded scripts for an interpreter that has the package.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};

use crate::error::{CliError, CliResult};

/// Both halves of `helio bench commands`.
pub(crate) const BENCH_COMMANDS: &str = include_str!("../../../python/workers/bench_commands.py");
/// A producer of `helio log demo`.
pub(crate) const LOG_PRODUCER: &str = include_str!("../../../python/workers/log_producer.py");

/// The environment variable that names the interpreter.
const VARIABLE: &str = "PYTHON";

/// The interpreter: `$PYTHON`, or `python3`.
pub(crate) fn interpreter() -> OsString {
    std::env::var_os(VARIABLE).unwrap_or_else(|| "python3".into())
}

/// The interpreter, if it has the package. A `python3` without it is `None`; a `$PYTHON` without it
/// is an error.
pub(crate) fn with_package() -> CliResult<Option<OsString>> {
    let python = interpreter();
    let mut probe = Command::new(&python);
    probe.args(["-c", "import heliograph.logging"]).stdout(Stdio::null()).stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        return Ok(Some(python));
    }
    match std::env::var_os(VARIABLE) {
        None => Ok(None),
        Some(_) => Err(CliError::NotFound(format!(
            "{VARIABLE} names {}, which cannot import heliograph; install the package there, or \
             unset {VARIABLE}",
            python.display()
        ))),
    }
}

/// The interpreter with a script; the worker's arguments are to be added.
pub(crate) fn command(python: &OsStr, script: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-c", script]);
    command
}
