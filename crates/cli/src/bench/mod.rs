//! `helio bench`: measurements of the machine and the bus between separate processes.

pub(crate) mod commands;
mod content;
pub(crate) mod floor;
pub(crate) mod idle;
pub(crate) mod join;
pub(crate) mod load;
pub(crate) mod logging;
mod mapped;
mod messages;
pub(crate) mod observatory;
pub(crate) mod open;
pub(crate) mod publisher;
pub(crate) mod report;
pub(crate) mod subscriber;
