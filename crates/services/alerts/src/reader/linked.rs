//! The stamps of alerts from the topic of stamps, found by their links.
//!
//! Constraints. Stamps are read forward where alerts follow each other, as on engines where moving
//! costs a round trip. What is passed on the way is held, up to a limit of bytes; what is not held
//! any more is read again.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use helio_bus::transport::Position;
use helio_bus::{
    Event, Gap, GapCause, Start, Subscribe, Subscription, Topic, TopicError, TransportError,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::stamps::{Link, PartHash, StampsError, unpack};

use super::error::{LinkedError, ReaderError};

/// The most bytes of samples that are held: a few CCDs' stamps.
const MAX_HELD_BYTES: usize = 64 << 20;
/// The most bytes of shared parts that are held: those of a whole camera, two PSFs each.
const MAX_PART_BYTES: usize = 32 << 20;
/// The most samples that are read in order to reach another one; beyond, the subscription moves.
const MAX_PASSED: u64 = 256;
/// How long a sample is waited for that was published before its alert.
const STAMPS_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the topic of stamps.
pub struct LinkedStamps {
    topic: Topic,
    pinned_bytes: u64,
    /// Of the partitions that alerts are read from.
    subscription: Option<Subscription>,
    held: HeldBytes<(u32, u64)>,
    parts: HeldBytes<PartHash>,
}

/// The newest values up to a number of bytes.
struct HeldBytes<K> {
    values: HashMap<K, Bytes>,
    order: VecDeque<K>,
    bytes: usize,
    limit: usize,
}

impl<K: std::hash::Hash + Eq + Copy> HeldBytes<K> {
    fn new(limit: usize) -> Self {
        Self { values: HashMap::new(), order: VecDeque::new(), bytes: 0, limit }
    }

    fn put(&mut self, key: K, value: Bytes) {
        self.bytes += value.len();
        if let Some(former) = self.values.insert(key, value) {
            self.bytes -= former.len();
            return;
        }
        self.order.push_back(key);
        while self.bytes > self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.take(&oldest);
        }
        // Keys of values that were taken stay behind.
        if self.order.len() > 2 * self.values.len() + 64 {
            self.order.retain(|key| self.values.contains_key(key));
        }
    }

    fn take(&mut self, key: &K) -> Option<Bytes> {
        let value = self.values.remove(key)?;
        self.bytes -= value.len();
        Some(value)
    }
}

impl LinkedStamps {
    /// A reader of a topic of stamps that pins at most so many bytes; it reads no partition yet.
    #[must_use]
    pub fn new(topic: Topic, pinned_bytes: u64) -> Self {
        let (held, parts) = (HeldBytes::new(MAX_HELD_BYTES), HeldBytes::new(MAX_PART_BYTES));
        Self { topic, pinned_bytes, subscription: None, held, parts }
    }

    /// Reads these partitions from now on.
    ///
    /// # Errors
    /// [`TopicError`] if the topic cannot be subscribed to.
    pub fn assign(&mut self, partitions: &[u32]) -> Result<(), TopicError> {
        self.subscription = None;
        if !partitions.is_empty() {
            let options = Subscribe::from(Start::Latest).partitions(partitions.iter().copied());
            self.subscription = Some(self.topic.subscribe(options.pinned(self.pinned_bytes))?);
        }
        Ok(())
    }

    /// Returns the files of an alert's stamps. The partition is the alert's.
    ///
    /// # Errors
    /// [`LinkedError`].
    pub fn files(
        &mut self,
        partition: u32,
        link: &Link,
        id: i64,
    ) -> Result<Vec<Option<Bytes>>, LinkedError> {
        let sample = self.sample(partition, link.stamps)?;
        let unpacked = match unpack(&sample, |hash| self.parts.values.get(&hash).map(|p| &p[..])) {
            Err(StampsError::Missing(_)) => {
                link.parts.iter().try_for_each(|part| self.read_part(partition, *part))?;
                unpack(&sample, |hash| self.parts.values.get(&hash).map(|p| &p[..]))
            }
            unpacked => unpacked,
        };
        let stamps = unpacked.map_err(|error| LinkedError::Missing(error.to_string()))?;
        if stamps.alert_id != id {
            let reason = format!("the stamps are those of the alert {}", stamps.alert_id);
            return Err(LinkedError::Missing(reason));
        }
        Ok(stamps.files.into_iter().map(|file| file.map(Bytes::from)).collect())
    }

