//! The tests of `helio-detector`, all quick.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod assembly;
mod bus;
mod frames;
