//! Eclipse Cyclone DDS's entities as safe Rust values: the only module that uses its C interface.
//!
//! Constraints. Samples are passed in and out as CDR (a header of four bytes, then the value), so
//! no C structure is laid out here. Cyclone checks each sample against its type. Dropping a value
//! deletes its entity. A value keeps what it depends on: a writer its topic, a topic its
//! participant. Only opening and dropping block. Deleting an entity waits for its listener, so a
//! listener must not drop an entity.
//!
//! Operation. [`Participant::join`] joins a domain, [`Topic::create`] makes a topic of a
//! [`Struct`]. [`Writer`]s and [`Reader`]s have a [`Qos`] and, optionally, a listener: a closure
//! that receives [`StatusEvent`] in Cyclone's own threads.

mod builtin;
mod domain;
mod error;
mod listener;
mod log;
mod participant;
mod qos;
mod reader;
mod sample;
mod topic;
mod types;
mod writer;

pub use builtin::{Endpoint, Guid, Process};
pub use domain::Domain;
pub use error::DdsError;
pub use listener::{Listener, StatusEvent};
pub use participant::Participant;
pub use qos::{Liveliness, Policy, Qos, Representation};
pub use reader::Reader;
pub use sample::Sample;
pub use topic::Topic;
pub use types::{Enumeration, Extensibility, Member, Struct, Type};
pub use writer::{Refused, Writer};

use cyclors::dds_entity_t;

/// A handle of Cyclone's, deleted when dropped.
#[derive(Debug)]
pub(crate) struct Entity(dds_entity_t);

impl Entity {
    /// Wraps the result of a creating call: a handle, or an error.
    fn made(what: &str, handle: dds_entity_t) -> Result<Self, DdsError> {
        error::checked(what, handle).map(Self)
    }

    /// The handle, for calls.
    fn handle(&self) -> dds_entity_t {
        self.0
    }
}
