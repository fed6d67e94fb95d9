//! Topics' declarations and schemas, which Kafka cannot store, in compacted topics of one
//! partition.
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
//! Writers are in `_helio.producers`; see `writer_table`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::transport::{Declared, OwnerOrder, locked};
use helio_bus::{Qos, SchemaId, TopicName, TransportError};
use serde::{Deserialize, Serialize};

use crate::client::link::{Link, unique_name};
use crate::client::names::{SCHEMAS, TOPICS};
use crate::client::options::BROKER_TIMEOUT;
use crate::internal::table::{Fold, LogRecord, Table, append, append_all, json};
use crate::internal::writer_table::WriterTable;

/// How long after a slow answer callers that must not wait send no query.
const TOPICS_READ_BACKOFF: Duration = Duration::from_secs(1);

/// All internal topics of a connection.
pub(crate) struct InternalTopics {
    pub(crate) link: Arc<Link>,
    topics: Table<TopicTable>,
    schemas: Table<SchemaTable>,
    pub(crate) writers: Table<WriterTable>,
    reads: Mutex<BackgroundReads>,
}

/// Background reads of the topics' table, for callers that must not wait.
#[derive(Default)]
struct BackgroundReads {
    /// A thread is reading it.
    reading: bool,
    last: Option<BackgroundRead>,
}

struct BackgroundRead {
    begun: Instant,
    done: Instant,
    /// Whether it was read to its end.
    read: bool,
}

impl BackgroundReads {
    /// Whether the table was read since a time; `None` if that was not tried. After a failure it is
    /// not tried again at once.
    fn was_read(&self, since: Instant) -> Option<bool> {
        let last = self.last.as_ref()?;
        let failed = !last.read && last.done.elapsed() < TOPICS_READ_BACKOFF;
        (last.begun >= since || failed).then_some(last.read)
    }
}

/// The quality of service by topic, and by the offset of each declaration. The first one is valid.
#[derive(Default)]
pub(crate) struct TopicTable {
    named: HashMap<TopicName, BTreeMap<u64, (String, TopicDeclaration)>>,
    /// Topics that have samples of another bus.
    forwarded: HashSet<TopicName>,
}

/// The declaration of a topic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TopicDeclaration {
    pub(crate) qos: Qos,
    pub(crate) origin: TopicOrigin,
}

/// The creator of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TopicOrigin {
    /// A bus: its writers maintain the companion.
    Bus,
    /// Another program created it, or writes it too: there is no companion.
    Foreign,
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
        match value.map(serde_json::from_slice::<TopicDeclaration>) {
            Some(Ok(description)) => {
                named.insert(offset, ((*attempt).to_owned(), description));
            }
            Some(Err(_)) => {}
            None => named.retain(|_, (by, _)| by != attempt),
        }
    }
}

