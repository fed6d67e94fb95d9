//! Receipts of forwarded records: when all of a batch are stored, or finally lost.
//!
//! Constraints. Each record's part of a receipt goes with the record: through the queue, into its
//! packet, and with the packet to the bus or to the spill file. A part that is dropped anywhere on
//! this way reports its records as lost, so that no path can forget one.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use helio_bus::transport::locked;

#[derive(Debug, Default)]
struct Shared {
    /// Parts that are neither stored nor lost.
    parts: u64,
    lost: u64,
    waker: Option<Waker>,
}

/// A future that ends when all records of a batch are stored by the bus or in the spill file, or
/// are lost. Its output is the number of lost records.
#[derive(Debug)]
pub struct BatchReceipt(Arc<Mutex<Shared>>);

impl Future for BatchReceipt {
    type Output = u64;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
        let mut shared = locked(&self.0);
        if shared.parts == 0 {
            return Poll::Ready(shared.lost);
        }
        shared.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The other side of a [`BatchReceipt`]: it is pending as long as one of these exists.
#[derive(Debug)]
pub struct RecordReceipt {
    shared: Arc<Mutex<Shared>>,
    records: u64,
}

impl RecordReceipt {
    /// A receipt for records that are not published yet.
    #[must_use]
    pub fn new() -> (Self, BatchReceipt) {
        let shared = Arc::new(Mutex::new(Shared { parts: 1, ..Shared::default() }));
        (Self { shared: Arc::clone(&shared), records: 0 }, BatchReceipt(shared))
    }

    /// The part of one record.
    pub(super) fn of_record(&self) -> Self {
        locked(&self.shared).parts += 1;
        Self { shared: Arc::clone(&self.shared), records: 1 }
    }

    /// Adds a record's part to those of a packet.
    pub(super) fn add_to(mut self, parts: &mut Vec<Self>) {
        match parts.last_mut() {
            Some(last) if Arc::ptr_eq(&last.shared, &self.shared) => {
                last.records += std::mem::take(&mut self.records);
            }
            _ => parts.push(self),
        }
    }

    /// Reports the records as stored.
    pub(super) fn stored(mut self) {
        self.records = 0;
    }
}

impl Drop for RecordReceipt {
    fn drop(&mut self) {
        let waker = {
            let mut shared = locked(&self.shared);
            shared.lost += self.records;
            shared.parts -= 1;
            if shared.parts == 0 { shared.waker.take() } else { None }
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(receipt: &mut BatchReceipt) -> Poll<u64> {
        Pin::new(receipt).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_is_dropped_anywhere_is_lost_and_the_rest_is_awaited() {
        let (batch, mut receipt) = RecordReceipt::new();
        let mut packets = [Vec::new(), Vec::new(), Vec::new()];
        for place in 0..9 {
            batch.of_record().add_to(&mut packets[place / 3]);
        }
        assert_eq!(packets.each_ref().map(Vec::len), [1, 1, 1]);
        drop(batch);
        let [stored, lost, last] = packets;
        stored.into_iter().for_each(RecordReceipt::stored);
        drop(lost);
        assert_eq!(poll(&mut receipt), Poll::Pending);
        last.into_iter().for_each(RecordReceipt::stored);
        assert_eq!(poll(&mut receipt), Poll::Ready(3));
    }
}
