//! Metadata that Kafka cannot store, in compacted topics of one partition, read as logs.
//!
//! Constraints. The first attempt wins, and all readers see the same winner: Kafka has no
//! compare-and-swap, but one order for all. Each attempt is a record with its own key, so that
//! compaction never removes a winner. Readers fold the log in order; an attempt that the fold skips
//! has lost, and its writer deletes it.
//!
//! Format. Keys are words separated by spaces; values are JSON or a schema's text.
//!
//! | topic | key | value |
//! | --- | --- | --- |
//! | `_helio.topics` | topic, attempt | `{"qos":…,"origin":…}` |
//! | `_helio.topics` | topic, `-`, `forwarded` | `true`: the topic has samples of another bus |
//! | `_helio.schemas` | `text`, schema | the schema |
//! | `_helio.schemas` | `of`, topic, attempt | `{"schema":…,"after":…}` |
//!
//! Writers are in `_helio.producers`; see `producers`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant, SystemTime};

use helio_bus::transport::{OwnerOrder, locked};
use helio_bus::{Qos, SchemaId, TopicName, TransportError};
use rdkafka::message::Message as _;
use serde::{Deserialize, Serialize};

use crate::client::admin::TopicToCreate;
use crate::client::error::{engine, failed, outage};
use crate::client::fetcher::{FetchPace, LentPartitions, ReaderSignal, SampleQueue};
use crate::client::options::BROKER_TIMEOUT;
use crate::client::producer::{DeliveryOutcome, DeliveryReceiver, OutgoingRecord};
use crate::client::topic_config;
use crate::internal::producers::{WRITERS_QUERY_TIMEOUT, WriterTable};
use crate::topic::connection::Connection;
use crate::topic::transport::TopicOrigin;

/// The topics' quality of service.
pub(crate) const TOPICS: &str = "topics";
/// The schemas' texts, and the schemas of each topic.
pub(crate) const SCHEMAS: &str = "schemas";
/// The writers.
pub(crate) const PRODUCERS: &str = "producers";

/// How long after a slow answer callers that must not wait send no query.
const TOPICS_READ_BACKOFF: Duration = Duration::from_secs(1);
/// How often a waiting reader checks whether another reader has finished.
const LOG_LOCK_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Additional time for each of many records on busy brokers.
const RECORD_ACK_ALLOWANCE: Duration = Duration::from_millis(10);

/// All internal topics of a connection.
#[derive(Default)]
pub(crate) struct InternalTopics {
    topics: Table<TopicTable>,
    schemas: Table<SchemaTable>,
    pub(crate) claims: Table<WriterTable>,
    looks: Mutex<TopicsReads>,
}

/// Background reads of the topics' table, for callers that must not wait.
#[derive(Default)]
struct TopicsReads {
    /// A thread is reading it.
    reading: bool,
    last: Option<TopicsRead>,
}

struct TopicsRead {
    begun: Instant,
    done: Instant,
    /// Whether it was read to its end.
    read: bool,
}

impl TopicsReads {
    /// Whether the table was read since a time; `None` if that was not tried. After a failure it is
    /// not tried again at once.
    fn was_read(&self, since: Instant) -> Option<bool> {
        let last = self.last.as_ref()?;
        let failed = !last.read && last.done.elapsed() < TOPICS_READ_BACKOFF;
        (last.begun >= since || failed).then_some(last.read)
    }
}

/// A record of an internal topic.
pub(crate) struct LogRecord<'a> {
    pub(crate) offset: u64,
    /// When it was written, in milliseconds of UTC.
    pub(crate) millis: i64,
    pub(crate) key: &'a [&'a str],
    /// `None` is a tombstone.
    pub(crate) value: Option<&'a [u8]>,
}

