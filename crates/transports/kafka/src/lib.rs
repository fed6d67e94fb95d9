//! `kafka://HOST:PORT[,HOST:PORT…]`: the bus's topics on Apache Kafka, by librdkafka.
//!
//! It knows the bus's transport trait and Kafka, and nothing of what applications do with either.
//!
//! | option | meaning |
//! | --- | --- |
//! | `prefix` | stands before every Kafka topic's name, the transport's own ones included |
//! | `replication` | copies of each partition of topics that are created (the brokers' default) |
//! | `acks` | `all` (the default); `1` and `0` are faster and promise less |
//! | `schema.registry.url` | where the numbers before payloads come from; see [`registry`] |
//! | every other | librdkafka's, by its own name: `security.protocol`, `sasl.*`, `ssl.*`… |
//!
//! Constraints. No caller waits for a broker but where something is opened, closed or committed:
//! publishes go into librdkafka's queue within bounds of our own, samples come out of its queues
//! where its threads have put them. What is bounded: records and bytes on their way to the brokers
//! (`queue.buffering.max.*`), bytes read ahead a partition (`queued.max.messages.kbytes`), the
//! records that a scan for last values looks at.
//!
//! Format. A sample is a Kafka record whose key and value are the sample's own, so that plain
//! clients read it; what else the bus knows is in the header `helio`. Three compacted topics hold
//! what Kafka has no place for: `_helio.topics`, `_helio.schemas`, `_helio.producers`. Beside a
//! topic that promises last values lies a compacted companion, `_helio.last.TOPIC`.
//!
//! Operation. One idempotent producer a connection, shared by all its writers: what has been
//! acknowledged is written once and in order. For that, what is behind its first record in a
//! partition waits for that one (`firsts`). The consumers of a connection are shared too: a
//! partition is fetched by the first that does not fetch it already, so that most programs have
//! one.

mod admin;
mod anew;
mod brokers;
mod claims;
mod connection;
mod context;
mod deaf;
mod error;
mod fetcher;
mod firsts;
mod group;
mod header;
mod history;
mod hold;
mod making;
mod monitor;
mod names;
mod native;
mod options;
mod producer;
mod reader;
pub mod registry;
mod sample;
mod security;
mod tables;
mod topic;
mod topic_config;
mod wire;
mod writer;

// What the tests on real brokers share is also for those that look inside.
#[cfg(test)]
extern crate self as helio_kafka;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::{Arc, Mutex};

use helio_bus::transport::{Capabilities, Fencing, HistorySupport, Reach, Support};
use helio_bus::transport::{Opening, Transport};
use helio_bus::{ConnectError, Guarantee};
use helio_core::qos::{Durability, Reliability};

use options::{MAX_KEY_BYTES, MAX_PAYLOAD_BYTES, Options};

/// The URLs' scheme.
const SCHEME: &str = "kafka";

/// Makes `kafka://` URLs known to the bus, for this process. What programs call once when they
/// start; again changes nothing.
pub fn register() {
    helio_bus::transport::register(SCHEME, connect);
}

fn connect(opening: &Opening) -> Result<Arc<dyn Transport>, ConnectError> {
    Ok(Arc::new(open(opening)?))
}

fn open(opening: &Opening) -> Result<topic::Kafka, ConnectError> {
    let options = Options::parse(opening)?;
    let capabilities = capabilities(options.guarantee);
    let connection = connection::Connection::open(options, &opening.clock)?;
    let made = Mutex::default();
    Ok(topic::Kafka { connection, capabilities, made })
}

fn capabilities(guarantee: Guarantee) -> Capabilities {
    Capabilities {
        transport: SCHEME.to_owned(),
        reach: Reach::Network,
        reliability: Reliability::Reliable,
        durability: Durability::Persistent,
        history: HistorySupport::KeepAll,
        exclusive: Support::Yes,
        fencing: Fencing::Drop,
        guarantee,
        retention_bytes: Support::Yes,
        retention_age: Support::Yes,
        last_value: Support::Yes,
        liveliness: Support::Yes,
        partitions: 1024,
        groups: Support::Yes,
        rewind: Support::Yes,
        max_payload_bytes: MAX_PAYLOAD_BYTES,
        max_key_bytes: MAX_KEY_BYTES,
    }
}
