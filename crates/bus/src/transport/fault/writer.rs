//! A writer that refuses, lies and doubts by plan.

use std::sync::Arc;

use helio_core::Producer;
use helio_core::qos::Guarantee;

use super::super::{Published, Receipt, Record, Writer};
use super::{Dice, Faults};
use crate::error::{PublishError, TransportError};
use crate::publishing::{PendingReceipt, pending_receipt};

pub(super) struct FaultyWriter {
    inner: Box<dyn Writer>,
    faults: Arc<Faults>,
    dice: Dice,
    partition: u32,
    taken: u64,
    notify: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl FaultyWriter {
    pub(super) fn new(inner: Box<dyn Writer>, faults: &Arc<Faults>, partition: u32) -> Self {
        let (dice, faults) = (faults.dice(), Arc::clone(faults));
        Self { inner, faults, dice, partition, taken: 0, notify: None }
    }

    fn check(&mut self) -> Result<(), PublishError> {
        if self.faults.is_cut() {
            let cause = "the cable is pulled".to_owned();
            return Err(TransportError::Outage { transport: "fault".to_owned(), cause }.into());
        }
        if self.dice.throws(self.faults.plan.refuse) {
            // There is room again at once: only this attempt was refused.
            if let Some(notify) = &self.notify {
                notify();
            }
            return Err(PublishError::Full { transport: "fault".to_owned(), queued: 0 });
        }
        Ok(())
    }

    fn said(&mut self, published: Published) -> Published {
        match published {
            Published::Done(receipt) if self.dice.throws(self.faults.plan.pending) => {
                let (ticket, pending) = pending_receipt();
                ticket.complete(Ok(receipt));
                Published::Pending(pending)
            }
            published => published,
        }
    }
}

impl Writer for FaultyWriter {
    fn producer(&self) -> &Producer {
        self.inner.producer()
    }

    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        self.check()?;
        if self.dice.throws(self.faults.plan.lie) {
            self.taken += 1;
            let (partition, sequence) = (self.partition, self.taken);
            let receipt = Receipt { partition, offset: None, sequence, guarantee };
            return Ok(Published::Done(receipt));
        }
        let published = self.inner.publish(record, guarantee)?;
        self.taken += 1;
        if self.dice.throws(self.faults.plan.doubt) {
            let cause = "the acknowledgement was lost".to_owned();
            return Err(PublishError::Unknown { cause });
        }
        Ok(self.said(published))
    }

    fn on_room(&mut self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.notify = Some(Arc::clone(&notify));
        self.inner.on_room(notify);
    }

    fn assert_alive(&mut self) -> Result<(), TransportError> {
        self.inner.assert_alive()
    }

    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        self.inner.flush(guarantee)
    }
}
