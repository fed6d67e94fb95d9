//! The fast tests of `helio-state-etcd`: a store in memory, real connections.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(dead_code, reason = "`support` is shared with the long tests")]

#[path = "../../../../http/tests/client/mod.rs"]
mod client;
mod hostile;
mod limits;
mod metrics;
mod probes;
mod recorded;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod transfer;
