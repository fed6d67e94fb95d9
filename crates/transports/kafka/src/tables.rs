//! What Kafka has no place for, in compacted topics of one partition, read as logs.
//!
//! Constraints. Whoever writes first wins, and everybody sees the same winner: Kafka has no compare
//! and swap, but one order for all. Every attempt is a record with a key of its own, so that
//! compaction never takes a winner away; readers fold the log in order, and an attempt that the
//! fold passes over has lost. Its writer takes it back.
//!
//! Format. Keys are words of text with spaces between, values JSON or a schema's text.
//!
//! | topic | key | value |
//! | --- | --- | --- |
//! | `_helio.topics` | topic, attempt | `{"qos":…,"origin":…}` |
//! | `_helio.topics` | topic, `-`, `forwarded` | `true`: samples of another bus are in it |
//! | `_helio.schemas` | `text`, schema | the schema |
//! | `_helio.schemas` | `of`, topic, attempt | `{"schema":…,"after":…}` |
//!
//! Who writes is in `_helio.producers`; see `claims`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant, SystemTime};

use helio_bus::transport::{OwnerOrder, locked};
use helio_bus::{Qos, SchemaId, TopicName, TransportError};
use rdkafka::message::Message as _;
use serde::{Deserialize, Serialize};

use crate::admin::Made;
use crate::claims::{Claims, GLANCE};
use crate::connection::Connection;
use crate::deaf::DEAF;
use crate::error::{engine, failed, outage};
use crate::fetcher::{Lent, Pace, Queue, Wake};
use crate::options::PATIENCE;
use crate::producer::{Outcome, Outgoing, Told};
use crate::topic::Origin;
use crate::topic_config;

/// The topics' qualities of service.
pub(crate) const TOPICS: &str = "topics";
/// The schemas' texts, and which topic has which.
pub(crate) const SCHEMAS: &str = "schemas";
/// Who writes.
pub(crate) const PRODUCERS: &str = "producers";

/// How long brokers that were slow are left alone by those who must not wait.
const REST: Duration = Duration::from_secs(1);
/// How long between two looks whether another has read to the end.
const TURN: Duration = Duration::from_millis(1);
/// What brokers that have much to do may take for each of many records.
const EACH: Duration = Duration::from_millis(10);

/// All tables of a connection.
#[derive(Default)]
pub(crate) struct Tables {
    topics: Table<Topics>,
    schemas: Table<Schemas>,
    pub(crate) claims: Table<Claims>,
    looks: Mutex<Looks>,
}

/// How the topics' table is read for those who must not wait.
#[derive(Default)]
struct Looks {
    /// A thread reads it.
    reading: bool,
    last: Option<Look>,
}

struct Look {
    begun: Instant,
    done: Instant,
    /// Whether it was read to its end.
    read: bool,
}

impl Looks {
    /// Whether the table was read since a time; `None` where nobody has tried it. Who has just
    /// failed is not asked again at once.
    fn was_read(&self, since: Instant) -> Option<bool> {
        let last = self.last.as_ref()?;
        let failed = !last.read && last.done.elapsed() < REST;
        (last.begun >= since || failed).then_some(last.read)
    }
}

/// A record of a table.
pub(crate) struct Entry<'a> {
    pub(crate) offset: u64,
    /// When it was written, milliseconds of UTC.
    pub(crate) millis: i64,
    pub(crate) key: &'a [&'a str],
    /// None takes the key back.
    pub(crate) value: Option<&'a [u8]>,
}

/// What a log says, folded.
pub(crate) trait Fold: Default {
    /// The table's name.
    const NAME: &'static str;
    /// Takes the next record.
    fn take(&mut self, entry: Entry<'_>);
}

/// A table, as far as it was read. Who only looks does not wait for who reads, and of those who
/// wait for who reads one reads for all.
pub(crate) struct Table<F> {
    fold: Mutex<F>,
    log: Mutex<Option<Log>>,
    /// How many times it was begun to read to the end.
    begun: AtomicU64,
    /// The newest of these that came there.
    done: AtomicU64,
}

struct Log {
    queue: Queue,
    next: u64,
    /// Since when nothing has come though there is something; none where it has.
    silent: Option<Instant>,
    lent: Lent,
}

impl<F: Default> Default for Table<F> {
    fn default() -> Self {
        let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { fold: Mutex::default(), log: Mutex::default(), begun, done }
    }
}

impl<F: Fold> Table<F> {
    /// Looks at what was folded so far.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&F) -> R) -> R {
        look(&locked(&self.fold))
    }