impl TopicTable {
    fn first(&self, topic: &TopicName) -> Option<(&str, &TopicDeclaration)> {
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
struct SchemaDeclaration {
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
                let declaration = serde_json::from_slice::<SchemaDeclaration>(value).ok();
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
    pub(crate) fn new(link: &Arc<Link>) -> Self {
        Self {
            link: Arc::clone(link),
            topics: Table::new(link),
            schemas: Table::new(link),
            writers: Table::new(link),
            reads: Mutex::default(),
        }
    }

    /// The declaration of a topic; `None` if no bus has made one.
    pub(crate) fn description(
        &self,
        topic: &TopicName,
    ) -> Result<Option<TopicDeclaration>, TransportError> {
        Ok(self.descriptions(std::iter::once(topic))?.pop().flatten())
    }

    /// The same for many topics.
    pub(crate) fn descriptions<'a>(
        &self,
        topics: impl Iterator<Item = &'a TopicName>,
    ) -> Result<Vec<Option<TopicDeclaration>>, TransportError> {
        self.topics.read(BROKER_TIMEOUT, |known| {
            topics.map(|topic| known.first(topic).map(|(_, is)| is.clone())).collect()
        })
    }

    /// Declares topics that have no declaration; returns the valid ones.
    pub(crate) fn describe(
        &self,
        topics: &[(&TopicName, TopicDeclaration)],
    ) -> Result<Vec<TopicDeclaration>, TransportError> {
        let attempts: Vec<_> = topics.iter().map(|_| unique_name()).collect();
        let records = topics.iter().zip(&attempts).map(|((topic, description), attempt)| {
            Ok::<_, TransportError>((format!("{topic} {attempt}"), Some(json(description)?)))
        });
        append_all(&self.link, TOPICS, &records.collect::<Result<Vec<_>, _>>()?)?;
        let all = topics.iter().zip(&attempts);
        let holds: Vec<_> = self.topics.read(BROKER_TIMEOUT, |known| {
            let first = all.map(|((topic, description), attempt)| {
                let (first, holds) = known.first(topic).unwrap_or((attempt, description));
                (first == attempt, holds.clone())
            });
            first.collect()
        })?;
        let lost = topics.iter().zip(&attempts).zip(&holds).filter(|(_, (won, _))| !won);
        let lost = lost.map(|(((topic, _), attempt), _)| (format!("{topic} {attempt}"), None));
        append_all(&self.link, TOPICS, &lost.collect::<Vec<_>>())?;
        Ok(holds.into_iter().map(|(_, holds)| holds).collect())
    }

    /// Reads the topics' table to its end.
    #[cfg(test)]
    pub(crate) fn read_topics(&self, timeout: Duration) -> Result<(), TransportError> {
        self.topics.read(timeout, |_| ())
    }

    /// Deletes the declaration of a topic that no longer exists.
    pub(crate) fn forget(&self, topic: &TopicName) -> Result<(), TransportError> {
        let first = self.topics.inspect(|topics| topics.first(topic).map(|(by, _)| by.to_owned()));
        if let Some(attempt) = first {
            append(&self.link, TOPICS, &format!("{topic} {attempt}"), None)?;
        }
        Ok(())
    }

    /// Whether a topic has samples of another bus, as of the last read.
    pub(crate) fn is_forwarded(&self, topic: &TopicName) -> bool {
        self.topics.inspect(|topics| topics.forwarded.contains(topic))
    }

    /// Whether the incarnations of a topic's owners increase, as of a time or later. Samples of
    /// another bus break that order. This never waits: a thread reads the table if necessary.
    pub(crate) fn owners_in_order(
        self: &Arc<Self>,
        topic: &TopicName,
        since: Instant,
    ) -> OwnerOrder {
        let mut reads = locked(&self.reads);
        // Taken before the mark, which is known once the table was read.
        let was_read = reads.was_read(since);
        if self.is_forwarded(topic) {
            return OwnerOrder::No;
        }
        match was_read {
            Some(true) => OwnerOrder::Yes,
            Some(false) => OwnerOrder::Unknown,
            None => {
                reads.reading = reads.reading || self.read_topics_in_background();
                if reads.reading { OwnerOrder::Asked } else { OwnerOrder::Unknown }
            }
        }
    }

    /// Reads the topics' table on a thread; returns whether one was started.
    fn read_topics_in_background(self: &Arc<Self>) -> bool {
        let tables = Arc::clone(self);
        let read_all = move || {
            let begun = Instant::now();
            let read = tables.topics.glance(|_| ()).is_ok();
            let last = Some(BackgroundRead { begun, done: Instant::now(), read });
            *locked(&tables.reads) = BackgroundReads { reading: false, last };
        };
        std::thread::Builder::new().name("kafka-look".to_owned()).spawn(read_all).is_ok()
    }

    /// Marks a topic as having samples of another bus.
    pub(crate) fn mark_forwarded(&self, topic: &TopicName) -> Result<(), TransportError> {
        if self.is_forwarded(topic) {
            return Ok(());
        }
        append(&self.link, TOPICS, &format!("{topic} - forwarded"), Some(b"true"))?;
        self.topics.read(BROKER_TIMEOUT, |_| ())
    }

    /// A topic's schemas, oldest first.
    pub(crate) fn schemas_of(&self, topic: &TopicName) -> Result<Vec<SchemaId>, TransportError> {
        self.schemas.read(BROKER_TIMEOUT, |all| all.of.get(topic).cloned().unwrap_or_default())
    }

    /// Adds a schema to a topic if the topic still has so many schemas and not this one; returns
    /// whether it was added.
    pub(crate) fn declare(
        &self,
        topic: &TopicName,
        id: SchemaId,
        after: usize,
    ) -> Result<Declared, TransportError> {
        let known = self.schemas_of(topic)?;
        if known.len() != after || known.contains(&id) {
            return Ok(Declared::Behind);
        }
        let attempt = unique_name();
        let key = format!("of {topic} {attempt}");
        let declaration = SchemaDeclaration { schema: format!("{:x}", id.0), after };
        append(&self.link, SCHEMAS, &key, Some(&json(&declaration)?))?;
        if self.schemas.read(BROKER_TIMEOUT, |all| all.accepted.contains_key(&attempt))? {
            return Ok(Declared::Yes);
        }
        append(&self.link, SCHEMAS, &key, None)?;
        Ok(Declared::Behind)
    }

    /// Stores a schema's text.
    pub(crate) fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError> {
        if self.schema(id)?.is_none() {
            let key = format!("text {:x}", id.0);
            append(&self.link, SCHEMAS, &key, Some(text.as_bytes()))?;
            // Writers find it without another query.
            self.schemas.read(BROKER_TIMEOUT, |_| ())?;
        }
        Ok(())
    }

    /// A schema's text, as of the last read.
    pub(crate) fn known_schema(&self, id: SchemaId) -> Option<String> {
        self.schemas.inspect(|all| all.texts.get(&id).cloned())
    }

    /// A schema's text.
    pub(crate) fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        if let Some(text) = self.known_schema(id) {
            return Ok(Some(text));
        }
        self.schemas.read(BROKER_TIMEOUT, |all| all.texts.get(&id).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::names::PRODUCERS;

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
        let declaration = SchemaDeclaration { schema: "1f".to_owned(), after: 0 };
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
