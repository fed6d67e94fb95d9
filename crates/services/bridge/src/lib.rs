//! Forwards topics from one bus to another, whatever their transports, and goes on where it
//! stopped.
//!
//! It knows the bus and nothing of any transport. Mirrors and copies for audit are to be built on
//! it as the command `helio bridge` is.
//!
//! Constraints. Nothing is decoded. A sample keeps its topic, partition, producer, incarnation,
//! number, time, key, level, trace, schema and headers, and gets one header more ([`hops`]).
//! Samples of a partition are forwarded in its order. Of each topic at most [`MAX_UNDER_WAY`]
//! samples or [`MAX_UNDER_WAY_BYTES`] are under way; where the target takes no more, nothing is
//! read. A sample that was on the target before does not go back to it.
//!
//! Operation. The position is kept where the samples are: the newest forwarded one in each
//! partition of the target says where it comes from, and below which place all was settled. A new
//! bridge reads the source from there, holds it against what the target has (`found`), and gives it
//! what it has not. What samples cannot say (where a topic begins of which none was forwarded, or
//! none is left) is written down beside them (`book`), behind what was acknowledged. A bridge that
//! runs knows where it is: after a failure the topic is opened anew, and what the target has not
//! acknowledged is given again. Where the source has no places, samples that the target has are
//! known by their producers' numbers.

mod book;
mod bridge;
mod found;
pub mod hops;
mod kept;
mod lane;
mod lives;
mod opening;
mod overrides;
mod pool;
mod position;
mod report;
mod target;
mod way;

pub use bridge::{Bridge, BridgeError, Options, Turn};
pub use lane::{MAX_FORWARDERS, MAX_UNDER_WAY, MAX_UNDER_WAY_BYTES};
pub use overrides::{Override, OverrideError};
pub use position::Begin;
pub use report::{Figures, Notice, NoticeKind, TopicState};
