//! Tests with a real etcd and its clients; run by `scripts/soak`.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "`support` is shared with the quick tests")]

#[path = "../support/mod.rs"]
mod support;

#[path = "../../../../http/tests/client/mod.rs"]
mod client;
mod engine;
mod etcdctl;
mod recorded;
