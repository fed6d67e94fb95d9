//! Tests of the store on logs in memory.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod golden;
mod node;
mod support;
