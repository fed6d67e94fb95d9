//! The fast tests of the transport on real DDS, on the loopback.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod entity;
mod foreign;
#[path = "../support/others.rs"]
mod others;
mod policies;
mod processes;
#[path = "../support/samples.rs"]
mod samples;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod topics;
mod typed;
