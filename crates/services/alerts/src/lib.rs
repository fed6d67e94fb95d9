//! Alert packets of a survey telescope: schemas, stamps, visits and a generator.
//!
//! It knows Avro and the bus, and no transport.
//!
//! - [`rubin`]: the schemas of Rubin's packets, and one that reads all their versions.

pub mod rubin;