    fn read_part(&mut self, partition: u32, offset: u64) -> Result<(), LinkedError> {
        let sample = self.sample(partition, offset)?;
        let mut unpacked =
            unpack(&sample, |_| None).map_err(|error| LinkedError::Missing(error.to_string()))?;
        let empty = || LinkedError::Missing("the shared part is empty".to_owned());
        let part = unpacked.files.pop().flatten().ok_or_else(empty)?;
        self.parts.put(xxh3_128(&part), part.into());
        Ok(())
    }

    /// The sample at an offset.
    fn sample(&mut self, partition: u32, offset: u64) -> Result<Bytes, LinkedError> {
        if let Some(held) = self.held.take(&(partition, offset)) {
            return Ok(held);
        }
        let missing = || {
            let reason = format!("no stamps at offset {offset} of partition {partition}");
            LinkedError::Missing(reason)
        };
        let subscription = self.subscription.as_mut().ok_or_else(missing)?;
        let Position { next, end, .. } = position(subscription, partition).ok_or_else(missing)?;
        // Stamps are published before their alert: what is not stored now never comes.
        if offset >= end && offset >= end_of(&self.topic, partition)? {
            return Err(missing());
        }
        if offset < next || offset - next > MAX_PASSED {
            subscription.seek(partition, offset).map_err(ReaderError::from)?;
        }
        let until = Instant::now() + STAMPS_TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let event = subscription.next_timeout(left).map_err(ReaderError::from)?;
            match event {
                Some(Event::Sample(sample)) if sample.partition != partition => {
                    self.held.put((sample.partition, sample.offset), sample.payload);
                }
                Some(Event::Sample(sample)) if sample.offset == offset => {
                    return Ok(sample.payload);
                }
                Some(Event::Sample(sample)) if sample.offset < offset => {
                    self.held.put((partition, sample.offset), sample.payload);
                }
                Some(Event::Sample(sample)) => {
                    self.held.put((partition, sample.offset), sample.payload);
                    return Err(missing());
                }
                Some(Event::Gap(gap)) if covers(&gap, partition, offset) => {
                    return Err(missing());
                }
                Some(_) => {}
                // It was passed without being delivered.
                None if position(subscription, partition).is_none_or(|at| at.next > offset) => {
                    return Err(missing());
                }
                None => return Err(late(&self.topic, partition, offset).into()),
            }
        }
    }
}

fn position(subscription: &Subscription, partition: u32) -> Option<Position> {
    subscription.positions().into_iter().find(|at| at.partition == partition)
}

/// The error of a stored sample that does not arrive.
fn late(topic: &Topic, partition: u32, offset: u64) -> ReaderError {
    let seconds = STAMPS_TIMEOUT.as_secs();
    let cause = format!(
        "offset {offset} of partition {partition} is stored, but did not arrive within {seconds} s"
    );
    TransportError::Outage { transport: topic.name().to_string(), cause }.into()
}

/// The end of a partition, by the engine.
fn end_of(topic: &Topic, partition: u32) -> Result<u64, ReaderError> {
    let partitions = topic.partitions()?;
    let found = partitions.iter().find(|info| info.partition == partition);
    Ok(found.map_or(0, |info| info.end))
}

/// Whether an offset is in a gap.
fn covers(gap: &Gap, partition: u32, offset: u64) -> bool {
    gap.partition == partition
        && match gap.cause {
            GapCause::Retention { from, to }
            | GapCause::Overload { from, to }
            | GapCause::Damaged { from, to } => (from..to).contains(&offset),
            _ => false,
        }
}
