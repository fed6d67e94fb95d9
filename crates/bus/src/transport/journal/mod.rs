//! `journal:PATH`: the embedded journal in a folder, shared by the processes of a machine.
//!
//! | option | meaning |
//! | --- | --- |
//! | `sync_ms` | the longest that a record of a persistent topic stays unsynced (100) |
//! | `access=read` | change nothing in the folder: topics can be read only |
//! | `budget` | the room for default retention: bytes, or a share of the disk (`25%`) |
//! | `pid_namespaces` | `one`, or `any`: containers with PID namespaces of their own share it |
//!
//! Each connection opens the journal separately, so that its claims, group memberships and bells
//! end with it. Topics below `_helio/` are internal and not listed: `_helio/schemas` stores the
//! topics' declared schemas.

mod bell;
mod exclusive;
mod reader;
mod schemas;
mod topic;
mod writer;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use helio_core::qos::{Durability, Guarantee, Reliability, Retention};
use helio_core::{Qos, SchemaId, TopicName};
use helio_journal::{
    Access, Budget, Journal, JournalError, JournalOptions, LastValue, MAX_KEY_BYTES,
    MAX_PARTITIONS, MAX_RECORD_BYTES, PidNamespaces, Recovered, RecoveryHook, SyncPolicy,
    TopicConfig, user_id,
};
use serde::{Deserialize, Serialize};

use super::{
    Capabilities, Fencing, Granted, HistorySupport, Opening, Reach, Support, Transport,
    TransportTopic,
};
use crate::bell::{Bell, locked};
use crate::error::{ConnectError, TransportError, engine};
use crate::exclusive::{ExclusiveError, ExclusiveLog, Log, LogOptions};
use crate::notices;
use crate::url::BusUrl;
use bell::JournalBell;
use exclusive::JournalStore;
use schemas::Schemas;
use topic::{JournalTopic, described};

const SCHEME: &str = "journal";
/// The prefix of internal topics.
const INTERNAL_PREFIX: &str = "_helio/";

/// A topic's description: its quality of service.
#[derive(Serialize, Deserialize)]
struct Description {
    qos: Qos,
}

/// The state that all objects of one connection share.
struct Shared {
    journal: Journal,
    /// Those of its exclusive logs, too.
    options: JournalOptions,
    schemas: Schemas,
    closed: AtomicBool,
    bells: Mutex<Vec<Weak<JournalBell>>>,
    clock: Arc<dyn crate::clock::Clock>,
}

impl Shared {
    fn check_open(&self) -> Result<(), TransportError> {
        if self.closed.load(Ordering::Acquire) { Err(TransportError::Closed) } else { Ok(()) }
    }
}

struct JournalTransport {
    shared: Arc<Shared>,
    capabilities: Capabilities,
    topics: Mutex<HashMap<TopicName, Weak<JournalTopic>>>,
}

pub(super) fn connect(opening: &Opening) -> Result<Arc<dyn Transport>, ConnectError> {
    let url = &opening.url;
    url.allow_options(&["sync_ms", "access", "budget", "pid_namespaces"])?;
    if url.rest().is_empty() {
        let reason = "a journal needs a folder".to_owned();
        return Err(ConnectError::Url { url: url.to_string(), reason });
    }
    let access = match url.option("access") {
        None | Some("write") => Access::ReadWrite,
        Some("read") => Access::ReadOnly,
        Some(other) => return Err(url.bad_option("access", other, "read or write")),
    };
    let recovery_hook: RecoveryHook = Arc::new(|found| notices::notify(&recovered(found)));
    let mut options =
        JournalOptions { access, recovery_hook: Some(recovery_hook), ..JournalOptions::default() };
    if let Some(ms) = url.number("sync_ms")? {
        options.sync_interval = Duration::from_millis(ms);
    }
    if let Some(text) = url.option("budget") {
        let wrong = || url.bad_option("budget", text, "a number of bytes, or 1% to 100%");
        options.budget = budget(text).ok_or_else(wrong)?;
    }
    options.pid_namespaces = match url.option("pid_namespaces") {
        None | Some("one") => PidNamespaces::One,
        Some("any") => PidNamespaces::Any,
        Some(other) => return Err(url.bad_option("pid_namespaces", other, "one or any")),
    };
    // journal:///path is the same folder as journal:/path.
    let path = url.rest().strip_prefix("//").unwrap_or(url.rest());
    let opened = Journal::open(Path::new(path), options.clone());
    let journal = opened.map_err(failed("open the folder"))?;
    if access == Access::ReadWrite {
        warn_of_owner(&journal);
    }
    let shared = Shared {
        schemas: Schemas::new(journal.clone()),
        journal,
        options,
        closed: AtomicBool::new(false),
        bells: Mutex::default(),
        clock: Arc::clone(&opening.clock),
    };
    let (shared, capabilities) = (Arc::new(shared), capabilities());
    Ok(Arc::new(JournalTransport { shared, capabilities, topics: Mutex::default() }))
}

