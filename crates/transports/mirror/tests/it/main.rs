//! The fast integration tests of helio-mirror.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod copies;
mod refusals;
mod wire;
