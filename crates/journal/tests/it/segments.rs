//! Segments follow the length of records.

use std::path::Path;

use helio_core::{ProducerName, TopicName};
use helio_journal::{
    Journal, JournalOptions, LastValue, Maintenance, Ownership, Record, TopicConfig, WriterOptions,
};

const MIB: u64 = 1 << 20;

/// The sizes of a topic's segments in bytes.
fn segments(folder: &Path) -> Vec<u64> {
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            sizes.extend(segments(&entry.path()));
        } else if entry.path().extension().is_some_and(|extension| extension == "seg") {
            sizes.push(entry.metadata().unwrap().len());
        }
    }
    sizes
}

#[test]
fn segments_follow_the_length_of_records_unless_the_topic_names_a_size() {
    let largest = |config: &TopicConfig, bytes: usize, total: u64| {
        let dir = tempfile::tempdir().unwrap();
        let maintenance = Maintenance::Manual;
        let options = JournalOptions { maintenance, ..JournalOptions::default() };
        let journal = Journal::open(dir.path(), options).unwrap();
        let topic = journal.create_topic(&TopicName::new("t").unwrap(), config).unwrap();
        let producer = ProducerName::new("me").unwrap();
        let options = WriterOptions { producer, ownership: Ownership::Shared };
        let mut writer = topic.writer(0, &options).unwrap();
        let payload = vec![7; bytes];
        for _ in 0..total / bytes as u64 {
            writer.append(&Record { payload: &payload, ..Record::default() }).unwrap();
        }
        segments(dir.path()).into_iter().max().unwrap() / MIB
    };
    let config = TopicConfig { last_value: LastValue::Forget, ..TopicConfig::default() };
    assert_eq!(largest(&config, 139_051, 80 * MIB), 64, "on its way to 128 MiB");
    assert_eq!(largest(&config, 4_096, 40 * MIB), 16);
    let named = TopicConfig { segment_bytes: MIB, ..config.clone() };
    assert_eq!(largest(&named, 139_051, 10 * MIB), 1);
    let retained = TopicConfig { retention_bytes: Some(80 * MIB), ..config };
    assert_eq!(largest(&retained, 139_051, 70 * MIB), 20, "a quarter of what is retained");
}
