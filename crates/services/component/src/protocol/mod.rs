//! The protocol between components and their callers: inputs in, effects out.
//!
//! Constraints: no I/O, no clock, no threads, no bus. The time is an argument, and actions are
//! returned as effects. Every rule can therefore be tested by text scripts, and all languages
//! follow the same rules.
//!
//! [`Controller`] is the component's side. Its inputs are received requests and the results of
//! handlers; its effects are handlers to run, acknowledgements, states and audit records.
//! [`Caller`] is the other side: it tracks the calls that a program has sent. The owner of either
//! calls an input, drains the effects in order, and then waits for the next input or `wake_at`,
//! when it calls `tick`.

mod ack;
mod call;
mod headers;
mod idempotency;
mod interval;
mod lock;
mod request;
mod signature;
mod state;
mod stream;

pub mod authorization;
pub mod caller;
pub mod checks;
pub mod controller;
pub mod layers;
pub mod sequence_gaps;

pub use ack::{AckCode, Acknowledgement, Done, Ending, Failure, Progress};
pub use authorization::{CallerName, Decision, Policy, PolicyError, Proof};
pub use call::CallNumber;
pub use caller::Caller;
pub use checks::Checks;
pub use controller::Controller;
pub use headers::{
    AckHeaders, CallHeaders, HEADER_CALLER, HEADER_EXPIRY, HEADER_INSTANCE, HEADER_KEY,
    HEADER_PROGRESS, HEADER_RESULT, HEADER_SCHEMA, HEADER_SIGNATURE, HeaderError, MAX_CALLER_BYTES,
    MAX_KEY_BYTES, MAX_TYPED_BYTES,
};
pub use idempotency::{MAX_OUTCOMES, OUTCOME_AGE};
pub use lock::{Lock, MAX_LOCK_S};
pub use request::{Action, Request};
pub use signature::{
    CallerKey, KeyError, MAX_KEY_FILE_BYTES, MAX_SIGNED_LIFE_S, MAX_SIGNED_TRACES, PublicKey,
    SIGNATURE_BYTES, Signature, SignedCommand,
};
pub use state::{StateCommand, SummaryState, Transition, path};
pub use stream::StreamStats;
