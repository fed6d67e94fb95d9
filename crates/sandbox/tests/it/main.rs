//! Filters in real Python processes: what they select, what they try, and how they end.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod attempts;
mod ends;
mod guards;
mod orphan;
mod selecting;
mod support;
