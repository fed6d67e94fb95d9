//! Publishing: numbered, bounded, acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use helio_core::qos::{Guarantee, Overload};
use helio_core::{HeadersRef, Producer, SchemaId, Tai, TraceId};

use crate::backpressure::WriterSlot;
use crate::clock::Clock;
use crate::error::{PublishError, TransportError};
use crate::event::Incompatible;
use crate::partitioner::partition_of;
use crate::pending_batch::PendingBatch;
use crate::receipts::{PendingPublish, PendingReceipt};
use crate::topic_core::TopicCore;
use crate::transport::{AcceptedRun, BatchAdmission, Record, parts};
use crate::writers::Writers;

/// The most bytes (payloads, keys and headers) of a batch that a transport accepts at once. A
/// sample that is larger goes alone.
pub const MAX_BATCH_BYTES: usize = 16 << 20;

/// One sample to publish. Defaults are the present time, the topic's guarantee and the key's
/// partition.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    payload: &'a [u8],
    key: &'a [u8],
    time: Option<Tai>,
    level: u8,
    trace: Option<TraceId>,
    headers: HeadersRef<'a>,
    guarantee: Option<Guarantee>,
    partition: Option<u32>,
    schema: Option<SchemaId>,
    is_null: bool,
}

impl<'a> Message<'a> {
    /// A sample of this encoded value.
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self {
            payload,
            key: &[],
            time: None,
            level: 0,
            trace: None,
            headers: HeadersRef::EMPTY,
            guarantee: None,
            partition: None,
            schema: None,
            is_null: false,
        }
    }

    /// A null: a sample without a value, which deletes the last value of its key. Late joiners
    /// receive nothing of the key until it gets another value. Kafka calls it a tombstone, DDS a
    /// disposed instance.
    #[must_use]
    pub const fn null(key: &'a [u8]) -> Self {
        let mut null = Self::new(&[]);
        (null.key, null.headers) = (key, HeadersRef::NULL);
        null.is_null = true;
        null
    }

    /// The key. Samples of a key keep their order, and late joiners receive the newest of each key.
    #[must_use]
    pub const fn key(mut self, key: &'a [u8]) -> Self {
        self.key = key;
        self
    }

    /// The time of measurement; the present time by default.
    #[must_use]
    pub const fn time(mut self, time: Tai) -> Self {
        self.time = Some(time);
        self
    }

    /// The routing byte.
    #[must_use]
    pub const fn level(mut self, level: u8) -> Self {
        self.level = level;
        self
    }

    /// The trace of which the sample is a part.
    #[must_use]
    pub const fn trace(mut self, trace: TraceId) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Named values that are readable without decoding the payload. Those of a null are made with
    /// [`Headers::null`](helio_core::Headers::null): they replace its mark.
    #[must_use]
    pub const fn headers(mut self, headers: HeadersRef<'a>) -> Self {
        self.headers = headers;
        self
    }

    /// The guarantee that the receipt confirms; the topic's by default.
    #[must_use]
    pub const fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = Some(guarantee);
        self
    }

    /// The partition; the key's by default.
    #[must_use]
    pub const fn partition(mut self, partition: u32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The payload's schema, if not the topic's, for a payload that another producer wrote. The
    /// caller stores its text first (`Bus::put_schema`).
    #[must_use]
    pub const fn schema(mut self, schema: SchemaId) -> Self {
        self.schema = Some(schema);
        self
    }
}

impl Message<'_> {
    /// Refuses a null that would be published as an empty value.
    fn check(&self) -> Result<(), PublishError> {
        if self.is_null && !self.headers.mark_null() {
            let reason = "the headers of a null lack its mark; make them with Headers::null";
            return Err(PublishError::Encode(reason.to_owned()));
        }
        Ok(())
    }
}

/// Statistics of all publishers of one bus on one topic, in samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublisherStats {
    /// Accepted by the transport.
    pub taken: u64,
    /// Payload bytes accepted by the transport.
    pub bytes: u64,
    /// Refused because a queue was full.
    pub refused: u64,
    /// Dropped by the overload policy because a queue was full.
    pub dropped: u64,
    /// Failed for another reason.
    pub failed: u64,
    /// Abandoned by the caller while blocked.
    pub abandoned: u64,
}

