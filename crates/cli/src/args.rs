//! The command line as a table: help, manual pages and completions are generated from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};

use crate::units;

const EXIT_CODES: &str = "\
Exit codes:
  0    done; also where the reader of the output has gone (a closed pipe)
  1    failed: input, output or the engine
  2    wrong command line
  3    not found: no such topic, file, folder or schema
  4    refused: the engine cannot do what the topic needs, or a schema or value does not fit
  5    samples are missing
  130  interrupted by SIGINT or SIGTERM before the work was done

Errors are one line on standard error: the cause, then the remedy.";

/// Publish, subscribe, look and measure on a Heliograph bus.
#[derive(Debug, Parser)]
#[command(name = "helio", version, after_long_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The bus, such as `journal:/var/lib/helio/site` or `memory:`.
    ///
    /// Where it is not given: the environment's HELIO_URL, otherwise a journal of your own in
    /// $XDG_STATE_HOME/heliograph/default (~/.local/state where that is not set).
    #[arg(long, global = true, env = "HELIO_URL", value_name = "URL")]
    pub(crate) url: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the machine, or a bus, with separate publisher and subscriber processes.
    #[command(subcommand)]
    Bench(Bench),
    /// Print the manual page, or write all of them to a folder.
    Man(ManArgs),
    /// Print the completions for a shell.
    Completions(CompletionsArgs),
    /// Run a task for another process of this program.
    #[command(hide = true)]
    Worker(WorkerArgs),
}

/// How data is printed.
#[derive(Debug, Args, Clone, Copy)]
pub(crate) struct Output {
    /// Print JSON: one object, or one a line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The benches.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The machine's own limits for a shared-memory log in a folder, without any engine.
    Floor(FloorArgs),
}

/// `helio bench floor`.
#[derive(Debug, Args)]
pub(crate) struct FloorArgs {
    /// The folder whose file system is measured.
    #[arg(long, default_value = ".", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Latency: messages a second.
    #[arg(long, default_value = "20", value_name = "HZ", value_parser = units::rate)]
    pub(crate) rate: f64,
    /// Latency: number of messages.
    #[arg(long, default_value = "400", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `helio man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write helio.1 and a page for each sub-command to this folder.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

/// `helio completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// `helio worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Which task.
    pub(crate) kind: String,
    /// The task as JSON.
    pub(crate) task: String,
}

/// Parses a duration; the type that clap wants.
#[allow(dead_code)]
fn duration(text: &str) -> Result<Duration, String> {
    units::duration(text)
}
