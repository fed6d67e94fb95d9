//! The long tests of `helio-bridge`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "`support` is shared with the quick tests")]

mod leases;
mod model;
#[path = "../support/mod.rs"]
mod support;
