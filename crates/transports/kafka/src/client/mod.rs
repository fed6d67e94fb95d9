//! librdkafka's clients, and the brokers: options, connections, requests, deliveries. It knows no
//! topics of the bus. Read `link` first.

pub(crate) mod access;
pub(crate) mod admin;
pub(crate) mod clock;
pub(crate) mod context;
pub(crate) mod delivery;
pub(crate) mod error;
pub(crate) mod fetcher;
pub(crate) mod ffi;
pub(crate) mod first_record_gate;
pub(crate) mod health;
pub(crate) mod in_flight;
pub(crate) mod link;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod polled_producer;
pub(crate) mod producer;
pub(crate) mod rebootstrap;
pub(crate) mod security_errors;
pub(crate) mod signal;
pub(crate) mod topic_config;
pub(crate) mod topic_queries;