/// The notice of a recovery that found records missing.
fn recovered(Recovered { path, report }: &Recovered) -> String {
    let mut found = Vec::new();
    if report.missing > 0 {
        let (missing, from) = (report.missing, report.missing_from);
        found.push(format!("{missing} samples from offset {from} on cannot be read"));
    }
    if report.cut > 0 {
        found.push(format!("{} samples that were not durable were cut off", report.cut));
    }
    let (path, found) = (path.display(), found.join(", and "));
    format!("{path}: recovered: {found}; readers get gaps, `helio topics` lists the topics")
}

/// Notifies the operator if root opens another user's journal.
fn warn_of_owner(journal: &Journal) {
    if let Some(owner) = journal.stranger() {
        let folder = journal.path().display();
        notices::notify(&format!(
            "{folder} belongs to user {owner}, who cannot write to what this process creates there \
             as root; run it as that user"
        ));
    }
}

/// The URL with which a journal is opened for reading; other URLs stay as they are.
pub(super) fn reading(url: &BusUrl) -> Result<BusUrl, ConnectError> {
    if url.scheme() != SCHEME || url.option("access").is_some() {
        return Ok(url.clone());
    }
    let text = url.to_string();
    let joint = if text.contains('?') { '&' } else { '?' };
    format!("{text}{joint}access=read").parse()
}

fn capabilities() -> Capabilities {
    Capabilities {
        transport: SCHEME.to_owned(),
        reach: Reach::Machine,
        reliability: Reliability::Reliable,
        durability: Durability::Persistent,
        history: HistorySupport::KeepAll,
        exclusive: Support::Yes,
        fencing: Fencing::RefuseAndDrop,
        guarantee: Guarantee::Durable,
        retention_bytes: Support::Yes,
        retention_age: Support::Yes,
        last_value: Support::Yes,
        liveliness: Support::Yes,
        partitions: MAX_PARTITIONS,
        groups: Support::Yes,
        rewind: Support::Yes,
        grants: Support::Yes,
        exclusive_log: Support::Yes,
        // The journal's limit includes key and payload.
        max_payload_bytes: MAX_RECORD_BYTES - MAX_KEY_BYTES,
        max_key_bytes: MAX_KEY_BYTES,
    }
}

fn budget(text: &str) -> Option<Budget> {
    match text.strip_suffix('%') {
        Some(percent) => {
            percent.parse().ok().filter(|p| (1..=100).contains(p)).map(Budget::Percent)
        }
        None => text.parse().ok().map(Budget::Bytes),
    }
}

fn config(qos: &Qos) -> TopicConfig {
    let nanos = |age: Duration| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    let description = Description { qos: qos.clone() };
    TopicConfig {
        partitions: qos.partitions,
        retention_bytes: qos.retention.bytes,
        retention_age_ns: qos.retention.age.map(nanos),
        within_budget: qos.retention.default,
        last_value: if qos.retention.last_value { LastValue::Keep } else { LastValue::Forget },
        sync: match qos.durability {
            Durability::Persistent => SyncPolicy::Background,
            Durability::Volatile | Durability::TransientLocal => SyncPolicy::OnRequest,
        },
        description: serde_json::to_string(&description).unwrap_or_default(),
        ..TopicConfig::default()
    }
}

/// Converts a journal's error.
fn failed(what: &str) -> impl Fn(JournalError) -> TransportError + '_ {
    move |error| match error {
        JournalError::TopicGone { topic } => TransportError::TopicGone { topic },
        JournalError::SchemaEdited { id, .. } => {
            TransportError::SchemaEdited { schema: id, cause: error.to_string() }
        }
        JournalError::Unfinished { .. } => {
            TransportError::Outage { transport: SCHEME.to_owned(), cause: error.to_string() }
        }
        JournalError::NoAccessLists { .. } => TransportError::Unsupported {
            transport: SCHEME.to_owned(),
            what: format!("{what}: {error}"),
            remedy: "then grant it again".to_owned(),
        },
        error => engine(SCHEME, what, error),
    }
}

