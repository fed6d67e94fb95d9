//! The tests of `helio-log-serve` that are slow or need other people's programs.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "`support` is shared with the quick tests")]

mod real_senders;
mod spill;
#[path = "../support/mod.rs"]
mod support;
