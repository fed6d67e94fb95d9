//! The `helio` program: publish, subscribe, look and measure on a bus.
//!
//! It knows the command line and what to print; it must not know any transport or file format of
//! the engine: all it does goes through the bus and the core.

mod args;
mod bench;
mod clock;
mod error;
mod manual;
mod out;
mod stop;
mod units;
mod worker;

use std::process::ExitCode;

use args::{Bench, Cli, Command, WorkerArgs};
use clap::Parser;
use error::{CliError, CliResult};
use serde::de::DeserializeOwned;
use stop::Stop;

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !matches!(error, CliError::Pipe) {
                eprintln!("helio: {error}");
            }
            ExitCode::from(error.code())
        }
    }
}

fn run(cli: &Cli) -> CliResult {
    if let Command::Worker(args) = &cli.command {
        return work(args);
    }
    let stop = Stop::on_signals()?;
    match &cli.command {
        Command::Bench(Bench::Floor(args)) => bench::floor::run(args, &stop),
        Command::Man(args) => manual::man(args),
        Command::Completions(args) => manual::completions(args),
        Command::Worker(args) => work(args),
    }
}

/// Runs a worker's task.
fn work(args: &WorkerArgs) -> CliResult {
    worker::die_with_starter()?;
    match args.kind.as_str() {
        "floor-reader" => bench::floor::reader(&task(args)?),
        kind => Err(CliError::Usage(format!("no worker is called {kind:?}"))),
    }
}

fn task<T: DeserializeOwned>(args: &WorkerArgs) -> CliResult<T> {
    serde_json::from_str(&args.task)
        .map_err(|e| CliError::Usage(format!("the worker's task is not understood: {e}")))
}
