//! Opens topics in the worker pool: each waits for the disk, and for matching endpoints.

use std::sync::Arc;

use helio_bus::{Bell, Bus, ThreadPool, TopicError, TopicName, TransportError};

use super::catalogue::{Catalogue, CatalogueEntry};
use super::stored_topic::StoredTopic;
use super::watchdog::Watchdog;
use super::{DurabilityError, Timeouts};
use crate::transport::DdsTransport;

/// The environment in which a topic is opened.
#[derive(Clone)]
pub(super) struct Opener {
    pub(super) dds: Arc<DdsTransport>,
    pub(super) journal: Bus,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) watchdog: Arc<Watchdog>,
    pub(super) workers: Arc<ThreadPool>,
    pub(super) bell: Arc<dyn Bell>,
    pub(super) timeouts: Timeouts,
}

/// An opened topic, and the number of its stored samples; `None` if no session announces it any
/// more.
pub(super) type OpenResult = Result<Option<(StoredTopic, u64)>, DurabilityError>;

impl Opener {
    /// Opens a topic. A topic with last values alone ends with its participants, as it does without
    /// a service.
    pub(super) fn open(&self, name: &TopicName, token: u64, kept: bool) -> OpenResult {
        let known = self.dds.connection.announcements.with_state(|announcements| {
            announcements.topic(name).map(|(origin, qos)| (origin.clone(), qos.clone()))
        });
        let state = if kept { self.dds.state(name)? } else { self.dds.unannounced(name) };
        let (Some(state), Some((origin, qos))) = (state, known) else { return Ok(None) };
        let known = CatalogueEntry { qos, origin, all_samples: kept };
        let had_last_values = self.catalogue.known().get(name).map(|known| !known.all_samples);
        if !kept && had_last_values.is_none() {
            if self.journal.topic_info(name)?.is_some() {
                return Err(DurabilityError::NotOurs(name.clone()));
            }
            // Before there are samples, so that these are never taken for fully stored ones.
            self.catalogue.put(name, known.clone())?;
        }
        let had_last_values = had_last_values == Some(true);
        if kept && had_last_values {
            // Last values have holes, which no ack may cover.
            self.journal.remove_topic(name)?;
        }
        let open = |state| StoredTopic::open(self, state, token, kept);
        let opened = match open(Arc::clone(&state)) {
            Err(DurabilityError::Topic(TopicError::Transport(TransportError::Differs {
                ..
            }))) if !kept && had_last_values => {
                // The last values belong to an earlier topic of that name.
                self.journal.remove_topic(name)?;
                open(state)?
            }
            other => other?,
        };
        self.catalogue.put(name, known)?;
        Ok(Some(opened))
    }
}
