//! `helio bench`: what the machine and the bus can do, measured between separate processes.

pub(crate) mod floor;
mod mapped;
