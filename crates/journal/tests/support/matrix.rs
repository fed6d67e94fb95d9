//! One damage at a time to a journal whose records were all acknowledged as durable, and the check
//! of what is left: read + reported = acknowledged, no offset twice, every original byte still
//! there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use helio_core::{ProducerName, Tai};
use helio_journal::{
    Access, From, Item, Journal, JournalError, JournalOptions, Ownership, Record, Topic,
    TopicConfig, WriterOptions,
};

use super::damage::{files, name, options};

/// Records of two producers, in segments of 16 kB.
pub(crate) const SAMPLES: u64 = 60;
pub(crate) const SEGMENTS: u64 = 4;

pub(crate) fn boot(n: u8) -> JournalOptions {
    JournalOptions { boot_id: Some([n; 16]), ..options() }
}

fn body(i: u64) -> Vec<u8> {
    (0..1000).map(|at| (i * 7 + at) as u8).collect()
}

fn producer(i: u64) -> &'static str {
    if i.is_multiple_of(2) { "even" } else { "odd" }
}

pub(crate) fn make(dir: &Path) {
    let journal = Journal::open(dir, boot(1)).unwrap();
    let config = TopicConfig { segment_bytes: 16 << 10, ..TopicConfig::default() };
    let topic = journal.create_topic(&name(), &config).unwrap();
    let mut writers = ["even", "odd"].map(|name| {
        let producer = ProducerName::new(name).unwrap();
        topic.writer(0, &WriterOptions { producer, ownership: Ownership::Shared }).unwrap()
    });
    for i in 0..SAMPLES {
        let (key, payload) = ([i as u8 % 5], body(i));
        let time = Tai::from_nanos(i as i64);
        let record = Record { key: &key, payload: &payload, time, ..Record::default() };
        assert_eq!(writers[(i % 2) as usize].append(&record).unwrap(), i);
    }
    topic.wait_durable(0, SAMPLES - 1, None).unwrap();
}

/// What became of the records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) read: BTreeSet<u64>,
    pub(crate) reported: BTreeSet<u64>,
    /// The topic or the journal could not be opened, with the reason.
    pub(crate) refused: Option<String>,
}

impl Outcome {
    /// The records that were neither read nor reported, of a journal that was not refused.
    pub(crate) fn unreported(&self) -> u64 {
        let known = self.read.union(&self.reported).count() as u64;
        if self.refused.is_some() { 0 } else { SAMPLES - known }
    }
}

/// Reads everything, whatever the producers' names are.
pub(crate) fn read(topic: &Topic) -> Outcome {
    let mut outcome = Outcome::default();
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    let mut repeats = BTreeSet::new();
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Sample(s) if s.offset < SAMPLES => {
                assert_eq!(s.payload, body(s.offset), "another record's bytes");
                assert_eq!(s.sequence, s.offset / 2 + 1);
                // Readers drop a second sample of a name, incarnation and sequence.
                let identity = (s.producer.to_string(), s.incarnation, s.sequence);
                assert!(repeats.insert(identity), "{} would be dropped as a repeat", s.offset);
                let known = s.producer.as_str() == producer(s.offset);
                assert!(known || s.producer.as_str().starts_with("unknown-"), "{}", s.producer);
                assert!(outcome.read.insert(s.offset), "{} came twice", s.offset);
            }
            Item::Sample(s) => assert_eq!(s.payload, b"new", "offset {}", s.offset),
            Item::Gap(gap) => outcome.reported.extend(gap.from..gap.to.min(SAMPLES)),
        }
    }
    outcome
}