/// The state that results from a log.
pub(crate) trait Fold: Default {
    /// The table's name.
    const NAME: &'static str;
    /// Applies the next record.
    fn take(&mut self, entry: LogRecord<'_>);
}

/// A table, as far as its log was read. Lookups do not wait for reads, and concurrent reads are
/// done once for all callers.
pub(crate) struct Table<F> {
    fold: Mutex<F>,
    log: Mutex<Option<LogReader>>,
    /// How many reads to the end have begun.
    begun: AtomicU64,
    /// The newest of these that reached the end.
    done: AtomicU64,
}

struct LogReader {
    queue: SampleQueue,
    next: u64,
    /// Since when no record has arrived although there are some; `None` if they arrive.
    silent: Option<Instant>,
    lent: LentPartitions,
}

impl<F: Default> Default for Table<F> {
    fn default() -> Self {
        let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { fold: Mutex::default(), log: Mutex::default(), begun, done }
    }
}

impl<F: Fold> Table<F> {
    /// Inspects the state as of the last read.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&F) -> R) -> R {
        look(&locked(&self.fold))
    }

    /// Reads to the log's current end, then inspects the state.
    pub(crate) fn read<R>(
        &self,
        connection: &Connection,
        patience: Duration,
        look: impl FnOnce(&F) -> R,
    ) -> Result<R, TransportError> {
        connection.check_open()?;
        let came = self.begun.load(Ordering::SeqCst);
        let mut log = locked(&self.log);
        if !self.was_read_after(came) {
            self.read_on(connection, &mut log, patience)?;
        }
        drop(log);
        connection.check_open()?;
        Ok(self.look(look))
    }

    /// Reads to the log's current end within a time limit, also while another thread reads it or
    /// the connection is being closed.
    pub(crate) fn catch_up(
        &self,
        connection: &Connection,
        patience: Duration,
    ) -> Result<(), TransportError> {
        let until = Instant::now() + patience;
        let came = self.begun.load(Ordering::SeqCst);
        let mut log = self.log_by(until)?;
        if self.was_read_after(came) {
            return Ok(());
        }
        let left = until.saturating_duration_since(Instant::now());
        self.read_on(connection, &mut log, left.max(LOG_LOCK_POLL_INTERVAL))
    }

    /// The log, if no other thread reads it by then.
    fn log_by(&self, until: Instant) -> Result<MutexGuard<'_, Option<LogReader>>, TransportError> {
        loop {
            match self.log.try_lock() {
                Ok(log) => return Ok(log),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                // Another thread's read may be older than this query.
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(LOG_LOCK_POLL_INTERVAL);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(outage(format!("another thread is reading {}", F::NAME)));
                }
            }
        }
    }

    /// Whether a read that began after the first `came` ones has reached the end.
    fn was_read_after(&self, came: u64) -> bool {
        self.done.load(Ordering::SeqCst) > came
    }

    /// The same for callers that must not wait long: within `glance`, also while another thread
    /// reads. The first call opens the table and may take longer.
    pub(crate) fn glance<R>(
        &self,
        connection: &Connection,
        glance: Duration,
        look: impl FnOnce(&F) -> R,
    ) -> Result<R, TransportError> {
        connection.check_open()?;
        let until = Instant::now() + glance;
        let came = self.begun.load(Ordering::SeqCst);
        let mut log = self.log_by(until)?;
        let left = until.saturating_duration_since(Instant::now());
        let patience =
            if log.is_some() { left.max(LOG_LOCK_POLL_INTERVAL) } else { BROKER_TIMEOUT };
        if !self.was_read_after(came) {
            self.read_on(connection, &mut log, patience)?;
        }
        drop(log);
        Ok(self.look(look))
    }

    fn read_on(
        &self,
        connection: &Connection,
        log: &mut Option<LogReader>,
        patience: Duration,
    ) -> Result<(), TransportError> {
        let this = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let topic = connection.names.internal(F::NAME);
        if log.is_none() {
            // A closing connection opens nothing.
            connection.check_open()?;
            if connection.partitions(&topic)?.is_none() {
                return Ok(());
            }
        }
        let ends = connection.client.ends(&topic, 0, patience);
        // If no broker answers, the consumer is not at fault.
        let (first, end) =
            ends.inspect_err(|_| log.iter_mut().for_each(|log| log.silent = None))?;
        // A log that is shorter than before is a new one: the topic was deleted.
        if log.as_ref().is_none_or(|log| log.next > end || log.next < first) {
            connection.check_open()?;
            *log = Some(LogReader::open(connection, &topic, first)?);
            *locked(&self.fold) = F::default();
        }
        let Some(log) = log else { return Ok(()) };
        if log
            .silent
            .is_some_and(|since| since.elapsed() >= connection.options.watchdog.fetch_silence)
        {
            connection.check_open()?;
            log.lent.fetcher.give_up();
            *log = LogReader::open(connection, &topic, log.next)?;
        }
        log.read_on((end, patience), |entry| locked(&self.fold).take(entry))?;
        self.done.store(this, Ordering::SeqCst);
        Ok(())
    }
}

