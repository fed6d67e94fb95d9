//! The newest records of each key, for late joiners.

use std::collections::BTreeMap;
use std::fs;

use helio_core::{HeadersRef, ProducerName, TopicName};
use helio_journal::{
    From, Item, Journal, JournalOptions, LastValue, Maintenance, Ownership, Record, Topic,
    TopicConfig, Writer, WriterOptions,
};
use proptest::prelude::*;

fn open(dir: &std::path::Path, last_value: LastValue) -> Topic {
    let journal = Journal::open(dir, JournalOptions::default()).unwrap();
    let config = TopicConfig { last_value, ..TopicConfig::default() };
    journal.create_topic(&TopicName::new("t").unwrap(), &config).unwrap()
}

fn writer(topic: &Topic) -> Writer {
    let producer = ProducerName::new("me").unwrap();
    topic.writer(0, &WriterOptions { producer, ownership: Ownership::Shared }).unwrap()
}

fn read(topic: &Topic, from: From) -> Vec<(u64, Vec<u8>)> {
    let mut reader = topic.reader(0, from).unwrap();
    let mut out = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        let Item::Sample(s) = item else { panic!("{item:?}") };
        out.push((s.offset, s.key.to_vec()));
    }
    out
}

/// The newest `n` offsets of each key, in order.
fn expected(keys: &[u16], n: usize) -> Vec<(u64, Vec<u8>)> {
    let mut by_key: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for (offset, key) in keys.iter().enumerate() {
        by_key.entry(*key).or_default().push(offset as u64);
    }
    let newest = by_key.iter().flat_map(|(key, offsets)| {
        offsets.iter().rev().take(n).map(|o| (*o, key.to_le_bytes().to_vec()))
    });
    let mut all: Vec<_> = newest.collect();
    all.sort();
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_newest_n_of_each_key_come_in_order(
        keys in prop::collection::vec(0..300_u16, 0..2000), n in 1..5_usize, keep: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let topic = open(dir.path(), if keep { LastValue::Keep } else { LastValue::Forget });
        let mut writer = writer(&topic);
        for key in &keys {
            let key = key.to_le_bytes();
            writer.append(&Record { key: &key, payload: &[7; 40], ..Record::default() }).unwrap();
        }
        prop_assert!(read(&topic, From::LastPerKey(n)) == expected(&keys, n));
    }
}

#[test]
fn what_follows_comes_once_behind_the_newest_of_each_key() {
    let dir = tempfile::tempdir().unwrap();
    let topic = open(dir.path(), LastValue::Keep);
    let mut writer = writer(&topic);
    let mut append = |key: &[u8]| {
        writer.append(&Record { key, ..Record::default() }).unwrap();
    };
    [b"a", b"b", b"a", b"b"].iter().for_each(|k| append(*k));
    let mut reader = topic.reader(0, From::LastPerKey(1)).unwrap();
    assert_eq!(reader.lag(), 2);
    [b"b", b"c"].iter().for_each(|k| append(*k));
    let mut seen = Vec::new();
    while let Some(Item::Sample(s)) = reader.next().unwrap() {
        seen.push((s.offset, s.key.to_vec()));
    }
    let want: Vec<(u64, Vec<u8>)> =
        [(2, b"a"), (3, b"b"), (4, b"b"), (5, b"c")].map(|(o, k)| (o, k.to_vec())).into();
    assert_eq!(seen, want);
}

#[test]
fn an_unkeyed_topic_has_one_last_value() {
    let dir = tempfile::tempdir().unwrap();
    let topic = open(dir.path(), LastValue::Keep);
    assert_eq!(read(&topic, From::LastPerKey(1)), []);
    let mut writer = writer(&topic);
    for _ in 0..10 {
        writer.append(&Record::default()).unwrap();
    }
    assert_eq!(read(&topic, From::LastPerKey(1)), [(9, vec![])]);
}

