//! One sample of a component's topic on its way to the bus: waited for, or not.
//!
//! Who is fenced though the lease is held takes the topic back, once a sample: between a look at
//! the lease and the opening of a topic an instance that was replaced may have taken it.

use helio_bus::{
    Message, PublishError, Publisher, Publishing, Receipt, TopicError, TransportError,
};

use crate::ahead::Ahead;
use crate::lease::WeakLease;

/// What became of a sample that must not be waited for.
#[derive(Debug)]
pub(crate) enum Tried {
    /// It is published, or need not be.
    Done,
    /// The transport has it; whether it arrives is told later.
    Underway(Publishing),
    /// Somebody would have to be waited for, or a file opened. Nothing was done.
    HeldUp,
}

/// Publishes, and waits for that. `publisher` is opened anew where it was fenced.
///
/// # Errors
/// What the bus says; [`TransportError::Fenced`] also where the topic is not this instance's to
/// take back, or could not be opened.
pub(crate) fn send(
    publisher: &mut Option<Publisher>,
    lease: Option<&WeakLease>,
    reopen: impl FnOnce() -> Result<Publisher, TopicError>,
    message: Message<'_>,
) -> Result<Receipt, PublishError> {
    let Some(open) = publisher else { return Err(TransportError::Closed.into()) };
    match open.publish(message).wait() {
        Err(error) if is_fenced(&error) => send_again(publisher, lease, reopen, (message, error)),
        published => published,
    }
}

/// Publishes without waiting for the receipt, unless it has come already; the same otherwise.
///
/// # Errors
/// The same; also what became of one that went before: then this one was not published.
pub(crate) fn send_ahead(
    (publisher, ahead): (&mut Option<Publisher>, &mut Ahead),
    lease: Option<&WeakLease>,
    reopen: impl FnOnce() -> Result<Publisher, TopicError>,
    message: Message<'_>,
) -> Result<Option<Receipt>, PublishError> {
    let Some(open) = publisher else { return Err(TransportError::Closed.into()) };
    match ahead.take().and_then(|()| ahead.add(open.publish(message))) {
        Err(error) if is_fenced(&error) => {
            // What was under way is fenced as well.
            *ahead = Ahead::default();
            send_again(publisher, lease, reopen, (message, error)).map(Some)
        }
        // What is under way has the queue: it was not there without those before it.
        Err(PublishError::Full { .. } | PublishError::Dropped { .. }) if !ahead.is_empty() => {
            ahead.wait()?;
            open.publish(message).wait().map(Some)
        }
        published => published,
    }
}

fn is_fenced(error: &PublishError) -> bool {
    matches!(error, PublishError::Transport(TransportError::Fenced { .. }))
}

fn send_again(
    publisher: &mut Option<Publisher>,
    lease: Option<&WeakLease>,
    reopen: impl FnOnce() -> Result<Publisher, TopicError>,
    (message, fenced): (Message<'_>, PublishError),
) -> Result<Receipt, PublishError> {
    if lease.is_none_or(|lease| lease.refusal().is_some()) {
        return Err(fenced);
    }
    // Publishers of one bus share a writer: it goes with the last of them.
    drop(publisher.take());
    let Ok(again) = reopen() else { return Err(fenced) };
    let sent = again.publish(message).wait();
    *publisher = Some(again);
    sent
}

/// Publishes without waiting for anybody. Who is fenced is held up: to open anew takes its time.
///
/// # Errors
/// What the bus says.
pub(crate) fn try_send(
    publisher: Option<&Publisher>,
    message: Message<'_>,
) -> Result<Tried, PublishError> {
    let Some(publishing) = publisher.and_then(|open| open.try_publish(message)) else {
        return Ok(Tried::HeldUp);
    };
    match publishing.outcome() {
        None => Ok(Tried::Underway(publishing)),
        Some(Ok(_)) => Ok(Tried::Done),
        Some(Err(error)) if is_fenced(&error) => Ok(Tried::HeldUp),
        Some(Err(error)) => Err(error),
    }
}
