//! Follows a call to its end, and cancels it on a signal.

use std::io::IsTerminal;
use std::time::Duration;

use helio_component::protocol::{AckCode, Acknowledgement};
use helio_component::{Call, CommandError};

use super::target::from_command;
use crate::error::{CliError, CliResult};
use crate::stop::{STOP_POLL_INTERVAL, Stop};

/// How a call ended.
pub(crate) struct Ended {
    /// The final acknowledgement, or the error.
    pub(crate) how: Result<Acknowledgement, CommandError>,
    /// Whether cancellation was requested.
    cancelled: bool,
}

impl Ended {
    /// The command's result: a cancelled call is interrupted.
    pub(crate) fn result(self) -> CliResult<Acknowledgement> {
        self.how.map_err(|error| match error.code() {
            Some(AckCode::Aborted) if self.cancelled => CliError::Left(error.to_string()),
            _ => from_command(error),
        })
    }
}

/// Follows a call to its end and reports earlier acknowledgements. The first signal requests
/// cancellation and waits for the component's acknowledgement; the second ends the wait.
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
                let text = "the wait has ended; whether the command was cancelled is unknown";
                return Err(CliError::Left(text.to_owned()));
            }
            if std::io::stderr().is_terminal() {
                eprintln!("helio: cancelling; press Ctrl-C again to stop waiting");
            }
            match call.send_cancel() {
                Ok(asked) => cancel = Some(asked),
                Err(error) => eprintln!("helio: it is not cancelled: {error}"),
            }
        }
    }
}