/// Converts the error of a topic's creation or change: what cannot fit is refused.
fn refused(topic: &TopicName, error: JournalError) -> TransportError {
    match error {
        JournalError::OverBudget { .. } => TransportError::Unsupported {
            transport: SCHEME.to_owned(),
            what: format!("keep the retention of {topic}: {error}"),
            remedy: "choose a lower retention.bytes, or a larger budget (?budget=50%)".to_owned(),
        },
        error => failed("create or alter a topic")(error),
    }
}

impl JournalTransport {
    fn opened(
        &self,
        topic: helio_journal::Topic,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        let mut topics = locked(&self.topics);
        let open = topics.get(topic.name()).and_then(Weak::upgrade);
        if let Some(open) = open.filter(|open| open.is_current()) {
            return Ok(open);
        }
        let name = topic.name().clone();
        let open = Arc::new(JournalTopic::new(topic, &self.shared)?);
        topics.retain(|_, topic| topic.strong_count() > 0);
        topics.insert(name, Arc::downgrade(&open));
        Ok(open)
    }
}

impl Transport for JournalTransport {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn identity(&self) -> Result<Option<String>, TransportError> {
        Ok(Some(format!("journal-{:016x}", self.shared.journal.id())))
    }

    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError> {
        self.shared.check_open()?;
        let topic = self.shared.journal.topic(name).map_err(failed("open a topic"))?;
        topic.map(|topic| self.opened(topic)).transpose()
    }

    fn create_topic(
        &self,
        name: &TopicName,
        qos: &Qos,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        self.shared.check_open()?;
        if let Some(topic) = self.open_topic(name)? {
            return super::first_difference(name, topic.qos(), qos).map_or(Ok(topic), Err);
        }
        match self.shared.journal.create_topic(name, &config(qos)) {
            Ok(topic) => self.opened(topic),
            // Another process created it first, perhaps with another quality of service.
            Err(JournalError::Mismatch { topic, .. }) => {
                let gone = TransportError::TopicGone { topic };
                let topic = self.open_topic(name)?.ok_or(gone)?;
                super::first_difference(name, topic.qos(), qos).map_or(Ok(topic), Err)
            }
            Err(error) => Err(refused(name, error)),
        }
    }

    fn remove_topic(&self, name: &TopicName) -> Result<bool, TransportError> {
        self.shared.check_open()?;
        locked(&self.topics).remove(name);
        self.shared.schemas.forget(name)?;
        self.shared.journal.remove_topic(name).map_err(failed("remove a topic"))
    }

    fn purge_topic(&self, name: &TopicName) -> Result<bool, TransportError> {
        self.shared.check_open()?;
        locked(&self.topics).remove(name);
        self.shared.journal.purge_topic(name).map_err(failed("purge a topic"))
    }

    fn alter_topic(&self, name: &TopicName, retention: &Retention) -> Result<bool, TransportError> {
        self.shared.check_open()?;
        let topic = self.shared.journal.topic(name).map_err(failed("open a topic"))?;
        let Some(topic) = topic else { return Ok(false) };
        let Description { mut qos } = described(&topic)?;
        qos.retention = Retention { last_value: qos.retention.last_value, ..retention.clone() };
        let altered = TopicConfig {
            partitions: topic.config().partitions,
            segment_bytes: topic.config().segment_bytes,
            ..config(&qos)
        };
        self.shared.journal.alter_topic(name, &altered).map_err(|error| refused(name, error))
    }

    fn grant(
        &self,
        user: &str,
        topic: &TopicName,
        password: Option<&str>,
    ) -> Result<Granted, TransportError> {
        self.shared.check_open()?;
        if password.is_some() {
            return Err(TransportError::Unsupported {
                transport: SCHEME.to_owned(),
                what: format!("grant {topic} with a password"),
                remedy: "name a user of this machine, and no password".to_owned(),
            });
        }
        let id = user_id(user).map_err(failed("grant a topic"))?;
        self.shared.schemas.share(id)?;
        match self.shared.journal.grant(topic, id).map_err(failed("grant a topic"))? {
            true => Ok(Granted::new(None)),
            false => Err(TransportError::TopicGone { topic: topic.to_string() }),
        }
    }

