//! Pinned payloads outlive retention and the topic, within a limit.

use std::path::Path;
use std::sync::Arc;

use helio_core::{ProducerName, TopicName};
use helio_journal::{
    From, Item, Journal, JournalOptions, LastValue, Maintenance, Ownership, PinLimit, PinnedBytes,
    Reader, Record, Topic, TopicConfig, Writer, WriterOptions,
};

const MIB: u64 = 1 << 20;
const PAYLOAD_BYTES: usize = 100 << 10;

fn open(folder: &Path) -> Journal {
    let options = JournalOptions { maintenance: Maintenance::Manual, ..JournalOptions::default() };
    Journal::open(folder, options).unwrap()
}

fn name() -> TopicName {
    TopicName::new("t").unwrap()
}

fn writer(topic: &Topic) -> Writer {
    let producer = ProducerName::new("me").unwrap();
    topic.writer(0, &WriterOptions { producer, ownership: Ownership::Shared }).unwrap()
}

/// Appends records, each of bytes of its own.
fn fill(writer: &mut Writer, bytes: usize, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let payload = vec![number as u8; bytes];
        writer.append(&Record { payload: &payload, ..Record::default() }).unwrap();
    }
}

/// Reads the next record, and pins its payload if its segment can be pinned.
fn read(reader: &mut Reader) -> (u64, Option<PinnedBytes>) {
    let Some(Item::Sample(sample)) = reader.next().unwrap() else { panic!("no sample") };
    (sample.offset, sample.pin.and_then(|segment| segment.pin(sample.payload)))
}

fn is_unchanged(pinned: &[PinnedBytes]) -> bool {
    let filled = |(number, bytes): (usize, &PinnedBytes)| {
        bytes.as_ref().len() == PAYLOAD_BYTES && bytes.as_ref().iter().all(|b| *b == number as u8)
    };
    pinned.iter().enumerate().all(filled)
}

#[test]
fn pinned_payloads_outlive_retention_and_the_topic_and_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let config = TopicConfig {
        segment_bytes: MIB,
        retention_bytes: Some(4 * MIB),
        last_value: LastValue::Forget,
        ..TopicConfig::default()
    };
    let topic = journal.create_topic(&name(), &config).unwrap();
    let mut writer = writer(&topic);
    fill(&mut writer, PAYLOAD_BYTES, 0..30);
    let limit = PinLimit::new(2 * MIB);
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    reader.pin_within(&limit);
    let mut pinned = Vec::new();
    let first_copied = loop {
        match read(&mut reader) {
            (_, Some(bytes)) => pinned.push(bytes),
            (offset, None) => break offset,
        }
    };
    assert_eq!(limit.used(), 2 * MIB);
    assert!(first_copied >= 2, "two segments have at least a record each");
    assert_eq!(pinned.len() as u64, first_copied);
    // Retention drops them, and later records take the files that it offers for reuse.
    for round in 0..10 {
        fill(&mut writer, PAYLOAD_BYTES, 100..130);
        journal.maintain();
        assert!(is_unchanged(&pinned), "round {round}");
    }
    assert!(topic.info(0).unwrap().first_offset > first_copied);
    // A place in the limit is free again.
    assert!(is_unchanged(&pinned));
    pinned.truncate(1);
    assert_eq!(limit.used(), MIB);
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    reader.pin_within(&limit);
    assert!(read(&mut reader).1.is_some());
    drop(reader);
    drop(writer);
    assert!(journal.remove_topic(&name()).unwrap());
    drop((topic, journal));
    drop(dir);
    assert!(is_unchanged(&pinned));
    drop(pinned);
    assert_eq!(limit.used(), 0);
}

#[test]
fn bytes_from_elsewhere_are_not_pinned_nor_those_of_a_journal_open_for_reading() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let topic = journal.create_topic(&name(), &TopicConfig::default()).unwrap();
    fill(&mut writer(&topic), PAYLOAD_BYTES, 0..2);
    let limit = PinLimit::new(u64::MAX);
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    reader.pin_within(&limit);
    let Some(Item::Sample(sample)) = reader.next().unwrap() else { panic!("no sample") };
    assert!(sample.pin.unwrap().pin(&[0; 8]).is_none());
    let access = helio_journal::Access::ReadOnly;
    let options = JournalOptions { access, ..JournalOptions::default() };
    let looking = Journal::open(dir.path(), options).unwrap();
    let topic = looking.topic(&name()).unwrap().unwrap();
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    reader.pin_within(&Arc::clone(&limit));
    assert!(read(&mut reader).1.is_none(), "it cannot count itself in the segment");
}
