//! The quick tests of `helio-bridge`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "`support` is shared with the soak tests")]

mod failures;
mod forwarding;
mod positions;
mod schema_texts;
#[path = "../support/mod.rs"]
mod support;
