//! What a transport is: the few things that differ between a journal, Kafka and DDS.
//!
//! Constraints. The traits are small and object-safe; nothing in them blocks, except for opening
//! and closing; whatever has a queue bounds it and says `Full`. What can be done the same way
//! everywhere (key filters, overload at the subscriber, deadlines, lifespans, fencing at the
//! reader, counting of losses and repeats, resolution of schemas) is not here but in the bus. ADR 5
//! says how Kafka and DDS fit.
//!
//! A transport hands out [`TransportTopic`]s, those hand out one [`Writer`] a partition and
//! producer, and [`Reader`]s over partitions. Conformance is held by [`crate::conformance`].

mod capabilities;
mod decorator;
pub mod fault;
mod journal;
pub mod memory;
mod producers;
mod registry;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_core::qos::Guarantee;
use helio_core::{HeadersRef, Producer, ProducerName, Qos, SchemaId, Tai, TopicName, TraceId};
use thiserror::Error;

pub(crate) use capabilities::word;
pub use capabilities::{Capabilities, Fencing, HistorySupport, Reach, Support};
pub use decorator::{Decorator, TopicDecorator};
pub use producers::{Producers, order_by_producer};
pub(crate) use registry::open;
pub use registry::{Connect, Opening, register, schemes};

use crate::bell::Bell;
pub use crate::bell::locked;
use crate::error::{PublishError, TransportError};
use crate::event::{Gap, Incompatible, Outage};
use crate::receipts::PendingReceipt;
pub use crate::receipts::{Published, Receipt};
use crate::schema_text::SchemaText;

/// One engine behind a URL.
pub trait Transport: Send + Sync + 'static {
    /// What it can do.
    fn capabilities(&self) -> &Capabilities;
    /// Waits, a bounded time, for what topics of a quality of service need besides the engine, such
    /// as a service that keeps them: asked before [`capabilities`](Self::capabilities) are
    /// compared.
    fn prepare(&self, _qos: &Qos) {}
    /// The engine's own name: the same from every connection to the same data, however its URL is
    /// written, and nobody else's. Letters, digits and `-._` only. `None` where it has none.
    ///
    /// # Errors
    /// What the engine says.
    fn identity(&self) -> Result<Option<String>, TransportError> {
        Ok(None)
    }
    /// Opens a topic as it is; `None` where there is none.
    ///
    /// # Errors
    /// What the engine says.
    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError>;
    /// Creates a topic, or opens the one that was created meanwhile with the same quality of
    /// service.
    ///
    /// # Errors
    /// [`TransportError::Differs`] where it exists with another quality of service; what the engine
    /// says.
    fn create_topic(
        &self,
        name: &TopicName,
        qos: &Qos,
    ) -> Result<Arc<dyn TransportTopic>, TransportError>;
    /// Makes topics that will be opened soon, as far as they are not there: for engines that are
    /// asked for many at once more cheaply than for each. `made` hears how many of them are there
    /// by now. What is wrong with one of them is told when that one is opened.
    ///
    /// # Errors
    /// What the engine says.
    fn make_topics(
        &self,
        _topics: &[(TopicName, Qos)],
        _made: &mut dyn FnMut(usize),
    ) -> Result<(), TransportError> {
        Ok(())
    }
    /// Removes a topic and all that is in it, of which it is known that nobody has it open; whether
    /// there was one. Few transports can.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`]; what the engine says.
    fn remove_topic(&self, _name: &TopicName) -> Result<bool, TransportError> {
        Err(TransportError::Unsupported {
            transport: self.capabilities().transport.clone(),
            what: "remove a topic".to_owned(),
            remedy: "use the engine's own tools".to_owned(),
        })
    }
    /// All topics, by name, without internal ones.
    ///
    /// # Errors
    /// What the engine says.
    fn topics(&self) -> Result<Vec<TopicName>, TransportError>;
    /// Keeps a schema's text under its identity; the same text again changes nothing.
    ///
    /// # Errors
    /// What the engine says.
    fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError>;
    /// The text of a schema.
    ///
    /// # Errors
    /// What the engine says.
    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError>;
    /// A new bell that readers of this transport can be armed with.
    ///
    /// # Errors
    /// What the engine says (a bounded number of bells, no memory).
    fn bell(&self) -> Result<Arc<dyn Bell>, TransportError>;
    /// What to do about a policy that is refused, where the transport knows better than to override
    /// it or to use another.
    fn remedy(&self, _policy: &str) -> Option<String> {
        None
    }
    /// Ends everything: pending receipts are completed, readers and writers then say `Closed`.
    fn close(&self);
}

