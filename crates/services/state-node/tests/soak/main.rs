//! What kills the process that holds the store, and what a large store costs.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod kills;
mod large;
