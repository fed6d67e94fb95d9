//! The quick tests: round trips on the broker that all test programs of the machine share, and
//! tests without a broker. The rest is in `tests/soak`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod round_trip;
mod unreachable;
