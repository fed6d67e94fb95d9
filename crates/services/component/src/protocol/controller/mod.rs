//! The component's side: what becomes of each command that is received.
//!
//! A command is judged in this order: is the lease held (else silence: it is another's); has it
//! expired; was it sent before under the same key; may the caller send it; has another caller
//! locked the component; is there such a command with a handler; is the change of state allowed;
//! is it in time for its stream; are its values right. Then it runs, or waits in its lane. Whatever
//! refuses it is its final acknowledgement.

mod effect;
mod options;

pub use effect::{Address, AuditEntry, Effect, Phase};
pub use options::{CommandSpec, ControllerOptions, Lane, LeaseState, StreamSpec};

/// The most commands of one lane that wait: a caller who is that far ahead of the component has
/// lost touch with it.
pub const MAX_WAITING: usize = 100;
/// The most commands of one concurrent lane that run at a time, so that handlers cannot pile up.
pub const MAX_CONCURRENT: usize = 100;
