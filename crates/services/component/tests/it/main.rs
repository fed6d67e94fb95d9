//! Components and callers in one process, and the protocol's scripts.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod bytes;
mod callers;
mod commands;
mod commands_evolve;
mod engine;
mod instances;
mod missing_fields;
mod mock;
mod outbox;
mod pipelining;
mod protocol;
mod sites;
mod topics;
