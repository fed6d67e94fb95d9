//! The outcomes of commands with an idempotency key, so that none runs twice.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use helio_core::Tai;

use super::{Acknowledgement, CallNumber, Request, interval};

/// The most stored outcomes: the commands and repetitions of some hundred callers in an hour.
pub const MAX_OUTCOMES: usize = 1_024;
/// How long an outcome is stored: callers do not repeat commands after an hour.
pub const OUTCOME_AGE: Duration = Duration::from_secs(3_600);

/// The command that was sent with a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeyedCommand {
    /// Its name.
    pub(super) command: String,
    /// A digest of its values, which may be large.
    pub(super) values: u64,
}

impl KeyedCommand {
    /// The command of a request.
    pub(super) fn of(request: &Request) -> Self {
        let mut digest = DefaultHasher::new();
        request.arguments.hash(&mut digest);
        Self { command: request.command.clone(), values: digest.finish() }
    }
}

/// The stored outcome of a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    /// The command is queued or running.
    Live(CallNumber),
    /// The command ended with this acknowledgement.
    Ended(Acknowledgement),
}

/// A caller and its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct IdempotencyKey {
    /// The caller.
    pub(super) who: String,
    /// The key.
    pub(super) key: String,
}

/// Outcomes by caller and key. Live commands are bounded by their lanes.
#[derive(Debug, Default)]
pub(super) struct OutcomeCache {
    entries: HashMap<IdempotencyKey, (KeyedCommand, Outcome)>,
    ended: VecDeque<(Tai, IdempotencyKey)>,
}

impl OutcomeCache {
    /// The command that was sent with a key, and its outcome.
    pub(super) fn recall(
        &mut self,
        now: Tai,
        key: &IdempotencyKey,
    ) -> Option<&(KeyedCommand, Outcome)> {
        self.forget_old(now);
        self.entries.get(key)
    }

    /// Stores a key whose command is queued or running.
    pub(super) fn begin(&mut self, key: IdempotencyKey, command: KeyedCommand, call: CallNumber) {
        self.entries.insert(key, (command, Outcome::Live(call)));
    }

    /// Stores the outcome of a command.
    pub(super) fn end(&mut self, now: Tai, key: IdempotencyKey, ack: &Acknowledgement) {
        let Some((_, entry)) = self.entries.get_mut(&key) else { return };
        *entry = Outcome::Ended(ack.clone());
        self.ended.push_back((now, key));
        self.forget_old(now);
    }

    /// Removes the key of a command that never started.
    pub(super) fn forget(&mut self, key: &IdempotencyKey) {
        self.entries.remove(key);
    }

    /// The number of stored keys.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn forget_old(&mut self, now: Tai) {
        while let Some((ended, _)) = self.ended.front() {
            let is_old = interval::after(*ended, OUTCOME_AGE) <= now;
            if !is_old && self.ended.len() <= MAX_OUTCOMES {
                return;
            }
            if let Some((_, key)) = self.ended.pop_front() {
                self.entries.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::AckCode;

    fn key(number: usize) -> IdempotencyKey {
        IdempotencyKey { who: "alice".into(), key: number.to_string() }
    }

    fn moving() -> KeyedCommand {
        KeyedCommand { command: "move".into(), values: 1 }
    }

    #[test]
    fn the_oldest_outcomes_are_forgotten() {
        let (now, ack) = (Tai::from_nanos(0), Acknowledgement::new(AckCode::Complete, "Done"));
        let mut memory = OutcomeCache::default();
        for number in 0..=MAX_OUTCOMES {
            memory.begin(key(number), moving(), CallNumber(number as u64));
            memory.end(now, key(number), &ack);
        }
        assert_eq!(memory.len(), MAX_OUTCOMES);
        assert_eq!(memory.recall(now, &key(0)), None);
        assert_eq!(memory.recall(now, &key(1)), Some(&(moving(), Outcome::Ended(ack))));
        assert_eq!(memory.recall(interval::after(now, OUTCOME_AGE), &key(1)), None);
        assert_eq!(memory.len(), 0);
    }

    #[test]
    fn live_commands_are_not_forgotten() {
        let mut memory = OutcomeCache::default();
        memory.begin(key(0), moving(), CallNumber(7));
        let late = Tai::from_nanos(i64::MAX);
        assert_eq!(memory.recall(late, &key(0)), Some(&(moving(), Outcome::Live(CallNumber(7)))));
        memory.forget(&key(0));
        assert_eq!(memory.recall(late, &key(0)), None);
    }
}
