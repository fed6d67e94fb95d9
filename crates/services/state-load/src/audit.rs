//! The audit: what was acknowledged is stored, revisions never go back, watches are complete.
//!
//! The watch of all keys is the history against which everything is held; its own holes show by
//! the previous values that come with events, and by acknowledged writes that it lacks.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;

use crate::history::{Event, Listing, Outcome, Read, Seen, Stored, Write};
use crate::objects::PREFIX;

/// Findings that are kept in words; all are counted.
const MOST_WORDS: usize = 10;

/// What a load recorded.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// What was stored before it.
    pub begin: Listing,
    /// The writes, each client's in its order.
    pub writes: Vec<Write>,
    /// The reads.
    pub reads: Vec<Read>,
    /// The watches; the first is that of all keys.
    pub watches: Vec<Seen>,
    /// What is stored after it.
    pub end: Listing,
}

/// Findings of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Their number.
    pub count: u64,
    /// The first of them.
    pub words: Vec<String>,
}

impl Findings {
    /// Counts a finding, and keeps its words if it is one of the first.
    pub fn add(&mut self, word: impl FnOnce() -> String) {
        self.count += 1;
        if self.words.len() < MOST_WORDS {
            self.words.push(word());
        }
    }

    /// Counts all of others, and keeps words of them as of its own.
    pub fn extend(&mut self, others: Self) {
        self.count += others.count;
        let room = MOST_WORDS.saturating_sub(self.words.len());
        self.words.extend(others.words.into_iter().take(room));
    }
}

/// The outcome of an audit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audit {
    /// Acknowledged writes.
    pub acknowledged: u64,
    /// Writes without an answer that happened.
    pub unknown_applied: u64,
    /// Writes without an answer that did not happen.
    pub unknown_absent: u64,
    /// Events of all watches.
    pub events: u64,
    /// How often watches were resumed.
    pub resumed: u64,
    /// Reads.
    pub reads: u64,
    /// Acknowledged writes that are neither stored nor superseded.
    pub lost: Findings,
    /// Answers at a revision that is not above one that had been answered before.
    pub regressions: Findings,
    /// Events that a watch lacks.
    pub holes: Findings,
    /// Events that a watch got twice.
    pub duplicates: Findings,
    /// Events of a revision below that of an earlier one.
    pub reordered: Findings,
    /// Events and keys that nobody wrote.
    pub phantoms: Findings,
    /// Reads, and compares of acknowledged writes, of another state than that of their revision.
    pub stale: Findings,
}

/// Changes of each key, in order: the revision, and the number of the value or none.
type Changes = HashMap<Bytes, BTreeMap<i64, Option<u64>>>;

/// The changes of keys that a complete watch reported, from a listing on.
#[derive(Debug, Clone, Default)]
pub struct History(Changes);

impl History {
    /// The history of a record: its listing, and what the watch of all keys reported since.
    pub fn of(record: &Record) -> Self {
        let mut changes = Changes::new();
        for stored in &record.begin.keys {
            let key = changes.entry(stored.key.clone()).or_default();
            key.insert(stored.revision, Some(stored.number));
        }
        for event in record.watches.first().map(|seen| &seen.events[..]).unwrap_or_default() {
            let key = changes.entry(event.key.clone()).or_default();
            key.insert(event.revision, event.number);
        }
        Self(changes)
    }

    /// The last change of a key up to a revision: its revision, and the number of its value. A
    /// deletion is none.
    fn at(&self, key: &Bytes, revision: i64) -> Option<Present> {
        let (at, number) = self.0.get(key)?.range(..=revision).next_back()?;
        Some(Present { revision: *at, number: (*number)? })
    }

