//! `helio bench`: what the machine and the bus can do, measured between separate processes.

mod content;
pub(crate) mod floor;
pub(crate) mod idle;
pub(crate) mod join;
pub(crate) mod load;
mod mapped;
pub(crate) mod open;
pub(crate) mod publisher;
pub(crate) mod report;
pub(crate) mod subscriber;
mod work;
