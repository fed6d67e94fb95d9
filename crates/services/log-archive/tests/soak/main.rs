//! The tests of `helio-log-archive` that take long.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "`support` is shared with the quick tests")]

mod properties;
#[path = "../support/mod.rs"]
mod support;
