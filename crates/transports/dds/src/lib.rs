//! `dds://DOMAIN[?peers=…]`: the bus's topics on DDS, by Eclipse Cyclone DDS.
//!
//! It knows the bus's transport trait and DDS, and nothing of what applications do with either.
//!
//! Operation, bottom up: [`entity`] has Cyclone's entities as safe values.

pub mod entity;
