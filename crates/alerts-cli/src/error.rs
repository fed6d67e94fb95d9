//! Errors of the services as errors of commands.

use helio_alerts::producer::ProducerError;
use helio_alerts::reader::ReaderError;
use helio_console::error::CliError;

/// The error of a reader.
pub(crate) fn reader(error: ReaderError) -> CliError {
    let text = error.to_string();
    match error {
        ReaderError::Topic(error) => error.into(),
        ReaderError::Read(error) => error.into(),
        ReaderError::Transport(error) => error.into(),
        ReaderError::NotAccepted(error) => error.into(),
        ReaderError::NoSuchVisit { .. }
        | ReaderError::NoSuchNight { .. }
        | ReaderError::NoSuchAlert { .. }
        | ReaderError::NoSuchCheckpoint { .. } => CliError::NotFound(text),
        ReaderError::Removed { .. } | ReaderError::NoAudit(_) | ReaderError::GroupInUse { .. } => {
            CliError::Refused(text)
        }
        ReaderError::Encode(_) => CliError::Failure(text),
    }
}

/// The error of a producer.
pub(crate) fn producer(error: ProducerError) -> CliError {
    let text = error.to_string();
    match error {
        ProducerError::Topic(error) => error.into(),
        ProducerError::Packet { .. } | ProducerError::NoIdentifier => CliError::Refused(text),
        _ => CliError::Failure(text),
    }
}
