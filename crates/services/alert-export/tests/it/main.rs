//! Exports of generated nights, from outside.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod contents;
mod errors;
mod filters;
mod formats;
mod nights;
mod others;
mod resumption;
#[path = "../support/mod.rs"]
mod support;
