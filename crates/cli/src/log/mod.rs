//! `helio log`: the commands for log records.

#[cfg(feature = "log-archive")]
mod archive;
mod demo;
mod emit;
#[cfg(feature = "log-serve")]
mod forward;
mod level;
mod line;
#[cfg(feature = "log-serve")]
mod otlp;
#[cfg(feature = "log-serve")]
mod serve;
mod tail;
mod watch;
pub(crate) mod workers;

use helio_bus::Tai;
use helio_logging::{Lanes, LevelsError, Predicate, ReaderError, Selector, Views};

use crate::args::log::LogCommand;
use crate::error::{CliError, CliResult};
use crate::service_error::ServiceError;
use crate::stop::Stop;

/// Runs `helio log`.
pub(crate) fn run(command: &LogCommand, url: Option<&str>, stop: &Stop) -> CliResult {
    match command {
        LogCommand::Tail(args) => tail::run(args, url, stop),
        LogCommand::Emit(args) => emit::run(args, url, stop),
        LogCommand::Watch(args) => watch::run(args, url, stop),
        LogCommand::Demo(args) => demo::run(args, url, stop),
        LogCommand::Serve(args) => serve::run(args, url, stop),
        #[cfg(feature = "log-archive")]
        LogCommand::Archive(args) => archive::archive(args, url, stop),
        #[cfg(feature = "log-archive")]
        LogCommand::Search(args) => archive::search(args, stop),
        #[cfg(feature = "log-archive")]
        LogCommand::Export(args) => archive::export(args, stop),
        #[cfg(not(feature = "log-archive"))]
        LogCommand::Archive(_) | LogCommand::Search(_) | LogCommand::Export(_) => {
            Err(crate::built::without("log archive"))
        }
        LogCommand::Level(command) => level::run(command, url),
        #[cfg(feature = "log-serve")]
        LogCommand::Forward(args) => forward::run(args, url, stop),
        #[cfg(not(feature = "log-serve"))]
        LogCommand::Forward(_) => Err(crate::built::without("log forward")),
    }
}

#[cfg(not(feature = "log-serve"))]
mod serve {
    use super::{CliResult, Stop};
    use crate::args::log::ServeArgs;

    pub(crate) fn run(_: &ServeArgs, _: Option<&str>, _: &Stop) -> CliResult {
        Err(crate::built::without("log serve"))
    }
}

impl crate::args::log::LanesArgs {
    fn lanes(&self) -> Lanes {
        let lanes = Lanes::default().prefix(&self.prefix);
        match self.retention {
            Some(bytes) => lanes.retention_bytes(bytes as u64),
            None => lanes,
        }
    }
}

/// Compiles the predicate of a command line together with further conditions.
fn selector(words: &[String], conditions: &[String], now: Tai) -> CliResult<Selector> {
    let mut predicate: Predicate = words.join(" ").parse().map_err(usage)?;
    for condition in conditions {
        let condition = condition.parse().map_err(usage)?;
        predicate = predicate.and(&condition).map_err(usage)?;
    }
    predicate.compile(now, &Views::default()).map_err(usage)
}

fn usage(error: impl std::fmt::Display) -> CliError {
    CliError::Usage(error.to_string())
}

impl ServiceError for ReaderError {
    fn into_cli(self) -> CliError {
        let text = self.to_string();
        match self {
            ReaderError::Open { source, .. } => source.into(),
            ReaderError::Read { source, .. } => source.into(),
            ReaderError::Transport(error) => error.into(),
            ReaderError::OtherSite | ReaderError::Behind { .. } => CliError::Refused(text),
        }
    }
}

impl ServiceError for LevelsError {
    fn into_cli(self) -> CliError {
        let text = self.to_string();
        match self {
            LevelsError::Topic(error) => error.into(),
            LevelsError::Read(error) => error.into(),
            LevelsError::Publish(error) => error.into(),
            LevelsError::Entry(_) | LevelsError::TooMany => CliError::Refused(text),
            LevelsError::Silent => CliError::Failure(text),
        }
    }
}
