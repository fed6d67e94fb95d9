//! Alert packets of a survey telescope: schemas, stamps, visits and a generator.
//!
//! It knows Avro, FITS and the bus, and no transport.
//!
//! - [`rubin`]: the schemas of Rubin's packets, and one that reads all their versions.
//! - [`framing`]: packets without their frames. [`layout`]: their identifiers, and their stamps
//!   taken out and put back.
//! - [`fits`]: the files of stamps. [`stamps`]: an alert's stamps as a sample of its own.
//! - [`packet`], [`row`]: packets from numbers. [`arrays`]: from columns of them. [`generator`]:
//!   packets that look like a survey's.
//! - [`visit`]: openings, manifests and closing records, as a protocol without I/O.
//! - [`topics`]: the topics of a stream. [`producer`]: the alerts of a detector, published.
//! - [`reader`]: the alerts of a stream, and what becomes of visits. Audits of what is
//!   stored.

pub mod arrays;
pub mod fits;
pub mod framing;
pub mod generator;
pub mod layout;
pub mod packet;
pub mod producer;
pub mod reader;
pub mod row;
pub mod rubin;
pub mod services;
pub mod stamps;
pub mod topics;
pub mod visit;
