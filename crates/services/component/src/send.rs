//! Sending one sample of a component's topic, with or without waiting for its receipt.
//!
//! A fenced writer whose lease is held reclaims the topic, once per sample. A replaced instance may
//! have taken it between its check of the lease and its opening of the topic.

use std::time::Duration;

use helio_bus::{
    Message, PendingPublish, PublishError, Publisher, Receipt, TopicError, TransportError,
};

use crate::lease::WeakLease;
use crate::pipelining::{InFlight, InFlightError};

/// How long the next sample waits for those in flight: as long as a publish waits for a lock whose
/// holder is stopped.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a sample was not published.
#[derive(Debug)]
pub(crate) enum SendError {
    /// Because of the samples in flight.
    InFlight(InFlightError),
    /// The bus did not accept it.
    Failed(PublishError),
}

impl From<PublishError> for SendError {
    fn from(error: PublishError) -> Self {
        Self::Failed(error)
    }
}

impl From<InFlightError> for SendError {
    fn from(error: InFlightError) -> Self {
        Self::InFlight(error)
    }
}

/// The result of a send that must not block.
#[derive(Debug)]
pub(crate) enum TrySend {
    /// Published, or nothing to publish.
    Done,
    /// The transport has it; the receipt is pending.
    Pending(PendingPublish),
    /// It would have to wait for another thread or process, or open a file. Nothing was done.
    WouldBlock,
}

/// Publishes and waits for the receipt. A fenced `publisher` is reopened.
///
/// # Errors
/// The bus's error; [`TransportError::Fenced`] also if the topic may not be reclaimed or cannot be
/// opened.
pub(crate) fn send(
    publisher: &mut Option<Publisher>,
    lease: Option<&WeakLease>,
    reopen: impl FnOnce() -> Result<Publisher, TopicError>,
    message: Message<'_>,
) -> Result<Receipt, PublishError> {
    let Some(open) = publisher else { return Err(TransportError::Closed.into()) };
    match open.publish(message).wait() {
        Err(error) if is_fenced(&error) => resend(publisher, lease, reopen, message, error),
        published => published,
    }
}

/// Publishes without waiting for the receipt, unless it has already arrived; otherwise like
/// [`send`].
///
/// # Errors
/// [`SendError`], also for lost samples before this one. This one was not published then.
pub(crate) fn send_pipelined(
    publisher: &mut Option<Publisher>,
    in_flight: &mut InFlight,
    lease: Option<&WeakLease>,
    reopen: impl FnOnce() -> Result<Publisher, TopicError>,
    message: Message<'_>,
) -> Result<Option<Receipt>, SendError> {
    let Some(open) = publisher else {
        return Err(SendError::Failed(TransportError::Closed.into()));
    };
    let lost = match publish_in_flight(open, in_flight, message) {
        Err(SendError::Failed(error)) if is_fenced(&error) => {
            match in_flight.wait(IN_FLIGHT_TIMEOUT) {
                Ok(()) => {
                    return Ok(resend(publisher, lease, reopen, message, error).map(Some)?);
                }
                Err(lost) => lost,
            }
        }
        // The samples in flight are fenced as well.
        Err(SendError::InFlight(InFlightError::Lost(lost))) if is_fenced(&lost.source) => {
            lost.and(in_flight.wait(IN_FLIGHT_TIMEOUT))
        }
        gone => return gone,
    };
    // Lost samples are reported before a new one is sent; the next one uses the reclaimed topic.
    reclaim(publisher, lease, reopen);
    Err(InFlightError::Lost(lost).into())
}

/// Publishes after the samples in flight.
fn publish_in_flight(
    open: &Publisher,
    in_flight: &mut InFlight,
    message: Message<'_>,
) -> Result<Option<Receipt>, SendError> {
    in_flight.make_room(IN_FLIGHT_TIMEOUT)?;
    match in_flight.add(open.publish(message)) {
        // The samples in flight fill the queue.
        Err(PublishError::Full { .. } | PublishError::Dropped { .. }) if !in_flight.is_empty() => {
            in_flight.wait(IN_FLIGHT_TIMEOUT).map_err(InFlightError::Lost)?;
            Ok(in_flight.add(open.publish(message))?)
        }
        added => Ok(added?),
    }
}

fn is_fenced(error: &PublishError) -> bool {
    matches!(error, PublishError::Transport(TransportError::Fenced { .. }))
}

fn resend(
    publisher: &mut Option<Publisher>,
    lease: Option<&WeakLease>,
    reopen: impl FnOnce() -> Result<Publisher, TopicError>,
    message: Message<'_>,
    fenced: PublishError,
) -> Result<Receipt, PublishError> {
    match reclaim(publisher, lease, reopen) {
        Some(again) => again.publish(message).wait(),
        None => Err(fenced),
    }
}

/// Reopens a topic if this instance may reclaim it.
fn reclaim<'a>(
    publisher: &'a mut Option<Publisher>,
    lease: Option<&WeakLease>,
    reopen: impl FnOnce() -> Result<Publisher, TopicError>,
) -> Option<&'a Publisher> {
    if lease.is_none_or(|lease| lease.refusal().is_some()) {
        return None;
    }
    // Publishers of one bus share a writer, which is closed with the last of them.
    drop(publisher.take());
    *publisher = reopen().ok();
    publisher.as_ref()
}

/// Publishes without blocking. A fenced writer would block, because reopening takes time.
///
/// # Errors
/// The bus's error.
pub(crate) fn try_send(
    publisher: Option<&Publisher>,
    message: Message<'_>,
) -> Result<TrySend, PublishError> {
    let Some(publishing) = publisher.and_then(|open| open.try_publish(message)) else {
        return Ok(TrySend::WouldBlock);
    };
    match publishing.outcome() {
        None => Ok(TrySend::Pending(publishing)),
        Some(Ok(_)) => Ok(TrySend::Done),
        Some(Err(error)) if is_fenced(&error) => Ok(TrySend::WouldBlock),
        Some(Err(error)) => Err(error),
    }
}
