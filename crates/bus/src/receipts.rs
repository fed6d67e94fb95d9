//! Receipts on their way: awaitable and waitable, completed exactly once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::backpressure::QueuedPublish;
use crate::error::PublishError;
use crate::promise::Promise;
use crate::transport::{Published, Receipt};

/// The outcome of a publish.
pub type Outcome = Result<Receipt, PublishError>;

/// Makes both ends of a receipt that will come later.
#[must_use]
pub fn pending_receipt() -> (ReceiptSender, PendingReceipt) {
    let shared = Arc::new(Promise::default());
    (ReceiptSender(Some(Arc::clone(&shared))), PendingReceipt(shared))
}

/// The transport's end: it says once what became of the publish. Dropped unsaid, it says
/// [`PublishError::Unknown`], so that nobody waits for ever.
#[derive(Debug)]
pub struct ReceiptSender(Option<Arc<Promise<Outcome>>>);

impl ReceiptSender {
    /// Completes the publish.
    pub fn complete(mut self, outcome: Outcome) {
        self.say(outcome);
    }

    fn say(&mut self, outcome: Outcome) {
        if let Some(promise) = self.0.take() {
            promise.keep(outcome);
        }
    }
}

impl Drop for ReceiptSender {
    fn drop(&mut self) {
        let cause = "the transport was closed before it was acknowledged".to_owned();
        self.say(Err(PublishError::Unknown { cause }));
    }
}

/// The caller's end of a receipt that will come later.
#[derive(Debug)]
pub struct PendingReceipt(Arc<Promise<Outcome>>);

impl PendingReceipt {
    /// Waits for the receipt, for ever or for a time; `None` where the time is over.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Outcome> {
        self.0.wait(timeout, |outcome| outcome.clone())
    }

    /// Looks whether it has come, and otherwise has the task woken when it does.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Outcome> {
        self.0.poll(context, |outcome| outcome.clone())
    }

    /// The outcome, if it has come.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.0.look(|outcome| outcome.clone())
    }
}

/// A publish under way: await it, or [`wait`](PendingPublish::wait) for it.
///
/// Where the transport took the sample, dropping this changes nothing: the receipt is just not
/// looked at. Where the queue is full and the policy is to block, the sample waits in line, and
/// dropping this gives it up (counted as `abandoned`).
#[must_use = "without the receipt nobody knows whether the sample was taken"]
#[derive(Debug)]
pub struct PendingPublish(Stage);

#[derive(Debug)]
enum Stage {
    Done(Outcome),
    Pending(PendingReceipt),
    Waiting(Box<QueuedPublish>),
}

impl PendingPublish {
    pub(crate) fn done(outcome: Outcome) -> Self {
        Self(Stage::Done(outcome))
    }

    pub(crate) fn waiting(waiting: QueuedPublish) -> Self {
        Self(Stage::Waiting(Box::new(waiting)))
    }

    /// The outcome, if it is known by now.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match &self.0 {
            Stage::Done(outcome) => Some(outcome.clone()),
            Stage::Pending(pending) => pending.outcome(),
            Stage::Waiting(waiting) => waiting.outcome(),
        }
    }

    /// Blocks until the receipt has come. Not for event loops: await there.
    ///
    /// # Errors
    /// [`PublishError`]: the sample is not known to have arrived.
    pub fn wait(self) -> Outcome {
        self.wait_until(None)
    }

    /// Blocks until the receipt has come, at most for `timeout`.
    ///
    /// # Errors
    /// [`PublishError::Timeout`] where the time is over, else as [`PendingPublish::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Outcome {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Blocks until the outcome is known, at most for `timeout`; `None` where the time is over: it
    /// may be waited for again.
    pub fn wait_for(&mut self, timeout: Duration) -> Option<Outcome> {
        self.known_by(Instant::now().checked_add(timeout))
    }

    fn wait_until(mut self, until: Option<Instant>) -> Outcome {
        self.known_by(until).unwrap_or(Err(PublishError::Timeout))
    }

    fn known_by(&mut self, until: Option<Instant>) -> Option<Outcome> {
        let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
        if let Stage::Waiting(waiting) = &mut self.0 {
            let published = waiting.wait(left())?;
            self.0 = published.map_or_else(|error| Stage::Done(Err(error)), stage);
        }
        match &self.0 {
            Stage::Done(outcome) => Some(outcome.clone()),
            Stage::Pending(pending) => pending.wait(left()),
            Stage::Waiting(_) => None,
        }
    }
}

fn stage(published: Published) -> Stage {
    match published {
        Published::Done(receipt) => Stage::Done(Ok(receipt)),
        Published::Pending(pending) => Stage::Pending(pending),
    }
}

impl From<Result<Published, PublishError>> for PendingPublish {
    fn from(published: Result<Published, PublishError>) -> Self {
        Self(published.map_or_else(|error| Stage::Done(Err(error)), stage))
    }
}

impl Future for PendingPublish {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        if let Stage::Waiting(waiting) = &mut self.0 {
            match waiting.poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(published)) => self.0 = stage(published),
                Poll::Ready(Err(error)) => self.0 = Stage::Done(Err(error)),
            }
        }
        match &self.0 {
            Stage::Done(outcome) => Poll::Ready(outcome.clone()),
            Stage::Pending(pending) => pending.poll(context),
            Stage::Waiting(_) => Poll::Pending,
        }
    }
}
