//! A writer that refuses, acknowledges falsely, reports unknown outcomes and stalls as planned.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use helio_core::qos::Guarantee;
use helio_core::{Producer, TopicName};

use super::super::{OwnedRecord, Published, Receipt, Record, Writer};
use super::{Dice, Faults};
use crate::bell::locked;
use crate::error::{PublishError, TransportError};
use crate::event::Incompatible;
use crate::receipts::{PendingReceipt, ReceiptSender, pending_receipt};

pub(super) struct FaultyWriter {
    backlog: Arc<Mutex<Backlog>>,
    producer: Producer,
    faults: Arc<Faults>,
    dice: Dice,
    topic: TopicName,
    partition: u32,
    taken: u64,
    /// The identity of a forwarder's next sample.
    identity: Option<SampleIdentity>,
}

/// Incarnation and sequence.
type SampleIdentity = (u64, u64);

/// The inner writer, and the publishes queued while the engine was frozen.
pub(super) struct Backlog {
    inner: Box<dyn Writer>,
    queue: VecDeque<(OwnedRecord, Option<SampleIdentity>, Guarantee, ReceiptSender)>,
    pub(super) notify: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Backlog {
    /// Publishes the queued samples.
    pub(super) fn catch_up(&mut self) {
        for (record, identity, guarantee, sender) in std::mem::take(&mut self.queue) {
            match self.publish(&record.as_ref(), identity, guarantee) {
                Ok(Published::Done(receipt)) => sender.complete(Ok(receipt)),
                // The queue blocks until the inner engine has answered, as an engine's own queue
                // does.
                Ok(Published::Pending(pending)) => {
                    let unknown = PublishError::Unknown { cause: "no answer".to_owned() };
                    sender.complete(pending.wait(None).unwrap_or(Err(unknown)));
                }
                Err(error) => sender.complete(Err(error)),
            }
        }
    }
}

impl Backlog {
    fn publish(
        &mut self,
        record: &Record<'_>,
        identity: Option<SampleIdentity>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        if let Some((incarnation, sequence)) = identity {
            self.inner.identify(incarnation, sequence)?;
        }
        self.inner.publish(record, guarantee)
    }

    /// Completes the queued publishes with an unknown outcome.
    pub(super) fn give_up(&mut self) {
        self.queue.clear();
    }
}

impl FaultyWriter {
    pub(super) fn new(
        inner: Box<dyn Writer>,
        faults: &Arc<Faults>,
        topic: TopicName,
        partition: u32,
    ) -> Self {
        let (dice, faults) = (faults.dice(), Arc::clone(faults));
        let producer = inner.producer().clone();
        let backlog = Backlog { inner, queue: VecDeque::new(), notify: None };
        let backlog = Arc::new(Mutex::new(backlog));
        let mut all = locked(&faults.backlogs);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&backlog));
        drop(all);
        Self { backlog, producer, faults, dice, topic, partition, taken: 0, identity: None }
    }

    fn check(&mut self) -> Result<(), PublishError> {
        self.faults.reach(&self.topic)?;
        if self.dice.throws(self.faults.plan.refuse) {
            // Only this attempt was refused: report room at once.
            if let Some(notify) = &locked(&self.backlog).notify {
                notify();
            }
            return Err(PublishError::Full {
                transport: "fault".to_owned(),
                queued: 0,
                waits_for: None,
            });
        }
        Ok(())
    }

    fn queue(&self, record: &Record<'_>, guarantee: Guarantee) -> Result<Published, PublishError> {
        let mut backlog = locked(&self.backlog);
        let queued = backlog.queue.len();
        if queued >= self.faults.queue() {
            return Err(PublishError::Full {
                transport: "fault".to_owned(),
                queued,
                waits_for: None,
            });
        }
        let (sender, pending) = pending_receipt();
        backlog.queue.push_back((OwnedRecord::of(record), self.identity, guarantee, sender));
        Ok(Published::Pending(pending))
    }

    /// The outcome of a sample that is withheld from the inner writer.
    fn instead(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Option<Published>, PublishError> {
        self.check()?;
        if self.dice.throws(self.faults.plan.lie) {
            self.taken += 1;
            let (partition, sequence) = (self.partition, self.taken);
            let receipt = Receipt { partition, offset: None, sequence, guarantee };
            return Ok(Some(Published::Done(receipt)));
        }
        self.faults.is_frozen().then(|| self.queue(record, guarantee)).transpose()
    }

    /// The reported outcome of a sample that the inner writer has accepted.
    fn after(&mut self, published: Published) -> Result<Published, PublishError> {
        self.taken += 1;
        if self.dice.throws(self.faults.plan.doubt) {
            let cause = "the acknowledgement was lost".to_owned();
            return Err(PublishError::Unknown { cause });
        }
        Ok(match published {
            Published::Done(receipt) if self.dice.throws(self.faults.plan.pending) => {
                let (sender, pending) = pending_receipt();
                sender.complete(Ok(receipt));
                Published::Pending(pending)
            }
            published => published,
        })
    }
}

impl Writer for FaultyWriter {
    fn producer(&self) -> &Producer {
        &self.producer
    }

    fn identify(&mut self, incarnation: u64, sequence: u64) -> Result<(), TransportError> {
        self.identity = Some((incarnation, sequence));
        Ok(())
    }

    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        self.faults.answer();
        if let Some(published) = self.instead(record, guarantee)? {
            return Ok(published);
        }
        let published = locked(&self.backlog).publish(record, self.identity, guarantee)?;
        self.after(published)
    }

    fn try_publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Option<Published>, PublishError> {
        if self.faults.is_stalled() {
            return Ok(None);
        }
        if let Some(published) = self.instead(record, guarantee)? {
            return Ok(Some(published));
        }
        let tried = locked(&self.backlog).inner.try_publish(record, guarantee)?;
        tried.map(|published| self.after(published)).transpose()
    }

    fn on_room(&mut self, notify: Arc<dyn Fn() + Send + Sync>) {
        let mut backlog = locked(&self.backlog);
        backlog.notify = Some(Arc::clone(&notify));
        backlog.inner.on_room(notify);
    }

    fn assert_alive(&mut self) -> Result<(), TransportError> {
        self.faults.answer();
        self.faults.reach(&self.topic)?;
        locked(&self.backlog).inner.assert_alive()
    }

    fn incompatible(&self) -> Vec<Incompatible> {
        locked(&self.backlog).inner.incompatible()
    }

    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.faults.answer();
        locked(&self.backlog).inner.flush(guarantee)
    }
}
