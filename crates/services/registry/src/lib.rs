//! A schema registry with Confluent's API, for sites without one. Its changes are a topic of the
//! bus, and it answers when they are durable.
//!
//! It knows the bus, Avro schemas and the registry's REST calls, and no transport.
//!
//! Constraints. An acknowledged change is never lost: it is published and durable before it is
//! applied and answered. The topic is exclusive: a second registry on it is refused. Bounds:
//! [`MAX_SCHEMAS`] schemas, requests of [`MAX_BODY_BYTES`].
//!
//! Format. Each sample of the topic [`TOPIC`] is a change as JSON (`catalog::Change`). The
//! registry's state results from applying all changes in order.
//!
//! Operation. `catalog` holds the state, without I/O; `registry` stores its changes in the topic;
//! `service` answers the REST calls.

mod catalog;
mod refusal;
mod registry;
mod service;

pub use catalog::MAX_SCHEMAS;
pub use helio_http::Server;
pub use registry::{OpenError, Registry, TOPIC};
pub use service::{MAX_BODY_BYTES, serve};
