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
//! [`Intake`], which has the limits, the counts and the way to the bus.

mod account;
mod datagram;
mod decode;
mod edge;
mod input;
mod intake;
mod kernel;
mod limits;
mod lines;
mod sender;
mod server;
mod stream;

pub use account::{Account, Dropped, SenderAccount};
pub use decode::Format;
pub use edge::{Endpoint, Listening, Via};
pub use intake::Intake;
pub use limits::{Limits, Rate};
pub use sender::{Cause, Peer, Sender};
pub use server::{Options, ServeError, Server};
