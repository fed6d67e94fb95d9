//! A copy of the shared executable model of the protocol (`design/two-zones-model`), without its
//! search, and with its walks written down as traces.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "the copy is kept as it is")]
#![allow(clippy::all, clippy::unwrap_used, reason = "the copy is kept as it is")]

#[rustfmt::skip]
pub mod rules;
#[rustfmt::skip]
pub mod state;
pub mod walk;
