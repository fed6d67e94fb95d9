//! Whether the brokers can be reached: polled once a second, so that a frozen broker is detected
//! too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use helio_bus::Outage;
use helio_bus::transport::locked;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::client::rebootstrap::ClientList;
use crate::topic::connection::Connection;
use crate::topic::fetch_watchdog;

/// How often the brokers are polled.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The minimum time between two polls, however many callers wait for one.
const MIN_HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How long an answer may take.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a published record may be in flight while brokers answer. After that, its partition has
/// no leader or too few replicas.
const STALLED_PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// librdkafka reports that all brokers are down, or a caller waits for a poll.
    suspected: bool,
    lost: bool,
    /// Brokers answer, and do not accept what is published.
    stalled: bool,
    ended: bool,
    heard: ReachableWindow,
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

/// Milliseconds of UTC.
pub(crate) fn utc_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Health {
    /// The time in which others' heartbeats could be read: nobody is declared dead because of an
    /// outage.
    pub(crate) fn heard(&self) -> ReachableWindow {
        let state = locked(&self.state);
        let now = utc_millis();
        if state.lost {
            // Judgements by this may use records that are read after the outage.
            ReachableWindow { since: now, ..state.heard }
        } else {
            ReachableWindow { until: now, ..state.heard }
        }
    }

    /// Stores librdkafka's error message.
    pub(crate) fn complained(&self, error: &KafkaError, reason: &str) {
        let mut state = locked(&self.state);
        let is_sum = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown);
        // "All brokers down" says less than why one is.
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
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            state.suspected = true;
            self.changed.notify_all();
        }
    }

    /// Why brokers reject this client, if they do.
    pub(crate) fn refusal(&self) -> Option<(RDKafkaErrorCode, String)> {
        locked(&self.state).refusal.clone()
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
    fn pause(&self) -> bool {
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
    fn answered(&self, answer: Result<(), KafkaError>, stalled: Option<String>) -> Option<Outage> {
        let mut state = locked(&self.state);
        let before = state.lost || state.stalled;
        let (was_lost, is_lost) = (state.lost, answer.is_err());
        (state.lost, state.stalled) = (is_lost, stalled.is_some());
        match (was_lost, is_lost) {
            (false, _) => state.heard.until = utc_millis(),
            (true, false) => state.heard.since = utc_millis(),
            (true, true) => {}
        }
        let cause = match (answer.err().map(|error| error.to_string()), stalled) {
            (Some(cause), _) | (None, Some(cause)) => cause,
            (None, None) => {
                state.complaint.clear();
                state.refusal = None;
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

/// Starts the polling thread. It ends with the connection.
pub(crate) fn start(connection: &Arc<Connection>) -> std::io::Result<()> {
    let (weak, health) = (Arc::downgrade(connection), Arc::clone(&connection.health));
    let run = move || while health.pause() && ask(&weak, &health) {};
    std::thread::Builder::new().name("kafka-monitor".to_owned()).spawn(run).map(drop)
}

/// Polls once, and once more if there is no answer: one of several brokers may be down.
fn ask(connection: &Weak<Connection>, health: &Health) -> bool {
    let (mut answer, mut stalled) = (Ok(()), None);
    for _ in 0..2 {
        // The connection is held only during the request.
        let Some(connection) = connection.upgrade() else { return false };
        let topic = connection.names.internal(crate::internal::internal_topics::TOPICS);
        stalled = connection.stalled(STALLED_PUBLISH_TIMEOUT);
        answer = connection.client.fetch_metadata(Some(&topic), METADATA_TIMEOUT).map(drop);
        if answer.is_ok() {
            break;
        }
    }
    let Some(connection) = connection.upgrade() else { return false };
    let stalled = stalled.map(|what| {
        format!("{what} for {} s, though brokers answer", STALLED_PUBLISH_TIMEOUT.as_secs())
    });
    if let Some(outage) = health.answered(answer, stalled) {
        connection.tell(&outage);
        if matches!(outage, Outage::Restored) {
            fetch_watchdog::watch(&connection);
        }
    }
    if !health.is_lost() {
        connection.send_heartbeats();
    }
    true
}
