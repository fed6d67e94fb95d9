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

/// State that the service's thread and the receiving thread share.
pub(super) struct Watchdog {
    lease: Duration,
    state: Mutex<WatchdogState>,
}

struct WatchdogState {
    /// When the service last made progress.
    heartbeat: Instant,
    /// It stalled, and has not resumed yet.
    stalled: bool,
    /// The last announced state of each topic.
    announced: HashMap<TopicName, ServiceState>,
}

impl Watchdog {
    pub(super) fn new(lease: Duration) -> Self {
        let state =
            WatchdogState { heartbeat: Instant::now(), stalled: false, announced: HashMap::new() };
        Self { lease, state: Mutex::new(state) }
    }

    /// The service makes progress.
    pub(super) fn heartbeat(&self) {
        let mut state = locked(&self.state);
        state.stalled |= state.heartbeat.elapsed() >= self.lease;
        state.heartbeat = Instant::now();
    }

    /// Begins a turn; true if the service stalled since the last one.
    pub(super) fn begin_turn(&self) -> bool {
        self.heartbeat();
        std::mem::take(&mut locked(&self.state).stalled)
    }

    /// Announces the state of a topic, as not ready if the service stalled and has not resumed yet.
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
        state.announced.insert(topic.clone(), service_state);
        Ok(())
    }

    /// The last announced state of a topic.
    pub(super) fn announced(&self, topic: &TopicName) -> ServiceState {
        locked(&self.state).announced.get(topic).cloned().unwrap_or_default()
    }

    /// Withdraws the announcements of readiness if the service has stalled. Called by another
    /// thread.
    pub(super) fn check(&self, announcements: &Announcements) {
        let mut state = locked(&self.state);
        state.stalled |= state.heartbeat.elapsed() >= self.lease;
        if !state.stalled {
            return;
        }
        for (topic, service_state) in
            state.announced.iter_mut().filter(|(_, service_state)| service_state.ready)
        {
            let keeps_not = ServiceState { ready: false, ..service_state.clone() };
            let announcement =
                Announcement::ServiceState { topic: topic.clone(), service_state: keeps_not };
            if announcements.announce(announcement).is_err() {
                // A participant accepts no announcements at present: the next check retries.
                return;
            }
            service_state.ready = false;
        }
    }
}
