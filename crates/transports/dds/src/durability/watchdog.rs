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
    stalled: bool,
    /// What it has said of each topic.
    said: HashMap<TopicName, ServiceState>,
}

impl Watchdog {
    pub(super) fn new(lease: Duration) -> Self {
        let state =
            WatchdogState { heartbeat: Instant::now(), stalled: false, said: HashMap::new() };
        Self { lease, state: Mutex::new(state) }
    }

    /// The service does something.
    pub(super) fn heartbeat(&self) {
        let mut state = locked(&self.state);
        state.stalled |= state.heartbeat.elapsed() >= self.lease;
        state.heartbeat = Instant::now();
    }

    /// A turn begins; whether the service stood still since the one before began.
    pub(super) fn begin_turn(&self) -> bool {
        self.heartbeat();
        std::mem::take(&mut locked(&self.state).stalled)
    }

    /// Says how it keeps a topic; as not ready, where it stood still and does not know it yet.
    pub(super) fn announce(
        &self,
        announcements: &Announcements,
        topic: &TopicName,
        service_state: &ServiceState,
    ) -> Result<(), TransportError> {
        let mut state = locked(&self.state);
        let ready = service_state.ready && !state.stalled;
        let service_state = ServiceState { ready, ..service_state.clone() };
        announcements.announce(Announcement::ServiceState {
            topic: topic.clone(),
            service_state: service_state.clone(),
        })?;
        state.said.insert(topic.clone(), service_state);
        Ok(())
    }

    /// What was said of a topic last.
    pub(super) fn said(&self, topic: &TopicName) -> ServiceState {
        locked(&self.state).said.get(topic).cloned().unwrap_or_default()
    }

    /// Takes back what was said to be ready, where the service stands still. For another thread.
    pub(super) fn check(&self, announcements: &Announcements) {
        let mut state = locked(&self.state);
        state.stalled |= state.heartbeat.elapsed() >= self.lease;
        if !state.stalled {
            return;
        }
        for (topic, service_state) in
            state.said.iter_mut().filter(|(_, service_state)| service_state.ready)
        {
            let keeps_not = ServiceState { ready: false, ..service_state.clone() };
            let announcement =
                Announcement::ServiceState { topic: topic.clone(), service_state: keeps_not };
            if announcements.announce(announcement).is_err() {
                // A participant takes no words at the moment: at the next look.
                return;
            }
            service_state.ready = false;
        }
    }
}
