//! `kafka://HOST:PORT[,HOST:PORT…]`: the bus's topics on Apache Kafka, by librdkafka.
//!
//! It knows the bus's transport trait and Kafka, and nothing of applications.
//!
//! | option | meaning |
//! | --- | --- |
//! | `prefix` | precedes every Kafka topic's name, including the transport's own |
//! | `replication` | copies of each partition of topics that are created (the brokers' default) |
//! | `naming=sal`, `subname` | SAL's names for SAL's topics, `lsst.SUBNAME.…`; excludes `prefix` |
//! | `null=allow` | nulls may be published to SAL's topics, whose own readers fail on them |
//! | `acks` | `all` (the default); `1` and `0` are faster and guarantee less |
//! | `schema.registry.url` | the source of schema numbers before payloads; see [`registry`] |
//! | every other | librdkafka's, by its own name: `security.protocol`, `sasl.*`, `ssl.*`… |
//!
//! Constraints. A caller waits for a broker only when something is opened, closed or committed.
//! Publishes go into librdkafka's queue within limits of our own; samples come from its queues,
//! which its threads fill. Limited are: records and bytes in flight (`queue.buffering.max.*`),
//! bytes prefetched per partition (`queued.max.messages.kbytes`), and the records that a scan for
//! last values reads.
//!
//! Format. A sample is a Kafka record with the sample's own key and value, so that plain clients
//! read it; the rest of its metadata is in the header `helio`. Three compacted topics store further
//! metadata: `_helio.topics`, `_helio.schemas`, `_helio.producers`. A topic with last values
//! has a compacted companion, `_helio.last.TOPIC`.
//!
//! Operation. A connection has one idempotent producer, shared by all its writers: acknowledged
//! records are written once and in order. For that, records behind the first one in a partition
//! wait for its acknowledgement (`first_record_gate`). A connection's readers share consumers: a
//! partition is fetched by the first consumer that does not fetch it already, so that most programs
//! have one.
//!
//! Modules, each folder above the one before:
//!
//! | folder | contents |
//! | --- | --- |
//! | `client` | librdkafka's clients: options, health, producers, consumers; `link` joins them |
//! | [`registry`] | a schema registry beside the brokers; its options are below `client` |
//! | `internal` | the topics `_helio.*`: declarations, schemas, writers and their ownership |
//! | `topic` | topics of the bus: connection, transport, readers, writers, groups, history |

mod client;
mod internal;
pub mod registry;
mod topic;

// The support of the tests on real brokers, also for unit tests.
#[cfg(test)]
extern crate self as helio_kafka;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::{Arc, Mutex};

use helio_bus::transport::{Capabilities, Fencing, HistorySupport, Reach, Support};
use helio_bus::transport::{Opening, Transport};
use helio_bus::{ConnectError, Guarantee};
use helio_core::qos::{Durability, Reliability};

use client::options::{MAX_KEY_BYTES, MAX_PAYLOAD_BYTES, Options};

/// The URLs' scheme.
const SCHEME: &str = "kafka";

/// Registers the scheme `kafka://` with the bus, for this process. Programs call this once when
/// they start; repeated calls have no effect.
pub fn register() {
    helio_bus::transport::register(SCHEME, connect);
}

fn connect(opening: &Opening) -> Result<Arc<dyn Transport>, ConnectError> {
    Ok(Arc::new(open(Options::parse(opening)?, opening)?))
}

fn open(
    options: Options,
    opening: &Opening,
) -> Result<topic::transport::KafkaTransport, ConnectError> {
    let capabilities = capabilities(options.guarantee);
    let connection = topic::connection::Connection::open(options, &opening.clock)?;
    topic::monitor::start(&connection)?;
    let made = Mutex::default();
    Ok(topic::transport::KafkaTransport { connection, capabilities, made })
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
        grants: Support::Yes,
        exclusive_log: Support::No,
        max_payload_bytes: MAX_PAYLOAD_BYTES,
        max_key_bytes: MAX_KEY_BYTES,
    }
}
