//! Eclipse Cyclone DDS's entities as safe Rust values: the one place that speaks its C interface.
//!
//! Constraints. Samples go in and out as CDR (a header of four bytes, then the value), so that no
//! C structure is laid out here; Cyclone checks each against its type. An entity is deleted when
//! its value is dropped, and holds what it needs: a writer its topic, a topic its participant.
//! Nothing here blocks but opening and dropping: deleting an entity waits for its listener, which
//! therefore must not drop one.
//!
//! Operation. [`Participant::join`] a domain, [`Topic::create`] from a [`Struct`], then
//! [`Writer`]s and [`Reader`]s with a [`Qos`] and, where they want news, a listener: a closure
//! that is told each [`News`] in Cyclone's own threads.

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

pub use builtin::{Endpoint, Guid};
pub use domain::Domain;
pub use error::DdsError;
pub use listener::{Listener, News};
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
    /// Takes what a creating call gave: a handle, or an error.
    fn made(what: &str, handle: dds_entity_t) -> Result<Self, DdsError> {
        error::checked(what, handle).map(Self)
    }

    /// The handle, for calls.
    fn handle(&self) -> dds_entity_t {
        self.0
    }
}
