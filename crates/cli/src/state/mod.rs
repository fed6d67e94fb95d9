//! `helio state`: a cluster state store for etcd's clients.

mod ask;
pub(crate) mod bench;
mod demo;
pub(crate) mod process;
mod schedule;
mod serve;
mod transfer;

use crate::args::StateCommand;
use crate::error::CliResult;
use crate::stop::Stop;

/// Runs a command of `helio state`.
pub(crate) fn run(command: &StateCommand, stop: &Stop) -> CliResult {
    match command {
        StateCommand::Serve(args) => serve::serve(args, stop),
        StateCommand::Restore(args) => serve::restore(args),
        StateCommand::Snapshot(args) => ask::snapshot(args),
        StateCommand::Import(args) => transfer::import(args),
        StateCommand::Export(args) => transfer::export(args),
        StateCommand::Status(args) => ask::status(args),
        StateCommand::Get(args) => ask::get(args),
        StateCommand::Watch(args) => ask::watch(args, stop),
        StateCommand::Compact(args) => ask::compact(args),
        StateCommand::Bench(args) => bench::run(args, stop),
        StateCommand::Demo(args) => demo::run(args, stop),
    }
}
