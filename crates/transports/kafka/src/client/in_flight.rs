//! A producer's records in flight, limited in number and bytes.
//!
//! Constraints. The counters are our own: librdkafka frees a place in its queue only after it has
//! reported a whole batch, too late to notify writers that wait for room. Covered by
//! `a_full_queue_refuses_and_lets_those_in_line_go_on` in `tests/soak/outage.rs`. Each delivery is
//! reported once, in the order of its partition.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use helio_bus::transport::locked;
use rdkafka::message::OwnedHeaders;
use slab::Slab;

use crate::client::delivery::{DeliveryOutcome, InFlightSample};
use crate::client::options::InFlightLimits;
use crate::client::signal::Notify;

/// Which of a sample's records it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordRole {
    /// The record in the topic.
    Topic,
    /// The copy in the companion, or the writer's heartbeat.
    Beside,
}

/// The receiver of a sample's result, called on the producer's thread when all of its records were
/// reported: the offset of the record in the topic, or the first error.
pub(crate) enum DeliveryReceiver {
    Writer(InFlightSample),
    Table(SyncSender<DeliveryOutcome>),
}

impl DeliveryReceiver {
    fn report(self, outcome: DeliveryOutcome) {
        match self {
            Self::Writer(sample) => sample.delivered(outcome),
            // The receiver may have timed out.
            Self::Table(sender) => _ = sender.try_send(outcome),
        }
    }
}

/// A sample's records in flight.
struct InFlight {
    /// How many are not reported yet.
    left: u8,
    /// The bytes that each of them occupies.
    pub(crate) bytes: usize,
    outcome: DeliveryOutcome,
    receiver: DeliveryReceiver,
}

/// Identifies a sample in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlightKey(usize);

impl InFlightKey {
    /// The value that librdkafka carries with a record.
    pub(crate) fn with(self, part: RecordRole) -> usize {
        self.0 << 1 | usize::from(part == RecordRole::Topic)
    }

    pub(crate) fn of(opaque: usize) -> (Self, RecordRole) {
        let part = if opaque & 1 == 1 { RecordRole::Topic } else { RecordRole::Beside };
        (Self(opaque >> 1), part)
    }
}

/// A record for librdkafka.
pub(crate) struct OutgoingRecord<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: u32,
    /// Kafka distinguishes no key from an empty one.
    pub(crate) key: Option<&'a [u8]>,
    /// `None` is a tombstone in a compacted topic.
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) headers: Option<OwnedHeaders>,
    /// Milliseconds of UTC since 1970, at least 1; `None` is now.
    pub(crate) timestamp: Option<i64>,
}

/// The records in flight, counted.
pub(crate) struct InFlightQueue {
    limits: InFlightLimits,
    records: AtomicUsize,
    bytes: AtomicUsize,
    anybody_waits: AtomicBool,
    waiting: Mutex<Vec<Notify>>,
    /// One slab: a heap allocation per record would cost as much as sending it.
    samples: Mutex<Slab<InFlight>>,
}

impl InFlightQueue {
    pub(crate) fn new(limits: InFlightLimits) -> Self {
        Self {
            limits,
            records: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            anybody_waits: AtomicBool::new(false),
            waiting: Mutex::default(),
            samples: Mutex::default(),
        }
    }

    /// The number of records in flight.
    pub(crate) fn len(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    /// Reserves room for a sample of so many records, each of so many bytes. `receiver` gets the
    /// result when all of them were reported; each must be sent. If there is no room, `notify` is
    /// called when there is.
    pub(crate) fn reserve(
        &self,
        (records, bytes): (u8, usize),
        notify: Option<&Notify>,
        receiver: impl FnOnce() -> DeliveryReceiver,
    ) -> Option<InFlightKey> {
        let room = || self.take(usize::from(records), usize::from(records) * bytes);
        let has_room = room()
            || notify.is_some_and(|notify| {
                self.wait(notify);
                // Everything may have been reported in between, and then nothing would notify.
                room()
            });
        let sample = || InFlight { left: records, bytes, outcome: Ok(None), receiver: receiver() };
        has_room.then(|| InFlightKey(locked(&self.samples).insert(sample())))
    }

    /// Releases a sample's room without a report: its first record could not be sent.
    pub(crate) fn cancel(&self, taken: InFlightKey) {
        let sample = locked(&self.samples).remove(taken.0);
        let records = usize::from(sample.left);
        self.give_back(records, records * sample.bytes);
        self.notify_waiting();
    }

    /// Reserves room for records; false if there is none. A sample larger than the limit is sent
    /// alone.
    fn take(&self, records: usize, bytes: usize) -> bool {
        let before = self.records.fetch_add(records, Ordering::SeqCst);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::SeqCst);
        let fits = before == 0
            || (before + records <= self.limits.records
                && bytes_before + bytes <= self.limits.bytes);
        if !fits {
            self.give_back(records, bytes);
        }
        fits
    }

    fn give_back(&self, records: usize, bytes: usize) {
        self.records.fetch_sub(records, Ordering::SeqCst);
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// A record of a sample was reported. Reports arrive in the order of a partition.
    pub(crate) fn reported(&self, taken: InFlightKey, part: RecordRole, outcome: DeliveryOutcome) {
        let mut samples = locked(&self.samples);
        let Some(sample) = samples.get_mut(taken.0) else { return };
        if sample.outcome.is_ok() && (part == RecordRole::Topic || outcome.is_err()) {
            sample.outcome = outcome;
        }
        sample.left -= 1;
        let bytes = sample.bytes;
        let whole = (sample.left == 0).then(|| samples.remove(taken.0));
        drop(samples);
        self.give_back(1, bytes);
        if let Some(sample) = whole {
            sample.receiver.report(sample.outcome);
        }
        self.notify_waiting();
    }

    /// Notifies writers that wait for room.
    fn notify_waiting(&self) {
        if self.anybody_waits.swap(false, Ordering::SeqCst) {
            let waiting = std::mem::take(&mut *locked(&self.waiting));
            waiting.iter().for_each(|notify| notify());
        }
    }

    fn wait(&self, notify: &Notify) {
        let mut waiting = locked(&self.waiting);
        if !waiting.iter().any(|other| Arc::ptr_eq(other, notify)) {
            waiting.push(Arc::clone(notify));
        }
        drop(waiting);
        self.anybody_waits.store(true, Ordering::SeqCst);
    }
}
