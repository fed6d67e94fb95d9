//! The tests of `helio-log-otlp` that are quick.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "`support` is shared with the soak tests")]

#[path = "../../../../http/tests/client/mod.rs"]
mod client;
mod codec;
mod forward;
mod hostile;
mod limits;
mod serve;
#[path = "../support/mod.rs"]
mod support;
#[path = "../targets/mod.rs"]
mod targets;
