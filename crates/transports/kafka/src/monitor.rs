//! Whether the brokers can be reached: asked once a second, so that a frozen broker is noticed too.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use helio_bus::Outage;
use helio_bus::transport::locked;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::connection::Connection;

/// How often the brokers are asked.
const EVERY: Duration = Duration::from_secs(1);
/// How long they have for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// What is known of the brokers, shared with all callbacks.
#[derive(Default)]
pub(crate) struct Health {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What librdkafka complained of last.
    complaint: String,
    /// It says that all brokers are down.
    suspected: bool,
    lost: bool,
    ended: bool,
    /// A broker did not answer in time: until then nobody who must not wait asks again.
    doubted: Option<Instant>,
}

impl Health {
    /// Remembers what librdkafka says.
    pub(crate) fn complained(&self, error: &KafkaError, reason: &str) {
        let mut state = locked(&self.state);
        state.complaint = reason.to_owned();
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            state.suspected = true;
            self.changed.notify_all();
        }
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

    pub(crate) fn end(&self) {
        locked(&self.state).ended = true;
        self.changed.notify_all();
    }

    /// Waits for the next time to ask; false where it has ended.
    fn pause(&self) -> bool {
        let state = locked(&self.state);
        let waited = self.changed.wait_timeout_while(state, EVERY, |state| {
            !state.ended && (!state.suspected || state.lost)
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.suspected = false;
        !state.ended
    }

    /// Takes an answer, or that there was none; gives what is to be told.
    fn answered(&self, answer: Result<(), KafkaError>) -> Option<Outage> {
        let mut state = locked(&self.state);
        match answer {
            Ok(()) => {
                state.complaint.clear();
                std::mem::replace(&mut state.lost, false).then_some(Outage::Restored)
            }
            Err(error) if !state.lost => {
                state.lost = true;
                let complaint = &state.complaint;
                let cause = if complaint.is_empty() {
                    error.to_string()
                } else {
                    format!("{error}: {complaint}")
                };
                Some(Outage::Lost { cause })
            }
            Err(_) => None,
        }
    }
}

/// Starts the thread that asks. It ends with the connection.
pub(crate) fn start(connection: &Arc<Connection>) -> std::io::Result<()> {
    let (weak, health) = (Arc::downgrade(connection), Arc::clone(&connection.health));
    let run = move || {
        while health.pause() {
            if !ask(&weak, &health) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("kafka-monitor".to_owned()).spawn(run).map(drop)
}

/// Asks once, and once more if there is no answer: of several brokers one may be down.
fn ask(connection: &Weak<Connection>, health: &Health) -> bool {
    let mut answer = Ok(());
    if let Some(connection) = connection.upgrade().filter(|_| !health.is_lost()) {
        connection.speak_for_writers();
    }
    for _ in 0..2 {
        // The connection is held while it is asked only.
        let Some(connection) = connection.upgrade() else { return false };
        let topic = connection.names.internal(crate::tables::TOPICS);
        answer = connection.client.fetch_metadata(Some(&topic), ANSWER).map(drop);
        if answer.is_ok() {
            break;
        }
    }
    if let Some(outage) = health.answered(answer)
        && let Some(connection) = connection.upgrade()
    {
        connection.tell(&outage);
    }
    true
}
