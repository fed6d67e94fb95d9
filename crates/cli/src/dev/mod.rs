//! `helio dev`: real engines on this machine, to try things out and to develop against.

mod engines;

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::args::Output;
use crate::error::{CliError, CliResult};

/// Exit code of an engine's program where this machine lacks what it needs.
const LACKING: i32 = 3;
/// Exit code of an engine's program where there is one already.
const THERE: i32 = 4;

/// The engines.
#[derive(Debug, Subcommand)]
pub(crate) enum DevCommand {
    /// Apache Kafka, one broker or three, on this machine.
    #[command(subcommand)]
    Kafka(KafkaCommand),
}

/// What is done with Kafka. The first start downloads it (44 MB, from Maven Central or the
/// repository that HELIO_MAVEN_URL names); it needs Java 17 and Python 3.11.
#[derive(Debug, Subcommand)]
pub(crate) enum KafkaCommand {
    /// Start brokers, wait until they serve, and print their URL.
    Start(StartArgs),
    /// End the brokers, and remove all that they hold.
    Stop(PlaceArgs),
    /// Print what runs, and its URL.
    Status(StatusArgs),
}

/// `helio dev kafka start`.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// How many brokers: 1, or 3 with three copies of everything.
    #[arg(long, value_name = "N", default_value = "1", value_parser = ["1", "3"])]
    nodes: String,
    /// Give a broker what Kafka's own scripts do (1 GB): for benches, and for a whole observatory.
    #[arg(long)]
    bench: bool,
    /// A broker's property; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: Output,
}

/// Which brokers.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Their folder; one of your own in $XDG_STATE_HOME/heliograph unless given.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

/// `helio dev kafka status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: Output,
}

/// Runs `helio dev`.
pub(crate) fn run(command: &DevCommand) -> CliResult {
    let DevCommand::Kafka(command) = command;
    match command {
        KafkaCommand::Start(args) => args.run(),
        KafkaCommand::Stop(args) => {
            let folder = args.running()?;
            kafka(&["stop".as_ref(), "--dir".as_ref(), folder.as_ref()])
        }
        KafkaCommand::Status(args) => {
            let folder = args.place.running()?;
            let mut arguments: Vec<&OsStr> =
                vec!["status".as_ref(), "--dir".as_ref(), folder.as_ref()];
            arguments.extend(args.output.json.then_some(OsStr::new("--json")));
            kafka(&arguments)
        }
    }
}

impl StartArgs {
    fn run(&self) -> CliResult {
        let folder = self.place.folder()?;
        let mut arguments: Vec<&OsStr> = vec!["start".as_ref(), "--dir".as_ref(), folder.as_ref()];
        arguments.extend([OsStr::new("--nodes"), self.nodes.as_ref()]);
        arguments.extend(self.bench.then_some(OsStr::new("--bench")));
        let set = self.set.iter().flat_map(|property| [OsStr::new("--set"), property.as_ref()]);
        arguments.extend(set);
        arguments.extend(self.output.json.then_some(OsStr::new("--json")));
        kafka(&arguments)
    }
}

impl PlaceArgs {
    fn folder(&self) -> CliResult<PathBuf> {
        match &self.dir {
            Some(folder) => Ok(folder.clone()),
            // Not where tests put theirs: those are not to be stopped by this.
            None => Ok(crate::open::state_folder()?.join("dev-kafka")),
        }
    }

    /// The folder, with brokers in it, or what a start that was killed has left of them.
    fn running(&self) -> CliResult<PathBuf> {
        let folder = self.folder()?;
        match has_engine(&folder) {
            true => Ok(folder),
            false => Err(CliError::NotFound(format!(
                "there are no brokers in {}; `helio dev kafka start` starts them",
                folder.display()
            ))),
        }
    }
}

fn has_engine(folder: &std::path::Path) -> bool {
    ["engine.json", "begun.lock"].iter().any(|file| folder.join(file).exists())
}

fn kafka(arguments: &[&OsStr]) -> CliResult {
    let status = engines::run("kafka", arguments)?;
    match status.code() {
        Some(0) => Ok(()),
        // It has said what is wrong.
        Some(LACKING) => Err(CliError::Worker(CliError::NotFound(String::new()).code())),
        Some(THERE) => Err(CliError::Worker(CliError::Refused(String::new()).code())),
        _ => Err(CliError::Worker(CliError::Failure(String::new()).code())),
    }
}