/// Whether a schema was added to a topic's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// It was.
    Yes,
    /// There are others since the caller has looked: they want to be looked at first.
    Behind,
}

/// One topic of one engine.
pub trait TransportTopic: Send + Sync + 'static {
    /// The quality of service that it was created with.
    fn qos(&self) -> &Qos;
    /// The schemas that were declared for it, oldest first.
    ///
    /// # Errors
    /// What the engine says.
    fn schemas(&self) -> Result<Vec<SchemaId>, TransportError>;
    /// Adds a schema to those of the topic, if they are still `after` many and it is none of them.
    /// Of two that are declared at once one comes second, and can be held against the first.
    ///
    /// # Errors
    /// What the engine says.
    fn declare_schema(&self, id: SchemaId, after: usize) -> Result<Declared, TransportError>;
    /// Makes a schema known to whoever keeps the schemas of this topic besides the bus, such as a
    /// registry. Asked for each publisher that is opened, after the bus's own checks; the same
    /// again changes nothing. Most transports have nobody.
    ///
    /// # Errors
    /// [`RegisterError::Refused`] in the keeper's own words; what the engine says.
    fn register_schema(&self, _schema: &SchemaText) -> Result<(), RegisterError> {
        Ok(())
    }
    /// Opens a writer and allocates its incarnation: one more than the last of that name.
    ///
    /// # Errors
    /// [`TransportError::Owned`] where the topic is exclusive and has a live writer. One whose
    /// lease is over is no live one: it is fenced, whatever its name.
    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError>;
    /// Opens a writer of samples that a producer has published on another bus: they keep its name,
    /// and the incarnations and numbers that [`Writer::identify`] says before each. It counts as
    /// that producer's writer here. Incarnations that are allocated here afterwards are newer.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`] where the transport cannot; [`TransportError::Owned`] as
    /// [`writer`](Self::writer), and where another process has such a writer and the engine knows;
    /// [`TransportError::Fenced`] where the producer was given an incarnation here that is not
    /// older.
    fn forwarder(
        &self,
        _request: &WriterRequest<'_>,
        _incarnation: u64,
    ) -> Result<Box<dyn Writer>, TransportError> {
        Err(no_forwarding())
    }
    /// Opens a reader.
    ///
    /// # Errors
    /// What the engine says.
    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError>;
    /// Where each partition stands.
    ///
    /// # Errors
    /// What the engine says.
    fn partitions(&self) -> Result<Vec<PartitionInfo>, TransportError>;
    /// The producers that are known to have written, with their state.
    ///
    /// # Errors
    /// [`TransportError::Outage`] where the engine does not answer at once: then nobody knows who
    /// lives; else what the engine says.
    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError>;
    /// How its samples are carried, where the engine has several ways.
    ///
    /// # Errors
    /// What the engine says.
    fn carried(&self) -> Result<Option<Carried>, TransportError> {
        Ok(None)
    }
    /// Whether of the owners of this topic, which is exclusive, each has a larger incarnation than
    /// those before it, whatever their names, so that readers can tell who was replaced: as of
    /// `since` or later. It is asked where a sample of `producer` looks like that of a replaced
    /// owner, and never waits: until the engine has answered it says so, and is asked again.
    fn owners_in_order(&self, _producer: &Producer, _since: Instant) -> OwnerOrder {
        OwnerOrder::No
    }
    /// The committed position of a group in each partition that has one.
    ///
    /// # Errors
    /// What the engine says.
    fn committed(&self, group: &str) -> Result<Vec<(u32, u64)>, TransportError>;
}

