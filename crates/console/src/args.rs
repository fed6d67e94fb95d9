//! Arguments that many commands have.

use std::time::Duration;

use clap::Args;

use crate::units;

/// The exit codes, for a program's long help.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done, or the reader of the output has closed the pipe
  1    failed: input, output or the engine
  2    wrong command line
  3    not found: no such topic, journal, file, folder or schema
  4    refused: the engine lacks a policy that the topic needs, or a schema or value is invalid
  5    samples are missing or duplicated
  130  interrupted by SIGINT or SIGTERM before the work was done

Errors are one line on standard error: the cause, then the remedy.";

/// How data is printed.
#[derive(Debug, Args, Clone, Copy)]
pub struct Output {
    /// Print JSON: one object, or one per line.
    #[arg(long)]
    pub json: bool,
}

/// When a command that runs until stopped ends.
#[derive(Debug, Clone, Copy, Args)]
pub struct ForArg {
    /// End after this time, such as 30s (default: at SIGINT or SIGTERM).
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,
}
