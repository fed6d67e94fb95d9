//! The fast tests of the program: a command line in, its whole output out.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod archive;
mod audit;
#[cfg(feature = "state")]
#[path = "../../../services/state-etcd/tests/support/authority.rs"]
mod authority;
mod bench;
mod bridge;
mod bus;
mod component;
#[cfg(feature = "dds")]
#[path = "../../../transports/dds/tests/support/mod.rs"]
mod dds;
mod dev;
mod doors;
#[cfg(feature = "dds")]
mod durability;
mod engines;
mod files;
mod log;
mod log_serve;
mod log_watch;
#[cfg(feature = "kafka")]
mod outage;
mod schema;
mod shell;
#[cfg(feature = "state")]
mod state;
#[path = "../support/mod.rs"]
mod support;
mod topic;
mod watch;
