//! The journal's doorbell, which says that something came, made into one that says for whom.
//!
//! A doorbell rings for all readers of a thread together, and a ring takes it off the partition
//! that rang. It leaves a hint, which a few partitions share. So each armed reader leaves watches
//! behind, found by their hints, and after a ring those that it may be for are armed again: those
//! that find something are ready, the others are sure to ring next time.

use std::any::Any;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::Duration;

use helio_journal::{Hint, Reader, ReaderWatch, Wake, WakeTargets};

use crate::bell::{Bell, locked};

pub(super) struct JournalBell {
    bell: helio_journal::Bell,
    armed: Mutex<ArmedReaders>,
}

#[derive(Default)]
struct ArmedReaders {
    readers: HashMap<u64, Vec<ReaderWatch>>,
    /// The tokens of `readers`, by their watches' hints.
    by_hint: BTreeSet<(Hint, u64)>,
    /// Rung from this process.
    local: HashSet<u64>,
}

impl ArmedReaders {
    fn add(&mut self, token: u64, watches: Vec<ReaderWatch>) {
        self.by_hint.extend(watches.iter().map(|watch| (watch.hint(), token)));
        self.readers.insert(token, watches);
    }

    fn remove(&mut self, token: u64) -> Vec<ReaderWatch> {
        let watches = self.readers.remove(&token).unwrap_or_default();
        for watch in &watches {
            self.by_hint.remove(&(watch.hint(), token));
        }
        watches
    }

    /// The readers that a ring may be for, each once.
    fn rung_for(&self, rung_for: &WakeTargets) -> Vec<u64> {
        match rung_for {
            WakeTargets::All => self.readers.keys().copied().collect(),
            WakeTargets::Hinted(hints) => {
                let of = |hint| self.by_hint.range((hint, 0)..=(hint, u64::MAX));
                let mut tokens: Vec<u64> =
                    hints.iter().flat_map(of).map(|(_, token)| *token).collect();
                tokens.sort_unstable();
                tokens.dedup();
                tokens
            }
        }
    }
}

impl JournalBell {
    pub(super) fn new(bell: helio_journal::Bell) -> Self {
        Self { bell, armed: Mutex::default() }
    }

    /// Arms the readers of a token; true where one of them has something.
    pub(super) fn arm<'a>(
        &self,
        token: u64,
        readers: impl Iterator<Item = &'a mut Reader>,
    ) -> bool {
        // The lock is held over both, so that a ring in between finds the watches.
        let mut armed = locked(&self.armed);
        let mut watches = armed.remove(token);
        watches.clear();
        for reader in readers {
            if reader.arm(&self.bell) {
                return true;
            }
            watches.push(reader.watch());
        }
        armed.add(token, watches);
        false
    }

    pub(super) fn disarm(&self, token: u64) {
        locked(&self.armed).remove(token);
    }

    /// Adds the tokens that were rung from this process, and after a ring of others those whose
    /// readers find something.
    fn collect(&self, rung: bool, ready: &mut Vec<u64>) {
        let mut armed = locked(&self.armed);
        ready.extend(armed.local.drain());
        if !rung {
            return;
        }
        let rung_for = self.bell.rung_for();
        let alone = armed.readers.len() == 1;
        for token in armed.rung_for(&rung_for) {
            let found =
                |watch: &ReaderWatch| rung_for.includes(watch.hint()) && watch.arm(&self.bell);
            // The usual case is a thread with one reader: it looks for itself.
            if alone || armed.readers[&token].iter().any(found) {
                armed.remove(token);
                ready.push(token);
            }
        }
    }

    /// Rings for every armed reader.
    pub(super) fn ring_all(&self) {
        let mut armed = locked(&self.armed);
        let ArmedReaders { readers, by_hint, local } = &mut *armed;
        by_hint.clear();
        local.extend(readers.drain().map(|(token, _)| token));
        drop(armed);
        self.bell.ring();
    }
}

