//! Whether the brokers can be reached: polled once a second, so that a frozen broker is detected
//! too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use helio_bus::Outage;
use helio_bus::transport::locked;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::client::clock::utc_millis;
use crate::client::rebootstrap::ClientList;

/// How often the brokers are polled.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The minimum time between two polls, however many callers wait for one.
const MIN_HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The state of the brokers, shared with all callbacks and with the polling thread.
#[derive(Default)]
pub(crate) struct Health {
    state: Mutex<HealthState>,
    changed: Condvar,
    /// All clients of the connection.
    pub(crate) clients: ClientList,
    /// The newest watchdog of readers.
    watch: AtomicU64,
}

#[derive(Default)]
struct HealthState {
    /// librdkafka's last error message.
    complaint: String,
    /// Why brokers reject this client.
    refusal: Option<(RDKafkaErrorCode, String)>,
    /// librdkafka has reported that every broker refuses connections.
    refused: bool,
    /// librdkafka reports that all brokers are down, or a caller waits for a poll.
    suspected: bool,
    lost: bool,
    /// Brokers answer, and do not accept what is published.
    stalled: bool,
    ended: bool,
    reachable: ReachableWindow,
    /// A broker did not answer in time: until then, callers that must not wait send no query.
    doubted: Option<Instant>,
}

/// The time in which others' heartbeats could be read, in milliseconds of UTC.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReachableWindow {
    /// Since the end of an outage; 0 if there was none.
    pub(crate) since: i64,
    /// Until now, or until the outage began.
    pub(crate) until: i64,
}

impl Health {
    /// The time in which others' heartbeats could be read: nobody is declared dead because of an
    /// outage.
    pub(crate) fn reachable(&self) -> ReachableWindow {
        let state = locked(&self.state);
        let now = utc_millis();
        if state.lost {
            // Judgements by this may use records that are read after the outage.
            ReachableWindow { since: now, ..state.reachable }
        } else {
            ReachableWindow { until: now, ..state.reachable }
        }
    }

    /// Stores librdkafka's error message.
    pub(crate) fn complained(&self, error: &KafkaError, reason: &str) {
        let mut state = locked(&self.state);
        let is_sum = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown);
        // "All brokers down" does not contain the cause.
        if !is_sum || state.complaint.is_empty() {
            reason.clone_into(&mut state.complaint);
        }
        if let Some(
            code @ (RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::SSL),
        ) = error.rdkafka_error_code()
        {
            state.refusal = Some((code, reason.to_owned()));
        }
        if is_sum {
            (state.suspected, state.refused) = (true, true);
            self.changed.notify_all();
        }
    }

    /// Why brokers reject this client, if they do.
    pub(crate) fn refusal(&self) -> Option<(RDKafkaErrorCode, String)> {
        locked(&self.state).refusal.clone()
    }

    /// Whether every broker has refused a connection since one answered. A silent one refuses none.
    pub(crate) fn is_refused(&self) -> bool {
        locked(&self.state).refused
    }

    /// librdkafka's last error message, or an empty one.
    pub(crate) fn complaint(&self) -> String {
        locked(&self.state).complaint.clone()
    }

    /// Whether no broker answers.
    pub(crate) fn is_lost(&self) -> bool {
        locked(&self.state).lost
    }

    /// A broker did not answer in time: callers that must not wait send no query for a while.
    pub(crate) fn doubt(&self, time: Duration) {
        locked(&self.state).doubted = Instant::now().checked_add(time);
    }

    /// Whether a broker did not answer in time a moment ago.
    pub(crate) fn is_unresponsive(&self) -> bool {
        locked(&self.state).doubted.is_some_and(|until| Instant::now() < until)
    }

    /// Starts a watchdog of readers, which ends all others; returns its number.
    pub(crate) fn watch(&self) -> u64 {
        self.watch.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether this is the newest watchdog.
    pub(crate) fn is_watch(&self, number: u64) -> bool {
        self.watch.load(Ordering::Relaxed) == number
    }

    /// Polls the brokers at once: a caller waits for the result.
    pub(crate) fn suspect(&self) {
        locked(&self.state).suspected = true;
        self.changed.notify_all();
    }

    pub(crate) fn end(&self) {
        locked(&self.state).ended = true;
        self.changed.notify_all();
    }

    /// Waits so long for the connection's end; returns whether it has ended.
    pub(crate) fn wait_for_end(&self, time: Duration) -> bool {
        let state = locked(&self.state);
        let waited = self.changed.wait_timeout_while(state, time, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// Waits for the next poll; false if the connection has ended.
    pub(crate) fn pause(&self) -> bool {
        if self.wait_for_end(MIN_HEALTH_CHECK_INTERVAL) {
            return false;
        }
        let state = locked(&self.state);
        let waited = self.changed.wait_timeout_while(state, HEALTH_CHECK_INTERVAL, |state| {
            !state.ended && (!state.suspected || state.lost)
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.suspected = false;
        !state.ended
    }

    /// Applies an answer, or its absence; returns the outage event to report, if any.
    pub(crate) fn answered(
        &self,
        answer: Result<(), KafkaError>,
        stalled: Option<String>,
    ) -> Option<Outage> {
        let mut state = locked(&self.state);
        let before = state.lost || state.stalled;
        let (was_lost, is_lost) = (state.lost, answer.is_err());
        (state.lost, state.stalled) = (is_lost, stalled.is_some());
        match (was_lost, is_lost) {
            (false, _) => state.reachable.until = utc_millis(),
            (true, false) => state.reachable.since = utc_millis(),
            (true, true) => {}
        }
        let cause = match (answer.err().map(|error| error.to_string()), stalled) {
            (Some(cause), _) | (None, Some(cause)) => cause,
            (None, None) => {
                state.complaint.clear();
                (state.refusal, state.refused) = (None, false);
                return before.then_some(Outage::Restored);
            }
        };
        if before {
            return None;
        }
        let complaint = &state.complaint;
        let cause = if complaint.is_empty() { cause } else { format!("{cause}: {complaint}") };
        Some(Outage::Lost { cause })
    }
}
