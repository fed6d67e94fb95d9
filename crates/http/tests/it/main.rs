//! Clients that stall, beside one that behaves.

mod limits;
mod shutdown;
mod support;