#[test]
fn compaction_in_between_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let config = TopicConfig { segment_bytes: 16 << 10, ..TopicConfig::default() };
    let topic = journal.create_topic(&TopicName::new("t").unwrap(), &config).unwrap();
    let mut writer = writer(&topic);
    let payload = [7; 4000];
    let keys: Vec<u16> = (0..400_u32).map(|i| (i * i % 97) as u16).collect();
    for (i, key) in keys.iter().enumerate() {
        let (key, payload) = (key.to_le_bytes(), &payload[..i * 37 % 4000]);
        writer.append(&Record { key: &key, payload, ..Record::default() }).unwrap();
    }
    for n in [1, 3] {
        let mut reader = topic.reader(0, From::LastPerKey(n)).unwrap();
        let mut seen = Vec::new();
        let mut first = true;
        // Compaction moves the records after the first segment was read.
        while let Some(item) = reader.next().unwrap() {
            let Item::Sample(s) = item else { panic!("{item:?}") };
            seen.push((s.offset, s.key.to_vec()));
            if std::mem::take(&mut first) {
                topic.compact_below(0, 300 + 30 * n as u64).unwrap();
            }
        }
        for newest in expected(&keys, 1) {
            let times = seen.iter().filter(|s| **s == newest).count();
            assert_eq!(times, 1, "{newest:?} of {n}");
        }
        assert!(seen.iter().all(|s| expected(&keys, n).contains(s)), "{n}");
    }
}

/// What happens to a topic with last values.
#[derive(Debug, Clone, Copy)]
enum Step {
    Put(u8),
    Null(u8),
    Maintain,
    Compact,
    Reboot,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (0..40_u8).prop_map(Step::Put),
        20 => (0..40_u8).prop_map(Step::Null),
        1 => Just(Step::Maintain),
        1 => Just(Step::Compact),
        1 => Just(Step::Reboot),
    ]
}

/// A journal after so many boots.
fn booted(dir: &std::path::Path, boot: u8, last_value: LastValue) -> (Journal, Topic) {
    let (maintenance, boot_id) = (Maintenance::Manual, Some([boot; 16]));
    let options = JournalOptions { maintenance, boot_id, ..JournalOptions::default() };
    let journal = Journal::open(dir, options).unwrap();
    let config = TopicConfig { last_value, segment_bytes: 16 << 10, ..TopicConfig::default() };
    let topic = journal.create_topic(&TopicName::new("t").unwrap(), &config).unwrap();
    (journal, topic)
}

/// Reads the samples, and skips gaps.
fn read_past_gaps(topic: &Topic, from: From) -> Vec<(u64, Vec<u8>)> {
    let mut reader = topic.reader(0, from).unwrap();
    let mut out = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Sample(s) = item {
            out.push((s.offset, s.key.to_vec()));
        }
    }
    out
}

fn segment(dir: &std::path::Path, seq: u64) -> std::path::PathBuf {
    dir.join(format!("topics/t/0/{seq:016}.seg"))
}

/// Damages a topic of three segments, the last of which has the keys 100 and 101, too. All keys
/// that can be read are indexed then, and survive compaction.
fn last_values_survive(damage: impl Fn(&std::path::Path)) {
    let dir = tempfile::tempdir().unwrap();
    let segment = |seq| segment(dir.path(), seq);
    let (journal, topic) = booted(dir.path(), 1, LastValue::Keep);
    let mut writing = writer(&topic);
    let mut append = |key: u8| {
        writing.append(&Record { key: &[key], payload: b"value", ..Record::default() }).unwrap();
    };
    let mut keys = (0..7).cycle();
    while !segment(3).exists() {
        append(keys.next().unwrap());
    }
    [100, 101].into_iter().for_each(append);
    drop((writing, topic, journal));
    damage(dir.path());
    let (_journal, topic) = booted(dir.path(), 2, LastValue::Keep);
    let newest: BTreeMap<_, _> =
        read_past_gaps(&topic, From::Earliest).into_iter().map(|(o, key)| (key, o)).collect();
    assert_eq!(newest.len(), 9);
    let last = || -> BTreeMap<_, _> {
        read_past_gaps(&topic, From::LastPerKey(1)).into_iter().map(|(o, key)| (key, o)).collect()
    };
    assert_eq!(last(), newest);
    let offset = writer(&topic).append(&Record { key: &[102], ..Record::default() }).unwrap();
    topic.compact_below(0, offset).unwrap();
    assert!(!segment(1).exists());
    let kept: BTreeMap<_, _> = newest.into_iter().chain([(vec![102], offset)]).collect();
    assert_eq!(last(), kept);
}

