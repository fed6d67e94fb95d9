//! The interface of a transport: the few operations that differ between a journal, Kafka and DDS.
//!
//! Constraints. The traits are small and object-safe. Only opening and closing block. Every queue
//! is bounded and reports `Full`. The bus does what is equal on all transports: key filters,
//! overload at the subscriber, deadlines, lifespans, fencing at the reader, counting of losses and
//! duplicates, resolution of schemas. ADR 5 describes how Kafka and DDS fit.
//!
//! A transport opens [`TransportTopic`]s. A topic opens one [`Writer`] a partition and producer,
//! and [`Reader`]s of its partitions. [`crate::conformance`] tests a transport.

mod batch_admission;
mod capabilities;
mod decorator;
pub mod fault;
mod fence;
mod journal;
pub mod memory;
mod owned_record;
mod producers;
mod registry;
pub mod versioned_json;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use helio_core::qos::{Guarantee, Retention};
use helio_core::{HeadersRef, Producer, ProducerName, Qos, SchemaId, Tai, TopicName, TraceId};
use thiserror::Error;

pub(crate) use batch_admission::parts;
pub use batch_admission::{AcceptedRun, BatchAdmission};
pub(crate) use capabilities::word;
pub use capabilities::{Capabilities, Fencing, HistorySupport, Reach, Support};
pub use decorator::{Decorator, TopicDecorator};
pub use fence::{Ends, Fence};
pub(crate) use owned_record::OwnedRecord;
pub use producers::{Producers, order_by_producer};
pub use registry::{Connect, Opening, register, schemes};
pub(crate) use registry::{open, reading};

use crate::bell::Bell;
pub use crate::bell::locked;
use crate::error::{PublishError, SizeLimit, TransportError};
use crate::event::{Gap, Incompatible, Outage};
use crate::exclusive::{ExclusiveError, ExclusiveLog, LogOptions};
pub use crate::grants::Granted;
pub use crate::groups::{GroupMember, GroupState};
use crate::receipts::PendingReceipt;
pub use crate::receipts::{Published, Receipt};
use crate::schema_text::SchemaText;