impl LogReader {
    fn open(connection: &Connection, topic: &str, first: u64) -> Result<Self, TransportError> {
        let id = connection.described(topic, BROKER_TIMEOUT)?.map(|described| described.id);
        let mut lent = connection.pool.lend((topic, id), &[0], FetchPace::Patient)?;
        let queue = lent.assign(&[(0, first)], &Arc::<ReaderSignal>::default())?.pop();
        let queue = queue.ok_or_else(|| outage(format!("{topic} has no queue")))?;
        Ok(Self { queue, next: first, silent: None, lent })
    }

    fn read_on(
        &mut self,
        (end, patience): (u64, Duration),
        mut take: impl FnMut(LogRecord<'_>),
    ) -> Result<(), TransportError> {
        let began = Instant::now();
        let until = began + patience;
        while self.next < end {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.silent.get_or_insert(began);
                return Err(outage(format!("{} cannot be read", self.lent.topic)));
            }
            let Some(message) = self.queue.poll(left) else { continue };
            self.silent = None;
            let message = message.map_err(failed("read a table"))?;
            let offset = u64::try_from(message.offset()).unwrap_or(0);
            self.next = offset + 1;
            if let Some(Ok(key)) = message.key().map(std::str::from_utf8) {
                let words: Vec<_> = key.split(' ').collect();
                let millis = message.timestamp().to_millis().unwrap_or(0);
                take(LogRecord { offset, millis, key: &words, value: message.payload() });
            }
        }
        Ok(())
    }
}

/// A new record: its key and its value; `None` is a tombstone.
type NewRecord = (String, Option<Vec<u8>>);

/// Appends a record to a table, which is created if necessary; returns its offset.
pub(crate) fn append(
    connection: &Connection,
    table: &str,
    key: &str,
    value: Option<&[u8]>,
) -> Result<u64, TransportError> {
    let offsets = append_all(connection, table, &[(key.to_owned(), value.map(<[u8]>::to_vec))])?;
    Ok(offsets.into_iter().next().unwrap_or(0))
}

/// The same for many records.
fn append_all(
    connection: &Connection,
    table: &str,
    records: &[NewRecord],
) -> Result<Vec<u64>, TransportError> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let name = connection.names.internal(table);
    if connection.partitions(&name)?.is_none() {
        let config = if table == PRODUCERS { topic_config::words() } else { topic_config::table() };
        let made = TopicToCreate { name: name.clone(), partitions: 1, config };
        let refused = connection.admin.create(&[made], BROKER_TIMEOUT)?;
        refused.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))?;
        connection.wait_until_created(&name, BROKER_TIMEOUT)?;
    }
    let patience =
        BROKER_TIMEOUT + RECORD_ACK_ALLOWANCE * u32::try_from(records.len()).unwrap_or(u32::MAX);
    let offsets = say(connection, table, (records, patience))?.into_iter().zip(records);
    let offsets = offsets.map(|(offset, (key, _))| {
        let repeated = || outage(format!("{}: it was repeated", writing(table, key)));
        offset.ok_or_else(repeated)
    });
    offsets.collect()
}