/// Publishes to one topic. Cloning shares it; threads may use it concurrently.
///
/// ```
/// # use helio_bus::{Bus, Message, Qos, TopicSpec};
/// let bus = Bus::builder().producer("MTMount").connect("memory:")?;
/// let topic = bus.topic(TopicSpec::new("MTMount/logevent/summaryState")?.qos(Qos::event()))?;
/// let publisher = topic.publisher()?;
/// let receipt = publisher.publish(Message::new(b"ENABLED").key(b"0")).wait()?;
/// assert_eq!((receipt.offset, receipt.sequence), (Some(0), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Publisher {
    terms: PublishTerms,
    writers: Arc<Writers>,
    topic: Arc<TopicCore>,
    schema: SchemaId,
    next_partition: Arc<AtomicU32>,
}

/// The values that each publish reads, in one place: at a few samples a second, each pointer costs
/// a cache miss.
#[derive(Clone)]
struct PublishTerms {
    partitions: u32,
    guarantee: Guarantee,
    overload: Overload,
    /// The transport's strongest guarantee.
    offered: Guarantee,
    clock: Arc<dyn Clock>,
    /// The writer, if there is only one partition.
    single: Option<Arc<WriterSlot>>,
}

impl Publisher {
    pub(crate) fn new(writers: Arc<Writers>, topic: Arc<TopicCore>, schema: SchemaId) -> Self {
        let qos = topic.transport.qos();
        let terms = PublishTerms {
            partitions: qos.partitions,
            guarantee: qos.guarantee,
            overload: qos.overload,
            offered: topic.bus.transport.capabilities().guarantee,
            clock: Arc::clone(&topic.bus.clock),
            single: writers.open_slots().next().filter(|_| qos.partitions == 1).map(Arc::clone),
        };
        Self { terms, writers, topic, schema, next_partition: Arc::default() }
    }

    /// Publishes one sample. When this returns, the transport has accepted or refused the sample.
    /// The exception is a full queue with the policy `block`: the sample then waits in the returned
    /// value.
    pub fn publish(&self, message: Message<'_>) -> PendingPublish {
        match self.slot(&message).and_then(|slot| Ok((slot, self.guarantee(&message)?))) {
            Ok((slot, guarantee)) => {
                slot.publish(&self.record(&message), guarantee, self.overload())
            }
            Err(error) => PendingPublish::done(Err(error)),
        }
    }

    fn slot(&self, message: &Message<'_>) -> Result<&Arc<WriterSlot>, PublishError> {
        match &self.terms.single {
            Some(slot) if message.partition.is_none() => Ok(slot),
            _ => Ok(self.writers.slot(self.partition(message)?)?),
        }
    }

    /// The same for threads that must not block, such as an event loop's. `None`: it would open
    /// files, or wait for another thread or process for more than a millisecond, and nothing was
    /// done. [`publish`](Self::publish) it from another thread then.
    pub fn try_publish(&self, message: Message<'_>) -> Option<PendingPublish> {
        let found = self.partition(&message).and_then(|p| Ok((p, self.guarantee(&message)?)));
        match found {
            Ok((partition, guarantee)) => {
                let slot = self.writers.open_slot(partition)?;
                slot.try_publish(&self.record(&message), guarantee, self.overload())
            }
            Err(error) => Some(PendingPublish::done(Err(error))),
        }
    }

    /// The guarantee that a valid message's receipt confirms.
    fn guarantee(&self, message: &Message<'_>) -> Result<Guarantee, PublishError> {
        message.check()?;
        let guarantee = message.guarantee.unwrap_or(self.terms.guarantee);
        if self.is_offered(guarantee) {
            Ok(guarantee)
        } else {
            Err(self.unsupported_guarantee(guarantee))
        }
    }

    /// Whether the transport offers a guarantee. Its capabilities may have grown since this was
    /// opened.
    fn is_offered(&self, guarantee: Guarantee) -> bool {
        guarantee <= self.terms.offered
            || guarantee <= self.topic.bus.transport.capabilities().guarantee
    }

