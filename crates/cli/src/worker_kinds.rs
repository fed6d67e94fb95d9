//! The tasks of the hidden command `helio worker`, by kind. The embedded Python scripts use the
//! same names.

use serde::de::DeserializeOwned;

use crate::args::WorkerArgs;
use crate::error::{CliError, CliResult};
use crate::{bench, component, demo, log, worker};

/// Runs a worker's task in this process.
pub(crate) fn run(args: &WorkerArgs) -> CliResult {
    worker::die_with_starter()?;
    match args.kind.as_str() {
        "floor-reader" => bench::floor::reader(&task(args)?),
        "bench-publisher" => bench::publisher::run(&task(args)?),
        "bench-subscriber" => bench::subscriber::run(&task(args)?),
        "bench-joiner" => bench::join::joiner(&task(args)?),
        "bench-idler" => bench::idle::idler(&task(args)?),
        "bench-filler" => bench::open::filler(&task(args)?),
        "bench-opener" => bench::open::opener(&task(args)?),
        "bench-commanded" => bench::commands::component(&task(args)?),
        "bench-caller" => bench::commands::caller(&task(args)?),
        "bench-observatory" => bench::observatory::components(&task(args)?),
        "bench-recorder" => bench::observatory::recorder(&task(args)?),
        "component-mock" => component::simulate::worker(&task(args)?),
        "demo-component" => demo::component_process::run(&task(args)?),
        "demo-pointing" => demo::pointing::run(&task(args)?),
        "demo-script" => demo::script::run(&task(args)?),
        "demo-alerts" => demo::alerts::run(&task(args)?),
        "log-server" => log::workers::server::run(&task(args)?),
        "log-client" => log::workers::client::run(&task(args)?),
        "log-producer" => log::workers::producer::run(&task(args)?),
        #[cfg(feature = "state")]
        "state-command" => crate::state::process::run_command(&task::<Vec<String>>(args)?),
        #[cfg(feature = "state")]
        crate::state::bench::embedded::KIND => crate::state::bench::embedded::run(&task(args)?),
        #[cfg(feature = "state")]
        "state-foreign" => crate::state::process::become_foreign(&task(args)?),
        "demo-reader" => demo::reader::run(&task(args)?),
        kind => Err(CliError::Usage(format!("unknown kind of worker {kind:?}"))),
    }
}

fn task<T: DeserializeOwned>(args: &WorkerArgs) -> CliResult<T> {
    serde_json::from_str(&args.task)
        .map_err(|e| CliError::Usage(format!("invalid task of a worker: {e}")))
}