    /// Reads to where the log ends now, and looks.
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

    /// Reads to where the log ends now, not for longer than that, also where another reads it or
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
        self.read_on(connection, &mut log, left.max(TURN))
    }

    /// The log, if nobody else reads it at that time.
    fn log_by(&self, until: Instant) -> Result<MutexGuard<'_, Option<Log>>, TransportError> {
        loop {
            match self.log.try_lock() {
                Ok(log) => return Ok(log),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                // What another has read may be from before the question.
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(TURN);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(outage(format!("{} is being read by another", F::NAME)));
                }
            }
        }
    }

    /// Whether somebody has read to the end who began later than who came when so many had begun.
    fn was_read_after(&self, came: u64) -> bool {
        self.done.load(Ordering::SeqCst) > came
    }

    /// The same for those who must not wait long: within `glance`, also where another reads. The
    /// first time, which opens the table, takes its time.
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
        let patience = if log.is_some() { left.max(TURN) } else { PATIENCE };
        if !self.was_read_after(came) {
            self.read_on(connection, &mut log, patience)?;
        }
        drop(log);
        Ok(self.look(look))
    }

    fn read_on(
        &self,
        connection: &Connection,
        log: &mut Option<Log>,
        patience: Duration,
    ) -> Result<(), TransportError> {
        let this = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let topic = connection.names.internal(F::NAME);
        if log.is_none() {
            // Who closes opens nothing any more.
            connection.check_open()?;
            if connection.partitions(&topic)?.is_none() {
                return Ok(());
            }
        }
        let ends = connection.client.ends(&topic, 0, patience);
        // Where no broker answers a consumer is not to blame.
        let (first, end) =
            ends.inspect_err(|_| log.iter_mut().for_each(|log| log.silent = None))?;
        // A log that is shorter than it was is another one: somebody has deleted it.
        if log.as_ref().is_none_or(|log| log.next > end || log.next < first) {
            connection.check_open()?;
            *log = Some(Log::open(connection, &topic, first)?);
            *locked(&self.fold) = F::default();
        }
        let Some(log) = log else { return Ok(()) };
        if log.silent.is_some_and(|since| since.elapsed() >= DEAF) {
            connection.check_open()?;
            log.lent.fetcher.give_up();
            *log = Log::open(connection, &topic, log.next)?;
        }
        log.read_on((end, patience), |entry| locked(&self.fold).take(entry))?;
        self.done.store(this, Ordering::SeqCst);
        Ok(())
    }
}

impl Log {
    fn open(connection: &Connection, topic: &str, first: u64) -> Result<Self, TransportError> {
        let id = connection.described(topic, PATIENCE)?.map(|described| described.id);
        let mut lent = connection.pool.lend((topic, id), &[0], Pace::Patient)?;
        let queue = lent.assign(&[(0, first)], &Arc::<Wake>::default())?.pop();
        let queue = queue.ok_or_else(|| outage(format!("{topic} has no queue")))?;
        Ok(Self { queue, next: first, silent: None, lent })
    }

    fn read_on(
        &mut self,
        (end, patience): (u64, Duration),
        mut take: impl FnMut(Entry<'_>),
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
                take(Entry { offset, millis, key: &words, value: message.payload() });
            }
        }
        Ok(())
    }
}

/// A record to be written: its key, and its value; none takes the key back.
type New = (String, Option<Vec<u8>>);

/// Appends a record to a table, and makes the table where it is the first; gives its offset.
pub(crate) fn append(
    connection: &Connection,
    table: &str,
    key: &str,
    value: Option<&[u8]>,
) -> Result<u64, TransportError> {
    let offsets = append_all(connection, table, &[(key.to_owned(), value.map(<[u8]>::to_vec))])?;
    Ok(offsets.into_iter().next().unwrap_or(0))
}

