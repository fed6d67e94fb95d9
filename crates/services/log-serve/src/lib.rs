//! The central path of a facility's log records: taken at sockets in the formats of others, and
//! published.
//!
//! It knows sockets, the formats of `helio_logging::formats` and who sends how much; it must not
//! know any transport.
//!
//! Constraints. No sender is held up by the bus for long: who sends in a stream is as long as
//! [`Limits::hold`] says, and then records are dropped by level, over a bounded queue.
//! No sender costs others more than its share: rate, connections, time and size have limits. What
//! is dropped is counted by sender and cause, and told.
//!
//! Operation. A [`Server`] has an edge for each [`Endpoint`]: sockets (`stream`, `datagram`) and
//! what makes records of their bytes (`decode`). Whatever the edge, records go to the one
//! [`Ingest`], which has the limits, the counts and the way to the bus.

mod datagram;
mod decode;
mod endpoint;
mod ingest;
mod input;
mod limits;
mod lines;
mod sender;
mod server;
mod statistics;
mod stream;
mod udp_drops;

pub use decode::Format;
pub use endpoint::{Endpoint, Listening, Via};
pub use ingest::Ingest;
pub use limits::{Limits, Rate};
pub use sender::{Cause, Peer, Sender};
pub use server::{Options, ServeError, Server};
pub use statistics::{Dropped, SenderStatistics, Statistics};
