//! Domains, with a reference count: Cyclone has one configuration per domain and process.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::error::{checked, text};
use super::{DdsError, Entity, log};

struct OpenDomain {
    config: String,
    users: usize,
    _domain: Entity,
}

static OPEN_DOMAINS: Mutex<BTreeMap<u32, OpenDomain>> = Mutex::new(BTreeMap::new());

/// A domain that is open in this process, until the last of its values is dropped.
#[derive(Debug)]
pub struct Domain {
    id: u32,
    new: bool,
}

impl Domain {
    /// Opens a domain with a configuration (Cyclone's XML, the elements below `Domain`).
    ///
    /// # Errors
    /// [`DdsError::OtherConfiguration`] if it is open with another one; errors of Cyclone.
    pub fn open(id: u32, config: &str) -> Result<Self, DdsError> {
        let mut all = OPEN_DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = all.get_mut(&id) {
            if open.config != config {
                let (there, asked) = (open.config.clone(), config.to_owned());
                return Err(DdsError::OtherConfiguration { domain: id, there, asked });
            }
            open.users += 1;
            return Ok(Self { id, new: false });
        }
        log::take();
        let xml = text(config)?;
        // SAFETY: the text ends with a zero and outlives the call, which copies it.
        let made = unsafe { cyclors::dds_create_domain(id, xml.as_ptr()) };
        let domain = Entity::made("open the domain", made)?;
        all.insert(id, OpenDomain { config: config.to_owned(), users: 1, _domain: domain });
        Ok(Self { id, new: true })
    }

    /// Whether this call opened it. Discovery data is shared in the process, so a new domain has
    /// none yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let mut all = OPEN_DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = all.get_mut(&self.id) {
            open.users -= 1;
            if open.users == 0 {
                all.remove(&self.id);
            }
        }
    }
}

impl Drop for Entity {
    fn drop(&mut self) {
        // SAFETY: the handle is ours; Cyclone rejects a handle that was deleted with its parent.
        let deleted = unsafe { cyclors::dds_delete(self.handle()) };
        drop(checked("delete an entity", deleted));
    }
}
