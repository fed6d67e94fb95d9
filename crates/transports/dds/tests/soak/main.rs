//! The long tests of the transport: conformance, hosts, and durability services that are killed,
//! paused, and refused by their disks.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod conformance;
mod durability;
mod hosts;
#[path = "../support/others.rs"]
mod others;
mod services;
mod slow_readers;
#[path = "../../../../core/tests/storm/mod.rs"]
mod storm_report;
#[path = "../support/mod.rs"]
mod support;