/// One engine behind a URL.
pub trait Transport: Send + Sync + 'static {
    /// Its capabilities.
    fn capabilities(&self) -> &Capabilities;
    /// Waits, for a bounded time, for a service that topics of this quality of service need besides
    /// the engine, such as one that stores them. The bus calls it before it compares
    /// [`capabilities`](Self::capabilities).
    fn prepare(&self, _qos: &Qos) {}
    /// The engine's unique name, equal for all connections to the same data, however their URLs are
    /// written. Letters, digits and `-._` only. `None` if it has none.
    ///
    /// # Errors
    /// The engine's error.
    fn identity(&self) -> Result<Option<String>, TransportError> {
        Ok(None)
    }
    /// Opens an existing topic; `None` if there is none.
    ///
    /// # Errors
    /// The engine's error.
    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError>;
    /// Creates a topic, or opens an existing one of the same quality of service.
    ///
    /// # Errors
    /// [`TransportError::Differs`] if it exists with another quality of service; the engine's
    /// error.
    fn create_topic(
        &self,
        name: &TopicName,
        qos: &Qos,
    ) -> Result<Arc<dyn TransportTopic>, TransportError>;
    /// Creates those of the topics that do not exist, on engines where one request for many is
    /// cheaper. `made` is called with the number of existing ones. A topic's own error is reported
    /// when it is opened.
    ///
    /// # Errors
    /// The engine's error.
    fn make_topics(
        &self,
        _topics: &[(TopicName, Qos)],
        _made: &mut dyn FnMut(usize),
    ) -> Result<(), TransportError> {
        Ok(())
    }
    /// Removes a topic with its samples; returns whether it existed. Open handles fail with
    /// [`TransportError::TopicGone`]. Few transports support it.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`]; the engine's error.
    fn remove_topic(&self, _name: &TopicName) -> Result<bool, TransportError> {
        Err(self.unsupported("remove a topic"))
    }
    /// Removes all samples of a topic, which begins again as a new one of the same quality of
    /// service and schemas; returns whether it existed. Open handles fail with
    /// [`TransportError::TopicGone`], as their positions belong to the removed samples.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`]; the engine's error.
    fn purge_topic(&self, _name: &TopicName) -> Result<bool, TransportError> {
        Err(self.unsupported("purge a topic"))
    }
    /// Changes a topic's retention, by age and by bytes, also for those that have it open; returns
    /// whether it exists. Whether last values are stored cannot be changed.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`]; the engine's error.
    fn alter_topic(
        &self,
        _name: &TopicName,
        _retention: &Retention,
    ) -> Result<bool, TransportError> {
        Err(self.unsupported("alter a topic"))
    }
    /// Lets a user of the engine read a topic, in groups of the topic where the engine can limit
    /// those. The user can write nothing. Granting again changes nothing but a given password.
    /// Where topics are open to everybody, the topic is closed to all others.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`] if the engine has no users, or no passwords for them;
    /// [`TransportError::TopicGone`]; the engine's error.
    fn grant(
        &self,
        _user: &str,
        _topic: &TopicName,
        _password: Option<&str>,
    ) -> Result<Granted, TransportError> {
        Err(self.no_grants())
    }
    /// Ends a user's [grant](Self::grant); returns whether there was one. The user's login stays.
    ///
    /// # Errors
    /// As [`grant`](Self::grant).
    fn revoke(&self, _user: &str, _topic: &TopicName) -> Result<bool, TransportError> {
        Err(self.no_grants())
    }
    /// Opens an [exclusive log](crate::exclusive); creates it if there is none.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`] as [`ExclusiveError::Transport`] if the engine has none;
    /// [`ExclusiveError::Held`]; the engine's error.
    fn exclusive_log(
        &self,
        _name: &TopicName,
        _options: &LogOptions,
    ) -> Result<Arc<dyn ExclusiveLog>, ExclusiveError> {
        Err(self.no_exclusive_logs())
    }
    /// The error of exclusive logs where the engine has none.
    fn no_exclusive_logs(&self) -> ExclusiveError {
        ExclusiveError::Transport(TransportError::Unsupported {
            transport: self.capabilities().transport.clone(),
            what: "open an exclusive log".to_owned(),
            remedy: "use a journal (journal:PATH)".to_owned(),
        })
    }
    /// The error of grants where the engine has no users.
    fn no_grants(&self) -> TransportError {
        TransportError::Unsupported {
            transport: self.capabilities().transport.clone(),
            what: "grant a topic to a user".to_owned(),
            remedy: "use a transport whose engine has users".to_owned(),
        }
    }
    /// The error of an operation that only the engine's own tools offer.
    fn unsupported(&self, what: &str) -> TransportError {
        TransportError::Unsupported {
            transport: self.capabilities().transport.clone(),
            what: what.to_owned(),
            remedy: "use the engine's own tools".to_owned(),
        }
    }
    /// All topics, by name, without internal ones.
    ///
    /// # Errors
    /// The engine's error.
    fn topics(&self) -> Result<Vec<TopicName>, TransportError>;
    /// Stores a schema's text under its identity; storing it again changes nothing.
    ///
    /// # Errors
    /// The engine's error.
    fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError>;
    /// The text of a schema.
    ///
    /// # Errors
    /// The engine's error.
    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError>;
    /// A new bell, with which readers of this transport can be armed.
    ///
    /// # Errors
    /// The engine's error (a bounded number of bells, no memory).
    fn bell(&self) -> Result<Arc<dyn Bell>, TransportError>;
    /// The remedy for a refused policy, if the transport has a better one than overriding it or
    /// using another transport.
    fn remedy(&self, _policy: &str) -> Option<String> {
        None
    }
    /// Closes the connection: pending receipts are completed; readers and writers fail with
    /// `Closed`.
    fn close(&self);
}

/// The result of declaring a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declared {
    /// It was added.
    Yes,
    /// Others were added since the caller's last query and must be checked first.
    Behind,
}

