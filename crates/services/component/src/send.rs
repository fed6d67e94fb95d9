//! One sample of a component's topic on its way to the bus: waited for, or not.
//!
//! Who is fenced though the lease is held takes the topic back, once a sample: between a look at
//! the lease and the opening of a topic an instance that was replaced may have taken it.

use std::time::Duration;

use helio_bus::{
    Message, PublishError, Publisher, Publishing, Receipt, TopicError, TransportError,
};

use crate::ahead::{Ahead, Held};
use crate::lease::WeakLease;

/// How long what went ahead holds up what comes next: as long as a publish waits for a lock whose
/// holder is stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a sample was not published.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// Because of those that went ahead.
    Held(Held),
    /// The bus did not take it.
    Failed(PublishError),
}

impl From<PublishError> for NotSent {
    fn from(error: PublishError) -> Self {
        Self::Failed(error)
    }
}

impl From<Held> for NotSent {
    fn from(held: Held) -> Self {
        Self::Held(held)
    }
}

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
/// [`NotSent`]: the same, and what did not arrive of those that went before. This one was not
/// published then.
pub(crate) fn send_ahead(
    (publisher, ahead): (&mut Option<Publisher>, &mut Ahead),
    lease: Option<&WeakLease>,
    reopen: impl FnOnce() -> Result<Publisher, TopicError>,
    message: Message<'_>,
) -> Result<Option<Receipt>, NotSent> {
    let Some(open) = publisher else { return Err(NotSent::Failed(TransportError::Closed.into())) };
    let lost = match go(open, ahead, message) {
        Err(NotSent::Failed(error)) if is_fenced(&error) => match ahead.wait(PATIENCE) {
            Ok(()) => {
                return Ok(send_again(publisher, lease, reopen, (message, error)).map(Some)?);
            }
            Err(lost) => lost,
        },
        // What is under way is fenced as well.
        Err(NotSent::Held(Held::Lost(lost))) if is_fenced(&lost.source) => {
            lost.and(ahead.wait(PATIENCE))
        }
        gone => return gone,
    };
    // What was lost is told before anything new goes; that goes by the topic as it is taken back.
    take_back(publisher, lease, reopen);
    Err(Held::Lost(lost).into())
}

/// Publishes behind those that went ahead.
fn go(
    open: &Publisher,
    ahead: &mut Ahead,
    message: Message<'_>,
) -> Result<Option<Receipt>, NotSent> {
    ahead.make_room(PATIENCE)?;
    match ahead.add(open.publish(message)) {
        // What is under way has the queue: it was not there without those before it.
        Err(PublishError::Full { .. } | PublishError::Dropped { .. }) if !ahead.is_empty() => {
            ahead.wait(PATIENCE).map_err(Held::Lost)?;
            Ok(ahead.add(open.publish(message))?)
        }
        added => Ok(added?),
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
    match take_back(publisher, lease, reopen) {
        Some(again) => again.publish(message).wait(),
        None => Err(fenced),
    }
}

/// Opens a topic anew, where it is this instance's to take back.
fn take_back<'a>(
    publisher: &'a mut Option<Publisher>,
    lease: Option<&WeakLease>,
    reopen: impl FnOnce() -> Result<Publisher, TopicError>,
) -> Option<&'a Publisher> {
    if lease.is_none_or(|lease| lease.refusal().is_some()) {
        return None;
    }
    // Publishers of one bus share a writer: it goes with the last of them.
    drop(publisher.take());
    *publisher = reopen().ok();
    publisher.as_ref()
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