/// The same for many at once.
fn append_all(
    connection: &Connection,
    table: &str,
    records: &[New],
) -> Result<Vec<u64>, TransportError> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let name = connection.names.internal(table);
    if connection.partitions(&name)?.is_none() {
        let config = if table == PRODUCERS { topic_config::words() } else { topic_config::table() };
        let made = Made { name: name.clone(), partitions: 1, config };
        let refused = connection.admin.create(&[made], PATIENCE)?;
        refused.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))?;
        connection.settled(&name, PATIENCE)?;
    }
    let patience = PATIENCE + EACH * u32::try_from(records.len()).unwrap_or(u32::MAX);
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

/// Appends records to a table that is there, and waits that long for all of them; gives their
/// offsets, none of those that were repeated.
pub(crate) fn say(
    connection: &Connection,
    table: &str,
    (records, patience): (&[New], Duration),
) -> Result<Vec<Option<u64>>, TransportError> {
    let name = connection.names.internal(table);
    let mut under_way = Vec::with_capacity(records.len());
    let until = Instant::now() + patience;
    for (key, value) in records {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Tables are written when something is opened: what is under way makes room soon.
        while !send(connection, &name, (key, value.as_deref()), &sender)? {
            if Instant::now() > until {
                return Err(outage("the queue towards the brokers stays full".to_owned()));
            }
            std::thread::sleep(TURN);
        }
        under_way.push((writing(table, key), receiver));
    }
    let producer = connection.tables_producer()?;
    let arrived = under_way.into_iter().map(|(what, receiver)| {
        let left = until.saturating_duration_since(Instant::now());
        let told = receiver.recv_timeout(left).map_err(|_| late(&what))?;
        told.map_err(|error| failed(&what)(producer.cause(error)))
    });
    arrived.collect()
}

/// The same without waiting: where the queue is full it is not said.
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

/// Sends a record, if there is room.
fn send(
    connection: &Connection,
    name: &str,
    (key, value): (&str, Option<&[u8]>),
    told: &SyncSender<Outcome>,
) -> Result<bool, TransportError> {
    let producer = connection.tables_producer()?;
    let bytes = key.len() + value.map_or(0, <[u8]>::len);
    let Some(taken) = producer.take((1, bytes), None, || Told::Table(told.clone())) else {
        return Ok(false);
    };
    let record = Outgoing {
        topic: name,
        partition: 0,
        key: Some(key.as_bytes()),
        payload: value,
        headers: None,
        timestamp: None,
    };
    producer.send(record, taken).map_err(failed("write a table")).map(|()| true)
}

/// Has a thread read the topics' table; whether there is one for that.
fn look_again(connection: &Arc<Connection>) -> bool {
    let connection = Arc::clone(connection);
    let look = move || {
        let tables = &connection.tables;
        let begun = Instant::now();
        let read = tables.topics.glance(&connection, GLANCE, |_| ()).is_ok();
        let last = Some(Look { begun, done: Instant::now(), read });
        *locked(&tables.looks) = Looks { reading: false, last };
    };
    std::thread::Builder::new().name("kafka-look".to_owned()).spawn(look).is_ok()
}

/// A word that no other attempt has.
pub(crate) fn attempt() -> String {
    static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let n = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{:x}-{n:x}", since.as_nanos(), std::process::id())
}

pub(crate) fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, TransportError> {
    serde_json::to_vec(value).map_err(|error| engine("write a table", error))
}

/// The qualities of service, by topic and by the offset of who named them: the first one holds.
#[derive(Default)]
pub(crate) struct Topics {
    named: HashMap<TopicName, BTreeMap<u64, (String, Description)>>,
    /// Those that have samples of another bus.
    forwarded: HashSet<TopicName>,
}

/// What is named of a topic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) qos: Qos,
    pub(crate) origin: Origin,
}

impl Fold for Topics {
    const NAME: &'static str = TOPICS;

