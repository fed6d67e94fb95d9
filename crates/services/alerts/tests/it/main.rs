//! The tests of `helio-alerts` that are quick.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod schemas;
mod support;
