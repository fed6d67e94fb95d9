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
//! | `_helio.topics` | topic, attempt | [`TopicDeclaration`] |
//! | `_helio.topics` | topic, `-`, `forwarded` | `true`: the topic has samples of another bus |
//! | `_helio.schemas` | `schema_text`, schema | the schema's text |
//! | `_helio.schemas` | `topic_schema`, topic, attempt | [`SchemaDeclaration`] |
//!
//! JSON is that of [`versioned_json`](helio_bus::transport::versioned_json). If a topic's
//! declarations cannot be read, opening it returns an error. Writers are in `_helio.producers`; see
//! `writer_table`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::transport::versioned_json::{FormatError, decode};
use helio_bus::transport::{Declared, OwnerOrder, locked};
use helio_bus::{Qos, SchemaId, TopicName, TransportError};
use serde::{Deserialize, Serialize};

use crate::SCHEME;
use crate::client::link::{Link, unique_name};
use crate::client::names::{PRODUCERS, SCHEMAS, TOPICS};
use crate::client::options::BROKER_TIMEOUT;
use crate::internal::table::{
    Fold, LogRecord, TRUE, Table, append, append_all, check_true, encode, unknown_key,
};
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
    named: HashMap<TopicName, BTreeMap<u64, (String, DecodedDeclaration)>>,
    /// Topics that have samples of another bus.
    forwarded: HashSet<TopicName>,
}

/// The declaration of a topic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TopicDeclaration {
    pub(crate) qos: Qos,
    pub(crate) origin: TopicOrigin,
}

type DecodedDeclaration = Result<TopicDeclaration, FormatError>;

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

    fn take(
        &mut self,
        LogRecord { offset, key, value, .. }: LogRecord<'_>,
    ) -> Result<(), FormatError> {
        match (key, value) {
            ([topic, "-", "forwarded"], Some(value)) => {
                check_true(value)?;
                self.forwarded.insert(topic_name(topic)?);
            }
            ([topic, attempt], value) => {
                let named = self.named.entry(topic_name(topic)?).or_default();
                match value {
                    // If it cannot be read, opening the topic returns the error.
                    Some(value) => {
                        named.insert(offset, ((*attempt).to_owned(), decode(value)));
                    }
                    None => named.retain(|_, (by, _)| by != attempt),
                }
            }
            (_, None) => {}
            _ => return Err(unknown_key()),
        }
        Ok(())
    }
}

impl TopicTable {
    fn first(&self, topic: &TopicName) -> Option<&(String, DecodedDeclaration)> {
        self.named.get(topic)?.values().next()
    }
}

/// The schemas' texts, and the schemas of each topic.
#[derive(Default)]
pub(crate) struct SchemaTable {
    texts: HashMap<SchemaId, String>,
    topics: HashMap<TopicName, TopicSchemas>,
    accepted: HashMap<String, SchemaId>,
}

/// The schemas of a topic.
#[derive(Default)]
struct TopicSchemas {
    /// Oldest first.
    ids: Vec<SchemaId>,
    /// The attempts that cannot be read.
    unreadable: BTreeMap<String, FormatError>,
}

/// One more schema of a topic.
#[derive(Serialize, Deserialize)]
struct SchemaDeclaration {
    /// Hexadecimal.
    schema: String,
    /// How many schemas the topic must have so far; otherwise the attempt has lost.
    expected_schema_count: usize,
}

impl SchemaDeclaration {
    fn decode(json: &[u8]) -> Result<(SchemaId, usize), FormatError> {
        let Self { schema, expected_schema_count } = decode(json)?;
        Ok((schema_id(&schema)?, expected_schema_count))
    }
}

fn schema_id(text: &str) -> Result<SchemaId, FormatError> {
    u64::from_str_radix(text, 16).map(SchemaId).map_err(FormatError::invalid)
}

fn topic_name(text: &str) -> Result<TopicName, FormatError> {
    TopicName::new(text).map_err(FormatError::invalid)
}

impl Fold for SchemaTable {
    const NAME: &'static str = SCHEMAS;

    fn take(&mut self, LogRecord { key, value, .. }: LogRecord<'_>) -> Result<(), FormatError> {
        match (key, value) {
            (["schema_text", id], Some(text)) => {
                let text = std::str::from_utf8(text).map_err(FormatError::invalid)?;
                self.texts.entry(schema_id(id)?).or_insert_with(|| text.to_owned());
            }
            // Records before version 2 have the key `of`: they are refused for their version.
            (["topic_schema" | "of", topic, attempt], value) => {
                let TopicSchemas { ids, unreadable } =
                    self.topics.entry(topic_name(topic)?).or_default();
                match value.map(SchemaDeclaration::decode) {
                    Some(Ok((id, count))) => {
                        if ids.len() == count && !ids.contains(&id) {
                            ids.push(id);
                            self.accepted.insert((*attempt).to_owned(), id);
                        }
                    }
                    // Opening the topic returns the error.
                    Some(Err(error)) => _ = unreadable.insert((*attempt).to_owned(), error),
                    None => _ = unreadable.remove(*attempt),
                }
            }
            (_, None) => {}
            _ => return Err(unknown_key()),
        }
        Ok(())
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
        self.descriptions(std::iter::once(topic))?.pop().transpose().map(Option::flatten)
    }

