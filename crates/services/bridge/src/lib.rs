//! Forwards topics from one bus to another, whatever their transports, and resumes where it
//! stopped.
//!
//! It knows the bus and no transport. Mirrors and audit copies are to be built on it, as the
//! command `helio bridge` is.
//!
//! Constraints. Nothing is decoded. A sample keeps its topic, partition, producer, incarnation,
//! sequence, time, key, level, trace, schema and headers, and gets one more header ([`hops`]). The
//! order within a partition is preserved. At most [`MAX_IN_FLIGHT`] samples or
//! [`MAX_IN_FLIGHT_BYTES`] of a topic are in flight; while the target accepts no more, the source
//! is not read. A sample is never forwarded to a bus where it has been.
//!
//! Operation. The position is stored in the samples: the newest forwarded sample of each target
//! partition names its source offset and the offset below which all were settled. A new bridge
//! reads the source from there, compares it with the target's samples (`reconcile`), and forwards
//! the missing ones. Checkpoints (`checkpoints`) hold what samples cannot: where a topic begins
//! before its first sample is forwarded, or after its last one was removed. They never run ahead of
//! the acknowledgements. A running bridge knows its position: after a failure it reopens the topic
//! and sends the unacknowledged samples again. Where the source has no offsets, samples are
//! recognised by their producers' sequences.

mod bridge;
mod checkpoints;
mod context;
pub mod hops;
mod liveliness;
mod open_topic;
mod opening;
mod overrides;
mod position;
mod reconcile;
mod report;
mod resume_state;
mod target;
mod topic_supervisor;
mod types;

pub use bridge::{Bridge, BridgeError, Turn};
pub use context::Options;
pub use open_topic::{MAX_FORWARDERS, MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES};
pub use overrides::{Override, OverrideError};
pub use position::Begin;
pub use report::{Figures, Notice, NoticeKind, TopicState};
