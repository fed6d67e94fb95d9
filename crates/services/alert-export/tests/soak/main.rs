//! The tests of `helio-alert-export` that kill.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod kills;
#[path = "../support/mod.rs"]
mod support;
