//! `dds://DOMAIN[?peers=…]`: the bus's topics on DDS, by Eclipse Cyclone DDS.
//!
//! It knows the bus's transport trait and DDS, and nothing of what applications do with either.
//!
//! | option | meaning |
//! | --- | --- |
//! | `peers` | hosts to discover participants on, where multicast does not reach them |
//! | `interface` | the network interface, by name or address |
//! | `multicast` | `true` or `false`, where Cyclone's default is wrong |
//! | `lease_s` | seconds of silence after which a participant counts as gone (10) |
//! | `discovery_ms` | how long the first connection of a process waits to discover others (300) |
//! | `service_ms` | how long after connecting to wait for a durability service (3000) |
//! | `prefix` | prefix of every DDS topic's name: several buses in one domain |
//! | `name` | the domain's name for bridges, where several networks use the same number |
//! | `config` | a file of Cyclone DDS's own configuration, overridden by the other options |
//!
//! Constraints. Only opening waits for other participants. Publishes are passed to Cyclone or
//! refused as `Full`; received samples stay in Cyclone's memory. Limits: unacknowledged bytes of a
//! writer (Cyclone's high-water mark), samples that wait at a reader (`reorder_queue`), the time
//! that opening waits.
//!
//! Format. A sample of a topic's first schema has that schema's IDL type, with our header. Any
//! other sample is a `helio::Envelope`: the header and the payload. Each session announces on
//! `_helio/announcements` what a broker would store, and all sessions hold it. docs/formats/dds.md
//! describes both.
//!
//! Operation, bottom up. [`entity`] wraps Cyclone's entities as safe values, and [`dynamic_types`]
//! makes types for them. [`envelope`] is the sample on the wire. `announcements` are the topics,
//! schemas and writers of all sessions. `endpoints` are a topic's two DDS topics; `writer` and
//! `reader` use them.

mod announcements;
mod connection;
pub mod durability;
pub mod dynamic_types;
mod endpoints;
pub mod entity;
pub mod envelope;
mod error;
mod forwarder;
mod historical_data;
mod history;
mod incompatible_qos;
mod laggards;
mod names;
mod options;
mod peer_messages;
mod process_identity;
mod reader;
mod reorder_queue;
mod resend_buffer;
#[cfg(test)]
#[path = "../tests/support/domain.rs"]
mod test_domain;
#[cfg(test)]
mod tests;
mod topic;
mod transport;
mod writer;

use std::sync::Arc;

use helio_bus::transport::Transport;
use helio_bus::transport::{Capabilities, Fencing, HistorySupport, Opening, Reach, Support};
use helio_bus::{ConnectError, Guarantee};
use helio_core::qos::{Durability, Reliability};

use options::{MAX_KEY_BYTES, MAX_PAYLOAD_BYTES, Options};

/// The URLs' scheme.
const SCHEME: &str = "dds";

/// Registers the `dds://` scheme with the bus, for this process. Programs call it once when they
/// start; further calls change nothing.
pub fn register() {
    helio_bus::transport::register(SCHEME, connect);
}

fn connect(opening: &Opening) -> Result<Arc<dyn Transport>, ConnectError> {
    let options = Options::parse(opening)?;
    let connection = connection::Connection::open(&options, &opening.clock)?;
    Ok(Arc::new(transport::DdsTransport::new(connection)))
}

fn capabilities() -> Capabilities {
    Capabilities {
        transport: SCHEME.to_owned(),
        reach: Reach::Network,
        reliability: Reliability::Reliable,
        durability: Durability::TransientLocal,
        history: HistorySupport::KeepLast(u8::MAX),
        exclusive: Support::Yes,
        fencing: Fencing::Drop,
        guarantee: Guarantee::Stored,
        retention_bytes: Support::Yes,
        retention_age: Support::Yes,
        last_value: Support::Yes,
        liveliness: Support::Yes,
        partitions: 1024,
        groups: Support::No,
        rewind: Support::No,
        grants: Support::No,
        exclusive_log: Support::No,
        max_payload_bytes: MAX_PAYLOAD_BYTES,
        max_key_bytes: MAX_KEY_BYTES,
    }
}

/// The capabilities with a durability service.
fn served() -> Capabilities {
    Capabilities {
        durability: Durability::Persistent,
        history: HistorySupport::KeepAll,
        guarantee: Guarantee::Durable,
        ..capabilities()
    }
}

/// The Cyclone DDS configuration of a URL, as XML. Other participants in the process need it: a
/// process has one configuration per domain.
///
/// # Errors
/// The same [`ConnectError`] as connecting.
pub fn configuration(url: &str) -> Result<String, ConnectError> {
    let clock = Arc::new(helio_bus::SystemClock::new());
    Ok(Options::parse(&Opening { url: url.parse()?, clock })?.config)
}
