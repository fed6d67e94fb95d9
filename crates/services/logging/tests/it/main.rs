//! Fast tests against buses in memory and journals.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod hostile;
mod levels;
mod producer;
mod reader;
mod settings;
#[path = "../support/mod.rs"]
mod support;
#[path = "../targets/mod.rs"]
mod targets;