/// One topic of one engine.
pub trait TransportTopic: Send + Sync + 'static {
    /// Whether it is the topic that has the name: false once it was deleted, even if another one
    /// was created under its name. The bus then opens that one for new handles.
    fn is_current(&self) -> bool {
        true
    }
    /// The quality of service that it was created with.
    fn qos(&self) -> &Qos;
    /// Its present retention, which may have been [altered](Transport::alter_topic) since it was
    /// opened.
    ///
    /// # Errors
    /// The engine's error.
    fn retention(&self) -> Result<Retention, TransportError> {
        Ok(self.qos().retention.clone())
    }
    /// The declared schemas, oldest first.
    ///
    /// # Errors
    /// The engine's error.
    fn schemas(&self) -> Result<Vec<SchemaId>, TransportError>;
    /// Adds a schema to the topic's if their number is still `after` and it is not among them. Of
    /// two concurrent declarations one comes second, and can be checked against the first.
    ///
    /// # Errors
    /// The engine's error.
    fn declare_schema(&self, id: SchemaId, after: usize) -> Result<Declared, TransportError>;
    /// Registers a schema outside the bus, such as in a schema registry. The bus calls it for each
    /// publisher that is opened, after its own checks; registering it again changes nothing. Most
    /// transports have no registry.
    ///
    /// # Errors
    /// [`RegisterError::Refused`] with the registry's message; the engine's error.
    fn register_schema(&self, _schema: &SchemaText) -> Result<(), RegisterError> {
        Ok(())
    }
    /// Opens a writer and allocates its incarnation: one more than the last of that name.
    ///
    /// # Errors
    /// [`TransportError::Owned`] if the topic is exclusive and has a live writer. A writer whose
    /// lease has expired is not alive: it is fenced, whatever its name.
    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError>;
    /// Opens a writer of samples that a producer published on another bus. They keep its name, and
    /// the incarnations and sequences that [`Writer::identify`] sets before each. It counts as that
    /// producer's writer here. Incarnations allocated here afterwards are newer.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`] if the transport cannot forward; [`TransportError::Owned`]
    /// as [`writer`](Self::writer), and if another process is known to have such a writer;
    /// [`TransportError::Fenced`] if the producer was allocated an incarnation here that is not
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
    /// The engine's error.
    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError>;
    /// The state of each partition.
    ///
    /// # Errors
    /// The engine's error.
    fn partitions(&self) -> Result<Vec<PartitionInfo>, TransportError>;
    /// The producers that are known to have written, with their liveliness.
    ///
    /// # Errors
    /// [`TransportError::Outage`] if the engine does not answer at once, so that liveliness is
    /// unknown; else the engine's error.
    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError>;
    /// The encoding of its samples, if the engine has several.
    ///
    /// # Errors
    /// The engine's error.
    fn carried(&self) -> Result<Option<Carried>, TransportError> {
        Ok(None)
    }
    /// Whether the owners of this exclusive topic have increasing incarnations, whatever their
    /// names, as of `since` or later. Readers can then identify replaced owners. The bus queries it
    /// for a sample of `producer` that may be a replaced owner's. It never blocks: while the
    /// engine's answer is pending it returns [`OwnerOrder::Asked`], and the bus queries again.
    fn owners_in_order(&self, _producer: &Producer, _since: Instant) -> OwnerOrder {
        OwnerOrder::No
    }
    /// A group's committed position in each partition that has one.
    ///
    /// # Errors
    /// The engine's error.
    fn committed(&self, group: &str) -> Result<Vec<(u32, u64)>, TransportError>;
    /// The groups that have members or committed positions here, by name. The bus does not query
    /// transports without [groups](Capabilities::groups).
    ///
    /// # Errors
    /// The engine's error.
    fn groups(&self) -> Result<Vec<GroupState>, TransportError> {
        Ok(Vec::new())
    }
}

/// Whether the owners of an exclusive topic are ordered by incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerOrder {
    /// They are: an owner of an older incarnation was replaced.
    Yes,
    /// They are not, and never will be.
    No,
    /// The engine's answer is pending.
    Asked,
    /// The engine did not answer in time, or it did not allocate the producer's incarnation.
    Unknown,
}

/// The encoding of a topic's samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carried {
    /// As values of an engine's own type of this name.
    Typed(String),
    /// As opaque bytes with a header.
    Enveloped,
}

/// An error of registering a schema.
#[derive(Debug, Error)]
pub enum RegisterError {
    /// The registry rejected the schema.
    #[error("{0}")]
    Refused(String),
    /// The registry could not be reached.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// Options of a new writer.
#[derive(Debug, Clone)]
pub struct WriterRequest<'a> {
    /// The producer.
    pub producer: &'a ProducerName,
    /// The partition.
    pub partition: u32,
}

