//! Upgrades of whole observatories, stopped neighbours, and waits of seconds.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod authorization;
mod outbox;
mod rolling;
