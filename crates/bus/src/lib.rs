//! The API of applications (Bus, Publisher, Subscription), the Transport trait and its conformance
//! suite.
//!
//! A URL selects the middleware. A [`Bus`] connects to it and opens topics with the quality of
//! service that they need. A transport that lacks a policy refuses the topic at open. The bus names
//! no transport outside its URL registry ([`transport::register`]), routes samples without decoding
//! them, and bounds every queue.
//!
//! ```
//! use helio_bus::{Bus, Event, Message, Qos, Start, Subscribe, TopicSpec};
//!
//! let bus = Bus::builder().producer("WeatherStation").connect("memory:")?;
//! let wind = bus.topic(TopicSpec::new("weather/wind")?.qos(Qos::telemetry()))?;
//!
//! let publisher = wind.publisher()?;
//! let receipt = publisher.publish(Message::new(b"7.5").key(b"mast")).wait()?;
//! assert_eq!(receipt.sequence, 1);
//!
//! // A late joiner gets the newest sample of every key, and then what comes.
//! let mut samples = wind.subscribe(Subscribe::from(Start::Last(1)))?;
//! let Some(Event::Sample(sample)) = samples.try_next()? else { panic!("nothing there") };
//! assert_eq!((&sample.key[..], &sample.payload[..]), (&b"mast"[..], &b"7.5"[..]));
//! assert_eq!(samples.stats().lost, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Tasks use `publisher.publish(message).await?` and `samples.next().await?`, under any executor.
//! One thread a bus turns the transport's bells into wake-ups, or the program's event loop does
//! ([`Bus::event_source`]).
//!
//! Modules, each below those that use it:
//!
//! - `bus`, `open_topics`: a connection and its open topics; `typed`: topics of Rust types;
//!   `waitset`: many subscriptions in one thread
//! - `topic`: a topic's specification and handle, which opens publishers, forwarders and
//!   subscriptions
//! - `publisher`, `forwarder`, `subscription` with its fences, `subscribe`, `batch`: writing and
//!   reading samples
//! - `tracker`: fencing and losses; `status_events`: deadlines and liveliness; `resolve`,
//!   `evolution`: schemas
//! - `bus_core`, `topic_core`, `writers`: shared by all handles; `backpressure`: blocked publishes;
//!   `reactor`: wake-ups of tasks
//! - [`transport`]: the interface of transports, `journal:`, `memory:`, `fault:` and the URL
//!   registry
//! - [`exclusive`]: logs of one process, for services that keep their history in one
//! - `event`, `receipts`, `error`, `schema_text`: values of the interface; `bell`, `pending_value`,
//!   `clock`, `url`, `partitioner`: what it is built from
//! - `thread_pool`, `parallel`: threads for blocking tasks; `interfaces`: folders of SAL
//!   interfaces; `notices`: to the program's operator
//! - [`conformance`]: the suite for all transports

mod backpressure;
mod batch;
mod bell;
mod bus;
mod bus_core;
mod clock;
pub mod conformance;
mod error;
mod event;
mod evolution;
pub mod exclusive;
mod forwarder;
mod grants;
mod groups;
mod interfaces;
pub mod mirror;
mod notices;
mod open_topics;
mod parallel;
mod partitioner;
mod pending_batch;
mod pending_value;
mod publisher;
mod reactor;
mod receipts;
mod resolve;
mod schema_text;
mod status_events;
mod subscribe;
mod subscription;
mod thread_pool;
mod topic;
mod topic_core;
mod tracker;
pub mod transport;
mod typed;
mod url;
mod waitset;
mod writers;

pub use batch::Batch;
pub use bell::{Bell, LocalBell, Waiters};
pub use bus::{Builder, Bus};
pub use clock::{Clock, SystemClock, TestClock};
pub use error::{
    ConnectError, PublishError, ReadError, Refusal, SizeLimit, TopicError, TransportError,
};
pub use event::{
    DeadlineMissed, Event, Fenced, Gap, GapCause, Incompatible, Liveliness, Outage, Sample,
    Undecodable,
};
pub use evolution::{Evolution, EvolutionError};
pub use forwarder::Forwarder;
pub use grants::Granted;
pub use groups::{GroupInfo, GroupMember, GroupPartition, GroupState};
pub use helio_core::qos::Guarantee;
pub use helio_core::{
    Headers, HeadersRef, Producer, ProducerName, Qos, SchemaId, Tai, TopicName, TraceId,
};
pub use interfaces::{InterfacesError, read_component, read_interfaces};
pub use notices::{notify, on_notice};
pub use parallel::parallel_map;
pub use partitioner::partition_of;
pub use pending_batch::PendingBatch;
pub use publisher::{MAX_BATCH_BYTES, Message, Publisher, PublisherStats};
pub use reactor::EventSource;
pub use receipts::{
    Outcome, PendingPublish, PendingReceipt, Receipt, ReceiptSender, pending_receipt,
};
pub use schema_text::SchemaText;
pub use status_events::MAX_DEADLINE_KEYS;
pub use subscribe::{Lagging, Start, Stats, Subscribe};
pub use subscription::{EventRef, Next, Subscription};
pub use thread_pool::{PendingTask, ThreadPool};
pub use topic::{Topic, TopicInfo, TopicSpec};
pub use transport::{Alive, Capabilities, Origin, SampleRef, WriterInfo};
pub use typed::{Received, TypedEvent, TypedSubscription, TypedTopic};
pub use url::BusUrl;
pub use waitset::{Member, MemberError, WaitSet, WaitSetWaker};
