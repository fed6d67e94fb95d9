//! The long tests of `helio-alert-filters`: processes that are killed, and many visits.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod million;
mod processes;