    /// The same for many topics. Of a topic whose declaration cannot be read it is an error.
    pub(crate) fn descriptions<'a>(
        &self,
        topics: impl Iterator<Item = &'a TopicName>,
    ) -> Result<Vec<Result<Option<TopicDeclaration>, TransportError>>, TransportError> {
        self.topics.read(BROKER_TIMEOUT, |known| {
            let first = topics.map(|topic| {
                let first = known.first(topic).map(|(_, first)| first.clone());
                first.transpose().map_err(|error| self.unreadable(TOPICS, topic, &error))
            });
            first.collect()
        })
    }

    /// The error of opening a topic that has a record of another format.
    fn unreadable(&self, table: &str, topic: &TopicName, error: &FormatError) -> TransportError {
        let internal = |table: &str| self.link.names.internal(table);
        TransportError::Unsupported {
            transport: SCHEME.to_owned(),
            what: format!(
                "open {topic}: its record in the topic {} cannot be read ({error})",
                internal(table)
            ),
            remedy: format!(
                "use the same release in all programs, or delete the topics {}, {} and {} and \
                 those that they describe",
                internal(TOPICS),
                internal(SCHEMAS),
                internal(PRODUCERS)
            ),
        }
    }

    /// Declares topics that have no declaration; returns the valid ones. If another program's
    /// attempt wins and cannot be read, it is an error.
    pub(crate) fn describe(
        &self,
        topics: &[(&TopicName, TopicDeclaration)],
    ) -> Result<Vec<Result<TopicDeclaration, TransportError>>, TransportError> {
        let attempts: Vec<_> = topics.iter().map(|_| unique_name()).collect();
        let records = topics.iter().zip(&attempts).map(|((topic, description), attempt)| {
            Ok::<_, TransportError>((format!("{topic} {attempt}"), Some(encode(description)?)))
        });
        append_all(&self.link, TOPICS, &records.collect::<Result<Vec<_>, _>>()?)?;
        let all = topics.iter().zip(&attempts);
        let holds: Vec<_> = self.topics.read(BROKER_TIMEOUT, |known| {
            let first = all.map(|((topic, description), attempt)| match known.first(topic) {
                Some((first, holds)) => (
                    first == attempt,
                    holds.clone().map_err(|error| self.unreadable(TOPICS, topic, &error)),
                ),
                None => (true, Ok(description.clone())),
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
        let first = self.topics.inspect(|topics| topics.first(topic).map(|(by, _)| by.clone()));
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
        append(&self.link, TOPICS, &format!("{topic} - forwarded"), Some(TRUE))?;
        self.topics.read(BROKER_TIMEOUT, |_| ())
    }

    /// A topic's schemas, oldest first.
    pub(crate) fn schemas_of(&self, topic: &TopicName) -> Result<Vec<SchemaId>, TransportError> {
        self.schemas.read(BROKER_TIMEOUT, |all| match all.topics.get(topic) {
            None => Ok(Vec::new()),
            Some(TopicSchemas { ids, unreadable }) => match unreadable.values().next() {
                None => Ok(ids.clone()),
                Some(error) => Err(self.unreadable(SCHEMAS, topic, error)),
            },
        })?
    }

    /// Adds a schema to a topic if the topic still has so many schemas and not this one; returns
    /// whether it was added.
    pub(crate) fn declare(
        &self,
        topic: &TopicName,
        id: SchemaId,
        expected_schema_count: usize,
    ) -> Result<Declared, TransportError> {
        let known = self.schemas_of(topic)?;
        if known.len() != expected_schema_count || known.contains(&id) {
            return Ok(Declared::Behind);
        }
        let attempt = unique_name();
        let key = format!("topic_schema {topic} {attempt}");
        let schema = format!("{:x}", id.0);
        let declaration = SchemaDeclaration { schema, expected_schema_count };
        append(&self.link, SCHEMAS, &key, Some(&encode(&declaration)?))?;
        if self.schemas.read(BROKER_TIMEOUT, |all| all.accepted.contains_key(&attempt))? {
            return Ok(Declared::Yes);
        }
        append(&self.link, SCHEMAS, &key, None)?;
        Ok(Declared::Behind)
    }

    /// Stores a schema's text.
    pub(crate) fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError> {
        if self.schema(id)?.is_none() {
            let key = format!("schema_text {:x}", id.0);
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

    fn try_take<F: Fold>(fold: &mut F, key: &str, value: &str) -> Result<(), FormatError> {
        let key: Vec<_> = key.split(' ').collect();
        fold.take(LogRecord { offset: 0, millis: 0, key: &key, value: Some(value.as_bytes()) })
    }

    fn take<F: Fold>(fold: &mut F, offset: u64, key: &str, value: Option<&str>) {
        let (key, value): (Vec<_>, _) = (key.split(' ').collect(), value.map(str::as_bytes));
        fold.take(LogRecord { offset, millis: 0, key: &key, value }).unwrap();
    }

    #[test]
    fn topics_are_those_of_the_format() {
        assert_eq!([TOPICS, SCHEMAS, PRODUCERS], ["topics", "schemas", "producers"]);
        let qos = serde_json::to_string(&Qos::event()).unwrap();
        let golden = |origin: &str| format!(r#"{{"v":2,"qos":{qos},"origin":"{origin}"}}"#);
        let mut topics = TopicTable::default();
        take(&mut topics, 10, "a/b x", Some(&golden("bus")));
        take(&mut topics, 11, "a/b y", Some(&golden("foreign")));
        take(&mut topics, 12, "a/b - forwarded", Some("true"));
        let topic = TopicName::new("a/b").unwrap();
        for (attempt, origin, name) in
            [("x", TopicOrigin::Bus, "bus"), ("y", TopicOrigin::Foreign, "foreign")]
        {
            let (first, description) = topics.first(&topic).unwrap();
            let description = description.as_ref().unwrap();
            assert_eq!((&**first, description.origin), (attempt, origin));
            assert_eq!(encode(description).unwrap(), golden(name).into_bytes());
            take(&mut topics, 13, &format!("a/b {attempt}"), None);
        }
        assert!(topics.first(&topic).is_none());
        assert!(topics.forwarded.contains(&topic));
    }

    #[test]
    fn schemas_are_those_of_the_format() {
        let golden = r#"{"v":2,"schema":"1f","expected_schema_count":0}"#;
        let declaration = SchemaDeclaration { schema: "1f".to_owned(), expected_schema_count: 0 };
        assert_eq!(encode(&declaration).unwrap(), golden.as_bytes());
        let mut schemas = SchemaTable::default();
        take(&mut schemas, 10, "schema_text 1f", Some("the text"));
        take(&mut schemas, 11, "topic_schema a/b x", Some(golden));
        take(&mut schemas, 12, "topic_schema a/b y", Some(golden));
        assert_eq!(schemas.texts[&SchemaId(0x1f)], "the text");
        assert_eq!(schemas.topics[&TopicName::new("a/b").unwrap()].ids, [SchemaId(0x1f)]);
        assert_eq!(schemas.accepted.keys().collect::<Vec<_>>(), ["x"]);
    }

    #[test]
    fn a_declaration_of_another_version_is_kept_as_an_error() {
        let topic = TopicName::new("a/b").unwrap();
        let qos = serde_json::to_string(&Qos::event()).unwrap();
        for (v, error) in [
            ("", FormatError::NoVersion),
            (r#""v":1,"#, FormatError::Version(1)),
            (r#""v":3,"#, FormatError::Version(3)),
        ] {
            let mut topics = TopicTable::default();
            let description = format!(r#"{{{v}"qos":{qos},"origin":"bus"}}"#);
            take(&mut topics, 10, "a/b x", Some(&description));
            let (_, first) = topics.first(&topic).unwrap();
            assert_eq!(first.as_ref().err(), Some(&error));
            take(&mut topics, 11, "a/b x", None);
            assert!(topics.first(&topic).is_none(), "its writer has deleted it");

            let mut schemas = SchemaTable::default();
            for (key, count) in [("topic_schema", "expected_schema_count"), ("of", "after")] {
                let schema = format!(r#"{{{v}"schema":"1f","{count}":0}}"#);
                take(&mut schemas, 10, &format!("{key} a/b x"), Some(&schema));
                let TopicSchemas { ids, unreadable } = &schemas.topics[&topic];
                assert_eq!((ids.len(), unreadable.get("x")), (0, Some(&error)));
                take(&mut schemas, 11, &format!("{key} a/b x"), None);
                assert!(schemas.topics[&topic].unreadable.is_empty());
            }
        }
    }

    #[test]
    fn other_records_that_cannot_be_read_are_ignored_with_an_error() {
        let (mut topics, mut schemas) = (TopicTable::default(), SchemaTable::default());
        let marked = |topics: &mut _, value: &str| try_take(topics, "a/b - forwarded", value);
        assert_eq!(marked(&mut topics, "{}"), Err(FormatError::NoVersion));
        assert_eq!(marked(&mut topics, r#"{"v":3}"#), Err(FormatError::Version(3)));
        for value in ["false", r#"{"v":2}"#] {
            assert!(matches!(marked(&mut topics, value), Err(FormatError::Invalid(_))));
        }
        assert!(topics.forwarded.is_empty());
        for key in ["a b c d", "a//b x"] {
            assert!(matches!(try_take(&mut topics, key, "true"), Err(FormatError::Invalid(_))));
        }
        for key in ["text 1f", "schema_text z", "topic_schema a//b x"] {
            assert!(matches!(try_take(&mut schemas, key, "text"), Err(FormatError::Invalid(_))));
        }
    }
}
