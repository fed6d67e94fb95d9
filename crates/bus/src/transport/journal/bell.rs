//! A bell over the journal's doorbell, which adds the tokens of the readers that it rings for.
//!
//! A doorbell rings for all readers of a thread together. A ring removes the doorbell from the
//! partition and leaves a hint, which a few partitions share. Each armed reader therefore stores
//! watches, indexed by hints. After a ring, the readers with its hints are armed again: those that
//! find a record are ready, the others will ring next time.

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
    /// Tokens rung from this process.
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

    /// The readers with a ring's hints, each once.
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

    /// Arms the readers of a token; true if one of them has a record.
    pub(super) fn arm<'a>(
        &self,
        token: u64,
        readers: impl Iterator<Item = &'a mut Reader>,
    ) -> bool {
        // The lock is held until the watches are stored, so that a ring in between finds them.
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

    /// Adds the tokens rung from this process and, after a ring of another, those whose readers
    /// find a record.
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
            // A thread with one reader, the usual case, polls it anyway.
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
        // Its reader stays armed; without an item it is armed again next.
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

    /// More topics than hints, so that many share one.
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
        // One after the other: readers that share a rung hint stay armed.
        for which in 0..TOPICS / 2 {
            append(which);
            assert_eq!(ready(&bell), [which]);
            assert!(ready(&bell).is_empty());
        }
        // Together, with one rung from here; ready readers are disarmed.
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
