//! `helio log`: log records, in and out.

pub(crate) mod archive;
pub(crate) mod args;
pub(crate) mod crew;
mod demo;
mod emit;
mod forward;
mod level;
mod line;
mod otlp;
mod serve;
mod tail;
mod watch;

use args::LogCommand;
use helio_logging::{Lanes, LevelsError, ReaderError};

use crate::error::{CliError, CliResult};
use crate::stop::Stop;

/// Runs `helio log`.
pub(crate) fn run(command: &LogCommand, url: Option<&str>, stop: &Stop) -> CliResult {
    match command {
        LogCommand::Tail(args) => tail::run(args, url, stop),
        LogCommand::Emit(args) => emit::run(args, url, stop),
        LogCommand::Watch(args) => watch::run(args, url, stop),
        LogCommand::Demo(args) => demo::run(args, url, stop),
        LogCommand::Serve(args) => serve::run(args, url, stop),
        LogCommand::Archive(args) => archive::archive(args, url, stop),
        LogCommand::Search(args) => archive::search(args, stop),
        LogCommand::Export(args) => archive::export(args, stop),
        LogCommand::Level(command) => level::run(command, url),
        LogCommand::Forward(args) => forward::run(args, url, stop),
    }
}

impl args::LanesArgs {
    fn lanes(&self) -> Lanes {
        Lanes::default().prefix(&self.prefix)
    }
}

impl From<ReaderError> for CliError {
    fn from(error: ReaderError) -> Self {
        let text = error.to_string();
        match error {
            ReaderError::Open { source, .. } => source.into(),
            ReaderError::Read { source, .. } => source.into(),
            ReaderError::Transport(error) => error.into(),
            ReaderError::OtherSite | ReaderError::Behind { .. } => Self::Refused(text),
        }
    }
}

impl From<LevelsError> for CliError {
    fn from(error: LevelsError) -> Self {
        let text = error.to_string();
        match error {
            LevelsError::Topic(error) => error.into(),
            LevelsError::Read(error) => error.into(),
            LevelsError::Publish(error) => error.into(),
            LevelsError::Entry(_) | LevelsError::TooMany => Self::Refused(text),
            LevelsError::Silent => Self::Failure(text),
        }
    }
}