/// A sample to publish.
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
    /// The trace of which the sample is a part.
    pub trace: Option<TraceId>,
    /// Named values beside the payload.
    pub headers: HeadersRef<'a>,
}

impl Record<'_> {
    /// Whether it has no value: it deletes its key's last value. Its headers have the mark.
    #[inline]
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.payload.is_empty() && self.headers.mark_null()
    }

    /// The size of payload, key and headers in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.payload.len() + self.key.len() + self.headers.as_bytes().len()
    }

    /// Compares payload and key with a transport's limits in bytes, for transports.
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
                let (transport, limit) = (transport.to_owned(), SizeLimit::Bytes(limit));
                Err(TransportError::TooLarge { what, bytes, limit, transport })
            }
        }
    }
}

/// Accepts the samples of one producer into one partition, and numbers them from 1 without holes.
pub trait Writer: Send {
    /// The producer, with its allocated incarnation.
    fn producer(&self) -> &Producer;
    /// Sets the incarnation and sequence of the next sample, for writers opened by
    /// [`TransportTopic::forwarder`].
    ///
    /// # Errors
    /// [`TransportError::Fenced`] if the producer writes here itself by now.
    fn identify(&mut self, _incarnation: u64, _sequence: u64) -> Result<(), TransportError> {
        Err(no_forwarding())
    }
    /// Accepts one sample, without blocking.
    ///
    /// # Errors
    /// [`PublishError::Full`] if a bounded queue is full (see [`Writer::on_room`]);
    /// [`TransportError::Fenced`] if a newer incarnation has replaced this one.
    fn publish(
        &mut self,
        record: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError>;
    /// The same for threads that must not block. `None`: it would wait for another process, and
    /// nothing was done.
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
    /// Accepts samples in order, up to the first failure. The bus passes at most
    /// [`MAX_BATCH_BYTES`](crate::MAX_BATCH_BYTES), or one larger sample.
    fn publish_batch(&mut self, records: &[Record<'_>], guarantee: Guarantee) -> BatchAdmission {
        let mut admission = BatchAdmission::default();
        for record in records {
            match self.publish(record, guarantee) {
                Ok(published) => admission.accept(1, published),
                Err(cause) => {
                    admission.failed = Some(cause);
                    break;
                }
            }
        }
        admission
    }
    /// Sets a callback for room in the queue after a `Full`.
    fn on_room(&mut self, _notify: Arc<dyn Fn() + Send + Sync>) {}
    /// Renews the liveliness lease without publishing a sample.
    ///
    /// # Errors
    /// [`TransportError::Fenced`], or the engine's error.
    fn assert_alive(&mut self) -> Result<(), TransportError>;
    /// The policies in which readers of the topic are incompatible, each once. Those readers
    /// receive nothing.
    fn incompatible(&self) -> Vec<Incompatible> {
        Vec::new()
    }
    /// A receipt for all samples accepted so far; `None` if the guarantee holds already.
    ///
    /// # Errors
    /// The engine's error.
    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError>;
}

/// Where a reader starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// At the next published sample.
    Latest,
    /// At the oldest stored sample.
    Earliest,
    /// With the newest `n` samples of each key, marked [`Origin::History`], then at the end of the
    /// log at that time.
    LastPerKey(u32),
    /// At an offset of a partition; at the oldest sample of the others.
    Offset(u32, u64),
    /// At the first sample published at or after a time.
    Time(Tai),
}

/// Options of a new reader.
#[derive(Debug, Clone)]
pub struct ReaderRequest<'a> {
    /// The start position; with a group, only for partitions without a committed position.
    pub from: Begin,
    /// The partitions; all if empty. With a group, the transport assigns them.
    pub partitions: &'a [u32],
    /// The group to join, under this member name.
    pub group: Option<GroupRequest<'a>>,
    /// The schema that the subscription reads. It is not declared; an engine with types reads those
    /// of its foreign writers by it as long as the topic has no schema.
    pub schema: Option<&'a SchemaText>,
}

/// Membership of a group of subscriptions that share partitions.
#[derive(Debug, Clone)]
pub struct GroupRequest<'a> {
    /// The group.
    pub name: &'a str,
    /// The member, for display.
    pub member: &'a str,
}