/// Opens the damaged journal, appends to it, and reads it.
pub(crate) fn survey(dir: &Path, options: JournalOptions) -> Outcome {
    let refused = |e: JournalError| Outcome { refused: Some(e.to_string()), ..Outcome::default() };
    let journal = match Journal::open(dir, options.clone()) {
        Ok(journal) => journal,
        Err(e) => return refused(e),
    };
    let topic = match journal.topic(&name()) {
        Ok(Some(topic)) => topic,
        Ok(None) => return refused(JournalError::ReadOnly),
        Err(e) => return refused(e),
    };
    if let Err(e) = topic.info(0) {
        return refused(e);
    }
    if options.access == Access::ReadWrite {
        let producer = ProducerName::new("even").unwrap();
        let options = WriterOptions { producer, ownership: Ownership::Shared };
        match topic.writer(0, &options) {
            Ok(mut writer) => {
                let incarnation = writer.producer().incarnation;
                assert!(incarnation > 1, "an incarnation is given twice");
                match writer.append(&Record { payload: b"new", ..Record::default() }) {
                    Ok(offset) => assert!(offset >= SAMPLES, "offset {offset} is given twice"),
                    Err(e) => {
                        return Outcome { refused: Some(e.to_string()), ..Outcome::default() };
                    }
                }
            }
            Err(e) => return refused(e),
        }
    }
    let outcome = read(&topic);
    let missing = topic.info(0).unwrap().recovery.missing;
    assert!(missing <= outcome.reported.len() as u64, "{missing} reported, {outcome:?}");
    outcome
}

/// The bytes of all files, by path.
pub(crate) type Saved = BTreeMap<PathBuf, Vec<u8>>;

pub(crate) fn save(dir: &Path) -> Saved {
    files(dir).into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// Every byte of the segments is where it was, or in a copy beside it.
pub(crate) fn every_byte_is_there(damaged: &Saved, dir: &Path) {
    let now = save(dir);
    for (path, bytes) in damaged.iter().filter(|(p, _)| p.extension().is_some_and(|e| e == "seg")) {
        let after = now.get(path).unwrap_or_else(|| panic!("{} is gone", path.display()));
        let header = bytes.len().min(4096);
        let frames = bytes.len().max(4096);
        // Behind the old end of the last segment there were no records.
        let used = 4096 + bytes[header..].iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        let used = used.min(frames).min(bytes.len());
        assert!(after.get(header..used) == Some(&bytes[header..used]), "{}", path.display());
        // The fixed part of the header; counts and seals are derived.
        let kept = [Some(after), now.get(&path.with_extension("hdr"))];
        let fixed = 100.min(bytes.len());
        let there = |copy: &Vec<u8>| copy.get(..fixed) == Some(&bytes[..fixed]);
        assert!(kept.into_iter().flatten().any(there), "header of {}", path.display());
    }
}

/// Reads the damaged journal as a reader and as a writer of the same boot, as a writer of another
/// boot, and once more.
pub(crate) fn check(dir: &Path, saved: &Saved, what: &str) -> [Outcome; 3] {
    let damaged = save(dir);
    let looked = survey(dir, JournalOptions { access: Access::ReadOnly, ..boot(1) });
    assert!(save(dir) == damaged, "{what}: a reader changed something");
    let same = survey(dir, boot(1));
    every_byte_is_there(&damaged, dir);
    super::damage::restore(dir, &damaged);
    let next = survey(dir, boot(2));
    every_byte_is_there(&damaged, dir);
    let again = survey(dir, boot(3));
    assert_eq!((&again.read, &again.reported), (&next.read, &next.reported), "{what}: again");
    every_byte_is_there(&damaged, dir);
    super::damage::restore(dir, saved);
    for (outcome, when) in [(&looked, "looked"), (&same, "same boot"), (&next, "next boot")] {
        assert_eq!(outcome.unreported(), 0, "{what}, {when}: {outcome:?}");
        assert!(outcome.read.is_disjoint(&outcome.reported), "{what}, {when}: {outcome:?}");
    }
    [looked, same, next]
}

/// Changes a file in place.
pub(crate) fn damage(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let inode = fs::metadata(path).unwrap().ino();
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    // Not truncated: it may be mapped.
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    assert_eq!(fs::metadata(path).unwrap().ino(), inode);
}

pub(crate) fn segment(dir: &Path, seq: u64) -> PathBuf {
    dir.join(format!("topics/t/0/{seq:016}.seg"))
}
