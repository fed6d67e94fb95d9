//! The long tests of helio-bus: conformance of the journal, leases of killed and frozen
//! processes, two releases of interfaces.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod leases;
mod releases;
