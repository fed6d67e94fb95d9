//! The tests of `helio-alert-filters` that are quick.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod faults;
mod hostile;
mod lists;
mod python;
mod refusals;
mod results;
mod store;
mod totals;
mod visits;
