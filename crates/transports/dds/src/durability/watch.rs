//! Whether the service goes on: one that stands still, though its process lives, must not hold up
//! the receipts of others.
//!
//! Constraints. Who does not take a turn for as long as a lease counts as gone, as a process does
//! that says nothing for so long. What it has said to be ready is taken back by the thread that
//! hears; when it goes on it begins as at a start, since the others went on without it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{TopicName, TransportError};

use crate::tables::{Keeps, Tables, Word};

/// What the thread of the turns and the one that hears both know.
pub(super) struct Watch {
    lease: Duration,
    state: Mutex<State>,
}

struct State {
    /// When the service last did something.
    beat: Instant,
    /// It stood still, and does not know it yet.
    still: bool,
    /// What it has said of each topic.
    said: HashMap<TopicName, Keeps>,
}

impl Watch {
    pub(super) fn new(lease: Duration) -> Self {
        let state = State { beat: Instant::now(), still: false, said: HashMap::new() };
        Self { lease, state: Mutex::new(state) }
    }

    /// The service does something.
    pub(super) fn beat(&self) {
        let mut state = locked(&self.state);
        state.still |= state.beat.elapsed() >= self.lease;
        state.beat = Instant::now();
    }

    /// A turn begins; whether the service stood still since the one before began.
    pub(super) fn begin_turn(&self) -> bool {
        self.beat();
        std::mem::take(&mut locked(&self.state).still)
    }

    /// Says how it keeps a topic; as not ready, where it stood still and does not know it yet.
    pub(super) fn say(
        &self,
        tables: &Tables,
        topic: &TopicName,
        keeps: &Keeps,
    ) -> Result<(), TransportError> {
        let mut state = locked(&self.state);
        let ready = keeps.ready && !state.still;
        let keeps = Keeps { ready, ..keeps.clone() };
        tables.say(Word::Keeps { topic: topic.clone(), keeps: keeps.clone() })?;
        state.said.insert(topic.clone(), keeps);
        Ok(())
    }

    /// What was said of a topic last.
    pub(super) fn said(&self, topic: &TopicName) -> Keeps {
        locked(&self.state).said.get(topic).cloned().unwrap_or_default()
    }

    /// Takes back what was said to be ready, where the service stands still. For another thread.
    pub(super) fn look(&self, tables: &Tables) {
        let mut state = locked(&self.state);
        state.still |= state.beat.elapsed() >= self.lease;
        if !state.still {
            return;
        }
        for (topic, keeps) in state.said.iter_mut().filter(|(_, keeps)| keeps.ready) {
            let keeps_not = Keeps { ready: false, ..keeps.clone() };
            let word = Word::Keeps { topic: topic.clone(), keeps: keeps_not };
            if tables.say(word).is_err() {
                // A participant takes no words at the moment: at the next look.
                return;
            }
            keeps.ready = false;
        }
    }
}
