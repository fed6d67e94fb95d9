//! A cluster state store with the semantics of etcd's API v3: multi-version keys, leases, watches.
//!
//! It knows requests, records of a log and time that is passed in; it knows no bus, does no I/O,
//! reads no clock and starts no thread.
//!
//! - [`request`]: requests and responses. [`error`]: errors with etcd's codes and texts.
//! - [`wire`]: key-values in protobuf form. `record`: the log's records.
//! - `tree`: the persistent B-tree; [`view`]: what readers hold of it.
//! - [`state`]: requests in, records and answers out; `check`, `txn`: its parts.
//! - [`lease`]: leases. [`watch`]: the watches of a stream.
//! - [`zone`]: which of two zones leads, and what it may acknowledge.
//! - [`merge`]: what becomes of two lines.
//!
//! The writer gives a request to [`State::write`], appends the record to a log, and answers when
//! the log has committed it. Readers hold a [`View`] of the last committed record.

mod check;
pub mod error;
pub mod lease;
pub mod merge;
mod range;
mod record;
pub mod request;
pub mod state;
mod tree;
mod txn;
pub mod view;
pub mod watch;
pub mod wire;
pub mod zone;

pub use check::check;
pub use error::{Code, Error};
pub use lease::LeaseImage;
pub use range::KeyRange;
pub use request::*;
pub use state::{Image, Outcome, Savepoint, State};
pub use view::{Source, Stored, StoredPlace, View};
pub use watch::{Start, WatchStream};
pub use wire::{Fields, KeyValue};
