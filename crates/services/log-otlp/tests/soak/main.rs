//! The tests of `helio-log-otlp` that need other people's programs.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "`support` is shared with the quick tests")]

mod opentelemetry;
#[path = "../others/mod.rs"]
mod others;
#[path = "../support/mod.rs"]
mod support;
