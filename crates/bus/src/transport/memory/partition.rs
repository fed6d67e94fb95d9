//! One partition: samples in order, the newest of each key, producers, and waiting readers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use helio_core::qos::{Liveliness, Ownership};
use helio_core::{Headers, Producer, ProducerName, Qos, SchemaId, Tai, TopicName, TraceId};

use super::super::{Alive, Origin, Record, SampleRef, WriterInfo};
use super::{DEFAULT_PARTITION_BYTES, MAX_PARTITION_BYTES};
use crate::bell::Waiters;
use crate::clock::Clock;
use crate::error::{TransportError, holder};

/// A sample's size besides its key and payload, so that empty samples are bounded, too.
const SAMPLE_OVERHEAD_BYTES: u64 = 64;

/// A stored sample.
#[derive(Debug)]
pub(super) struct StoredSample {
    pub(super) offset: u64,
    producer: Arc<Producer>,
    sequence: u64,
    time: Tai,
    /// When it was published here, for retention: its own time may be of another clock.
    arrived: Tai,
    schema: SchemaId,
    level: u8,
    trace: Option<TraceId>,
    headers: Headers,
    key: Box<[u8]>,
    payload: Box<[u8]>,
}

impl StoredSample {
    pub(super) fn sample(&self, partition: u32, origin: Origin) -> SampleRef<'_> {
        SampleRef {
            partition,
            offset: self.offset,
            key: &self.key,
            producer: &self.producer,
            sequence: self.sequence,
            time: self.time,
            schema: self.schema,
            level: self.level,
            trace: self.trace,
            headers: self.headers.as_ref(),
            payload: &self.payload,
            origin,
            pin: None,
        }
    }

    fn is_null(&self) -> bool {
        self.payload.is_empty() && self.headers.as_ref().mark_null()
    }

    fn bytes(&self) -> u64 {
        let headers = self.headers.as_ref().as_bytes().len();
        (self.key.len() + self.payload.len() + headers) as u64 + SAMPLE_OVERHEAD_BYTES
    }
}

#[derive(Debug)]
struct WriterState {
    producer: Arc<Producer>,
    sequence: u64,
    released: bool,
    /// Its samples were published on another bus.
    elsewhere: bool,
    /// Its lease expired, and another producer took the exclusive topic over.
    fenced: bool,
    /// Its connection, with which the writer ends.
    closed: Arc<AtomicBool>,
    seen: ClockReading,
}

/// An instant by a connection's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    time: Tai,
    uptime: Duration,
}

impl ClockReading {
    pub(super) fn by(clock: &dyn Clock, qos: &Qos) -> Self {
        let uptime = match qos.liveliness {
            Liveliness::Lease(_) => clock.uptime(),
            // Unused, and reading the clock would slow publishes down.
            Liveliness::Automatic => Duration::ZERO,
        };
        Self { time: clock.now(), uptime }
    }
}

impl WriterState {
    fn runs(&self) -> bool {
        !self.released && !self.fenced && !self.closed.load(Ordering::Acquire)
    }

    fn alive(&self, lease: Option<Duration>, now: ClockReading) -> bool {
        let silent = now.uptime.saturating_sub(self.seen.uptime);
        self.runs() && lease.is_none_or(|lease| silent <= lease)
    }
}

/// One partition's state, behind a lock.
pub(super) struct Partition {
    log: VecDeque<Arc<StoredSample>>,
    first: u64,
    bytes: u64,
    retain_bytes: u64,
    retain_age: Option<Duration>,
    keep_per_key: usize,
    lease: Option<Duration>,
    newest: HashMap<Box<[u8]>, VecDeque<Arc<StoredSample>>>,
    producers: HashMap<ProducerName, WriterState>,
    pub(super) waiters: Waiters,
}

