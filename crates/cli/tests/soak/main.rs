//! The tests of the program that take long: demos, benches, bridges in a storm, real engines.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bench;
mod bridge;
#[cfg(feature = "dds")]
#[path = "../../../transports/dds/tests/support/mod.rs"]
mod dds;
mod demo;
mod dev;
#[cfg(feature = "dds")]
mod durability;
mod floor;
#[cfg(feature = "kafka")]
mod groups;
#[cfg(feature = "kafka")]
#[path = "../../../transports/kafka/tests/support/mod.rs"]
mod kafka;
mod log_demo;
mod log_everywhere;
mod log_otlp;
#[cfg(feature = "state")]
mod state_demo;
mod stopped_readers;
#[path = "../../../core/tests/storm/mod.rs"]
mod storm_report;
#[path = "../support/mod.rs"]
mod support;