fn writing(table: &str, key: &str) -> String {
    format!("write {key:?} to the table of {table}")
}

/// Appends records to an existing table and waits for their acknowledgements; returns their
/// offsets, `None` for repeated ones.
pub(crate) fn say(
    connection: &Connection,
    table: &str,
    (records, patience): (&[NewRecord], Duration),
) -> Result<Vec<Option<u64>>, TransportError> {
    let name = connection.names.internal(table);
    let mut under_way = Vec::with_capacity(records.len());
    let until = Instant::now() + patience;
    for (key, value) in records {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Tables are written when something is opened: records in flight make room soon.
        while !send(connection, &name, (key, value.as_deref()), &sender)? {
            if Instant::now() > until {
                return Err(outage("the producer's queue stays full".to_owned()));
            }
            std::thread::sleep(LOG_LOCK_POLL_INTERVAL);
        }
        under_way.push((writing(table, key), receiver));
    }
    let producer = connection.internal_producer()?;
    let arrived = under_way.into_iter().map(|(what, receiver)| {
        let left = until.saturating_duration_since(Instant::now());
        let told = receiver.recv_timeout(left).map_err(|_| late(&what))?;
        told.map_err(|error| failed(&what)(producer.cause(error)))
    });
    arrived.collect()
}

/// The same without waiting: if the queue is full, the record is not sent.
pub(crate) fn tell(
    connection: &Connection,
    table: &str,
    key: &str,
    value: Option<&[u8]>,
) -> Result<(), TransportError> {
    let name = connection.names.internal(table);
    send(connection, &name, (key, value), &mpsc::sync_channel(1).0).map(drop)
}

fn late(what: &str) -> TransportError {
    outage(format!("{what}: no broker has acknowledged it"))
}

/// Sends a record if there is room.
fn send(
    connection: &Connection,
    name: &str,
    (key, value): (&str, Option<&[u8]>),
    told: &SyncSender<DeliveryOutcome>,
) -> Result<bool, TransportError> {
    let producer = connection.internal_producer()?;
    let bytes = key.len() + value.map_or(0, <[u8]>::len);
    let Some(taken) = producer.take((1, bytes), None, || DeliveryReceiver::Table(told.clone()))
    else {
        return Ok(false);
    };
    let record = OutgoingRecord {
        topic: name,
        partition: 0,
        key: Some(key.as_bytes()),
        payload: value,
        headers: None,
        timestamp: None,
    };
    producer.send(record, taken).map_err(failed("write a table")).map(|()| true)
}

/// Reads the topics' table on a thread; returns whether one was started.
fn read_topics_in_background(connection: &Arc<Connection>) -> bool {
    let connection = Arc::clone(connection);
    let look = move || {
        let tables = &connection.tables;
        let begun = Instant::now();
        let read = tables.topics.glance(&connection, WRITERS_QUERY_TIMEOUT, |_| ()).is_ok();
        let last = Some(TopicsRead { begun, done: Instant::now(), read });
        *locked(&tables.looks) = TopicsReads { reading: false, last };
    };
    std::thread::Builder::new().name("kafka-look".to_owned()).spawn(look).is_ok()
}

/// A unique name of an attempt.
pub(crate) fn attempt() -> String {
    static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let n = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{:x}-{n:x}", since.as_nanos(), std::process::id())
}

pub(crate) fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, TransportError> {
    serde_json::to_vec(value).map_err(|error| engine("write a table", error))
}

/// The quality of service by topic, and by the offset of each declaration. The first one is valid.
#[derive(Default)]
pub(crate) struct TopicTable {
    named: HashMap<TopicName, BTreeMap<u64, (String, Description)>>,
    /// Topics that have samples of another bus.
    forwarded: HashSet<TopicName>,
}

