//! Thousands of topics cost little: on the disk, in descriptors, in memory.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use helio_core::{ProducerName, TopicName};
use helio_journal::{
    From, Item, Journal, JournalOptions, Ownership, Record, TopicConfig, WriterOptions,
};

/// As many as the Rubin Observatory's interfaces v27.1.1 have, and its largest component.
const TOPICS: usize = 3166;
const LARGEST: usize = 506;

fn name(i: usize) -> TopicName {
    TopicName::new(&format!("Component{}/telemetry/topic{i}", i % 63)).unwrap()
}

fn disk_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries
        .map(|path| {
            let own = fs::symlink_metadata(&path).unwrap().blocks() * 512;
            own + if path.is_dir() { disk_bytes(&path) } else { 0 }
        })
        .sum()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_mb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn thousands_of_topics_fit() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("j");
    let journal = Journal::open(&dir, JournalOptions::default()).unwrap();
    let config = TopicConfig::default();
    let before = descriptors();
    let topics: Vec<_> =
        (0..TOPICS).map(|i| journal.create_topic(&name(i), &config).unwrap()).collect();
    let mut readers: Vec<_> =
        topics.iter().take(LARGEST).map(|t| t.reader(0, From::LastPerKey(1)).unwrap()).collect();
    let bell = journal.bell().unwrap();
    let mut idle = true;
    readers.iter_mut().for_each(|r| idle &= !r.arm(&bell));
    assert!(idle);
    let producer = ProducerName::new("me").unwrap();
    let options = WriterOptions { producer, ownership: Ownership::Shared };
    for topic in topics.iter().take(LARGEST) {
        let mut writer = topic.writer(0, &options).unwrap();
        writer.append(&Record { payload: &[1; 1000], ..Record::default() }).unwrap();
    }
    bell.wait(None);
    for reader in &mut readers {
        assert!(matches!(reader.next().unwrap(), Some(Item::Sample(s)) if s.offset == 0));
    }
    assert!(descriptors() - before < 20, "{} descriptors", descriptors() - before);
    assert!(resident_mb() < 300, "{} MB", resident_mb());
    assert!(disk_bytes(&dir) < 200 << 20, "{} bytes", disk_bytes(&dir));
    eprintln!(
        "{TOPICS} topics: {} MB on the disk; {LARGEST} readers: {} descriptors, {} MB resident",
        disk_bytes(&dir) >> 20,
        descriptors(),
        resident_mb()
    );
}
