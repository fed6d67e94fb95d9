//! Tests of the state store against a naive model and etcd's semantics, on a log in memory.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod golden;
mod kv;
mod leases;
mod model;
mod support;
mod watches;
