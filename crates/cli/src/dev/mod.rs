//! `helio dev`: real engines on this machine, for development.

mod engines;

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::args::dev::{DevCommand, KafkaCommand, PlaceArgs, StartArgs};
use crate::error::{CliError, CliResult};

/// The exit code of an engine's program on a machine that lacks its requirements.
const EXIT_LACKING: i32 = 3;
/// The exit code of an engine's program if one runs already.
const EXIT_ALREADY_RUNNING: i32 = 4;

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
            // Not the tests' folder, whose engines this must not stop.
            None => Ok(crate::open::state_folder()?.join("dev-kafka")),
        }
    }

    /// The folder, with brokers or the remains of a start that was killed.
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
        // It has printed its error.
        Some(EXIT_LACKING) => Err(CliError::Worker(CliError::NotFound(String::new()).code())),
        Some(EXIT_ALREADY_RUNNING) => {
            Err(CliError::Worker(CliError::Refused(String::new()).code()))
        }
        _ => Err(CliError::Worker(CliError::Failure(String::new()).code())),
    }
}