/// The declaration of a topic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) qos: Qos,
    pub(crate) origin: TopicOrigin,
}

impl Fold for TopicTable {
    const NAME: &'static str = TOPICS;

    fn take(&mut self, LogRecord { offset, key, value, .. }: LogRecord<'_>) {
        if let [topic, "-", "forwarded"] = key
            && value.is_some()
        {
            self.forwarded.extend(TopicName::new(topic));
        }
        let [topic, attempt] = key else { return };
        let Ok(topic) = TopicName::new(topic) else { return };
        let named = self.named.entry(topic).or_default();
        match value.map(serde_json::from_slice::<Description>) {
            Some(Ok(description)) => {
                named.insert(offset, ((*attempt).to_owned(), description));
            }
            Some(Err(_)) => {}
            None => named.retain(|_, (by, _)| by != attempt),
        }
    }
}

impl TopicTable {
    fn first(&self, topic: &TopicName) -> Option<(&str, &Description)> {
        let (attempt, description) = self.named.get(topic)?.values().next()?;
        Some((attempt, description))
    }
}

/// The schemas' texts, and the schemas of each topic.
#[derive(Default)]
pub(crate) struct SchemaTable {
    texts: HashMap<SchemaId, String>,
    of: HashMap<TopicName, Vec<SchemaId>>,
    accepted: HashMap<String, SchemaId>,
}

#[derive(Serialize, Deserialize)]
struct Declaration {
    schema: String,
    after: usize,
}

fn schema_id(text: &str) -> Option<SchemaId> {
    u64::from_str_radix(text, 16).ok().map(SchemaId)
}

impl Fold for SchemaTable {
    const NAME: &'static str = SCHEMAS;

    fn take(&mut self, LogRecord { key, value, .. }: LogRecord<'_>) {
        match (key, value) {
            (["text", id], Some(text)) => {
                let text = std::str::from_utf8(text).map(str::to_owned);
                if let (Some(id), Ok(text)) = (schema_id(id), text) {
                    self.texts.entry(id).or_insert(text);
                }
            }
            (["of", topic, attempt], Some(value)) => {
                let declaration = serde_json::from_slice::<Declaration>(value).ok();
                let id = declaration.as_ref().and_then(|named| schema_id(&named.schema));
                let (Ok(topic), Some(named), Some(id)) = (TopicName::new(topic), declaration, id)
                else {
                    return;
                };
                let of = self.of.entry(topic).or_default();
                if of.len() == named.after && !of.contains(&id) {
                    of.push(id);
                    self.accepted.insert((*attempt).to_owned(), id);
                }
            }
            _ => {}
        }
    }
}

impl InternalTopics {
    /// The declaration of a topic; `None` if no bus has made one.
    pub(crate) fn description(
        &self,
        connection: &Connection,
        topic: &TopicName,
    ) -> Result<Option<Description>, TransportError> {
        Ok(self.descriptions(connection, std::iter::once(topic))?.pop().flatten())
    }

