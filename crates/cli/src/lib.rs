//! The `helio` program: publish, subscribe, inspect and measure on a bus.
//!
//! It knows the command line and its output. It must not know a transport or an engine's file
//! format: all its work goes through the bus and the core.

mod alerts;
mod args;
mod bench;
mod bridge;
mod component;
mod demo;
mod dev;
#[cfg(feature = "dds")]
mod durability;
mod envelope;
mod golden;
mod groups;
mod hz;
mod journal;
mod key;
mod log;
mod manual;
mod packets;
mod play;
mod publish;
mod python;
mod receipts;
mod record;
mod recording;
#[cfg(feature = "registry")]
mod registry;
mod sal;
mod schema;
mod service_error;
mod show;
#[cfg(feature = "state")]
mod state;
mod subscribe;
mod topic;
mod topics;
mod typed;
mod value;
mod worker_kinds;

use std::process::ExitCode;

use args::{Bench, Cli, Command};
use clap::Parser;
#[cfg(not(all(feature = "log-archive", feature = "log-serve", feature = "registry")))]
pub(crate) use helio_console::built;
pub(crate) use helio_console::{
    clock, error, open, out, outage, run_bus, screen, stop, units, worker,
};

use error::CliResult;
use stop::Stop;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    helio_console::run("helio", || run(&cli))
}

fn run(cli: &Cli) -> CliResult {
    if let Command::Worker(args) = &cli.command {
        return worker_kinds::run(args);
    }
    if let Command::Alerts(args) = &cli.command {
        return alerts::run(args, cli.url.as_deref());
    }
    let (stop, url) = (Stop::on_signals()?, cli.url.as_deref());
    match &cli.command {
        Command::Topics(args) => topics::run(args, url),
        Command::Groups(args) => groups::run(args, url),
        Command::Journal(args::JournalCommand::Repair(args)) => journal::repair(args, url),
        Command::Topic(command) => topic::run(command, url),
        Command::Pub(args) => publish::run(args, url, &stop),
        Command::Sub(args) => subscribe::run(args, url, &stop),
        Command::Hz(args) => hz::run(args, url, &stop),
        Command::Play(args) => play::run(args, url, &stop),
        Command::Record(args) => record::run(args, url, &stop),
        Command::Bridge(args) => bridge::run(args, &stop),
        #[cfg(feature = "dds")]
        Command::Dds(args::DdsCommand::Durability(args)) => durability::run(args, url, &stop),
        Command::Demo(args) => demo::run(args, url, &stop),
        Command::Dev(command) => dev::run(command),
        Command::Schema(command) => schema::run(command, url),
        #[cfg(feature = "registry")]
        Command::Registry(args) => registry::run(args, url, &stop),
        #[cfg(not(feature = "registry"))]
        Command::Registry(_) => Err(built::without("registry")),
        #[cfg(feature = "state")]
        Command::State(command) => state::run(command, &stop),
        Command::Component(command) => component::run(command, url, &stop),
        Command::Log(command) => log::run(command, url, &stop),
        Command::Bench(Bench::Floor(args)) => bench::floor::run(args, &stop),
        Command::Bench(Bench::Latency(args)) => bench::load::latency(args, url, &stop),
        Command::Bench(Bench::Throughput(args)) => bench::load::throughput(args, url, &stop),
        Command::Bench(Bench::Join(args)) => bench::join::run(args, url, &stop),
        Command::Bench(Bench::Idle(args)) => bench::idle::run(args, url, &stop),
        Command::Bench(Bench::Open(args)) => bench::open::run(args, url, &stop),
        Command::Bench(Bench::Commands(args)) => bench::commands::run(args, url, &stop),
        Command::Bench(Bench::Observatory(args)) => bench::observatory::run(args, url, &stop),
        Command::Bench(Bench::Logging(args)) => bench::logging::run(args, url, &stop),
        Command::Man(args) => manual::man(args),
        Command::Completions(args) => manual::completions(args),
        Command::Alerts(args) => alerts::run(args, url),
        Command::Worker(args) => worker_kinds::run(args),
    }
}
