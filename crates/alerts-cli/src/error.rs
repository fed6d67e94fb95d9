//! Errors of the services as errors of commands.

use helio_alert_filters::{ChangeError, ServiceError};
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

/// The error of the filter service.
pub(crate) fn filter_service(error: ServiceError) -> CliError {
    match error {
        ServiceError::Topic(error) => error.into(),
        ServiceError::Read(error) => error.into(),
        ServiceError::Publish(error) => error.into(),
        ServiceError::Transport(error) => error.into(),
        error @ ServiceError::Schemas(_) => CliError::Refused(error.to_string()),
        error => CliError::Failure(error.to_string()),
    }
}

/// The error of a change of filters.
pub(crate) fn filter_change(error: ChangeError) -> CliError {
    let text = error.to_string();
    match error {
        ChangeError::Service(error) => filter_service(error),
        ChangeError::Name(_) => CliError::Usage(text),
        ChangeError::Unknown(_) | ChangeError::NotActive { .. } | ChangeError::NoList(_) => {
            CliError::NotFound(text)
        }
        ChangeError::Busy(_) => CliError::Failure(text),
        _ => CliError::Refused(text),
    }
}