/// Whether a sample comes from the log or from the last values for a late joiner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// From the log: sequences have no holes.
    Log,
    /// From the history by key: in order, with holes.
    History,
}

/// A sample borrowed from the transport's memory.
#[derive(Debug, Clone, Copy)]
pub struct SampleRef<'a> {
    /// The partition.
    pub partition: u32,
    /// The offset; engines without offsets number the samples that the reader received.
    pub offset: u64,
    /// The key; empty is none.
    pub key: &'a [u8],
    /// The producer.
    pub producer: &'a Producer,
    /// The number among its producer's samples in that partition.
    pub sequence: u64,
    /// When it was published.
    pub time: Tai,
    /// The payload's schema.
    pub schema: SchemaId,
    /// The routing byte.
    pub level: u8,
    /// The trace of which the sample is a part.
    pub trace: Option<TraceId>,
    /// Named values beside the payload.
    pub headers: HeadersRef<'a>,
    /// The encoded value.
    pub payload: &'a [u8],
    /// Where it comes from.
    pub origin: Origin,
    /// The means to keep the payload without a copy, if its reader [pins](Reader::pin_payloads) it.
    pub pin: Option<&'a dyn PinSource>,
}

/// Storage of a transport in which a payload can stay.
pub trait PinSource: std::fmt::Debug + Sync {
    /// The payload in place, unchanged for as long as it exists; `None` if these bytes lie
    /// elsewhere.
    fn pin(&self, payload: &[u8]) -> Option<Bytes>;
}

impl SampleRef<'_> {
    /// Whether it has no value: it deletes its key's last value. An empty payload is a value.
    #[inline]
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.payload.is_empty() && self.headers.mark_null()
    }
}

/// An item that a reader returns.
#[derive(Debug)]
pub enum Item<'a> {
    /// A sample.
    Sample(SampleRef<'a>),
    /// Samples that were removed, or will never be received.
    Gap(Gap),
    /// This partition's log was recreated: the producers' sequences start again.
    Recreated(u32),
    /// Numbers that are missing before the next sample were published, and this reader was too slow
    /// for them.
    Behind,
    /// The partitions now assigned to this member of a group.
    Assigned(&'a [u32]),
    /// The engine became unreachable, or reachable again.
    Outage(Outage),
    /// A writer is incompatible.
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

    /// Passes an item to the visitor; breaks if the visitor does, or if the budget is spent.
    pub fn item(&mut self, item: Item<'_>) -> ControlFlow<()> {
        self.left -= 1;
        (self.visit)(item)?;
        if self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The rest of the budget.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }
}

/// Reads partitions of one topic, each in order, without blocking.
pub trait Reader: Send {
    /// Visits up to `max` items and moves behind them, also behind the one at which the visitor
    /// broke; returns their number.
    ///
    /// # Errors
    /// The engine's error; outages are items, not errors.
    fn poll(
        &mut self,
        max: usize,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<usize, TransportError>;
    /// Rings the bell with the token once, as soon as an item may be pending. Returns
    /// [`Armed::Ready`] if one is pending already.
    ///
    /// # Errors
    /// The engine's error.
    fn arm(&mut self, bell: &Arc<dyn Bell>, token: u64) -> Result<Armed, TransportError>;
    /// Visits each partition's next offset and end of the log.
    fn positions(&self, visit: &mut dyn FnMut(Position));
    /// The ends of everything that is stored now for this reader. It never waits: where the engine
    /// must be queried, or samples are on their way, it returns how to find them.
    ///
    /// # Errors
    /// The engine's error.
    fn fence(&self) -> Result<Fence, TransportError> {
        let mut ends = Ends::new();
        self.positions(&mut |at| ends.push((at.partition, at.end)));
        Ok(Fence::Ends(ends))
    }
    /// The number of last values that were not visited yet; positions do not count them.
    fn unread_history(&self) -> u64 {
        0
    }
    /// The number of unread samples over all partitions.
    fn lag(&self) -> u64 {
        let mut lag = 0;
        self.positions(&mut |at| lag += at.end.saturating_sub(at.next));
        lag
    }
    /// Gives samples the means to keep their payloads [without a copy](SampleRef::pin), as long as
    /// they hold at most so many bytes of the transport's storage. Transports that copy ignore it.
    fn pin_payloads(&mut self, _max_bytes: u64) {}
    /// Moves to an offset of a partition: the next sample is the first at or after it.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`] if the engine cannot rewind.
    fn seek(&mut self, partition: u32, offset: u64) -> Result<(), TransportError>;
    /// Sets the group's position, the offset at which its members start next.
    ///
    /// # Errors
    /// [`TransportError::NotAssigned`] if the partition is not this member's, or no longer; the
    /// engine's error.
    fn commit(&mut self, partition: u32, offset: u64) -> Result<(), TransportError>;
}

/// The result of [`Reader::arm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Armed {
    /// An item is pending: do not wait.
    Ready,
    /// The bell will ring.
    Waiting,
    /// The bell will ring, but poll again after this time, for engines that cannot notify
    /// everything.
    Recheck(Duration),
}

/// A reader's position in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The partition.
    pub partition: u32,
    /// The offset of the next sample to read.
    pub next: u64,
    /// The offset that the next publish gets.
    pub end: u64,
}

