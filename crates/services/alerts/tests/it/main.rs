//! The tests of `helio-alerts` that are quick.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod arrays;
mod faults;
mod generator;
mod groups;
mod hostile;
mod others;
mod outages;
mod packets;
mod producer;
mod reader;
mod rewind;
mod schemas;
mod stamps;
mod support;
mod visit;
