//! The long tests of helio-journal:
//! damage everywhere, random operations with power cuts, races for leases, storms of kills.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod damage;
mod deletion;
mod exclusive;
mod leases;
mod matrix;
mod namespaces;
mod power;
mod storm;
#[path = "../../../core/tests/storm/mod.rs"]
mod storm_report;
