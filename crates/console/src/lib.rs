//! What the programs of the command line share.
//!
//! It knows the bus, the terminal and clap. It must not know a command, a service or an engine.
//!
//! - [`error`]: errors with their exit codes. [`built`]: what a build lacks.
//! - [`args`]: arguments that many commands have. [`units`]: durations and sizes.
//!   [`start`]: where a subscription begins.
//! - [`open`]: the bus and its topics. [`outage`]: waiting for one that is unreachable.
//!   [`stop`]: signals.
//! - [`out`]: lines, tables and progress. [`screen`]: a live table on a terminal.
//! - [`worker`]: processes of a program that run one task each. [`run_bus`]: the bus of a run of
//!   several processes. [`clock`]: clocks, and what a process used. [`requirement`]: what a demo
//!   proves.

pub mod args;
pub mod built;
pub mod clock;
pub mod error;
pub mod open;
pub mod out;
pub mod outage;
pub mod requirement;
pub mod run_bus;
pub mod screen;
pub mod start;
pub mod stop;
pub mod story;
pub mod units;
pub mod usage;
pub mod worker;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::OnceLock;

use error::{CliError, CliResult};

/// The program's name, before its messages on standard error.
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// The program's name; `helio` before [`run`] is called.
pub fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("helio")
}

/// Registers the transports, prints the bus's notices on standard error under the program's name,
/// runs a command, and prints its error.
pub fn run(name: &'static str, command: impl FnOnce() -> CliResult) -> ExitCode {
    // It is set once, by the program's main function.
    _ = PROGRAM.set(name);
    helio_transports::register_all();
    // Standard error may be closed.
    helio_bus::on_notice(|text| _ = writeln!(std::io::stderr().lock(), "{}: {text}", program()));
    match stop::survive_file_limits().and_then(|()| command()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, CliError::Pipe | CliError::Worker(_)) {
                eprintln!("{name}: {error}");
            }
            ExitCode::from(error.code())
        }
    }
}
