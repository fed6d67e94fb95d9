//! The `helio-alerts` program: produce, consume, audit and serve alerts.
//!
//! It knows the command line and its output. It must not know a transport; how alerts are read and
//! published is `helio-alerts`', how they are filtered `helio-alert-filters`', how they
//! are served `helio-alert-serve`'s.

mod args;
mod audit;
mod checkpoint;
mod consume;
mod demo;
mod error;
mod export;
mod filter;
mod golden;
mod lists;
mod produce;
mod rewind;
mod serve;
mod sizing;
mod top;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;
use helio_console::error::CliResult;
use helio_console::stop::Stop;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    helio_console::run("helio-alerts", || run(&cli))
}

fn run(cli: &Cli) -> CliResult {
    if let Command::Worker(args) = &cli.command {
        return demo::worker(args);
    }
    let (stop, url) = (Stop::on_signals()?, cli.url.as_deref());
    match &cli.command {
        Command::Produce(args) => produce::run(args, url, &stop),
        Command::Consume(args) => consume::run(args, url, &stop),
        Command::Audit(args) => audit::run(args, url),
        Command::Export(args) => export::run(args, url, &stop),
        Command::Filter(args) => filter::run(args, url, &stop),
        Command::WatchList(args) => lists::watch_list(args, url),
        Command::Region(args) => lists::region(args, url),
        Command::Checkpoint(args) => checkpoint::run(args, url),
        Command::Rewind(args) => rewind::run(args, url),
        Command::Top(args) => top::run(args, url, &stop),
        Command::Serve(args) => serve::run(args, url, &stop),
        Command::Sizing(args) => sizing::run(args),
        Command::Demo(args) => demo::run(args, url, &stop),
        Command::Matrix(args) => demo::matrix::run(args, url, &stop),
        Command::Worker(args) => demo::worker(args),
    }
}
