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

use super::{Inner, MAX_URGENT, ring};
use crate::body::Body;
use crate::lanes::Lanes;
use crate::level::Level;
use crate::packet::{Entry, MAX_RECORD_BYTES, Origin, PushError};
use crate::record::{Audiences, Record, Site};

/// The most bytes of records that wait to be put into packets: a tenth of a second of the most
/// that one core reads.
const MAX_QUEUE: usize = 8 << 20;

/// A record as packets have it, but for what it shares with others in them.
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
    /// Writes a record down.
    ///
    /// # Errors
    /// [`PushError::TooLarge`] and [`PushError::Audiences`] where no packet has room for it.
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

    /// How many bytes it takes in a packet that has nothing yet of what it names.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How grave it is.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    pub(super) fn entry(&self) -> Entry<'_> {
        Entry {
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

    /// The memory that it takes.
    fn held(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}

/// Why a record was not taken: it is counted as shed, and said with the next packet of its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the way to the bus has no room for records of level {0}")]
pub struct Shed(
    /// The record's level.
    pub Level,
);

/// Records that wait to be put into packets.
#[derive(Default)]
pub(super) struct Queue {
    usual: Vec<EncodedRecord>,
    usual_bytes: usize,
    urgent: Vec<EncodedRecord>,
    urgent_bytes: usize,
    /// Nobody takes them any more.
    ended: bool,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.usual.is_empty() && self.urgent.is_empty()
    }

    /// Takes what is urgent.
    pub(super) fn take_urgent(&mut self) -> Vec<EncodedRecord> {
        self.urgent_bytes = 0;
        std::mem::take(&mut self.urgent)
    }

    /// Takes the rest.
    pub(super) fn take_usual(&mut self) -> Vec<EncodedRecord> {
        self.usual_bytes = 0;
        std::mem::take(&mut self.usual)
    }

    /// Takes what is still there for the last time: nothing is queued from now on.
    pub(super) fn end(&mut self) -> impl Iterator<Item = EncodedRecord> + use<> {
        self.ended = true;
        let urgent = self.take_urgent();
        urgent.into_iter().chain(self.take_usual())
    }
}

/// Publishes whole records, each with the time, host, process and producer that it says. Cloning
/// shares it. When its [`Logging`](super::Logging) has ended, it refuses all.
#[derive(Clone)]
pub struct Relay(pub(super) Arc<Inner>);

impl Relay {
    /// Queues a record to be published; it never waits. Urgent ones are published at once.
    ///
    /// # Errors
    /// [`Shed`] where there is no room for a record of its level.
    pub fn publish(&self, record: EncodedRecord) -> Result<(), Shed> {
        let level = record.level;
        let counts = &self.0.others;
        counts.offered.add_shared(level, 1);
        if self.queue(record) {
            return Ok(());
        }
        counts.shed.add_shared(level, 1);
        Err(Shed(level))
    }

    /// Whether it takes records of every level at the moment, and for some time: who can wait
    /// does until then, and nothing is shed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let queue = locked(&self.0.handed);
        // Who waits for one that has ended waits for nothing.
        queue.ended || queue.usual_bytes < MAX_QUEUE / 4 && self.0.floor() == Level::TRACE
    }

    /// How many records the bus has taken, of all that the process logs.
    #[must_use]
    pub fn published(&self) -> u64 {
        locked(&self.0.figures).published
    }

    fn queue(&self, record: EncodedRecord) -> bool {
        let inner = &self.0;
        let (level, bytes) = (Lanes::lane(record.level), record.held());
        let mut queue = locked(&inner.handed);
        if queue.ended {
            return false;
        }
        if !inner.lanes.is_urgent(record.level) {
            let before = queue.usual_bytes;
            // What is not to be shed has more room, behind the others.
            let most = if level >= Level::ERROR { MAX_QUEUE + MAX_URGENT } else { MAX_QUEUE };
            let low = level < inner.floor() || level < ring::floor(before, MAX_QUEUE);
            if low || before + bytes > most {
                return false;
            }
            queue.usual_bytes += bytes;
            queue.usual.push(record);
            drop(queue);
            // Once on the way up: whoever publishes looks by itself now and then.
            if before < MAX_QUEUE / 4 && before + bytes >= MAX_QUEUE / 4 {
                inner.wake();
            }
            return true;
        }
        if queue.urgent_bytes + bytes > MAX_URGENT {
            return false;
        }
        queue.urgent_bytes += bytes;
        queue.urgent.push(record);
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
