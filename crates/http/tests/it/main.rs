//! Clients that stall, beside one that behaves.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../client/mod.rs"]
mod client;
mod limits;
mod shutdown;
mod streams;
mod support;
