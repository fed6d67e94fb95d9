//! `helio dev`: real engines on this machine, for development.

mod engines;

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::args::Output;
use crate::args::dev::{DevCommand, KafkaCommand, PlaceArgs, StartArgs, StatusArgs};
#[cfg(feature = "state")]
use crate::args::dev::{KubeCommand, KubeStartArgs};
use crate::error::{CliError, CliResult};

/// The exit code of an engine's program on a machine that lacks its requirements.
const EXIT_LACKING: i32 = 3;
/// The exit code of an engine's program if one runs already.
const EXIT_ALREADY_RUNNING: i32 = 4;

/// Runs `helio dev`.
pub(crate) fn run(command: &DevCommand) -> CliResult {
    match command {
        DevCommand::Kafka(KafkaCommand::Start(args)) => start_kafka(args),
        DevCommand::Kafka(KafkaCommand::Stop(args)) => Engine::KAFKA.stop(args),
        DevCommand::Kafka(KafkaCommand::Status(args)) => Engine::KAFKA.status(args),
        #[cfg(feature = "state")]
        DevCommand::Kube(KubeCommand::Start(args)) => start_kube(args),
        #[cfg(feature = "state")]
        DevCommand::Kube(KubeCommand::Stop(args)) => Engine::KUBE.stop(args),
        #[cfg(feature = "state")]
        DevCommand::Kube(KubeCommand::Status(args)) => Engine::KUBE.status(args),
    }
}

fn start_kafka(args: &StartArgs) -> CliResult {
    let mut options = vec![OsStr::new("--nodes"), args.nodes.as_ref()];
    options.extend(args.bench.then_some(OsStr::new("--bench")));
    options.extend(args.set.iter().flat_map(|set| [OsStr::new("--set"), set.as_ref()]));
    Engine::KAFKA.start(&args.place, &args.output, &options)
}

#[cfg(feature = "state")]
fn start_kube(args: &KubeStartArgs) -> CliResult {
    let own = std::env::current_exe()
        .map_err(|error| CliError::Failure(format!("cannot find this program's file: {error}")))?;
    let options: [&OsStr; 5] = [
        "--kubernetes".as_ref(),
        "--helio".as_ref(),
        own.as_ref(),
        "--durability".as_ref(),
        args.durability.as_ref(),
    ];
    Engine::KUBE.start(&args.place, &args.output, &options)
}

/// An engine: its program, and what its processes are called.
struct Engine {
    name: &'static str,
    processes: &'static str,
}

impl Engine {
    const KAFKA: Self = Self { name: "kafka", processes: "brokers" };
    #[cfg(feature = "state")]
    const KUBE: Self = Self { name: "kube", processes: "servers" };

    fn start(&self, place: &PlaceArgs, output: &Output, options: &[&OsStr]) -> CliResult {
        let folder = self.folder(place)?;
        let mut arguments: Vec<&OsStr> = vec!["start".as_ref(), "--dir".as_ref(), folder.as_ref()];
        arguments.extend(options);
        arguments.extend(output.json.then_some(OsStr::new("--json")));
        self.run(&arguments)
    }

    fn stop(&self, place: &PlaceArgs) -> CliResult {
        let folder = self.running(place)?;
        self.run(&["stop".as_ref(), "--dir".as_ref(), folder.as_ref()])
    }

    fn status(&self, args: &StatusArgs) -> CliResult {
        let folder = self.running(&args.place)?;
        let mut arguments: Vec<&OsStr> = vec!["status".as_ref(), "--dir".as_ref(), folder.as_ref()];
        arguments.extend(args.output.json.then_some(OsStr::new("--json")));
        self.run(&arguments)
    }

    fn folder(&self, place: &PlaceArgs) -> CliResult<PathBuf> {
        match &place.dir {
            Some(folder) => Ok(folder.clone()),
            // Not the tests' folder, whose engines this must not stop.
            None => Ok(crate::open::state_folder()?.join(format!("dev-{}", self.name))),
        }
    }

    /// The folder, with processes or the remains of a start that was killed.
    fn running(&self, place: &PlaceArgs) -> CliResult<PathBuf> {
        let folder = self.folder(place)?;
        match has_engine(&folder) {
            true => Ok(folder),
            false => Err(CliError::NotFound(format!(
                "there are no {} in {}; `helio dev {} start` starts them",
                self.processes,
                folder.display(),
                self.name
            ))),
        }
    }

    fn run(&self, arguments: &[&OsStr]) -> CliResult {
        let status = engines::run(self.name, arguments)?;
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
}

fn has_engine(folder: &std::path::Path) -> bool {
    ["engine.json", "begun.lock"].iter().any(|file| folder.join(file).exists())
}
