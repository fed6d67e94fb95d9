//! `helio-alerts filter`: users' filters, and the service that runs them.

mod dry_run;
mod edit;
mod metrics;
mod run;
mod stats;
mod text;

pub(crate) use metrics::source;
pub(crate) use text::stored;

use helio_console::error::CliResult;
use helio_console::stop::Stop;

use crate::args::{FilterArgs, FilterCommand};

/// Runs `helio-alerts filter`.
pub(crate) fn run(args: &FilterArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    match &args.command {
        FilterCommand::Check(args) => edit::check(args, url),
        FilterCommand::Add(args) => edit::add(args, url),
        FilterCommand::DryRun(args) => dry_run::run(args, url),
        FilterCommand::Activate(args) => edit::activate(args, url),
        FilterCommand::Deactivate(args) => edit::deactivate(args, url),
        FilterCommand::Versions(args) => edit::versions(args, url),
        FilterCommand::Stats(args) => stats::run(args, url),
        FilterCommand::Deliver(args) => edit::deliver(args, url),
        FilterCommand::Run(args) => run::run(args, url, stop),
    }
}
