//! The decision core of a zone: the protocol of two zones, one of which leads.
//!
//! # Constraints
//! The protocol's rules have names (S1, N3, V5, J4, ...), which the code and the tests use. The
//! core is pure: messages, ticks and disk completions come in by [`Zone::step`] and
//! [`Zone::tick`], each with the zone's own clock; [`Effect`]s go out. It knows lengths of logs,
//! never records: the driver moves them beside the messages, in the same order.
//!
//! # Operation
//! - A [`Decision`] is a step that a zone takes by itself. [`Zone::can`] has its rule, without any
//!   timer; [`Zone::tick`] takes those that are due. The tests take every permitted decision at
//!   every moment, so that no timer is needed for safety.
//! - Effects are completed in order and before the next input. So the header of a new epoch is on
//!   disk when the next message is handled, as N1 asks for.
//! - Records become durable later, by [`Input::Synced`]; ACK has both watermarks.
//!
//! # Format
//! A line is a [`Chain`] of [`Header`]s and a length. Chains are compared, never lengths alone.

/// Whether the rule's mutant is active; false unless the tests compiled the mutants in.
#[cfg(feature = "model-check")]
macro_rules! mutant {
    ($zone:expr, $name:ident) => {
        $zone.config.mutant == Some(super::Mutant::$name)
    };
}
#[cfg(not(feature = "model-check"))]
macro_rules! mutant {
    ($zone:expr, $name:ident) => {
        super::never()
    };
}

/// No mutant is compiled in. (A literal would make lints judge the rules as if simplified.)
#[cfg(not(feature = "model-check"))]
const fn never() -> bool {
    false
}

mod config;
mod decide;
mod epoch;
#[cfg(feature = "model-check")]
mod inspect;
mod machine;
mod meeting;
mod message;
#[cfg(feature = "model-check")]
mod mutant;
mod timing;
mod witness;

pub use config::{Config, Durability, Policy, Reads, Time, Timers, ZoneName};
pub use epoch::{
    Basis, Chain, Contained, EpochId, Header, Link, MAX_CHAIN_EPOCHS, Members, MergedLine,
    REVISION_STRIDE, Relation,
};
#[cfg(feature = "model-check")]
#[doc(hidden)]
pub use inspect::Inspection;
pub use machine::{Answer, Decision, Effect, Input, Power, Purpose, Stored, Whole, Zone};
pub use message::{Ack, Append, CopyDone, Hello, Message, NewEpoch, Resign, Role, Standing};
#[cfg(feature = "model-check")]
#[doc(hidden)]
pub use mutant::Mutant;
