//! The bus's topics: their samples, readers and writers, behind the bus's traits. Read `transport`
//! first.

pub(crate) mod connection;
pub(crate) mod create_topics;
pub(crate) mod fetch_watchdog;
pub(crate) mod grants;
pub(crate) mod group;
pub(crate) mod header;
pub(crate) mod history;
pub(crate) mod monitor;
pub(crate) mod reader;
pub(crate) mod reader_updates;
pub(crate) mod record_format;
pub(crate) mod sample;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod topic_recreation;
pub(crate) mod transport;
pub(crate) mod writer;
