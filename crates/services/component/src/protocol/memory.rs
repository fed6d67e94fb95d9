//! What became of the commands that were sent with a key, so that none is run twice.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use helio_core::Tai;

use super::{Acknowledgement, CallNumber, span};

/// The most outcomes that are remembered: what some hundred callers send and repeat in an hour.
pub const MAX_OUTCOMES: usize = 1_024;
/// How long an outcome is remembered: nobody repeats a command of an hour ago.
pub const OUTCOME_AGE: Duration = Duration::from_secs(3_600);

/// What is remembered under a key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Entry {
    /// It waits or runs.
    Live(CallNumber),
    /// It ended so.
    Ended(Acknowledgement),
}

/// A caller's name for a command.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The caller.
    pub(super) who: String,
    /// The name.
    pub(super) key: String,
}

/// Outcomes by caller and key. Live commands are bounded by the lanes they are in.
#[derive(Debug, Default)]
pub(super) struct Memory {
    entries: HashMap<Key, (String, Entry)>,
    ended: VecDeque<(Tai, Key)>,
}

impl Memory {
    /// The command that was sent under a key, and what became of it.
    pub(super) fn recall(&mut self, now: Tai, key: &Key) -> Option<(&str, &Entry)> {
        self.forget_old(now);
        self.entries.get(key).map(|(command, entry)| (command.as_str(), entry))
    }

    /// Remembers that a command waits or runs.
    pub(super) fn begin(&mut self, key: Key, command: &str, call: CallNumber) {
        self.entries.insert(key, (command.to_owned(), Entry::Live(call)));
    }

    /// Remembers how a command ended.
    pub(super) fn end(&mut self, now: Tai, key: Key, ack: &Acknowledgement) {
        let Some((_, entry)) = self.entries.get_mut(&key) else { return };
        *entry = Entry::Ended(ack.clone());
        self.ended.push_back((now, key));
        self.forget_old(now);
    }

    /// Forgets a command that never began.
    pub(super) fn forget(&mut self, key: &Key) {
        self.entries.remove(key);
    }

    /// Number of commands remembered.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn forget_old(&mut self, now: Tai) {
        while let Some((ended, _)) = self.ended.front() {
            let is_old = span::after(*ended, OUTCOME_AGE) <= now;
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

    fn key(number: usize) -> Key {
        Key { who: "alice".into(), key: number.to_string() }
    }

    #[test]
    fn the_oldest_outcomes_are_forgotten() {
        let (now, ack) = (Tai::from_nanos(0), Acknowledgement::new(AckCode::Complete, "Done"));
        let mut memory = Memory::default();
        for number in 0..=MAX_OUTCOMES {
            memory.begin(key(number), "move", CallNumber(number as u64));
            memory.end(now, key(number), &ack);
        }
        assert_eq!(memory.len(), MAX_OUTCOMES);
        assert_eq!(memory.recall(now, &key(0)), None);
        assert_eq!(memory.recall(now, &key(1)), Some(("move", &Entry::Ended(ack))));
        assert_eq!(memory.recall(span::after(now, OUTCOME_AGE), &key(1)), None);
        assert_eq!(memory.len(), 0);
    }

    #[test]
    fn live_commands_are_not_forgotten() {
        let mut memory = Memory::default();
        memory.begin(key(0), "move", CallNumber(7));
        let late = Tai::from_nanos(i64::MAX);
        assert_eq!(memory.recall(late, &key(0)), Some(("move", &Entry::Live(CallNumber(7)))));
        memory.forget(&key(0));
        assert_eq!(memory.recall(late, &key(0)), None);
    }
}