/// The state of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionInfo {
    /// The partition.
    pub partition: u32,
    /// The oldest stored offset.
    pub first: u64,
    /// The offset that the next publish gets.
    pub end: u64,
    /// The offset below which all samples are durable.
    pub durable: u64,
    /// Its size in bytes, if the engine tells it.
    pub bytes: Option<u64>,
    /// The samples that the engine's last recovery found missing. Readers get them as gaps.
    pub missing: u64,
    /// The first of them.
    pub missing_from: u64,
    /// When the newest sample was published.
    pub last_time: Option<Tai>,
    /// What retention has removed since the topic was created; `None` if the engine does not count
    /// it.
    pub taken: Option<Taken>,
    /// The log's identity; `None` if the engine gives it none.
    pub log: Option<LogIdentity>,
}

/// The identity of a partition's log. It changes where the log may have been cut off, and where it
/// was restored from a copy: the same offset may then be another sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogIdentity {
    /// The identity, a random number.
    pub id: u64,
    /// The identity before it, and the offset at which this one began.
    pub former: Option<(u64, u64)>,
}

impl LogIdentity {
    /// The offset up to which positions in the log of an identity are positions in this one:
    /// everything in its own, 0 if the two have nothing in common.
    #[must_use]
    pub fn fits_up_to(&self, id: u64) -> u64 {
        match self.former {
            _ if id == self.id => u64::MAX,
            Some((former, end)) if id == former => end,
            _ => 0,
        }
    }
}

/// What retention has removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Samples, without the last values that are still stored.
    pub samples: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// A present or former writer of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterInfo {
    /// Who.
    pub producer: Producer,
    /// The partition.
    pub partition: u32,
    /// Whether its process is alive and, if the topic has a lease, renewed it in time; `None` if
    /// the transport cannot tell.
    pub alive: Option<Alive>,
    /// When it last published or renewed its lease.
    pub seen: Option<Tai>,
}

/// Whether a writer is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alive {
    /// It is alive.
    Yes,
    /// It is gone.
    No,
}

/// The error for the first field in which a topic differs from the request, for transports; `None`
/// if they are equal. The limits of bytes and age are no part of a topic's identity: an existing
/// topic keeps its own until it is [altered](Transport::alter_topic).
#[must_use]
pub fn first_difference(topic: &TopicName, existing: &Qos, asked: &Qos) -> Option<TransportError> {
    let last_value = asked.retention.last_value;
    let retention = Retention { last_value, ..existing.retention.clone() };
    let asked = &Qos { retention, ..asked.clone() };
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

/// The error for a null on a topic of SAL's, whose readers fail on it, for transports.
#[must_use]
pub fn no_sal_null(topic: &TopicName) -> PublishError {
    PublishError::Encode(format!(
        "readers of SAL's own software fail on a null in {topic}; add null=allow to the URL if all \
         of its readers can take it"
    ))
}

/// The error for a partition that is not a reader's, for transports.
#[must_use]
pub fn not_ours(transport: &str, partition: u32) -> TransportError {
    TransportError::NotAssigned { transport: transport.to_owned(), partition }
}
