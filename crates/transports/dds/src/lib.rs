//! `dds://DOMAIN[?peers=…]`: the bus's topics on DDS, by Eclipse Cyclone DDS.
//!
//! It knows the bus's transport trait and DDS, and nothing of what applications do with either.
//!
//! | option | meaning |
//! | --- | --- |
//! | `peers` | hosts that are asked for participants, where multicast does not reach them |
//! | `interface` | the network interface, by name or address |
//! | `multicast` | `true` or `false`, where Cyclone's own choice is not right |
//! | `lease_s` | after so many seconds of silence a participant counts as gone (10) |
//! | `discovery_ms` | how long a process that is new in a domain waits to find others (300) |
//! | `prefix` | stands before every DDS topic's name: several buses in one domain |
//! | `name` | what bridges call the domain, where several networks have one of that number |
//! | `config` | a file of Cyclone DDS's own configuration, under the other options |
//!
//! Constraints. No caller waits for others but where something is opened: publishes are handed to
//! Cyclone or refused as `Full`, samples lie where Cyclone's threads have put them. What is
//! bounded: unacknowledged bytes of a writer (Cyclone's high-water mark), samples that lie
//! at a reader (`inbox`), what opening waits for.
//!
//! Format. A sample of a topic's first schema is of that schema's IDL type, with a header of ours;
//! any other is a `helio::Envelope`, the header and the payload. What a broker would know is said
//! by each session on `_helio/table` and held by all. docs/formats/dds.md has it.
//!
//! Operation, bottom up: [`entity`] has Cyclone's entities as safe values; [`typed`] makes types
//! for them; [`envelope`] is the sample on the wire; `tables` say who has which topics, schemas and
//! writers; `ends` are a topic's two DDS topics; `writer` and `reader` are the ways in and out.

mod connection;
pub mod durability;
mod ends;
pub mod entity;
pub mod envelope;
mod error;
mod forwarder;
mod history;
mod inbox;
mod kept;
mod misfits;
mod names;
mod options;
mod past;
mod post;
mod reader;
mod tables;
mod topic;
pub mod typed;
mod writer;

use std::sync::Arc;

use helio_bus::transport::Transport;
use helio_bus::transport::{Capabilities, Fencing, HistorySupport, Opening, Reach, Support};
use helio_bus::{ConnectError, Guarantee};
use helio_core::qos::{Durability, Reliability};

use options::{MAX_KEY_BYTES, MAX_PAYLOAD_BYTES, Options};

/// The URLs' scheme.
const SCHEME: &str = "dds";

/// Makes `dds://` URLs known to the bus, for this process. What programs call once when they start;
/// again changes nothing.
pub fn register() {
    helio_bus::transport::register(SCHEME, connect);
}

fn connect(opening: &Opening) -> Result<Arc<dyn Transport>, ConnectError> {
    let options = Options::parse(opening)?;
    let connection = connection::Connection::open(&options, &opening.clock)?;
    Ok(Arc::new(topic::Dds::new(connection)))
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
        max_payload_bytes: MAX_PAYLOAD_BYTES,
        max_key_bytes: MAX_KEY_BYTES,
    }
}

/// What there is besides where a durability service keeps topics.
fn served() -> Capabilities {
    Capabilities {
        durability: Durability::Persistent,
        history: HistorySupport::KeepAll,
        guarantee: Guarantee::Durable,
        ..capabilities()
    }
}

/// Cyclone DDS's configuration, as XML, that a URL stands for: for participants beside the bus in
/// its process, which has one configuration a domain.
///
/// # Errors
/// [`ConnectError`], as connecting gives.
pub fn configuration(url: &str) -> Result<String, ConnectError> {
    let clock = Arc::new(helio_bus::SystemClock::new());
    Ok(Options::parse(&Opening { url: url.parse()?, clock })?.config)
}