    /// Publishes samples in order, with one reading of the clock and, if the transport can, one
    /// append for at most [`MAX_BATCH_BYTES`] of a partition. A larger batch is appended in parts,
    /// between which other producers can append. A partition's samples are accepted up to the first
    /// failure; [`PendingBatch::wait_each`] has the outcome of each sample. The guarantee is the
    /// strongest of the topic's and the samples'.
    pub fn publish_batch(&self, messages: &[Message<'_>]) -> PendingBatch {
        let PublishTerms { partitions, guarantee, .. } = self.terms;
        let mut pending = PendingBatch::of(messages.len());
        let asked = messages.iter().filter_map(|message| message.guarantee);
        let guarantee = asked.max().unwrap_or(guarantee).max(guarantee);
        if !self.is_offered(guarantee) && !messages.is_empty() {
            pending.fail_sample(0, self.unsupported_guarantee(guarantee));
            return pending;
        }
        let invalid =
            |(index, message): (usize, &Message<'_>)| Some((index, message.check().err()?));
        if let Some((index, error)) = messages.iter().enumerate().find_map(invalid) {
            pending.fail_sample(index, error);
            return pending;
        }
        let now = self.terms.clock.now();
        if partitions == 1 && messages.iter().all(|message| message.partition.is_none()) {
            let records: Vec<_> = messages.iter().map(|m| self.stamped(m, now)).collect();
            self.batch(0, &records, 0, guarantee, &mut pending);
            return pending;
        }
        let mut by_partition: Vec<Vec<usize>> = vec![Vec::new(); partitions as usize];
        for (index, message) in messages.iter().enumerate() {
            match self.partition(message) {
                Ok(partition) => by_partition[partition as usize].push(index),
                Err(error) => pending.fail_sample(index, error),
            }
        }
        for (partition, indices) in (0..).zip(&by_partition) {
            if !indices.is_empty() {
                let place = pending.next_places(indices);
                let records = indices.iter().map(|index| self.stamped(&messages[*index], now));
                let records: Vec<_> = records.collect();
                self.batch(partition, &records, place, guarantee, &mut pending);
            }
        }
        pending
    }

    /// Publishes the records at `place` and behind it.
    fn batch(
        &self,
        partition: u32,
        records: &[Record<'_>],
        mut place: usize,
        guarantee: Guarantee,
        pending: &mut PendingBatch,
    ) {
        let slot = match self.writers.slot(partition) {
            Ok(slot) => slot,
            Err(error) => return pending.fail(place, error.into()),
        };
        let end = place + records.len();
        for part in parts(records, usize::MAX, MAX_BATCH_BYTES) {
            let BatchAdmission { runs, failed } = slot.publish_batch(part, guarantee);
            for AcceptedRun { samples, last } in runs {
                pending.accept(place, samples, PendingPublish::from(Ok(last)));
                place += samples;
            }
            match failed {
                None => {}
                Some(PublishError::Full { .. }) => {
                    let rest = &records[records.len() - (end - place)..];
                    return self.batch_when_full(slot, rest, place, guarantee, pending);
                }
                Some(cause) => {
                    let failed = (end - place) as u64;
                    self.writers.counters.failed.fetch_add(failed, Ordering::Relaxed);
                    return pending.fail(place, cause);
                }
            }
        }
    }

    /// Publishes one by one: each blocks, or meets the overload policy. Behind one that is refused,
    /// none is tried.
    fn batch_when_full(
        &self,
        slot: &Arc<WriterSlot>,
        records: &[Record<'_>],
        place: usize,
        guarantee: Guarantee,
        pending: &mut PendingBatch,
    ) {
        for (nth, record) in records.iter().enumerate() {
            let publish = slot.publish(record, guarantee, self.overload());
            match publish.outcome() {
                Some(Err(error)) if !matches!(error, PublishError::Dropped { .. }) => {
                    let skipped = (records.len() - nth - 1) as u64;
                    self.writers.counters.refused.fetch_add(skipped, Ordering::Relaxed);
                    return pending.fail(place + nth, error);
                }
                _ => pending.wait_for(place + nth, 1, publish),
            }
        }
    }

    fn partition(&self, message: &Message<'_>) -> Result<u32, PublishError> {
        let partitions = self.terms.partitions;
        match message.partition {
            Some(partition) if partition < partitions => Ok(partition),
            Some(partition) => Err(PublishError::NoPartition { partition, partitions }),
            None if partitions == 1 => Ok(0),
            None if message.key.is_empty() => {
                Ok(self.next_partition.fetch_add(1, Ordering::Relaxed) % partitions)
            }
            None => Ok(partition_of(message.key, partitions)),
        }
    }

    fn record<'a>(&self, message: &Message<'a>) -> Record<'a> {
        let time = message.time.unwrap_or_else(|| self.terms.clock.now());
        self.stamped(message, time)
    }

    fn stamped<'a>(&self, message: &Message<'a>, now: Tai) -> Record<'a> {
        Record {
            key: message.key,
            payload: message.payload,
            time: message.time.unwrap_or(now),
            schema: message.schema.unwrap_or(self.schema),
            level: message.level,
            trace: message.trace,
            headers: message.headers,
        }
    }

