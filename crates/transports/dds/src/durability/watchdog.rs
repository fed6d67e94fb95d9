//! Detects a stalled service: it must not delay the receipts of others although its process lives.
//!
//! Constraints. A service that takes no turn for the length of a lease counts as gone, like a
//! silent process. The receiving thread withdraws its announcements of readiness. When the service
//! resumes, it begins as after a start, because the others continued without it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{TopicName, TransportError};

use crate::announcements::{Announcement, Announcements, ServiceState};

/// What the thread of the turns and the one that hears both know.
pub(super) struct Watchdog {
    lease: Duration,
    state: Mutex<WatchdogState>,
}

struct WatchdogState {
    /// When the service last did something.
    heartbeat: Instant,
    /// It stood still, and does not know it yet.
    still: bool,
    /// What it has said of each topic.
    said: HashMap<TopicName, ServiceState>,
}

impl Watchdog {
    pub(super) fn new(lease: Duration) -> Self {
        let state = WatchdogState { heartbeat: Instant::now(), still: false, said: HashMap::new() };
        Self { lease, state: Mutex::new(state) }
    }

    /// The service does something.
    pub(super) fn heartbeat(&self) {
        let mut state = locked(&self.state);
        state.still |= state.heartbeat.elapsed() >= self.lease;
        state.heartbeat = Instant::now();
    }

    /// A turn begins; whether the service stood still since the one before began.
    pub(super) fn begin_turn(&self) -> bool {
        self.heartbeat();
        std::mem::take(&mut locked(&self.state).still)
    }

    /// Says how it keeps a topic; as not ready, where it stood still and does not know it yet.
    pub(super) fn announce(
        &self,
        announcements: &Announcements,
        topic: &TopicName,
        keeps: &ServiceState,
    ) -> Result<(), TransportError> {
        let mut state = locked(&self.state);
        let ready = keeps.ready && !state.still;
        let keeps = ServiceState { ready, ..keeps.clone() };
        announcements
            .announce(Announcement::ServiceState { topic: topic.clone(), keeps: keeps.clone() })?;
        state.said.insert(topic.clone(), keeps);
        Ok(())
    }

    /// What was said of a topic last.
    pub(super) fn said(&self, topic: &TopicName) -> ServiceState {
        locked(&self.state).said.get(topic).cloned().unwrap_or_default()
    }

    /// Takes back what was said to be ready, where the service stands still. For another thread.
    pub(super) fn check(&self, announcements: &Announcements) {
        let mut state = locked(&self.state);
        state.still |= state.heartbeat.elapsed() >= self.lease;
        if !state.still {
            return;
        }
        for (topic, keeps) in state.said.iter_mut().filter(|(_, keeps)| keeps.ready) {
            let keeps_not = ServiceState { ready: false, ..keeps.clone() };
            let word = Announcement::ServiceState { topic: topic.clone(), keeps: keeps_not };
            if announcements.announce(word).is_err() {
                // A participant takes no words at the moment: at the next look.
                return;
            }
            keeps.ready = false;
        }
    }
}
