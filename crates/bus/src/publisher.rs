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
use crate::receipts::{PendingPublish, PendingReceipt};
use crate::topic_core::TopicCore;
use crate::transport::{Receipt, Record};
use crate::writers::Writers;

/// One sample to publish. What is not given is filled in: the time of day, the topic's guarantee,
/// the partition that the key falls in.
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
        }
    }

    /// Its key: samples of a key stay in order, and the newest of each key is what late joiners
    /// get.
    #[must_use]
    pub const fn key(mut self, key: &'a [u8]) -> Self {
        self.key = key;
        self
    }

    /// When it was made, if not now.
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

    /// The trace that it belongs to.
    #[must_use]
    pub const fn trace(mut self, trace: TraceId) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Named values beside the payload, which is not decoded to look at them.
    #[must_use]
    pub const fn headers(mut self, headers: HeadersRef<'a>) -> Self {
        self.headers = headers;
        self
    }

    /// What the receipt is to promise, if not what the topic says.
    #[must_use]
    pub const fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = Some(guarantee);
        self
    }

    /// The partition, if not the key's.
    #[must_use]
    pub const fn partition(mut self, partition: u32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The payload's schema, if not the topic's: for forwarding what others wrote. It is on the
    /// caller that the transport has its text (`Bus::put_schema`).
    #[must_use]
    pub const fn schema(mut self, schema: SchemaId) -> Self {
        self.schema = Some(schema);
        self
    }
}

/// What became of the samples of all publishers of one bus on one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublisherStats {
    /// Taken by the transport.
    pub taken: u64,
    /// Payload bytes taken by the transport.
    pub bytes: u64,
    /// Refused because a queue was full.
    pub refused: u64,
    /// Dropped because a queue was full and the policy says so.
    pub dropped: u64,
    /// Failed for another reason.
    pub failed: u64,
    /// Given up by the caller while they waited for room.
    pub abandoned: u64,
}

/// Publishes to one topic. Cloning shares it; it may be used from many threads.
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

/// What every publish asks for, in one place: at a few samples a second each step from one object
/// to the next costs a trip to memory.
#[derive(Clone)]
struct PublishTerms {
    partitions: u32,
    guarantee: Guarantee,
    overload: Overload,
    /// The most that the transport promises.
    offered: Guarantee,
    clock: Arc<dyn Clock>,
    /// The writer, where there is one partition only.
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

    /// Publishes one sample. The transport has taken it, or it is decided that it does not, when
    /// this returns; only with the policy `block` and a full queue the sample waits in what is
    /// returned.
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

    /// The same for threads that must not be held up, such as an event loop's: `None` where files
    /// would have to be opened or another thread or process waited for longer than a millisecond,
    /// and then nothing was done: [`publish`](Self::publish) it from another thread.
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

    /// What a message's receipt is to promise.
    fn guarantee(&self, message: &Message<'_>) -> Result<Guarantee, PublishError> {
        let guarantee = message.guarantee.unwrap_or(self.terms.guarantee);
        if self.is_offered(guarantee) {
            Ok(guarantee)
        } else {
            Err(self.unsupported_guarantee(guarantee))
        }
    }

    /// Whether the transport promises so much. Where it did not when this was opened, it may now.
    fn is_offered(&self, guarantee: Guarantee) -> bool {
        guarantee <= self.terms.offered
            || guarantee <= self.topic.bus.transport.capabilities().guarantee
    }

