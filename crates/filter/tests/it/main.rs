//! `helio-filter` from outside: the language, its values, plans and the cap.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "`support` is shared with the soak")]

mod cap;
mod docs;
mod hostile;
mod language;
mod plans;
mod sky;
#[path = "../support/mod.rs"]
mod support;
#[path = "../targets/mod.rs"]
mod targets;
mod values;