    fn unsupported_guarantee(&self, asked: Guarantee) -> PublishError {
        let capabilities = self.topic.bus.transport.capabilities();
        PublishError::Transport(TransportError::Unsupported {
            transport: capabilities.transport.clone(),
            what: format!("give a receipt of the guarantee {}", crate::transport::word(&asked)),
            remedy: format!("ask for {} at most", crate::transport::word(&capabilities.guarantee)),
        })
    }

    /// The producer, with the incarnation of the first partition's writer.
    #[must_use]
    pub fn producer(&self) -> Producer {
        match self.writers.open_slots().next() {
            Some(slot) => slot.producer().clone(),
            None => Producer { name: self.topic.producer.clone(), incarnation: 0 },
        }
    }

    /// Renews the liveliness lease without publishing a sample.
    ///
    /// # Errors
    /// [`TransportError::Fenced`] if a newer incarnation has replaced this one.
    pub fn assert_alive(&self) -> Result<(), TransportError> {
        self.writers.open_slots().try_for_each(|slot| slot.assert_alive())
    }

    /// Waits until all accepted samples have a guarantee. Blocked samples are not accepted yet:
    /// they make this fail, and their own receipts report them.
    ///
    /// # Errors
    /// [`PublishError::Timeout`], [`PublishError::Full`], or the first failure;
    /// [`TransportError::Unsupported`] if samples were published with a weaker guarantee and the
    /// transport cannot strengthen it.
    pub fn flush(&self, guarantee: Guarantee, timeout: Duration) -> Result<(), PublishError> {
        let until = std::time::Instant::now().checked_add(timeout);
        let pending: Result<Vec<Option<PendingReceipt>>, _> =
            self.writers.open_slots().map(|slot| slot.flush(guarantee)).collect();
        for pending in pending?.into_iter().flatten() {
            let left =
                until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
            pending.wait(left).unwrap_or(Err(PublishError::Timeout))?;
        }
        match self.writers.open_slots().find(|slot| slot.is_blocked()) {
            None => Ok(()),
            Some(slot) => Err(slot.full(0)),
        }
    }

    /// The policies in which readers of the topic are incompatible, on engines that match each
    /// writer with each reader. Those readers receive nothing.
    #[must_use]
    pub fn incompatible(&self) -> Vec<Incompatible> {
        let mut told: Vec<Incompatible> = Vec::new();
        for one in self.writers.open_slots().flat_map(|slot| slot.incompatible()) {
            if !told.contains(&one) {
                told.push(one);
            }
        }
        told
    }

    /// The statistics of all publishers of this bus on this topic.
    #[must_use]
    pub fn stats(&self) -> PublisherStats {
        let counters = &self.writers.counters;
        PublisherStats {
            taken: counters.taken.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
            refused: counters.refused.load(Ordering::Relaxed),
            dropped: counters.dropped.load(Ordering::Relaxed),
            failed: counters.failed.load(Ordering::Relaxed),
            abandoned: counters.abandoned.load(Ordering::Relaxed),
        }
    }

    /// The policy for a full queue.
    #[must_use]
    pub fn overload(&self) -> Overload {
        self.terms.overload
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("topic", &self.topic.name)
            .field("producer", &self.producer())
            .finish_non_exhaustive()
    }
}
