//! A schema registry with Confluent's API, for those who have none: its changes are a topic of the
//! bus, and it answers when they are durable.
//!
//! It knows the bus, Avro schemas and the registry's REST calls; it must not know any transport.
//!
//! Constraints. What was answered is never lost: a change is published, and durable, before it is
//! made and told. One registry has a topic at a time (it is exclusive); whoever comes second is
//! refused. Bounded: [`MAX_SCHEMAS`] schemas, requests of [`MAX_BODY_BYTES`].
//!
//! Format. Each sample of the topic [`TOPIC`] is a change as JSON (`catalog::Change`). The registry
//! is what all of them, in order, make of an empty one.
//!
//! Operation. `catalog` is the registry as a value, without I/O; `registry` gives it the topic;
//! `service` gives that the REST calls.

mod catalog;
mod refusal;
mod registry;
mod service;

pub use catalog::MAX_SCHEMAS;
pub use registry::{OpenError, Registry, TOPIC};
pub use service::{MAX_BODY_BYTES, Server, serve};
