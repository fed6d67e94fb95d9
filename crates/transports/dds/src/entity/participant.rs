//! Participants: a process's membership in a domain.
#![allow(unsafe_code)]

use std::ptr::null;
use std::sync::Arc;

use cyclors::dds_entity_t;

use super::builtin::{guid_of, process_of};
use super::{DdsError, Domain, Entity, Guid, Process, Qos};

/// A participant of a domain.
#[derive(Debug)]
pub struct Participant {
    entity: Entity,
    guid: Guid,
    _domain: Domain,
}

impl Participant {
    /// Joins a domain.
    ///
    /// # Errors
    /// [`DdsError::OtherConfiguration`]; errors of Cyclone.
    pub fn join(domain: Domain, qos: &Qos) -> Result<Arc<Self>, DdsError> {
        // SAFETY: the quality of service outlives the call, which copies it.
        let made = unsafe { cyclors::dds_create_participant(domain.id(), qos.native(), null()) };
        let entity = Entity::made("join the domain", made)?;
        let guid = guid_of(&entity)?;
        Ok(Arc::new(Self { entity, guid, _domain: domain }))
    }

    /// Its identity in the domain.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// The process of another participant, by its [handle](super::Endpoint::participant_handle);
    /// `None` if the participant has left.
    #[must_use]
    pub fn process(&self, handle: u64) -> Option<Process> {
        process_of(self.handle(), handle)
    }

    pub(super) fn handle(&self) -> dds_entity_t {
        self.entity.handle()
    }
}
