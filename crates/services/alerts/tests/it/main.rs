//! The tests of `helio-alerts` that are quick.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod generator;
mod others;
mod packets;
mod producer;
mod reader;
mod schemas;
mod stamps;
mod support;
mod visit;
