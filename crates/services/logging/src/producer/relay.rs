//! Forwards complete records of other programs: those of a receiver of foreign formats, or of
//! programs without a bus.
//!
//! The caller never waits. All threads share one bounded queue. Records that do not fit are refused
//! by level, as in a thread's ring, and the caller is notified.

use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use helio_bus::transport::locked;
use helio_core::Tai;
use thiserror::Error;

use super::receipt::RecordReceipt;
use super::{Inner, MAX_URGENT, ring};
use crate::body::Body;
use crate::lanes::Lanes;
use crate::level::Level;
use crate::packet::{MAX_RECORD_BYTES, Origin, PushError, RecordEntry};
use crate::record::{Audiences, Record, Site};

/// The most bytes of queued records: a tenth of a second at the highest rate that one core reads.
const MAX_QUEUE: usize = 8 << 20;

/// A record encoded for packets, with its own copy of shared texts.
#[derive(Debug, Clone)]
pub struct EncodedRecord {
    time: Tai,
    level: Level,
    logger: String,
    audiences: Audiences,
    origin: Origin,
    site: Option<Site>,
    body: Body,
    bytes: usize,
}

impl EncodedRecord {
    /// Encodes a record.
    ///
    /// # Errors
    /// [`PushError::TooLarge`] and [`PushError::Audiences`] if it fits into no packet.
    pub fn of(record: Record) -> Result<Self, PushError> {
        let mut body = Body::new();
        body.record(&record);
        let Record { host, process, producer, .. } = record;
        let mut written = Self {
            time: record.time,
            level: record.level,
            logger: record.logger,
            audiences: record.audiences,
            origin: Origin { host, process, producer },
            site: (record.site != Site::default()).then_some(record.site),
            body,
            bytes: 0,
        };
        written.bytes = written.entry().bytes();
        if written.bytes > MAX_RECORD_BYTES {
            return Err(PushError::TooLarge(written.bytes));
        }
        written.audiences.fit()?;
        Ok(written)
    }

    /// The bytes that it takes in an empty packet.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The severity.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    pub(super) fn entry(&self) -> RecordEntry<'_> {
        RecordEntry {
            time: self.time,
            level: self.level,
            logger: &self.logger,
            audiences: &self.audiences,
            origin: &self.origin,
            site: self.site.as_ref(),
            registered: None,
            body: self.body.as_bytes(),
        }
    }

    /// Its size in memory.
    fn held(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}

/// A refused record. It is counted as shed and reported with the next packet of its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the way to the bus has no room for records of level {0}")]
pub struct Shed(
    /// The record's level.
    pub Level,
);

/// A record that is not in a packet yet.
pub(super) struct QueuedRecord {
    pub(super) record: EncodedRecord,
    pub(super) receipt: Option<RecordReceipt>,
}

/// Records that are not in packets yet.
#[derive(Default)]
pub(super) struct Queue {
    usual: Vec<QueuedRecord>,
    usual_bytes: usize,
    urgent: Vec<QueuedRecord>,
    urgent_bytes: usize,
    /// The sender has ended.
    ended: bool,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.usual.is_empty() && self.urgent.is_empty()
    }

    /// Takes the urgent records.
    pub(super) fn take_urgent(&mut self) -> Vec<QueuedRecord> {
        self.urgent_bytes = 0;
        std::mem::take(&mut self.urgent)
    }

    /// Takes the other records.
    pub(super) fn take_usual(&mut self) -> Vec<QueuedRecord> {
        self.usual_bytes = 0;
        std::mem::take(&mut self.usual)
    }

    /// Takes the remaining records and closes the queue.
    pub(super) fn end(&mut self) -> impl Iterator<Item = QueuedRecord> + use<> {
        self.ended = true;
        let urgent = self.take_urgent();
        urgent.into_iter().chain(self.take_usual())
    }
}

/// Publishes complete records, each with its own time, host, process and producer. Cloning shares
/// it. After the end of its [`Logging`](super::Logging) it refuses all records.
#[derive(Clone)]
pub struct Relay(pub(super) Arc<Inner>);

impl Relay {
    /// Queues a record; it never waits. Urgent records are published at once.
    ///
    /// # Errors
    /// [`Shed`] if there is no room for a record of its level.
    pub fn publish(&self, record: EncodedRecord) -> Result<(), Shed> {
        self.publish_for(record, None)
    }

    /// The same; the receipt tells when the record is stored. A refused record is no part of it.
    ///
    /// # Errors
    /// [`Shed`] if there is no room for a record of its level.
    pub fn publish_for(
        &self,
        record: EncodedRecord,
        receipt: Option<&RecordReceipt>,
    ) -> Result<(), Shed> {
        let level = record.level;
        let counts = &self.0.others;
        counts.offered.add_shared(level, 1);
        if self.queue(record, receipt) {
            return Ok(());
        }
        counts.shed.add_shared(level, 1);
        Err(Shed(level))
    }

    /// Whether it accepts records of every level at present. Callers that can wait until then lose
    /// no records.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let queue = locked(&self.0.handed);
        // After the end waiting is useless.
        queue.ended || queue.usual_bytes < MAX_QUEUE / 4 && self.0.floor() == Level::TRACE
    }

    /// The number of the process's records that the bus has acknowledged.
    #[must_use]
    pub fn published(&self) -> u64 {
        locked(&self.0.figures).published
    }

    fn queue(&self, record: EncodedRecord, receipt: Option<&RecordReceipt>) -> bool {
        let inner = &self.0;
        let (level, bytes) = (Lanes::lane(record.level), record.held());
        let mut queue = locked(&inner.handed);
        if queue.ended {
            return false;
        }
        if !inner.lanes.is_urgent(record.level) {
            let before = queue.usual_bytes;
            // Records that are not to be shed have extra room.
            let most = if level >= Level::ERROR { MAX_QUEUE + MAX_URGENT } else { MAX_QUEUE };
            let low = level < inner.floor() || level < ring::floor(before, MAX_QUEUE);
            if low || before + bytes > most {
                return false;
            }
            queue.usual_bytes += bytes;
            let receipt = receipt.map(RecordReceipt::of_record);
            queue.usual.push(QueuedRecord { record, receipt });
            drop(queue);
            // Only when passing half: the sender also polls by itself.
            if before < MAX_QUEUE / 4 && before + bytes >= MAX_QUEUE / 4 {
                inner.wake();
            }
            return true;
        }
        if queue.urgent_bytes + bytes > MAX_URGENT {
            return false;
        }
        queue.urgent_bytes += bytes;
        let receipt = receipt.map(RecordReceipt::of_record);
        queue.urgent.push(QueuedRecord { record, receipt });
        drop(queue);
        inner.is_urgent.store(true, Ordering::SeqCst);
        inner.wake();
        true
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").finish_non_exhaustive()
    }
}
