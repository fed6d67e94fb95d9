//! A cluster state store with the semantics of etcd's API v3: multi-version keys, leases, watches.
//!
//! It knows requests, records of a log and time that is passed in; it knows no bus, does no I/O,
//! reads no clock and starts no thread.
//!
//! - [`request`]: requests and responses. [`error`]: errors with etcd's codes and texts.
//! - [`wire`]: key-values in protobuf form.

pub mod error;
pub mod request;
pub mod wire;

pub use error::{Code, Error};
pub use request::*;
pub use wire::{Fields, KeyValue};