/// Changes some bytes of a segment's file.
fn change(dir: &std::path::Path, seq: u64, at: std::ops::Range<usize>, with: fn(u8) -> u8) {
    let mut bytes = fs::read(segment(dir, seq)).unwrap();
    bytes.iter_mut().take(at.end).skip(at.start).for_each(|byte| *byte = with(*byte));
    fs::write(segment(dir, seq), bytes).unwrap();
}

/// All of a segment's records are damaged, and the first one of the next: more records than could
/// lie in the bytes before the next readable one.
#[test]
fn a_last_value_behind_a_damaged_segment_is_indexed_and_survives_compaction() {
    last_values_survive(|dir| {
        change(dir, 2, 4096..usize::MAX, |byte| !byte);
        change(dir, 3, 4096..4097, |byte| !byte);
    });
}

/// A segment has no seal, or a damaged one, and the next is lost: it was taken to end with the log.
#[test]
fn a_last_value_behind_a_lost_seal_and_segment_is_indexed_and_survives_compaction() {
    let with: [fn(u8) -> u8; 2] = [|_| 0, |byte| !byte];
    for with in with {
        last_values_survive(|dir| {
            change(dir, 1, 128..160, with);
            fs::remove_file(segment(dir, 2)).unwrap();
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_null_deletes_the_last_value_of_its_key(
        steps in prop::collection::vec(step(), 0..400), keep: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let last_value = if keep { LastValue::Keep } else { LastValue::Forget };
        let mut boot = 1;
        let (mut journal, mut topic) = booted(dir.path(), boot, last_value);
        let mut writing = Some(writer(&topic));
        let (mut newest, mut end) = (BTreeMap::new(), 0);
        for step in steps {
            let mut append = |record: Record<'_>| {
                end = writing.as_mut().unwrap().append(&record).unwrap() + 1;
                end - 1
            };
            match step {
                Step::Put(key) => {
                    let record = Record { key: &[key], payload: &[7; 500], ..Record::default() };
                    newest.insert(key, append(record));
                }
                Step::Null(key) => {
                    let headers = HeadersRef::NULL;
                    append(Record { key: &[key], headers, ..Record::default() });
                    newest.remove(&key);
                }
                Step::Maintain => journal.maintain(),
                Step::Compact if keep => topic.compact_below(0, end).unwrap(),
                Step::Compact => {}
                Step::Reboot => {
                    drop((writing.take(), topic, journal));
                    boot += 1;
                    (journal, topic) = booted(dir.path(), boot, last_value);
                    writing = Some(writer(&topic));
                }
            }
        }
        let mut expected: Vec<_> =
            newest.into_iter().map(|(key, offset)| (offset, vec![key])).collect();
        expected.sort();
        prop_assert_eq!(read(&topic, From::LastPerKey(1)), expected);
    }
}

#[test]
fn a_null_ends_the_history_of_its_key() {
    let dir = tempfile::tempdir().unwrap();
    for last_value in [LastValue::Keep, LastValue::Forget] {
        let topic = open(&dir.path().join(format!("{last_value:?}")), last_value);
        let mut writer = writer(&topic);
        let mut append = |key: &[u8], payload: &[u8], headers| {
            let record = Record { key, payload, headers, ..Record::default() };
            writer.append(&record).unwrap();
        };
        append(b"a", b"1", HeadersRef::EMPTY);
        append(b"b", b"2", HeadersRef::EMPTY);
        append(b"a", b"", HeadersRef::NULL);
        append(b"b", b"", HeadersRef::EMPTY);
        append(b"a", b"5", HeadersRef::EMPTY);
        append(b"c", b"", HeadersRef::NULL);
        let want = [(1, b"b".to_vec()), (3, b"b".to_vec()), (4, b"a".to_vec())];
        assert_eq!(read(&topic, From::LastPerKey(3)), want, "{last_value:?}");
    }
}
