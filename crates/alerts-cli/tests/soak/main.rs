//! The long tests of the program: a real Prometheus.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod prometheus;
#[path = "../support/mod.rs"]
mod support;
