//! Tests of the store on logs in memory and in journals.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod failures;
mod golden;
mod node;
mod support;
#[path = "../../../../journal/tests/support/tmpfs.rs"]
mod tmpfs;
