//! The quick integration tests of helio-journal.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod basic;
mod damage_matrix;
mod deletion;
mod exclusive;
mod failing;
mod golden;
mod grants;
mod groups;
mod hostile;
mod last_value;
mod locks;
mod pins;
mod retention;
mod segments;
mod wakeups;

// The protocols of `wakeups`, which runs them under a model checker.
#[path = "../../src/waiters.rs"]
mod waiters;
#[allow(dead_code, unreachable_pub, reason = "the model needs a part of it")]
#[path = "../../src/wake_hints.rs"]
mod wake_hints;
