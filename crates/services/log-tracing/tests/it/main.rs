//! Fast tests, each with a subscriber of its own.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod layer;
#[path = "../support/mod.rs"]
mod support;
