//! `memory:NAME`: the journal's semantics in one process, without files.
//!
//! Constraints. A named instance exists until the process ends or [`forget`] is called; `memory:`
//! alone is a new private one. Each connection simulates a process: its open writers end with it.
//! *Stored* and *durable* mean that a sample is in the process's memory: it survives buses, not the
//! process. `memory:NAME?strict=1` therefore refuses policies that need a disk; without it, the six
//! profiles can be tested unchanged. A partition stores at most [`MAX_PARTITION_BYTES`], whatever
//! its retention.
//!
//! Operation. A partition is a deque of shared samples behind a mutex, and the newest ones of each
//! key. Readers copy references and visit the samples outside the lock.

mod exclusive;
mod group;
mod partition;
mod reader;
mod topic;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use helio_core::qos::{Durability, Guarantee, Reliability};
use helio_core::{Qos, SchemaId, TopicName};

use super::{
    Capabilities, Fencing, HistorySupport, Opening, Reach, Support, Transport, TransportTopic,
    first_difference,
};
use crate::bell::{Bell, LocalBell, locked};
use crate::clock::Clock;
use crate::error::{ConnectError, TransportError};
use crate::exclusive::{ExclusiveError, ExclusiveLog, Log, LogOptions};
use topic::{MemoryTopic, TopicConnection};

/// The most bytes (payloads and keys) that a partition stores, so that no test exhausts memory.
pub const MAX_PARTITION_BYTES: u64 = 256 << 20;
/// The limit where a profile's default names none: there may be many such topics.
const DEFAULT_PARTITION_BYTES: u64 = 64 << 20;
/// The largest payload, as the journal's.
pub const MAX_PAYLOAD_BYTES: usize = (64 << 20) - MAX_KEY_BYTES;
/// The largest key, as the journal's.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;

const SCHEME: &str = "memory";

/// The state that all connections of one name share.
#[derive(Default)]
struct Engine {
    number: EngineNumber,
    topics: Mutex<BTreeMap<TopicName, Arc<MemoryTopic>>>,
    schemas: Mutex<HashMap<SchemaId, String>>,
    logs: exclusive::MemoryLogs,
}

/// Distinguishes the process's engines.
struct EngineNumber(u64);

impl Default for EngineNumber {
    fn default() -> Self {
        static ENGINES: AtomicU64 = AtomicU64::new(0);
        Self(ENGINES.fetch_add(1, Ordering::Relaxed))
    }
}

fn engines() -> &'static Mutex<HashMap<String, Arc<Engine>>> {
    static ENGINES: OnceLock<Mutex<HashMap<String, Arc<Engine>>>> = OnceLock::new();
    ENGINES.get_or_init(Mutex::default)
}

/// Removes a named instance: the next connection creates an empty one. Open connections keep
/// theirs.
pub fn forget(name: &str) {
    locked(engines()).remove(name);
}

pub(super) fn connect(opening: &Opening) -> Result<Arc<dyn Transport>, ConnectError> {
    let url = &opening.url;
    url.allow_options(&["strict"])?;
    let strict = match url.option("strict") {
        None | Some("0") => Support::No,
        Some("1") => Support::Yes,
        Some(other) => return Err(url.bad_option("strict", other, "0 or 1")),
    };
    let engine = match url.rest() {
        "" => Arc::default(),
        name => Arc::clone(locked(engines()).entry(name.to_owned()).or_default()),
    };
    let capabilities = capabilities(strict);
    let clock = Arc::clone(&opening.clock);
    Ok(Arc::new(Memory { engine, capabilities, clock, closed: Arc::default() }))
}

fn capabilities(strict: Support) -> Capabilities {
    let strict = strict.is_yes();
    Capabilities {
        transport: SCHEME.to_owned(),
        reach: Reach::Process,
        reliability: Reliability::Reliable,
        durability: if strict { Durability::TransientLocal } else { Durability::Persistent },
        history: HistorySupport::KeepAll,
        exclusive: Support::Yes,
        fencing: Fencing::RefuseAndDrop,
        guarantee: if strict { Guarantee::Stored } else { Guarantee::Durable },
        retention_bytes: Support::Yes,
        retention_age: Support::Yes,
        last_value: Support::Yes,
        liveliness: Support::Yes,
        partitions: 1024,
        groups: Support::Yes,
        rewind: Support::Yes,
        grants: Support::No,
        exclusive_log: if strict { Support::No } else { Support::Yes },
        max_payload_bytes: MAX_PAYLOAD_BYTES,
        max_key_bytes: MAX_KEY_BYTES,
    }
}

/// One connection.
struct Memory {
    engine: Arc<Engine>,
    capabilities: Capabilities,
    clock: Arc<dyn Clock>,
    closed: Arc<AtomicBool>,
}

impl Memory {
    fn connected(&self, topic: &Arc<MemoryTopic>) -> Arc<dyn TransportTopic> {
        Arc::new(TopicConnection {
            topic: Arc::clone(topic),
            clock: Arc::clone(&self.clock),
            closed: Arc::clone(&self.closed),
        })
    }

    fn check_open(&self) -> Result<(), TransportError> {
        if self.closed.load(Ordering::Acquire) { Err(TransportError::Closed) } else { Ok(()) }
    }
}

impl Transport for Memory {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn identity(&self) -> Result<Option<String>, TransportError> {
        Ok(Some(format!("memory-{}-{}", std::process::id(), self.engine.number.0)))
    }

    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError> {
        self.check_open()?;
        Ok(locked(&self.engine.topics).get(name).map(|topic| self.connected(topic)))
    }

    fn create_topic(
        &self,
        name: &TopicName,
        qos: &Qos,
    ) -> Result<Arc<dyn TransportTopic>, TransportError> {
        self.check_open()?;
        let mut topics = locked(&self.engine.topics);
        let topic = topics
            .entry(name.clone())
            .or_insert_with(|| Arc::new(MemoryTopic::new(name.clone(), qos.clone())));
        match first_difference(name, topic.qos(), qos) {
            Some(error) => Err(error),
            None => Ok(self.connected(topic)),
        }
    }

    fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.check_open()?;
        Ok(locked(&self.engine.topics).keys().cloned().collect())
    }

    fn put_schema(&self, id: SchemaId, text: &str) -> Result<(), TransportError> {
        self.check_open()?;
        locked(&self.engine.schemas).entry(id).or_insert_with(|| text.to_owned());
        Ok(())
    }

    fn schema(&self, id: SchemaId) -> Result<Option<String>, TransportError> {
        Ok(locked(&self.engine.schemas).get(&id).cloned())
    }

    fn exclusive_log(
        &self,
        name: &TopicName,
        options: &LogOptions,
    ) -> Result<Arc<dyn ExclusiveLog>, ExclusiveError> {
        self.check_open()?;
        if !self.capabilities.exclusive_log.is_yes() {
            return Err(self.no_exclusive_logs());
        }
        let (store, found) = self.engine.logs.open(name.as_str(), options)?;
        Ok(Arc::new(Log::new(store, options.durability, found)))
    }

    fn bell(&self) -> Result<Arc<dyn Bell>, TransportError> {
        Ok(LocalBell::new())
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        locked(&self.engine.topics).values().for_each(|topic| topic.wake_all());
    }
}