    /// Publishes samples in order with one look at the clock and, where the transport can, one
    /// append a partition. Each partition's samples are taken up to the first that cannot be; the
    /// guarantee is the topic's.
    pub fn publish_batch(&self, messages: &[Message<'_>]) -> PendingBatch {
        let PublishTerms { partitions, guarantee, .. } = self.terms;
        let mut pending = PendingBatch::default();
        let asked = messages.iter().filter_map(|message| message.guarantee);
        let guarantee = asked.max().unwrap_or(guarantee).max(guarantee);
        if !self.is_offered(guarantee) {
            pending.fail(self.unsupported_guarantee(guarantee));
            return pending;
        }
        let now = self.terms.clock.now();
        if partitions == 1 && messages.iter().all(|message| message.partition.is_none()) {
            let records: Vec<_> = messages.iter().map(|m| self.stamped(m, now)).collect();
            self.batch(0, &records, guarantee, &mut pending);
            return pending;
        }
        let mut by_partition: Vec<Vec<Record<'_>>> = vec![Vec::new(); partitions as usize];
        for message in messages {
            match self.partition(message) {
                Ok(partition) => {
                    by_partition[partition as usize].push(self.stamped(message, now));
                }
                Err(error) => pending.fail(error),
            }
        }
        for (partition, records) in (0..).zip(&by_partition) {
            if !records.is_empty() {
                self.batch(partition, records, guarantee, &mut pending);
            }
        }
        pending
    }

    fn batch(
        &self,
        partition: u32,
        records: &[Record<'_>],
        guarantee: Guarantee,
        pending: &mut PendingBatch,
    ) {
        let slot = match self.writers.slot(partition) {
            Ok(slot) => slot,
            Err(error) => return pending.fail(error.into()),
        };
        let (taken, last, cause) = match slot.publish_batch(records, guarantee) {
            Ok(last) => (records.len(), last, None),
            Err(error) => (error.taken, error.last, Some(error.cause)),
        };
        pending.taken += taken;
        pending.last.extend(last.map(|published| PendingPublish::from(Ok(published))));
        match cause {
            None => {}
            Some(PublishError::Full { .. }) => {
                // One by one they wait for room, or meet the policy.
                let overload = self.overload();
                let rest = &records[taken..];
                let each = rest.iter().map(|record| slot.publish(record, guarantee, overload));
                pending.last.extend(each);
            }
            Some(cause) => pending.fail(cause),
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

    /// Who publishes, with the incarnation of the first partition's writer.
    #[must_use]
    pub fn producer(&self) -> Producer {
        match self.writers.open_slots().next() {
            Some(slot) => slot.producer().clone(),
            None => Producer { name: self.topic.producer.clone(), incarnation: 0 },
        }
    }

    /// Shows that the writer is alive though it has nothing to publish (liveliness by lease).
    ///
    /// # Errors
    /// [`TransportError::Fenced`] where a newer incarnation has taken over.
    pub fn assert_alive(&self) -> Result<(), TransportError> {
        self.writers.open_slots().try_for_each(|slot| slot.assert_alive())
    }

    /// Waits until everything taken so far is under a guarantee. What still stands in line for room
    /// is not taken: that is an error, for its own receipts tell of it.
    ///
    /// # Errors
    /// [`PublishError::Timeout`], [`PublishError::Full`], or the first failure;
    /// [`TransportError::Unsupported`] where samples were published with less and the transport
    /// cannot give them more afterwards.
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

    /// The policies in which readers of the topic were found not to fit, on engines that match
    /// each pair by itself: those readers get nothing.
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

    /// What became of the samples so far, of all publishers of this bus on this topic.
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

    /// What happens where the transport's queue is full.
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

/// A batch under way.
#[must_use = "without the receipts nobody knows whether the samples were taken"]
#[derive(Debug, Default)]
pub struct PendingBatch {
    taken: usize,
    last: Vec<PendingPublish>,
    failed: Option<PublishError>,
}

impl PendingBatch {
    fn fail(&mut self, error: PublishError) {
        self.failed.get_or_insert(error);
    }

    /// How many samples the transport took at once.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Why the others were not taken.
    #[must_use]
    pub fn failed(&self) -> Option<&PublishError> {
        self.failed.as_ref()
    }

    /// Blocks until every sample is under the guarantee; gives the last receipt of each partition.
    ///
    /// # Errors
    /// The first failure; [`PendingBatch::taken`] tells how many samples were taken nevertheless.
    pub fn wait(self) -> Result<Vec<Receipt>, PublishError> {
        let outcomes: Vec<_> = self.last.into_iter().map(PendingPublish::wait).collect();
        let receipts = outcomes.into_iter().collect::<Result<_, _>>()?;
        match self.failed {
            None => Ok(receipts),
            Some(error) => Err(error),
        }
    }

    /// The same for tasks.
    ///
    /// # Errors
    /// As [`PendingBatch::wait`].
    pub async fn receipts(self) -> Result<Vec<Receipt>, PublishError> {
        let mut outcomes = Vec::with_capacity(self.last.len());
        for pending in self.last {
            outcomes.push(pending.await);
        }
        let receipts = outcomes.into_iter().collect::<Result<_, _>>()?;
        match self.failed {
            None => Ok(receipts),
            Some(error) => Err(error),
        }
    }
}
