//! Names, schemas and codec, quality of service, samples, time: no I/O, no clock, no threads.
//!
//! Bytes, text and the current time are arguments, so that scripts and simulations can test
//! everything here.

#[macro_use]
pub mod codec;
pub mod confluent;
pub mod container;
pub mod evolution;
pub mod headers;
pub mod idl;
pub mod name;
pub mod projection;
pub mod qos;
pub mod resolve;
pub mod sal;
pub mod sample;
pub mod schema;
pub mod single_object;
pub mod time;

pub use codec::{Codec, Value};
pub use headers::{Headers, HeadersRef};
pub use name::{NameError, ProducerName, TopicName};
pub use qos::Qos;
pub use resolve::Resolution;
pub use sample::{Header, Producer, SchemaId, TraceId};
pub use schema::{HasSchema, Schema, SchemaError, SchemaSet};
pub use time::Tai;
