//! Fast tests of the header and the library.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod programs;
#[path = "../support/mod.rs"]
mod support;