impl Bell for JournalBell {
    fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>) {
        let woken = self.bell.wait(timeout);
        self.collect(woken == Wake::Rung, ready);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.bell.descriptor()
    }

    fn listen(&self, ready: &mut Vec<u64>) {
        let rung = self.bell.listen();
        self.collect(rung, ready);
    }

    fn sleep(&self, timeout: Option<Duration>) {
        // Its reader stays armed; arming it again is what it does next where it finds nothing.
        self.bell.wait(timeout);
    }

    fn ring(&self, token: Option<u64>) {
        locked(&self.armed).local.extend(token);
        self.bell.ring();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use helio_core::{ProducerName, TopicName};
    use helio_journal::{
        From, Journal, JournalOptions, Ownership, Record, Topic, TopicConfig, WriterOptions,
    };

    use super::*;

    /// More topics than there are hints, so that many share one.
    const TOPICS: u64 = 500;

    fn append(topic: &Topic, partition: u32) {
        let producer = ProducerName::new("writer").unwrap();
        let options = WriterOptions { producer, ownership: Ownership::Shared };
        topic.writer(partition, &options).unwrap().append(&Record::default()).unwrap();
    }

    fn ready(bell: &JournalBell) -> Vec<u64> {
        let mut ready = Vec::new();
        bell.wait(Some(Duration::ZERO), &mut ready);
        ready.sort_unstable();
        ready
    }

    #[test]
    fn of_many_readers_those_are_ready_that_have_something() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path(), JournalOptions::default()).unwrap();
        let bell = JournalBell::new(journal.bell().unwrap());
        let open = |n| {
            let name = TopicName::new(&format!("topic{n}")).unwrap();
            let topic = journal.create_topic(&name, &TopicConfig::default()).unwrap();
            let mut reader = topic.reader(0, From::Latest).unwrap();
            assert!(!bell.arm(n, std::iter::once(&mut reader)));
            (topic, reader)
        };
        let topics: Vec<_> = (0..TOPICS).map(open).collect();
        let append = |which: u64| append(&topics[which as usize].0, 0);
        // One after the other: those that share a hint with one that was rung stay armed.
        for which in 0..TOPICS / 2 {
            append(which);
            assert_eq!(ready(&bell), [which]);
            assert!(ready(&bell).is_empty());
        }
        // Together, with one from here; those that are ready are not armed any more.
        (0..TOPICS).rev().for_each(append);
        bell.ring(Some(TOPICS));
        assert!(ready(&bell).into_iter().eq(TOPICS / 2..=TOPICS));
        let armed = locked(&bell.armed);
        assert!(armed.readers.is_empty() && armed.by_hint.is_empty());
    }

    #[test]
    fn a_reader_is_armed_for_all_its_partitions_until_it_is_not_armed_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path(), JournalOptions::default()).unwrap();
        let bell = JournalBell::new(journal.bell().unwrap());
        let config = TopicConfig { partitions: 16, ..TopicConfig::default() };
        let open = |name| journal.create_topic(&TopicName::new(name).unwrap(), &config).unwrap();
        let [one, other] = ["one", "other"].map(open);
        let readers = |topic: &Topic| -> Vec<Reader> {
            (0..16).map(|partition| topic.reader(partition, From::Latest).unwrap()).collect()
        };
        let (mut first, mut second) = (readers(&one), readers(&other));
        assert!(!bell.arm(1, first.iter_mut()) && !bell.arm(2, second.iter_mut()));
        append(&one, 3);
        append(&one, 15);
        assert_eq!(ready(&bell), [1]);
        assert!(bell.arm(1, first.iter_mut()), "there is something to read");
        append(&other, 0);
        assert_eq!(ready(&bell), [2]);
        assert!(!bell.arm(2, second.iter_mut().skip(1)));
        bell.disarm(2);
        append(&other, 1);
        assert!(ready(&bell).is_empty());
    }
}
