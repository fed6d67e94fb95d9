//! Many samples in one reusable buffer.

use std::ops::Range;

use helio_core::{HeadersRef, Producer, SchemaId, Tai, TraceId};

use crate::event::Event;
use crate::transport::{Origin, SampleRef};

/// Samples copied into one arena, and the other events between them. A reused batch allocates
/// nothing after a few rounds.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    entries: Vec<BatchSample>,
    producers: Vec<Producer>,
    events: Vec<(usize, Event)>,
}

#[derive(Debug)]
struct BatchSample {
    partition: u32,
    producer: u32,
    offset: u64,
    sequence: u64,
    time: Tai,
    schema: SchemaId,
    trace: Option<TraceId>,
    level: u8,
    origin: Origin,
    headers: Range<usize>,
    key: Range<usize>,
    payload: Range<usize>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it contains neither samples nor other events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.events.is_empty()
    }

    /// Removes the contents and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.producers.clear();
        self.events.clear();
    }

    /// The sample at an index.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<SampleRef<'_>> {
        self.entries.get(at).map(|entry| self.sample(entry))
    }

    /// The samples in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = SampleRef<'_>> {
        self.entries.iter().map(|entry| self.sample(entry))
    }

    /// The other events, each with the number of samples before it.
    pub fn events(&self) -> impl ExactSizeIterator<Item = (usize, &Event)> {
        self.events.iter().map(|(at, event)| (*at, event))
    }

    fn sample(&self, entry: &BatchSample) -> SampleRef<'_> {
        SampleRef {
            partition: entry.partition,
            offset: entry.offset,
            key: &self.bytes[entry.key.clone()],
            producer: &self.producers[entry.producer as usize],
            sequence: entry.sequence,
            time: entry.time,
            schema: entry.schema,
            level: entry.level,
            trace: entry.trace,
            headers: self.headers(entry),
            payload: &self.bytes[entry.payload.clone()],
            origin: entry.origin,
            pin: None,
        }
    }

    fn headers(&self, entry: &BatchSample) -> HeadersRef<'_> {
        if entry.headers.is_empty() {
            return HeadersRef::EMPTY;
        }
        // They were validated when received.
        HeadersRef::parse(&self.bytes[entry.headers.clone()]).unwrap_or_default()
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.events.push((self.entries.len(), event));
    }

    pub(crate) fn push(&mut self, sample: &SampleRef<'_>) {
        if self.producers.last() != Some(sample.producer) {
            self.producers.push(sample.producer.clone());
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(sample.key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(sample.payload);
        let end = self.bytes.len();
        self.bytes.extend_from_slice(sample.headers.as_bytes());
        self.entries.push(BatchSample {
            partition: sample.partition,
            producer: (self.producers.len() - 1) as u32,
            offset: sample.offset,
            sequence: sample.sequence,
            time: sample.time,
            schema: sample.schema,
            trace: sample.trace,
            headers: end..self.bytes.len(),
            level: sample.level,
            origin: sample.origin,
            key: start..middle,
            payload: middle..end,
        });
    }
}
