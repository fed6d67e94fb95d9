//! A call that is followed to its end, and cancelled where a signal says so.

use std::io::IsTerminal;
use std::time::Duration;

use helio_component::protocol::{AckCode, Acknowledgement};
use helio_component::{Call, CommandError};

use super::target::from_command;
use crate::error::{CliError, CliResult};
use crate::stop::{STOP_POLL_INTERVAL, Stop};

/// How a call ended.
pub(crate) struct Ended {
    /// What was acknowledged in the end, or why nothing was.
    pub(crate) how: Result<Acknowledgement, CommandError>,
    /// Whether it was asked to be cancelled.
    cancelled: bool,
}

impl Ended {
    /// As a result of the command line: what was cancelled was interrupted.
    pub(crate) fn result(self) -> CliResult<Acknowledgement> {
        self.how.map_err(|error| match error.code() {
            Some(AckCode::Aborted) if self.cancelled => CliError::Left(error.to_string()),
            _ => from_command(error),
        })
    }
}

/// Follows a call to its end and says what is acknowledged before. The first signal has the
/// component cancel it, whose word is waited for; the second one ends the waiting.
pub(crate) fn follow(
    mut call: Call,
    stop: &Stop,
    mut say: impl FnMut(&Acknowledgement) -> CliResult,
) -> CliResult<Ended> {
    let mut cancel: Option<Call> = None;
    loop {
        let how = match call.next_timeout(STOP_POLL_INTERVAL) {
            Ok(Some(ack)) if ack.code.is_final() => Some(Ok(ack)),
            Ok(Some(ack)) => {
                say(&ack)?;
                None
            }
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        };
        if let Some(how) = how {
            return Ok(Ended { how, cancelled: cancel.is_some() });
        }
        if let Some(Err(error)) = cancel.as_mut().map(|call| call.next_timeout(Duration::ZERO)) {
            eprintln!("helio: it is not cancelled: {error}");
        }
        if stop.take() {
            if cancel.is_some() {
                let text = "nobody waits any more; whether the command was cancelled is not known";
                return Err(CliError::Left(text.to_owned()));
            }
            if std::io::stderr().is_terminal() {
                eprintln!("helio: cancelling it; Ctrl-C again to wait no longer");
            }
            match call.send_cancel() {
                Ok(asked) => cancel = Some(asked),
                Err(error) => eprintln!("helio: it is not cancelled: {error}"),
            }
        }
    }
}
