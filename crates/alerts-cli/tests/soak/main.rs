//! The long tests of the program: a real Prometheus, real brokers with the clients of their users,
//! and nights of processes that are killed and stalled.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod demo;
#[cfg(feature = "kafka")]
mod export_kills;
#[cfg(feature = "kafka")]
#[path = "../../../services/alert-export/tests/support/mod.rs"]
mod exports;
#[cfg(feature = "kafka")]
mod filter_kills;
#[cfg(feature = "kafka")]
#[path = "../../../services/alert-filters/tests/support/mod.rs"]
mod filters;
mod matrix;
#[cfg(feature = "kafka")]
mod outages;
#[cfg(feature = "kafka")]
mod peers;
mod prometheus;
#[path = "../support/mod.rs"]
mod support;