impl Partition {
    pub(super) fn new(qos: &Qos) -> Self {
        let unlimited = if qos.retention.default { DEFAULT_PARTITION_BYTES } else { u64::MAX };
        Self {
            log: VecDeque::new(),
            first: 0,
            bytes: 0,
            retain_bytes: qos.retention.bytes.unwrap_or(unlimited).min(MAX_PARTITION_BYTES),
            retain_age: qos.retention.age,
            // One, as in the journal, whatever the history's depth.
            keep_per_key: usize::from(qos.retention.last_value),
            lease: match qos.liveliness {
                Liveliness::Lease(lease) => Some(lease),
                Liveliness::Automatic => None,
            },
            newest: HashMap::new(),
            producers: HashMap::new(),
            waiters: Waiters::default(),
        }
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    pub(super) fn end(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn last_time(&self) -> Option<Tai> {
        self.log.back().map(|stored| stored.time)
    }

    /// Registers a writer with the next incarnation of its name, which fences the previous one.
    pub(super) fn claim(
        &mut self,
        topic: &TopicName,
        name: &ProducerName,
        ownership: Ownership,
        now: ClockReading,
        closed: &Arc<AtomicBool>,
    ) -> Result<Arc<Producer>, TransportError> {
        self.take_over(topic, ownership, now)?;
        let last = self.producers.get(name).map_or(0, |writing| writing.producer.incarnation);
        let producer = Producer { name: name.clone(), incarnation: last + 1 };
        Ok(self.begin(producer, false, now, closed))
    }

    /// The same for a forwarder, with the producer's incarnation on the other bus.
    pub(super) fn adopt(
        &mut self,
        topic: &TopicName,
        mut producer: Producer,
        ownership: Ownership,
        now: ClockReading,
        closed: &Arc<AtomicBool>,
    ) -> Result<Arc<Producer>, TransportError> {
        if let Some(known) = self.producers.get(&producer.name) {
            let newer = known.producer.incarnation;
            if known.elsewhere && known.alive(self.lease, now) {
                let holder = holder(&producer.name, newer);
                return Err(TransportError::Owned { topic: topic.clone(), holder });
            }
            if !known.elsewhere && producer.incarnation <= newer {
                return Err(TransportError::Fenced { producer, newer });
            }
            producer.incarnation = producer.incarnation.max(newer);
        }
        self.take_over(topic, ownership, now)?;
        Ok(self.begin(producer, true, now, closed))
    }

    /// Sets the incarnation and sequence of a forwarder's next sample.
    pub(super) fn identify(
        &mut self,
        producer: &mut Arc<Producer>,
        incarnation: u64,
        sequence: u64,
    ) -> Result<(), TransportError> {
        let writing = self.writing(producer)?;
        if incarnation < producer.incarnation {
            let zombie = Producer { name: producer.name.clone(), incarnation };
            let newer = producer.incarnation;
            return Err(TransportError::Fenced { producer: zombie, newer });
        }
        if incarnation > producer.incarnation {
            let newest = Arc::new(Producer { name: producer.name.clone(), incarnation });
            writing.producer = Arc::clone(&newest);
            *producer = newest;
        }
        writing.sequence = sequence.saturating_sub(1);
        Ok(())
    }

    /// Checks that an exclusive topic has no live writer, and fences writers whose leases have
    /// expired.
    fn take_over(
        &mut self,
        topic: &TopicName,
        ownership: Ownership,
        now: ClockReading,
    ) -> Result<(), TransportError> {
        if ownership != Ownership::Exclusive {
            return Ok(());
        }
        let lease = self.lease;
        if let Some(live) = self.producers.values().find(|w| w.alive(lease, now)) {
            let holder = holder(&live.producer.name, live.producer.incarnation);
            return Err(TransportError::Owned { topic: topic.clone(), holder });
        }
        // The leases of all running writers have expired.
        self.producers.values_mut().filter(|w| w.runs()).for_each(|w| w.fenced = true);
        Ok(())
    }

    fn begin(
        &mut self,
        producer: Producer,
        elsewhere: bool,
        now: ClockReading,
        closed: &Arc<AtomicBool>,
    ) -> Arc<Producer> {
        let producer = Arc::new(producer);
        let writing = WriterState {
            producer: Arc::clone(&producer),
            sequence: 0,
            released: false,
            elsewhere,
            fenced: false,
            closed: Arc::clone(closed),
            seen: now,
        };
        self.producers.insert(producer.name.clone(), writing);
        producer
    }

    fn writing(&mut self, producer: &Producer) -> Result<&mut WriterState, TransportError> {
        let newer = match self.producers.get_mut(&producer.name) {
            Some(writing)
                if writing.producer.incarnation == producer.incarnation && !writing.fenced =>
            {
                return Ok(writing);
            }
            other => other.map_or(producer.incarnation, |now| now.producer.incarnation),
        };
        Err(TransportError::Fenced { producer: producer.clone(), newer })
    }

    pub(super) fn assert_alive(
        &mut self,
        producer: &Producer,
        now: ClockReading,
    ) -> Result<(), TransportError> {
        self.writing(producer)?.seen = now;
        Ok(())
    }

    /// Releases a writer's claim, unless it was replaced.
    pub(super) fn release(&mut self, producer: &Producer) {
        if let Ok(writing) = self.writing(producer) {
            writing.released = true;
        }
    }

    pub(super) fn writers(&self, partition: u32, now: ClockReading) -> Vec<WriterInfo> {
        let info = |writing: &WriterState| WriterInfo {
            producer: (*writing.producer).clone(),
            partition,
            alive: Some(if writing.alive(self.lease, now) { Alive::Yes } else { Alive::No }),
            seen: Some(writing.seen.time),
        };
        self.producers.values().map(info).collect()
    }

    /// Appends a sample and applies the retention; returns its offset and sequence.
    pub(super) fn append(
        &mut self,
        producer: &Arc<Producer>,
        record: &Record<'_>,
        now: ClockReading,
    ) -> Result<(u64, u64), TransportError> {
        let offset = self.end();
        let writing = self.writing(producer)?;
        writing.sequence += 1;
        writing.seen = now;
        let sequence = writing.sequence;
        let stored = Arc::new(StoredSample {
            offset,
            producer: Arc::clone(producer),
            sequence,
            time: record.time,
            arrived: now.time,
            schema: record.schema,
            level: record.level,
            trace: record.trace,
            headers: record.headers.into(),
            key: record.key.into(),
            payload: record.payload.into(),
        });
        self.bytes += stored.bytes();
        self.remember(&stored);
        self.log.push_back(stored);
        self.retain(now.time);
        Ok((offset, sequence))
    }

    fn remember(&mut self, stored: &Arc<StoredSample>) {
        if self.keep_per_key == 0 {
            return;
        }
        if stored.is_null() {
            self.newest.remove(&stored.key);
            return;
        }
        match self.newest.get_mut(&stored.key) {
            Some(kept) => {
                kept.push_back(Arc::clone(stored));
                if kept.len() > self.keep_per_key {
                    kept.pop_front();
                }
            }
            None => {
                let kept = VecDeque::from([Arc::clone(stored)]);
                self.newest.insert(stored.key.clone(), kept);
            }
        }
    }

    /// Removes samples beyond the limits, except the newest.
    fn retain(&mut self, now: Tai) {
        let oldest = self.retain_age.map(|age| {
            let ns = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
            Tai::from_nanos(now.nanos().saturating_sub(ns))
        });
        while self.log.len() > 1 {
            let over = self.bytes > self.retain_bytes;
            let old = oldest.is_some_and(|oldest| self.log[0].arrived < oldest);
            if !over && !old {
                break;
            }
            if let Some(gone) = self.log.pop_front() {
                self.first += 1;
                self.bytes -= gone.bytes();
            }
        }
    }

    /// Copies up to `max` samples from an offset on.
    pub(super) fn read(&self, from: u64, max: usize, into: &mut Vec<Arc<StoredSample>>) {
        let skip = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        into.extend(self.log.iter().skip(skip).take(max).cloned());
    }

    /// The first offset published at or after a time.
    pub(super) fn at_time(&self, time: Tai) -> u64 {
        // Timestamps of several publishers are not sorted: the first match counts.
        let found = self.log.iter().position(|stored| stored.time >= time);
        found.map_or(self.end(), |n| self.first + n as u64)
    }

    /// The newest `n` samples of each key since its last null, in order.
    pub(super) fn last_per_key(&self, n: u32) -> Vec<Arc<StoredSample>> {
        let n = n as usize;
        let mut counts: HashMap<&[u8], usize> = HashMap::new();
        let mut found = Vec::new();
        for stored in self.log.iter().rev() {
            let count = counts.entry(&stored.key).or_default();
            if stored.is_null() {
                *count = n;
            }
            if *count < n {
                *count += 1;
                found.push(Arc::clone(stored));
            }
        }
        for kept in self.newest.values() {
            for stored in kept.iter().rev().filter(|stored| stored.offset < self.first) {
                let count = counts.entry(&stored.key).or_default();
                if *count < n {
                    *count += 1;
                    found.push(Arc::clone(stored));
                }
            }
        }
        found.sort_by_key(|stored| stored.offset);
        found
    }

    /// The last values that retention has removed from the log, in order.
    pub(super) fn retained(&self) -> Vec<Arc<StoredSample>> {
        let kept = self.newest.values().filter_map(VecDeque::back);
        let mut kept: Vec<_> = kept.filter(|s| s.offset < self.first).cloned().collect();
        kept.sort_by_key(|stored| stored.offset);
        kept
    }
}
