//! The quick integration tests of helio-bus.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod batches;
mod bus;
mod closing;
mod conformance;
mod deletion;
mod exclusive;
mod fair;
mod fence;
mod frozen;
mod grants;
mod owners;
mod processes;
mod replaced;
mod stored_schemas;
