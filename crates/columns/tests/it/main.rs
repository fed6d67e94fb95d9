//! The integration tests of helio-columns.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../../../core/tests/random/mod.rs"]
mod random;

mod batches;
mod export;
mod framing;
mod numbers;
mod types;
mod whole;
