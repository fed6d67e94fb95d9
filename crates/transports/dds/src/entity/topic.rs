//! Topics of types that are described at run time.
#![allow(unsafe_code)]

use std::ptr::null;
use std::sync::Arc;

use cyclors::dds_entity_t;

use super::error::text;
use super::{DdsError, Entity, Participant, Qos, Struct, types};

/// A topic of a participant.
#[derive(Debug)]
pub struct Topic {
    entity: Entity,
    participant: Arc<Participant>,
    information: Vec<u8>,
}

impl Topic {
    /// Creates a topic of a type. A second call with the same arguments returns the same topic.
    ///
    /// # Errors
    /// Errors of Cyclone; a type that it does not support.
    pub fn create(
        participant: &Arc<Participant>,
        name: &str,
        of: &Struct,
        qos: &Qos,
    ) -> Result<Arc<Self>, DdsError> {
        let descriptor = types::describe(participant.handle(), of)?;
        let name = text(name)?;
        // SAFETY: descriptor, name and quality of service outlive the call, which copies them.
        let made = unsafe {
            cyclors::dds_create_topic(
                participant.handle(),
                descriptor.native(),
                name.as_ptr(),
                qos.native(),
                null(),
            )
        };
        let entity = Entity::made("create the topic", made)?;
        let information = descriptor.information();
        Ok(Arc::new(Self { entity, participant: Arc::clone(participant), information }))
    }

    /// Its participant.
    #[must_use]
    pub fn participant(&self) -> &Arc<Participant> {
        &self.participant
    }

    /// Its type's identity: XTypes' `TypeInformation` in XCDR2, the identities of the type and of
    /// its parts.
    #[must_use]
    pub fn type_information(&self) -> &[u8] {
        &self.information
    }

    pub(super) fn handle(&self) -> dds_entity_t {
        self.entity.handle()
    }
}
