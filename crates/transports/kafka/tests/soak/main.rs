//! The tests on real brokers and registries that kill, wait, or take long: `scripts/soak` runs each
//! module by itself.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod conformance;
mod fencing;
mod foreign;
mod java;
mod many;
mod others;
mod outage;
mod registry;
#[cfg(feature = "tls")]
mod registry_tls;
#[cfg(feature = "tls")]
mod security;
mod starts;
#[path = "../../../../core/tests/storm/mod.rs"]
mod storm_report;
