//! The central receiver of a facility's log records: accepts foreign formats at sockets and
//! publishes the records.
//!
//! It knows sockets, the formats of `helio_logging::formats` and the senders' rates. It must not
//! know any transport.
//!
//! Constraints. The bus never blocks a sender for long: a stream waits at most for
//! [`Limits::hold`], then records are dropped by level from a bounded queue. Limits on rate,
//! connections, time and size keep one sender from affecting others. Dropped records are counted by
//! sender and cause, and reported.
//!
//! Operation. A [`Server`] runs an edge for each [`Endpoint`]: sockets (`stream`, `datagram`) and a
//! decoder (`decode`). All records go to one [`Ingest`], which applies limits, counts, and
//! publishes.

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
