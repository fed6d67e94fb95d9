//! Errors of commands: one line on standard error and one exit code.

use helio_bus::{ConnectError, MemberError, PublishError, ReadError, TopicError, TransportError};
use thiserror::Error;

/// The error of a command. Each variant has an exit code, which the manual lists.
#[derive(Debug, Error)]
pub enum CliError {
    /// I/O, a transport or damaged data.
    #[error("{0}")]
    Failure(String),
    /// The engine of a bus is unreachable at present, and a retry may succeed.
    #[error("{0}")]
    Outage(String),
    /// The command line is contradictory or invalid.
    #[error("{0}")]
    Usage(String),
    /// A topic, file or schema is missing.
    #[error("{0}")]
    NotFound(String),
    /// The transport lacks a policy that the topic needs, or a schema or value is invalid.
    #[error("{0}")]
    Refused(String),
    /// Samples are missing.
    #[error("{0}")]
    Lost(String),
    /// A signal ended the command before its work was complete.
    #[error("interrupted; nothing is left behind")]
    Interrupted,
    /// The same, and the work continues elsewhere.
    #[error("interrupted: {0}")]
    Left(String),
    /// A worker process has failed and has printed its error.
    #[error("a worker process failed; its message is above")]
    Worker(u8),
    /// The reader of the output has closed the pipe, which is no failure.
    #[error("the reader of the output has gone")]
    Pipe,
}

impl CliError {
    /// The exit code of the process.
    pub fn code(&self) -> u8 {
        match self {
            Self::Pipe => 0,
            Self::Worker(code) => *code,
            Self::Failure(_) | Self::Outage(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Refused(_) => 4,
            Self::Lost(_) => 5,
            Self::Interrupted | Self::Left(_) => 130,
        }
    }

    /// A failure of the operating system at a named file.
    pub fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        let text = format!("{}: {error}", path.display());
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::NotFound(text),
            _ => Self::Failure(text),
        }
    }

    /// A failure to write standard output.
    pub fn output(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::Pipe,
            _ => Self::Failure(format!("standard output: {error}")),
        }
    }
}

/// The result of a command.
pub type CliResult<T = ()> = Result<T, CliError>;

impl From<ConnectError> for CliError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Transport(error) => error.into(),
            error => match crate::built::remedy(&error) {
                Some(text) => Self::Refused(text),
                None => Self::Usage(error.to_string()),
            },
        }
    }
}

impl From<TransportError> for CliError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Differs { .. }
            | TransportError::Owned { .. }
            | TransportError::Fenced { .. }
            | TransportError::TooLarge { .. }
            | TransportError::NotAssigned { .. }
            | TransportError::Unsupported { .. } => Self::Refused(error.to_string()),
            TransportError::TopicGone { .. } | TransportError::NoSchema { .. } => {
                Self::NotFound(error.to_string())
            }
            TransportError::Outage { .. } => Self::Outage(error.to_string()),
            error => Self::Failure(error.to_string()),
        }
    }
}

impl From<TopicError> for CliError {
    fn from(error: TopicError) -> Self {
        match error {
            TopicError::Transport(error) => error.into(),
            TopicError::NoSuchTopic(_) => Self::NotFound(error.to_string()),
            TopicError::Name(_) | TopicError::Invalid { .. } => Self::Usage(error.to_string()),
            error => Self::Refused(error.to_string()),
        }
    }
}

impl From<PublishError> for CliError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Transport(error) => error.into(),
            PublishError::Full { .. } | PublishError::Encode(_) => Self::Refused(error.to_string()),
            error => Self::Failure(error.to_string()),
        }
    }
}

impl From<MemberError> for CliError {
    fn from(error: MemberError) -> Self {
        error.source.into()
    }
}

impl From<ReadError> for CliError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Transport(error) => error.into(),
            error => Self::Usage(error.to_string()),
        }
    }
}
