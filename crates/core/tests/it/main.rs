//! The integration tests of helio-core, all quick.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../random/mod.rs"]
mod random;
#[path = "../targets/mod.rs"]
mod targets;

mod apache;
mod container;
mod evolution;
mod hostile;
mod idl;
mod numbers;
mod projection;
mod resolve;
mod sal_golden;
mod sal_load;
mod sal_yaml;
