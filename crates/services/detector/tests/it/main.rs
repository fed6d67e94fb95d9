//! The tests of `helio-detector`, all quick.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod assembly;
mod attributes;
mod bursts;
mod bus;
mod frames;
