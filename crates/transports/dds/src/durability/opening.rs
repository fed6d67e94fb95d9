//! Opens topics in the worker pool: each waits for the disk, and for matching endpoints.

use std::sync::Arc;

use helio_bus::{Bell, Bus, TopicError, TopicName, TransportError};

use super::catalogue::{Catalogue, CatalogueEntry};
use super::stored_topic::StoredTopic;
use super::watchdog::Watchdog;
use super::worker_pool::WorkerPool;
use super::{DurabilityError, Timeouts};
use crate::transport::DdsTransport;

/// What a topic is opened with.
#[derive(Clone)]
pub(super) struct Opener {
    pub(super) dds: Arc<DdsTransport>,
    pub(super) journal: Bus,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) watchdog: Arc<Watchdog>,
    pub(super) workers: Arc<WorkerPool>,
    pub(super) bell: Arc<dyn Bell>,
    pub(super) timeouts: Timeouts,
}

/// A topic that was opened, and how many samples of it there are; none where nobody knows it any
/// more.
pub(super) type OpenResult = Result<Option<(StoredTopic, u64)>, DurabilityError>;

impl Opener {
    /// Opens a topic. Those of which last values are kept alone end with their participants, as
    /// they do without a service.
    pub(super) fn open(&self, name: &TopicName, (token, kept): (u64, bool)) -> OpenResult {
        let known = self.dds.connection.announcements.with_state(|announcements| {
            announcements.topic(name).map(|(origin, qos)| (origin.clone(), qos.clone()))
        });
        let state = if kept { self.dds.state(name)? } else { self.dds.unannounced(name) };
        let (Some(state), Some((origin, qos))) = (state, known) else { return Ok(None) };
        let known = CatalogueEntry { qos, origin, kept };
        let unannounced = self.catalogue.known().get(name).map(|known| !known.kept);
        if !kept && unannounced.is_none() {
            if self.journal.topic_info(name)?.is_some() {
                return Err(DurabilityError::NotOurs(name.clone()));
            }
            // Before there is anything that could be taken for what was kept.
            self.catalogue.put(name, known.clone())?;
        }
        let unannounced = unannounced == Some(true);
        if kept && unannounced {
            // Last values alone have holes, which no mark may cover.
            self.journal.remove_topic(name)?;
        }
        let open = |state| StoredTopic::open(self, state, (token, kept));
        let opened = match open(Arc::clone(&state)) {
            Err(DurabilityError::Topic(TopicError::Transport(TransportError::Differs {
                ..
            }))) if !kept && unannounced => {
                // Last values of what was another topic.
                self.journal.remove_topic(name)?;
                open(state)?
            }
            other => other?,
        };
        self.catalogue.put(name, known)?;
        Ok(Some(opened))
    }
}