    fn revoke(&self, user: &str, topic: &TopicName) -> Result<bool, TransportError> {
        self.shared.check_open()?;
        let id = user_id(user).map_err(failed("revoke a topic"))?;
        self.shared.journal.revoke(topic, id).map_err(failed("revoke a topic"))
    }

    fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.shared.check_open()?;
        let topics = self.shared.journal.topics().map_err(failed("list the topics"))?;
        let names = topics.into_iter().map(|topic| topic.name);
        Ok(names.filter(|name| !name.as_str().starts_with(INTERNAL_PREFIX)).collect())
    }

    fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError> {
        self.shared.check_open()?;
        self.shared.journal.put_schema(id, text).map_err(failed("store a schema"))
    }

    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        self.shared.journal.schema(id).map_err(failed("read a schema"))
    }

    fn exclusive_log(
        &self,
        name: &TopicName,
        options: &LogOptions,
    ) -> Result<Arc<dyn ExclusiveLog>, ExclusiveError> {
        self.shared.check_open()?;
        let journal = self.shared.options.clone();
        let (store, found) = JournalStore::open(&self.shared.journal, journal, name, options)?;
        Ok(Arc::new(Log::new(store, options.durability, found)))
    }

    fn bell(&self) -> Result<Arc<dyn Bell>, TransportError> {
        self.shared.check_open()?;
        let bell = self.shared.journal.bell().map_err(failed("create a bell"))?;
        let bell = Arc::new(JournalBell::new(bell));
        let mut bells = locked(&self.shared.bells);
        bells.retain(|bell| bell.strong_count() > 0);
        bells.push(Arc::downgrade(&bell));
        Ok(bell)
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        for bell in locked(&self.shared.bells).iter().filter_map(Weak::upgrade) {
            bell.ring_all();
        }
        for topic in locked(&self.topics).values().filter_map(Weak::upgrade) {
            topic.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content of `topic.json`; a topic of any earlier version must open.
    #[test]
    fn a_topic_s_configuration_is_golden() {
        let text = serde_json::to_string(&config(&Qos::event())).unwrap();
        let description = r#"{"qos":{
            "reliability":"reliable",
            "durability":"persistent",
            "history":{"keep_last":1},
            "ownership":"shared",
            "overload":"block",
            "retention":{"bytes":null,"age":{"secs":2592000,"nanos":0},"last_value":true},
            "guarantee":"stored",
            "liveliness":"automatic",
            "deadline":null,
            "lifespan":null,
            "partitions":1
        }}"#;
        let description: String = description.split_whitespace().collect();
        let golden = serde_json::json!({
            "partitions": 1,
            "segment_bytes": 16_777_216,
            "retention_bytes": null,
            "retention_age_ns": 2_592_000_000_000_000_u64,
            "last_value": "keep",
            "sync": "background",
            "description": description,
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), golden);
        let read: TopicConfig = serde_json::from_str(&text).unwrap();
        let Description { qos } = serde_json::from_str(&read.description).unwrap();
        assert_eq!(qos, Qos::event());
        let on_request = config(&Qos { durability: Durability::Volatile, ..Qos::stream() });
        let others = (on_request.last_value, on_request.sync);
        assert_eq!(serde_json::to_string(&others).unwrap(), r#"["forget","on_request"]"#);
    }
    #[test]
    fn a_description_that_cannot_be_read_is_an_error_at_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let journal = Journal::open(&path, JournalOptions::default()).unwrap();
        let create = |name: &str, description: &str| {
            let config = TopicConfig { description: description.to_owned(), ..config(&Qos::log()) };
            journal.create_topic(&TopicName::new(name).unwrap(), &config).unwrap();
        };
        create("older", r#"{"qos":{"reliability":"reliable","history":"keep_all"}}"#);
        create("newer", r#"{"qos":{"history":"keep_some"}}"#);
        create("foreign", "mine");
        let bus = crate::Bus::connect(&format!("journal:{}", path.display())).unwrap();
        let opened = |name: &str| bus.topic(crate::TopicSpec::new(name).unwrap());
        let older = Qos { history: helio_core::qos::History::KeepAll, ..Qos::telemetry() };
        assert_eq!(*opened("older").unwrap().qos(), older);
        let newer = opened("newer").unwrap_err().to_string();
        assert!(newer.contains("quality of service cannot be read"), "{newer}");
        assert!(newer.contains("keep_some") && newer.contains("newer one"), "{newer}");
        let foreign = opened("foreign").unwrap_err().to_string();
        assert!(foreign.contains("not made by a bus"), "{foreign}");
    }
}
