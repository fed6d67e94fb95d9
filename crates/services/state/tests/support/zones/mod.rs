//! The environment in which the tests explore the decision core of a zone.

pub mod explore;
pub mod invariants;
pub mod replay;
pub mod series;
pub mod simulate;
pub mod world;