    /// Where a listing differs from the history at a revision: with all, and nothing else.
    pub fn differences(&self, revision: i64, keys: &[Stored]) -> Findings {
        let mut found = Findings::default();
        let mut listed = HashSet::new();
        for stored in keys {
            listed.insert(&stored.key);
            let is = Present { revision: stored.revision, number: stored.number };
            let was = self.at(&stored.key, revision);
            if was != Some(is) {
                found.add(|| format!("{} is {is:?}, and was {was:?}", text(&stored.key)));
            }
        }
        for key in self.0.keys().filter(|key| !listed.contains(key)) {
            if let Some(was) = self.at(key, revision) {
                found.add(|| format!("{} is absent, and was {was:?}", text(key)));
            }
        }
        found
    }
}

/// A key's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Present {
    revision: i64,
    number: u64,
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

/// Audits a record.
pub fn audit(record: &Record) -> Audit {
    let history = History::of(record);
    let mut audit = Audit { reads: record.reads.len() as u64, ..Audit::default() };
    for seen in &record.watches {
        audit.watch(record, seen);
    }
    audit.writes(record, &history);
    audit.watches_agree(record);
    audit.stored(record, &history);
    for read in &record.reads {
        audit.read(read, &history);
    }
    audit
}

impl Audit {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        let Self { lost, regressions, holes, duplicates, reordered, phantoms, stale, .. } = self;
        let all = [lost, regressions, holes, duplicates, reordered, phantoms, stale];
        all.iter().all(|found| found.count == 0)
    }

    /// One watch by itself: order, duplicates, and the chain of previous values.
    fn watch(&mut self, record: &Record, seen: &Seen) {
        let name = text(&seen.prefix);
        self.events += seen.events.len() as u64;
        self.resumed += seen.resumed;
        let mut last = record.begin.revision;
        let mut known: HashMap<&Bytes, i64> =
            record.begin.keys.iter().map(|stored| (&stored.key, stored.revision)).collect();
        let mut had = HashSet::new();
        for event in &seen.events {
            let Event { key, revision, number, previous } = event;
            if !had.insert((key, *revision)) {
                self.duplicates.add(|| format!("{name} got {} of {revision} twice", text(key)));
                continue;
            }
            if *revision < last {
                self.reordered.add(|| format!("{name} got {revision} after {last}"));
                continue;
            }
            last = *revision;
            let before = known.get(key).copied().unwrap_or(0);
            if before != *previous {
                self.holes.add(|| {
                    let key = text(key);
                    format!("{name} got {key} of {revision} behind {previous}, not {before}")
                });
            }
            known.insert(key, if number.is_some() { *revision } else { 0 });
        }
        if let Some(why) = &seen.ended {
            self.holes.add(|| format!("{name} ended: {why}"));
        }
    }

    /// Each acknowledged write is in the history, as it was; what is there, somebody wrote.
    fn writes(&mut self, record: &Record, history: &History) {
        let mut written: HashSet<(&Bytes, i64)> = HashSet::new();
        let mut open: HashMap<(&Bytes, Option<u64>), Vec<&Write>> = HashMap::new();
        for write in &record.writes {
            let Outcome::Acknowledged(revision) = write.outcome else {
                open.entry((&write.key, write.number)).or_default().push(write);
                continue;
            };
            self.acknowledged += 1;
            let key = text(&write.key);
            if revision <= write.floor {
                self.regressions
                    .add(|| format!("{key} was written at {revision} after {}", write.floor));
            }
            if !written.insert((&write.key, revision)) {
                self.regressions.add(|| format!("{key} was written at {revision} twice"));
            }
            match history.0.get(&write.key).and_then(|changes| changes.get(&revision)) {
                Some(number) if *number == write.number => {}
                Some(other) => {
                    let is = write.number;
                    self.phantoms.add(|| format!("{key} of {revision} is {other:?}, not {is:?}"));
                }
                None => self.holes.add(|| format!("no watch got {key} of {revision}")),
            }
            let before = history.at(&write.key, revision - 1).map_or(0, |at| at.revision);
            if before != write.expected {
                let expected = write.expected;
                self.stale.add(|| format!("{key} of {revision} compared {expected}, not {before}"));
            }
        }
        let begin = record.begin.revision;
        for (key, changes) in &history.0 {
            for (revision, number) in changes.range(begin + 1..) {
                if written.contains(&(key, *revision)) {
                    continue;
                }
                let before = history.at(key, revision - 1).map_or(0, |at| at.revision);
                let writes = open.get_mut(&(key, *number));
                let found = writes.and_then(|writes| {
                    let at = writes.iter().position(|write| write.expected == before)?;
                    Some(writes.swap_remove(at))
                });
                match found {
                    Some(_) => self.unknown_applied += 1,
                    None => {
                        self.phantoms.add(|| format!("nobody wrote {} of {revision}", text(key)))
                    }
                }
            }
        }
        self.unknown_absent = open.values().map(|writes| writes.len() as u64).sum();
    }

    /// The watches of parts of the keys have the same events as that of all.
    fn watches_agree(&mut self, record: &Record) {
        let Some((all, parts)) = record.watches.split_first() else { return };
        for part in parts {
            let of = |seen: &Seen| -> HashSet<(Bytes, i64)> {
                let events = seen.events.iter().filter(|event| event.key.starts_with(&part.prefix));
                events.map(|event| (event.key.clone(), event.revision)).collect()
            };
            let (whole, partial) = (of(all), of(part));
            for (key, revision) in whole.symmetric_difference(&partial) {
                let has = whole.contains(&(key.clone(), *revision));
                let which = text(if has { &part.prefix } else { PREFIX.as_bytes() });
                self.holes.add(|| format!("{which} lacks {} of {revision}", text(key)));
            }
        }
    }

    /// What is stored at the end: the last acknowledged write of each key, or one that came later.
    fn stored(&mut self, record: &Record, history: &History) {
        let stored: HashMap<&Bytes, &Stored> =
            record.end.keys.iter().map(|stored| (&stored.key, stored)).collect();
        let mut last: HashMap<&Bytes, (i64, Option<u64>)> = HashMap::new();
        let mut open: HashSet<(&Bytes, Option<u64>)> = HashSet::new();
        for kept in &record.begin.keys {
            last.insert(&kept.key, (kept.revision, Some(kept.number)));
        }
        for write in &record.writes {
            match write.outcome {
                Outcome::Unknown => _ = open.insert((&write.key, write.number)),
                Outcome::Acknowledged(revision) => {
                    let of = last.entry(&write.key).or_insert((revision, write.number));
                    if revision >= of.0 {
                        *of = (revision, write.number);
                    }
                }
            }
        }
        for (key, (revision, number)) in last {
            let found = stored.get(key);
            let kept = match found {
                Some(found) if found.revision == revision => number == Some(found.number),
                // Superseded by a write without an answer.
                Some(found) => {
                    found.revision > revision && open.contains(&(key, Some(found.number)))
                }
                None => number.is_none() || open.contains(&(key, None)),
            };
            if !kept {
                let is = found.map(|found| (found.revision, found.number));
                self.lost.add(|| format!("{} of {revision} is {is:?}", text(key)));
            }
        }
        if record.end.revision < record.writes.iter().filter_map(acknowledged).max().unwrap_or(0) {
            self.regressions.add(|| format!("the last revision is {}", record.end.revision));
        }
        let differences = history.differences(record.end.revision, &record.end.keys);
        self.phantoms.extend(differences);
    }

    fn read(&mut self, read: &Read, history: &History) {
        let Read { key, revision, floor, found } = read;
        if revision < floor {
            self.regressions.add(|| format!("{} was read at {revision} after {floor}", text(key)));
        }
        let was = history.at(key, *revision).map_or(0, |at| at.revision);
        if was != *found {
            self.stale
                .add(|| format!("{} at {revision} was read as {found}, not {was}", text(key)));
        }
    }
}

fn acknowledged(write: &Write) -> Option<i64> {
    match write.outcome {
        Outcome::Acknowledged(revision) => Some(revision),
        Outcome::Unknown => None,
    }
}
