//! What kills the process that holds the store.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod kills;
