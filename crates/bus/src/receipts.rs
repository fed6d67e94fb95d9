//! Receipts and pending receipts, which can be awaited or waited for and are completed once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use helio_core::qos::Guarantee;

use crate::error::PublishError;
use crate::pending_value::PendingValue;

/// Proof of a publish under a guarantee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The sample's partition.
    pub partition: u32,
    /// The sample's offset, if the engine has offsets.
    pub offset: Option<u64>,
    /// The sample's number among its producer's.
    pub sequence: u64,
    /// The guarantee reached.
    pub guarantee: Guarantee,
}

/// A transport's answer when it has accepted a sample.
#[derive(Debug)]
pub enum Published {
    /// The requested guarantee holds already.
    Done(Receipt),
    /// The receipt follows.
    Pending(PendingReceipt),
}

/// The outcome of a publish.
pub type Outcome = Result<Receipt, PublishError>;

/// Creates both ends of a pending receipt.
#[must_use]
pub fn pending_receipt() -> (ReceiptSender, PendingReceipt) {
    let shared = Arc::new(PendingValue::default());
    (ReceiptSender(Some(Arc::clone(&shared))), PendingReceipt(shared))
}

/// The transport's end of a pending receipt. Dropping it completes the receipt with
/// [`PublishError::Unknown`], so that no caller waits for ever.
#[derive(Debug)]
pub struct ReceiptSender(Option<Arc<PendingValue<Outcome>>>);

impl ReceiptSender {
    /// Completes the receipt.
    pub fn complete(mut self, outcome: Outcome) {
        self.send(outcome);
    }

    fn send(&mut self, outcome: Outcome) {
        if let Some(pending) = self.0.take() {
            pending.complete(outcome);
        }
    }
}

impl Drop for ReceiptSender {
    fn drop(&mut self) {
        let cause = "the transport was closed before it was acknowledged".to_owned();
        self.send(Err(PublishError::Unknown { cause }));
    }
}

/// The caller's end of a pending receipt.
#[derive(Debug)]
pub struct PendingReceipt(Arc<PendingValue<Outcome>>);

impl PendingReceipt {
    /// Blocks until the receipt is complete; `None` after the timeout.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Outcome> {
        self.0.wait(timeout, |outcome| outcome.clone())
    }

    /// Returns the outcome, or has the task woken when the receipt is complete.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Outcome> {
        self.0.poll(context, |outcome| outcome.clone())
    }

    /// The outcome, if the receipt is complete.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.0.try_read(|outcome| outcome.clone())
    }
}

/// The transport's answer to a publish, also to one that a full queue blocked.
pub(crate) type Admission = Result<Published, PublishError>;

/// The queue of the publishes that wait for room in the transport's queue.
pub(crate) trait BlockedQueue: Send + Sync {
    /// Removes a publish that its caller has dropped, unless it was admitted.
    fn abandon(&self, id: u64);
}

/// The caller's end of a blocked publish. Dropping it abandons the publish.
pub(crate) struct BlockedPublish {
    pub(crate) id: u64,
    pub(crate) queue: Arc<dyn BlockedQueue>,
    pub(crate) admission: Arc<PendingValue<Admission>>,
}

impl BlockedPublish {
    fn outcome(&self) -> Option<Outcome> {
        self.admission.try_read(|admission| match admission.as_ref()? {
            Ok(Published::Done(receipt)) => Some(Ok(*receipt)),
            Ok(Published::Pending(pending)) => pending.outcome(),
            Err(error) => Some(Err(error.clone())),
        })
    }
}

impl Drop for BlockedPublish {
    fn drop(&mut self) {
        self.queue.abandon(self.id);
    }
}

impl std::fmt::Debug for BlockedPublish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockedPublish").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A pending publish: await it, or [`wait`](PendingPublish::wait) for it.
///
/// Dropping it after the transport has accepted the sample only discards the receipt. If the queue
/// is full and the policy is to block, the sample waits for room, and dropping this abandons the
/// publish (counted as `abandoned`).
#[must_use = "without the receipt the outcome is unknown"]
#[derive(Debug)]
pub struct PendingPublish(Stage);

#[derive(Debug)]
enum Stage {
    Blocked(BlockedPublish),
    Pending(PendingReceipt),
    Done(Outcome),
}

impl PendingPublish {
    pub(crate) fn done(outcome: Outcome) -> Self {
        Self(Stage::Done(outcome))
    }

    pub(crate) fn blocked(blocked: BlockedPublish) -> Self {
        Self(Stage::Blocked(blocked))
    }

    /// The outcome, if it is known.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match &self.0 {
            Stage::Done(outcome) => Some(outcome.clone()),
            Stage::Pending(pending) => pending.outcome(),
            Stage::Blocked(blocked) => blocked.outcome(),
        }
    }

    /// Blocks until the outcome is known. Not for event loops: await there.
    ///
    /// # Errors
    /// [`PublishError`]: the sample is not known to have arrived.
    pub fn wait(self) -> Outcome {
        self.wait_until(None)
    }

    /// Blocks until the outcome is known, at most for `timeout`.
    ///
    /// # Errors
    /// [`PublishError::Timeout`] after the timeout, else as [`PendingPublish::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Outcome {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    /// Blocks until the outcome is known; `None` after the timeout. It can be called again.
    pub fn wait_for(&mut self, timeout: Duration) -> Option<Outcome> {
        self.known_by(Instant::now().checked_add(timeout))
    }

    fn wait_until(mut self, until: Option<Instant>) -> Outcome {
        self.known_by(until).unwrap_or(Err(PublishError::Timeout))
    }

    fn known_by(&mut self, until: Option<Instant>) -> Option<Outcome> {
        let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
        if let Stage::Blocked(blocked) = &self.0 {
            self.0 = Stage::from(blocked.admission.wait(left(), Option::take)?);
        }
        match &self.0 {
            Stage::Done(outcome) => Some(outcome.clone()),
            Stage::Pending(pending) => pending.wait(left()),
            Stage::Blocked(_) => None,
        }
    }
}

impl From<Admission> for Stage {
    fn from(admission: Admission) -> Self {
        match admission {
            Ok(Published::Done(receipt)) => Self::Done(Ok(receipt)),
            Ok(Published::Pending(pending)) => Self::Pending(pending),
            Err(error) => Self::Done(Err(error)),
        }
    }
}

impl From<Admission> for PendingPublish {
    fn from(admission: Admission) -> Self {
        Self(admission.into())
    }
}

impl Future for PendingPublish {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        if let Stage::Blocked(blocked) = &self.0 {
            match blocked.admission.poll(context, Option::take) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(admission) => self.0 = admission.into(),
            }
        }
        match &self.0 {
            Stage::Done(outcome) => Poll::Ready(outcome.clone()),
            Stage::Pending(pending) => pending.poll(context),
            Stage::Blocked(_) => Poll::Pending,
        }
    }
}
