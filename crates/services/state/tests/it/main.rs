//! Tests of the state store against a naive model and etcd's semantics, on a log in memory.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod golden;
mod kv;
mod leases;
mod merge;
mod model;
mod support;
mod watches;
mod zone;

#[path = "../support/model/mod.rs"]
mod zone_model;

#[allow(dead_code, unreachable_pub, reason = "shared with the soak")]
#[path = "../support/zones/mod.rs"]
mod zones;