/// Whether the owners of an exclusive topic follow each other by incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerOrder {
    /// They do: who has an older one than another was replaced by it.
    Yes,
    /// They do not, and never will.
    No,
    /// The engine is being asked.
    Asked,
    /// The engine did not answer in time; or the producer is not among those who have their
    /// incarnations from it.
    Unknown,
}

/// How a topic's samples are carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carried {
    /// As values of a type of the engine's own, which is called so.
    Typed(String),
    /// As bytes with a header, which the engine does not look into.
    Enveloped,
}

/// Why a schema could not be registered.
#[derive(Debug, Error)]
pub enum RegisterError {
    /// Its keeper does not let it in.
    #[error("{0}")]
    Refused(String),
    /// The keeper could not be asked.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// What is asked of a new writer.
#[derive(Debug, Clone)]
pub struct WriterRequest<'a> {
    /// Who writes.
    pub producer: &'a ProducerName,
    /// Where to.
    pub partition: u32,
}

/// One sample on its way in.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The key; empty is none.
    pub key: &'a [u8],
    /// The encoded value.
    pub payload: &'a [u8],
    /// When it was published.
    pub time: Tai,
    /// Its schema.
    pub schema: SchemaId,
    /// The routing byte.
    pub level: u8,
    /// The trace that it belongs to.
    pub trace: Option<TraceId>,
    /// Named values beside the payload.
    pub headers: HeadersRef<'a>,
}

impl Record<'_> {
    /// Compares payload and key with a transport's limits, in bytes: for transports.
    ///
    /// # Errors
    /// [`TransportError::TooLarge`] with the limit.
    pub fn check_size(
        &self,
        transport: &str,
        max_payload: usize,
        max_key: usize,
    ) -> Result<(), TransportError> {
        let limits = [
            ("the payload", self.payload.len(), max_payload),
            ("the key", self.key.len(), max_key),
        ];
        match limits.into_iter().find(|(_, bytes, limit)| bytes > limit) {
            None => Ok(()),
            Some((what, bytes, limit)) => {
                let transport = transport.to_owned();
                Err(TransportError::TooLarge { what, bytes, limit, transport })
            }
        }
    }
}

/// Takes the samples of one producer into one partition, and numbers them from 1 without holes.
pub trait Writer: Send {
    /// Who writes, with the incarnation that was allocated.
    fn producer(&self) -> &Producer;
    /// Says which incarnation and number the next sample has: of writers that
    /// [`TransportTopic::forwarder`] has opened.
    ///
    /// # Errors
    /// [`TransportError::Fenced`] where the producer writes here itself by now.
    fn identify(&mut self, _incarnation: u64, _sequence: u64) -> Result<(), TransportError> {
        Err(no_forwarding())
    }
    /// Takes one sample, without blocking.
    ///
    /// # Errors
    /// [`PublishError::Full`] where a bounded queue is full (see [`Writer::on_room`]);
    /// [`TransportError::Fenced`] where a newer incarnation has taken over.
    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError>;
    /// The same for threads that must not be held up: `None` where another process would have to
    /// be waited for, and then nothing was done.
    ///
    /// # Errors
    /// As [`Writer::publish`].
    fn try_publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Option<Published>, PublishError> {
        self.publish(record, guarantee).map(Some)
    }
    /// Takes samples in order, all or up to the first that fails; gives the last one's receipt.
    ///
    /// # Errors
    /// [`BatchError`] with the number that were taken.
    fn publish_batch(
        &mut self,
        records: &[Record<'_>],
        guarantee: Guarantee,
    ) -> Result<Option<Published>, Box<BatchError>> {
        let mut last = None;
        for (taken, record) in records.iter().enumerate() {
            match self.publish(record, guarantee) {
                Ok(published) => last = Some(published),
                Err(cause) => return Err(Box::new(BatchError { taken, last, cause })),
            }
        }
        Ok(last)
    }
    /// Names who is told whenever there is room again after a `Full`.
    fn on_room(&mut self, _notify: Arc<dyn Fn() + Send + Sync>) {}
    /// Shows that the writer is alive though it has nothing to publish.
    ///
    /// # Errors
    /// [`TransportError::Fenced`], or what the engine says.
    fn assert_alive(&mut self) -> Result<(), TransportError>;
    /// The policies in which readers of the topic were found not to fit, each once: those get
    /// nothing of what it takes.
    fn incompatible(&self) -> Vec<Incompatible> {
        Vec::new()
    }
    /// A receipt for everything taken so far; `None` where the guarantee holds already.
    ///
    /// # Errors
    /// What the engine says.
    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError>;
}

/// A batch that stopped in the middle.
#[derive(Debug)]
pub struct BatchError {
    /// How many samples were taken before.
    pub taken: usize,
    /// The receipt of the last one taken.
    pub last: Option<Published>,
    /// Why the next one was not.
    pub cause: PublishError,
}

/// Where a reader begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// At what is published from now on.
    Latest,
    /// At the oldest sample that is kept.
    Earliest,
    /// With the newest `n` samples of each key, marked [`Origin::History`], then at the tail as it
    /// was.
    LastPerKey(u32),
    /// At an offset; other partitions at their earliest.
    Offset(u32, u64),
    /// At the first sample published at or after a time.
    Time(Tai),
}

