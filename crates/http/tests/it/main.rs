//! Clients that stall, beside one that behaves.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod limits;
mod shutdown;
mod support;
