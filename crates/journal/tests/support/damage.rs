//! A journal to be damaged, and the operations on it afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use helio_core::{Headers, ProducerName, Tai, TopicName};
use helio_journal::{
    Access, From, GroupPosition, Item, Journal, JournalError, JournalOptions, Maintenance,
    Ownership, Record, Topic, TopicConfig, Writer, WriterOptions,
};

pub(crate) fn options() -> JournalOptions {
    JournalOptions {
        maintenance: Maintenance::Manual,
        lock_timeout: Duration::from_millis(20),
        seed: Some(3),
        ..JournalOptions::default()
    }
}

pub(crate) fn name() -> TopicName {
    TopicName::new("t").unwrap()
}

pub(crate) fn writer(topic: &Topic) -> Result<Writer, JournalError> {
    let producer = ProducerName::new("me").unwrap();
    topic.writer(0, &WriterOptions { producer, ownership: Ownership::Shared })
}

pub(crate) const RECORDS: u64 = 60;

pub(crate) fn payload(i: u64) -> Vec<u8> {
    vec![i as u8; 100 + i as usize * 13]
}

pub(crate) fn headers(i: u64) -> Headers {
    match i % 4 {
        1 => Headers::new().with("n", i.to_le_bytes()).unwrap(),
        _ => Headers::new(),
    }
}

/// A small journal of a few segments with keys, a group and a schema.
pub(crate) fn make(dir: &Path) {
    let journal = Journal::open(dir, options()).unwrap();
    let config = TopicConfig { segment_bytes: 16 << 10, ..TopicConfig::default() };
    let topic = journal.create_topic(&name(), &config).unwrap();
    let mut writer = writer(&topic).unwrap();
    for i in 0..RECORDS {
        let (key, payload, time) = ([(i % 9) as u8], payload(i), Tai::from_nanos(i as i64));
        let headers = headers(i);
        let headers = headers.as_ref();
        let record = Record { key: &key, payload: &payload, time, headers, ..Record::default() };
        writer.append(&record).unwrap();
    }
    topic.wait_durable(0, RECORDS - 1, None).unwrap();
    let group = topic.group(&ProducerName::new("g").unwrap()).unwrap();
    let member = group.join(&ProducerName::new("m").unwrap()).unwrap();
    member.assigned().unwrap();
    member.commit(0, 7).unwrap();
}

pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { out.extend(files(&path)) } else { out.push(path) }
    }
    out.sort();
    out
}

/// Restores all files in place: a copy would be detected.
pub(crate) fn restore(dir: &Path, saved: &BTreeMap<PathBuf, Vec<u8>>) {
    for path in files(dir) {
        if !saved.contains_key(&path) {
            fs::remove_file(path).unwrap();
        }
    }
    for (path, bytes) in saved {
        if fs::read(path).ok().as_ref() != Some(bytes) {
            fs::write(path, bytes).unwrap();
        }
    }
}

/// Reads all records: each is one that was written.
pub(crate) fn read(topic: &Topic, from: From) {
    let Ok(mut reader) = topic.reader(0, from) else { return };
    let mut last = None;
    for _ in 0..10 * RECORDS {
        match reader.next() {
            Ok(Some(Item::Sample(s))) if s.offset < RECORDS && !s.payload.is_empty() => {
                assert_eq!(s.payload, payload(s.offset), "{from:?}");
                assert_eq!(s.headers, headers(s.offset).as_ref(), "{from:?}");
                assert_eq!((s.key, s.sequence), (&[(s.offset % 9) as u8][..], s.offset + 1));
                assert!(last.is_none_or(|l| l < s.offset), "{from:?}");
                last = Some(s.offset);
            }
            Ok(Some(Item::Sample(s))) => assert!(s.payload.is_empty()),
            Ok(Some(Item::Gap(gap))) => assert!(gap.from < gap.to, "{gap:?}"),
            Ok(None) | Err(_) => return,
        }
    }
    panic!("{from:?} does not end");
}

pub(crate) fn use_it(dir: &Path, access: Access) {
    let Ok(journal) = Journal::open(dir, JournalOptions { access, ..options() }) else { return };
    let _ = journal.topics();
    let Ok(Some(topic)) = journal.topic(&name()) else { return };
    let all = [From::Earliest, From::LastPerKey(1), From::LastPerKey(3), From::Offset(31)];
    all.into_iter()
        .chain([From::Time(Tai::from_nanos(31)), From::Latest])
        .for_each(|f| read(&topic, f));
    if access == Access::ReadOnly {
        return;
    }
    if let Ok(group) = topic.group(&ProducerName::new("g").unwrap()) {
        // Where records are missing, it resumes earlier, and says so.
        let position = group.position(0);
        let wrong = |p: &GroupPosition| p.committed != 7 || p.resume > 7;
        assert!(!matches!(&position, Ok(Some(found)) if wrong(found)), "{position:?}");
        let _ = group.join(&ProducerName::new("n").unwrap()).and_then(|m| m.assigned());
    }
    if let Ok(mut writer) = writer(&topic)
        && let Ok(offset) = writer.append(&Record::default())
    {
        assert!(offset <= RECORDS, "{offset}");
        read(&topic, From::Earliest);
        journal.maintain();
    }
}

/// A folder in memory, if there is one: these tests sync thousands of times.
pub(crate) fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// The positions at which to damage a file: all in heads and tables, some in long payloads.
pub(crate) fn places(path: &Path, len: usize) -> Vec<usize> {
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    match file.as_str() {
        "journal.hj" => (0..64).collect(),
        "control" => (0..1500).collect(),
        "producers" | "topic.json" => (0..len.min(600)).collect(),
        _ => (0..300).chain((300..len).step_by(101)).filter(|i| *i < len).collect(),
    }
}