/// What is asked of a new reader.
#[derive(Debug, Clone)]
pub struct ReaderRequest<'a> {
    /// Where to begin; with a group, where it has committed nothing.
    pub from: Begin,
    /// The partitions; empty is all. With a group, the transport assigns them.
    pub partitions: &'a [u32],
    /// The group to join, under this member name.
    pub group: Option<GroupRequest<'a>>,
}

/// Membership of a group of subscriptions that share partitions.
#[derive(Debug, Clone)]
pub struct GroupRequest<'a> {
    /// The group.
    pub name: &'a str,
    /// The member, for lists that people read.
    pub member: &'a str,
}

/// Whether a sample comes from the log in order or from the last values that a late joiner asked
/// for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// From the log: the producer's numbers have no holes.
    Log,
    /// From the history by key: in order, with holes.
    History,
}

/// A sample as it lies in the transport: borrowed, not copied.
#[derive(Debug, Clone, Copy)]
pub struct SampleRef<'a> {
    /// The partition.
    pub partition: u32,
    /// The place in the partition; engines without places number what the reader received.
    pub offset: u64,
    /// The key; empty is none.
    pub key: &'a [u8],
    /// Who published.
    pub producer: &'a Producer,
    /// The number among its producer's samples in that partition.
    pub sequence: u64,
    /// When it was published.
    pub time: Tai,
    /// The payload's schema.
    pub schema: SchemaId,
    /// The routing byte.
    pub level: u8,
    /// The trace that it belongs to.
    pub trace: Option<TraceId>,
    /// Named values beside the payload.
    pub headers: HeadersRef<'a>,
    /// The encoded value.
    pub payload: &'a [u8],
    /// Where it comes from.
    pub origin: Origin,
}

/// What a reader comes across.
#[derive(Debug)]
pub enum Item<'a> {
    /// A sample.
    Sample(SampleRef<'a>),
    /// Samples that are no longer there, or never will be.
    Gap(Gap),
    /// This partition's log is another one from here on: what was read of the former one says
    /// nothing of its producers and their numbers.
    Recreated(u32),
    /// The partitions of this group member changed: these are its own now.
    Assigned(&'a [u32]),
    /// The engine cannot be reached, or can again.
    Outage(Outage),
    /// A writer does not fit.
    Incompatible(Incompatible),
}

/// The visitor of a [`Reader::poll`] with its budget.
pub struct Visit<'a> {
    visit: &'a mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    left: usize,
}

impl<'a> Visit<'a> {
    /// A visitor of at most `max` items, at least one.
    pub fn new(visit: &'a mut dyn FnMut(Item<'_>) -> ControlFlow<()>, max: usize) -> Self {
        Self { visit, left: max }
    }

    /// Hands over an item; breaks where the visitor does, or the budget is spent.
    pub fn item(&mut self, item: Item<'_>) -> ControlFlow<()> {
        self.left -= 1;
        (self.visit)(item)?;
        if self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// How many items it may be given still.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }
}

