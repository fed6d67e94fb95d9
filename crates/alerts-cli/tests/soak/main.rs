//! The long tests of the program: a real Prometheus, and nights of processes that are killed and
//! stalled.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod demo;
mod prometheus;
#[path = "../support/mod.rs"]
mod support;
