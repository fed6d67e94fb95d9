//! The tests of `helio-filter` that take long.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "`support` is shared with the quick tests")]

mod oracle;
mod processes;
#[path = "../support/mod.rs"]
mod support;
