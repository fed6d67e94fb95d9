//! The fast tests of the program: a command line in, its whole output out.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod consume;
mod export;
mod filter;
mod matrix;
#[cfg(feature = "kafka")]
mod outage;
mod produce;
mod serve;
mod sizing;
#[path = "../support/mod.rs"]
mod support;
