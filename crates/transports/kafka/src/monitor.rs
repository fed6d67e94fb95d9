//! Whether the brokers can be reached: asked once a second, so that a frozen broker is noticed too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use helio_bus::Outage;
use helio_bus::transport::locked;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::brokers::Clients;
use crate::connection::Connection;
use crate::deaf;

/// How often the brokers are asked.
const EVERY: Duration = Duration::from_secs(1);
/// How long at least between two times, however often somebody waits for a look.
const CALM: Duration = Duration::from_millis(50);
/// How long they have for an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How long what was published may be under way while brokers answer: beyond it a partition has no
/// leader, or less copies than it must have.
const STALLED: Duration = Duration::from_secs(5);

/// What is known of the brokers, shared with all callbacks, and who asks them.
#[derive(Default)]
pub(crate) struct Health {
    state: Mutex<State>,
    changed: Condvar,
    /// All clients that ask the brokers anything.
    pub(crate) clients: Clients,
    /// The newest watch over readers.
    watch: AtomicU64,
}

#[derive(Default)]
struct State {
    /// What librdkafka complained of last.
    complaint: String,
    /// Why brokers do not let this client in.
    refusal: Option<(RDKafkaErrorCode, String)>,
    /// It says that all brokers are down, or somebody waits for a look.
    suspected: bool,
    lost: bool,
    /// Brokers answer, and do not take what is published.
    stalled: bool,
    ended: bool,
    heard: Heard,
    /// A broker did not answer in time: until then nobody who must not wait asks again.
    doubted: Option<Instant>,
}

/// The time in which others could be heard of, in milliseconds of UTC.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heard {
    /// Since the brokers came back; 0 where they were not away.
    pub(crate) since: i64,
    /// Until now, or until they went away.
    pub(crate) until: i64,
}

/// Milliseconds of UTC.
pub(crate) fn utc_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Health {
    /// Since when and until when others could be heard of: nobody dies of an outage.
    pub(crate) fn heard(&self) -> Heard {
        let state = locked(&self.state);
        let now = utc_millis();
        if state.lost {
            // What is judged by this may be read when they are back.
            Heard { since: now, ..state.heard }
        } else {
            Heard { until: now, ..state.heard }
        }
    }

    /// Remembers what librdkafka says.
    pub(crate) fn complained(&self, error: &KafkaError, reason: &str) {
        let mut state = locked(&self.state);
        let is_sum = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown);
        // That all are down says less than why one is.
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

    /// Why brokers do not let this client in, as far as they do not.
    pub(crate) fn refusal(&self) -> Option<(RDKafkaErrorCode, String)> {
        locked(&self.state).refusal.clone()
    }

    /// What librdkafka complained of last; nothing where it did not.
    pub(crate) fn complaint(&self) -> String {
        locked(&self.state).complaint.clone()
    }

    /// Whether no broker answers.
    pub(crate) fn is_lost(&self) -> bool {
        locked(&self.state).lost
    }

    /// Has those who must not wait ask nothing for a while: a broker did not answer in time.
    pub(crate) fn doubt(&self, time: Duration) {
        locked(&self.state).doubted = Instant::now().checked_add(time);
    }

    /// Whether a broker did not answer in time a moment ago.
    pub(crate) fn is_doubted(&self) -> bool {
        locked(&self.state).doubted.is_some_and(|until| Instant::now() < until)
    }

    /// Begins a watch over readers, which ends all others; gives its number.
    pub(crate) fn watch(&self) -> u64 {
        self.watch.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether that is the newest watch.
    pub(crate) fn is_watch(&self, number: u64) -> bool {
        self.watch.load(Ordering::Relaxed) == number
    }

    /// Has the brokers asked at once: somebody waits for what that tells.
    pub(crate) fn suspect(&self) {
        locked(&self.state).suspected = true;
        self.changed.notify_all();
    }

    pub(crate) fn end(&self) {
        locked(&self.state).ended = true;
        self.changed.notify_all();
    }

    /// Waits so long; whether it has ended by then.
    pub(crate) fn ends_within(&self, time: Duration) -> bool {
        let state = locked(&self.state);
        let waited = self.changed.wait_timeout_while(state, time, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// Waits for the next time to ask; false where it has ended.
    fn pause(&self) -> bool {
        if self.ends_within(CALM) {
            return false;
        }
        let state = locked(&self.state);
        let waited = self.changed.wait_timeout_while(state, EVERY, |state| {
            !state.ended && (!state.suspected || state.lost)
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.suspected = false;
        !state.ended
    }

    /// Takes an answer, or that there was none; gives what is to be told.
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

/// Starts the thread that asks. It ends with the connection.
pub(crate) fn start(connection: &Arc<Connection>) -> std::io::Result<()> {
    let (weak, health) = (Arc::downgrade(connection), Arc::clone(&connection.health));
    let run = move || while health.pause() && ask(&weak, &health) {};
    std::thread::Builder::new().name("kafka-monitor".to_owned()).spawn(run).map(drop)
}

/// Asks once, and once more if there is no answer: of several brokers one may be down.
fn ask(connection: &Weak<Connection>, health: &Health) -> bool {
    let (mut answer, mut stalled) = (Ok(()), None);
    for _ in 0..2 {
        // The connection is held while it is asked only.
        let Some(connection) = connection.upgrade() else { return false };
        let topic = connection.names.internal(crate::tables::TOPICS);
        stalled = connection.stalled(STALLED);
        answer = connection.client.fetch_metadata(Some(&topic), ANSWER).map(drop);
        if answer.is_ok() {
            break;
        }
    }
    let Some(connection) = connection.upgrade() else { return false };
    let stalled =
        stalled.map(|what| format!("{what} for {} s, though brokers answer", STALLED.as_secs()));
    if let Some(outage) = health.answered(answer, stalled) {
        connection.tell(&outage);
        if matches!(outage, Outage::Restored) {
            deaf::watch(&connection, deaf::DEAF);
        }
    }
    if !health.is_lost() {
        connection.speak_for_writers();
    }
    true
}
