//! The protocol between components and their callers: inputs in, effects out.
//!
//! Constraints: no I/O, no clock, no threads, no bus. The time of day comes in as an argument, and
//! what is to be done comes out as effects, so that every rule can be tested by text and every
//! language follows the same ones.
//!
//! [`Controller`] is the component's side: what is received goes in, what handlers make of it too;
//! out come the handlers to run, acknowledgements, states and records for the audit. [`Caller`] is
//! the other side: what becomes of the commands that one has sent. Whoever holds either calls an
//! input, then drains its effects in order, then sleeps until there is input again or `wake_at`,
//! when it calls `tick`.

mod ack;
mod call;
mod lock;
mod memory;
mod names;
mod request;
mod span;
mod state;
mod stream;

pub mod authority;
pub mod caller;
pub mod checks;
pub mod controller;
pub mod layers;
pub mod numbers;

pub use ack::{AckCode, Acknowledgement, Done, Ending, Failure, Progress};
pub use authority::{Policy, PolicyError, Verdict};
pub use call::CallNumber;
pub use caller::Caller;
pub use checks::Checks;
pub use controller::Controller;
pub use lock::{Lock, MAX_LOCK_S};
pub use memory::{MAX_OUTCOMES, OUTCOME_AGE};
pub use names::{
    AckHeaders, CallHeaders, HEADER_CALLER, HEADER_EXPIRY, HEADER_INSTANCE, HEADER_KEY,
    HEADER_PROGRESS, HEADER_RESULT, HEADER_SCHEMA, HeaderError, MAX_CALLER_BYTES, MAX_KEY_BYTES,
    MAX_TYPED_BYTES,
};
pub use request::{Action, Request};
pub use state::{StateCommand, SummaryState, Transition, path};
pub use stream::StreamStats;