    fn take(&mut self, Entry { offset, key, value, .. }: Entry<'_>) {
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

impl Topics {
    fn first(&self, topic: &TopicName) -> Option<(&str, &Description)> {
        let (attempt, description) = self.named.get(topic)?.values().next()?;
        Some((attempt, description))
    }
}

/// The schemas' texts, and the schemas of each topic.
#[derive(Default)]
pub(crate) struct Schemas {
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

impl Fold for Schemas {
    const NAME: &'static str = SCHEMAS;

    fn take(&mut self, Entry { key, value, .. }: Entry<'_>) {
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

impl Tables {
    /// What a topic was made with; none where no bus has named anything of it.
    pub(crate) fn description(
        &self,
        connection: &Connection,
        topic: &TopicName,
    ) -> Result<Option<Description>, TransportError> {
        Ok(self.descriptions(connection, std::iter::once(topic))?.pop().flatten())
    }

    /// The same of many topics.
    pub(crate) fn descriptions<'a>(
        &self,
        connection: &Connection,
        topics: impl Iterator<Item = &'a TopicName>,
    ) -> Result<Vec<Option<Description>>, TransportError> {
        self.topics.read(connection, PATIENCE, |known| {
            topics.map(|topic| known.first(topic).map(|(_, is)| is.clone())).collect()
        })
    }

    /// Describes topics, as far as nobody has done it first; gives what holds.
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
        let holds: Vec<_> = self.topics.read(connection, PATIENCE, |known| {
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

    /// Takes back what was named for a topic that is no longer there.
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

    /// Whether a topic has samples of another bus, as far as was read.
    pub(crate) fn is_forwarded(&self, topic: &TopicName) -> bool {
        self.topics.look(|topics| topics.forwarded.contains(topic))
    }

    /// Whether a topic's owners follow each other by incarnation, as samples of another bus do not:
    /// as of a time or later. Waits for nobody: a thread reads on where that was not done since.
    pub(crate) fn owners_in_order(
        &self,
        connection: &Arc<Connection>,
        (topic, since): (&TopicName, Instant),
    ) -> OwnerOrder {
        let mut looks = locked(&self.looks);
        // Before the mark, which is known when it was read.
        let was_read = looks.was_read(since);
        if self.is_forwarded(topic) {
            return OwnerOrder::No;
        }
        match was_read {
            Some(true) => OwnerOrder::Yes,
            Some(false) => OwnerOrder::Unknown,
            None => {
                looks.reading = looks.reading || look_again(connection);
                if looks.reading { OwnerOrder::Asked } else { OwnerOrder::Unknown }
            }
        }
    }

    /// Says that a topic has samples of another bus.
    pub(crate) fn forwarded(
        &self,
        connection: &Connection,
        topic: &TopicName,
    ) -> Result<(), TransportError> {
        if self.is_forwarded(topic) {
            return Ok(());
        }
        append(connection, TOPICS, &format!("{topic} - forwarded"), Some(b"true"))?;
        self.topics.read(connection, PATIENCE, |_| ())
    }

    /// A topic's schemas, oldest first.
    pub(crate) fn schemas_of(
        &self,
        connection: &Connection,
        topic: &TopicName,
    ) -> Result<Vec<SchemaId>, TransportError> {
        self.schemas
            .read(connection, PATIENCE, |all| all.of.get(topic).cloned().unwrap_or_default())
    }

    /// Adds a schema to a topic's, if the topic still has so many and it is none of them; whether
    /// it was added.
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
        if self.schemas.read(connection, PATIENCE, |all| all.accepted.contains_key(&attempt))? {
            return Ok(Declared::Yes);
        }
        append(connection, SCHEMAS, &key, None)?;
        Ok(Declared::Behind)
    }

    /// Keeps a schema's text.
    pub(crate) fn put_schema(
        &self,
        connection: &Connection,
        id: SchemaId,
        text: &str,
    ) -> Result<(), TransportError> {
        if self.schema(connection, id)?.is_none() {
            let key = format!("text {:x}", id.0);
            append(connection, SCHEMAS, &key, Some(text.as_bytes()))?;
            // Writers look it up without asking again.
            self.schemas.read(connection, PATIENCE, |_| ())?;
        }
        Ok(())
    }

    /// A schema's text, as far as the table was read.
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
        self.schemas.read(connection, PATIENCE, |all| all.texts.get(&id).cloned())
    }
}