/// Reads partitions of one topic, each in order, without blocking.
pub trait Reader: Send {
    /// Visits up to `max` items; returns how many. Those visited are passed, also the one where the
    /// visitor broke off.
    ///
    /// # Errors
    /// What the engine says; outages are items, not errors.
    fn poll(
        &mut self,
        max: usize,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<usize, TransportError>;
    /// Has the bell rung with the token as soon as there may be something; once. Returns
    /// [`Armed::Ready`] where there already is.
    ///
    /// # Errors
    /// What the engine says.
    fn arm(&mut self, bell: &Arc<dyn Bell>, token: u64) -> Result<Armed, TransportError>;
    /// For each partition that it reads: the next offset, and the end of the log.
    fn positions(&self, visit: &mut dyn FnMut(Position));
    /// The samples that lie ahead, over all partitions.
    fn lag(&self) -> u64 {
        let mut lag = 0;
        self.positions(&mut |at| lag += at.end.saturating_sub(at.next));
        lag
    }
    /// Goes to an offset of a partition (the next sample is the first at or after it).
    ///
    /// # Errors
    /// [`TransportError::Unsupported`] where the engine cannot rewind.
    fn seek(&mut self, partition: u32, offset: u64) -> Result<(), TransportError>;
    /// Sets the group's position: the offset that its members begin at next.
    ///
    /// # Errors
    /// What the engine says; a partition that is no longer this member's is an error.
    fn commit(&mut self, partition: u32, offset: u64) -> Result<(), TransportError>;
}

/// What [`Reader::arm`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Armed {
    /// There is something to read: do not wait.
    Ready,
    /// The bell will ring.
    Waiting,
    /// The bell will ring, but look again after this time at the latest (engines that cannot tell).
    Recheck(Duration),
}

/// Where a reader stands in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The partition.
    pub partition: u32,
    /// The offset that it reads next.
    pub next: u64,
    /// The offset that the next publish gets.
    pub end: u64,
}

/// Where a partition stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionInfo {
    /// The partition.
    pub partition: u32,
    /// The oldest offset that is kept.
    pub first: u64,
    /// The offset that the next publish gets.
    pub end: u64,
    /// The offset below which all is durable.
    pub durable: u64,
    /// The bytes that it takes.
    pub bytes: u64,
    /// When the newest sample was published.
    pub last_time: Option<Tai>,
}

/// A producer that writes or wrote a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterInfo {
    /// Who.
    pub producer: Producer,
    /// The partition.
    pub partition: u32,
    /// Whether its process lives and, where the topic has a lease, it published or asserted within
    /// it; where the transport can tell.
    pub alive: Option<Alive>,
    /// When it last published or asserted that it is alive.
    pub seen: Option<Tai>,
}

/// Whether a writer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alive {
    /// It does.
    Yes,
    /// It has gone.
    No,
}

/// The first field in which a topic differs from what was asked for, as the error that says so: for
/// transports. None where it does not differ.
#[must_use]
pub fn first_difference(topic: &TopicName, existing: &Qos, asked: &Qos) -> Option<TransportError> {
    if existing == asked {
        return None;
    }
    let (old, new) = (serde_json::to_value(existing).ok()?, serde_json::to_value(asked).ok()?);
    let (old, new) = (old.as_object()?, new.as_object()?);
    let (field, value) = old.iter().find(|(field, value)| new.get(*field) != Some(*value))?;
    let asked = new.get(field).map_or_else(String::new, word);
    let (field, existing) = (field.clone(), word(value));
    Some(TransportError::Differs { topic: topic.clone(), field, existing, asked })
}

fn no_forwarding() -> TransportError {
    TransportError::Unsupported {
        transport: "the transport".to_owned(),
        what: "keep the producers and numbers of samples that were published elsewhere".to_owned(),
        remedy: "forward to another one".to_owned(),
    }
}

/// The error of a partition that a reader does not have: for transports.
#[must_use]
pub fn not_ours(transport: &str, partition: u32) -> TransportError {
    TransportError::Unsupported {
        transport: transport.to_owned(),
        what: format!("move or commit partition {partition}: it is not this reader's"),
        remedy: "use the partitions of its last Assigned event".to_owned(),
    }
}