    /// The same for many topics.
    pub(crate) fn descriptions<'a>(
        &self,
        connection: &Connection,
        topics: impl Iterator<Item = &'a TopicName>,
    ) -> Result<Vec<Option<Description>>, TransportError> {
        self.topics.read(connection, BROKER_TIMEOUT, |known| {
            topics.map(|topic| known.first(topic).map(|(_, is)| is.clone())).collect()
        })
    }

    /// Declares topics that have no declaration; returns the valid ones.
    pub(crate) fn describe(
        &self,
        connection: &Connection,
        topics: &[(&TopicName, Description)],
    ) -> Result<Vec<Description>, TransportError> {
        let attempts: Vec<_> = topics.iter().map(|_| attempt()).collect();
        let records = topics.iter().zip(&attempts).map(|((topic, description), attempt)| {
            Ok::<_, TransportError>((format!("{topic} {attempt}"), Some(json(description)?)))
        });
        append_all(connection, TOPICS, &records.collect::<Result<Vec<_>, _>>()?)?;
        let all = topics.iter().zip(&attempts);
        let holds: Vec<_> = self.topics.read(connection, BROKER_TIMEOUT, |known| {
            let first = all.map(|((topic, description), attempt)| {
                let (first, holds) = known.first(topic).unwrap_or((attempt, description));
                (first == attempt, holds.clone())
            });
            first.collect()
        })?;
        let lost = topics.iter().zip(&attempts).zip(&holds).filter(|(_, (won, _))| !won);
        let lost = lost.map(|(((topic, _), attempt), _)| (format!("{topic} {attempt}"), None));
        append_all(connection, TOPICS, &lost.collect::<Vec<_>>())?;
        Ok(holds.into_iter().map(|(_, holds)| holds).collect())
    }

    /// Reads the topics' table to its end.
    #[cfg(test)]
    pub(crate) fn read_topics(
        &self,
        connection: &Connection,
        timeout: Duration,
    ) -> Result<(), TransportError> {
        self.topics.read(connection, timeout, |_| ())
    }

    /// Deletes the declaration of a topic that no longer exists.
    pub(crate) fn forget(
        &self,
        connection: &Connection,
        topic: &TopicName,
    ) -> Result<(), TransportError> {
        let first = self.topics.look(|topics| topics.first(topic).map(|(by, _)| by.to_owned()));
        if let Some(attempt) = first {
            append(connection, TOPICS, &format!("{topic} {attempt}"), None)?;
        }
        Ok(())
    }

    /// Whether a topic has samples of another bus, as of the last read.
    pub(crate) fn is_forwarded(&self, topic: &TopicName) -> bool {
        self.topics.look(|topics| topics.forwarded.contains(topic))
    }

    /// Whether the incarnations of a topic's owners increase, as of a time or later. Samples of
    /// another bus break that order. This never waits: a thread reads the table if necessary.
    pub(crate) fn owners_in_order(
        &self,
        connection: &Arc<Connection>,
        (topic, since): (&TopicName, Instant),
    ) -> OwnerOrder {
        let mut looks = locked(&self.looks);
        // Taken before the mark, which is known once the table was read.
        let was_read = looks.was_read(since);
        if self.is_forwarded(topic) {
            return OwnerOrder::No;
        }
        match was_read {
            Some(true) => OwnerOrder::Yes,
            Some(false) => OwnerOrder::Unknown,
            None => {
                looks.reading = looks.reading || read_topics_in_background(connection);
                if looks.reading { OwnerOrder::Asked } else { OwnerOrder::Unknown }
            }
        }
    }

    /// Marks a topic as having samples of another bus.
    pub(crate) fn forwarded(
        &self,
        connection: &Connection,
        topic: &TopicName,
    ) -> Result<(), TransportError> {
        if self.is_forwarded(topic) {
            return Ok(());
        }
        append(connection, TOPICS, &format!("{topic} - forwarded"), Some(b"true"))?;
        self.topics.read(connection, BROKER_TIMEOUT, |_| ())
    }

    /// A topic's schemas, oldest first.
    pub(crate) fn schemas_of(
        &self,
        connection: &Connection,
        topic: &TopicName,
    ) -> Result<Vec<SchemaId>, TransportError> {
        self.schemas
            .read(connection, BROKER_TIMEOUT, |all| all.of.get(topic).cloned().unwrap_or_default())
    }

    /// Adds a schema to a topic if the topic still has so many schemas and not this one; returns
    /// whether it was added.
    pub(crate) fn declare(
        &self,
        connection: &Connection,
        topic: &TopicName,
        (id, after): (SchemaId, usize),
    ) -> Result<helio_bus::transport::Declared, TransportError> {
        use helio_bus::transport::Declared;
        let known = self.schemas_of(connection, topic)?;
        if known.len() != after || known.contains(&id) {
            return Ok(Declared::Behind);
        }
        let attempt = attempt();
        let key = format!("of {topic} {attempt}");
        let declaration = Declaration { schema: format!("{:x}", id.0), after };
        append(connection, SCHEMAS, &key, Some(&json(&declaration)?))?;
        if self
            .schemas
            .read(connection, BROKER_TIMEOUT, |all| all.accepted.contains_key(&attempt))?
        {
            return Ok(Declared::Yes);
        }
        append(connection, SCHEMAS, &key, None)?;
        Ok(Declared::Behind)
    }

    /// Stores a schema's text.
    pub(crate) fn put_schema(
        &self,
        connection: &Connection,
        id: SchemaId,
        text: &str,
    ) -> Result<(), TransportError> {
        if self.schema(connection, id)?.is_none() {
            let key = format!("text {:x}", id.0);
            append(connection, SCHEMAS, &key, Some(text.as_bytes()))?;
            // Writers find it without another query.
            self.schemas.read(connection, BROKER_TIMEOUT, |_| ())?;
        }
        Ok(())
    }

    /// A schema's text, as of the last read.
    pub(crate) fn known_schema(&self, id: SchemaId) -> Option<String> {
        self.schemas.look(|all| all.texts.get(&id).cloned())
    }

    /// A schema's text.
    pub(crate) fn schema(
        &self,
        connection: &Connection,
        id: SchemaId,
    ) -> Result<Option<String>, TransportError> {
        if let Some(text) = self.known_schema(id) {
            return Ok(Some(text));
        }
        self.schemas.read(connection, BROKER_TIMEOUT, |all| all.texts.get(&id).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take<F: Fold>(fold: &mut F, offset: u64, key: &str, value: Option<&str>) {
        let key: Vec<_> = key.split(' ').collect();
        fold.take(LogRecord { offset, millis: 0, key: &key, value: value.map(str::as_bytes) });
    }

    #[test]
    fn topics_are_those_of_the_format() {
        assert_eq!([TOPICS, SCHEMAS, PRODUCERS], ["topics", "schemas", "producers"]);
        let qos = serde_json::to_string(&Qos::event()).unwrap();
        let golden = |origin: &str| format!(r#"{{"qos":{qos},"origin":"{origin}"}}"#);
        let mut topics = TopicTable::default();
        take(&mut topics, 10, "a/b x", Some(&golden("bus")));
        take(&mut topics, 11, "a/b y", Some(&golden("foreign")));
        take(&mut topics, 12, "a/b - forwarded", Some("true"));
        let topic = TopicName::new("a/b").unwrap();
        for (attempt, origin, name) in
            [("x", TopicOrigin::Bus, "bus"), ("y", TopicOrigin::Foreign, "foreign")]
        {
            let (first, description) = topics.first(&topic).unwrap();
            assert_eq!((first, description.origin), (attempt, origin));
            assert_eq!(json(description).unwrap(), golden(name).into_bytes());
            take(&mut topics, 13, &format!("a/b {attempt}"), None);
        }
        assert!(topics.first(&topic).is_none());
        assert!(topics.forwarded.contains(&topic));
    }

    #[test]
    fn schemas_are_those_of_the_format() {
        let golden = r#"{"schema":"1f","after":0}"#;
        let declaration = Declaration { schema: "1f".to_owned(), after: 0 };
        assert_eq!(json(&declaration).unwrap(), golden.as_bytes());
        let mut schemas = SchemaTable::default();
        take(&mut schemas, 10, "text 1f", Some("the text"));
        take(&mut schemas, 11, "of a/b x", Some(golden));
        take(&mut schemas, 12, "of a/b y", Some(golden));
        assert_eq!(schemas.texts[&SchemaId(0x1f)], "the text");
        assert_eq!(schemas.of[&TopicName::new("a/b").unwrap()], [SchemaId(0x1f)]);
        assert_eq!(schemas.accepted.keys().collect::<Vec<_>>(), ["x"]);
    }
}
