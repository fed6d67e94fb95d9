//! Forwards topics from one bus to another, whatever their transports, and goes on where it
//! stopped.
//!
//! It knows the bus and nothing of any transport. Mirrors and copies for audit are to be built on
//! it as the command `helio bridge` is.
//!
//! Constraints. Nothing is decoded. A sample keeps its topic, partition, producer, incarnation,
//! number, time, key, level, trace, schema and headers, and gets one header more ([`hops`]).
//! Samples of a partition are forwarded in its order. Of each topic at most [`MAX_IN_FLIGHT`]
//! samples or [`MAX_IN_FLIGHT_BYTES`] are under way; where the target takes no more, nothing is
//! read. A sample that was on the target before does not go back to it.
//!
//! Operation. The position is kept where the samples are: the newest forwarded one in each
//! partition of the target says where it comes from, and below which place all was settled. A new
//! bridge reads the source from there, holds it against what the target has (`reconcile`), and
//! gives it what it has not. What samples cannot say (where a topic begins of which none was
//! forwarded, or none is left) is written down beside them (`checkpoints`), behind what was
//! acknowledged. A bridge that runs knows where it is: after a failure the topic is opened anew,
//! and what the target has not acknowledged is given again. Where the source has no places,
//! samples that the target has are known by their producers' numbers.

mod bridge;
mod checkpoints;
mod context;
pub mod hops;
mod liveliness;
mod open_topic;
mod opening;
mod overrides;
mod pool;
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
