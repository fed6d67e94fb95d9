//! Members of a group share partitions, and take over from those that leave.

use helio_core::{ProducerName, TopicName};
use helio_journal::{Group, Journal, JournalError, JournalOptions, TopicConfig};

fn name(text: &str) -> ProducerName {
    ProducerName::new(text).unwrap()
}

fn group(dir: &std::path::Path, partitions: u32) -> Group {
    let journal = Journal::open(dir, JournalOptions::default()).unwrap();
    let config = TopicConfig { partitions, ..TopicConfig::default() };
    let topic = journal.create_topic(&TopicName::new("t").unwrap(), &config).unwrap();
    topic.group(&name("workers")).unwrap()
}

#[test]
fn partitions_are_shared_and_change_hands() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (group(dir.path(), 5), group(dir.path(), 5));
    let a = one.join(&name("a")).unwrap();
    assert_eq!(a.assigned().unwrap(), [0, 1, 2, 3, 4]);
    let generation = one.generation();
    let b = two.join(&name("b")).unwrap();
    assert!(one.generation() > generation);
    assert_eq!(b.assigned().unwrap(), [0; 0], "the former owner has not let go yet");
    assert_eq!(a.assigned().unwrap(), [0, 2, 4]);
    assert_eq!(b.assigned().unwrap(), [1, 3]);
    let names: Vec<_> = one.members().into_iter().map(|m| (m.name, m.partitions)).collect();
    assert_eq!(names, [("a".to_owned(), vec![0, 2, 4]), ("b".to_owned(), vec![1, 3])]);
    drop(a);
    assert_eq!(b.assigned().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn positions_are_committed_by_the_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let group = group(dir.path(), 2);
    let (a, b) = (group.join(&name("a")).unwrap(), group.join(&name("b")).unwrap());
    assert_eq!((a.assigned().unwrap(), b.assigned().unwrap()), (vec![0], vec![1]));
    assert_eq!(group.committed(0).unwrap(), None);
    for offset in [7, 9, 3] {
        a.commit(0, offset).unwrap();
        assert_eq!(group.committed(0).unwrap(), Some(offset));
    }
    let refused = b.commit(0, 5).unwrap_err();
    assert!(matches!(refused, JournalError::NotAssigned { partition: 0, .. }), "{refused}");
    assert!(matches!(a.commit(2, 5).unwrap_err(), JournalError::NoPartition { .. }));
    a.sync().unwrap();
    drop(a);
    assert_eq!(b.assigned().unwrap(), [0, 1]);
    assert_eq!(group.committed(0).unwrap(), Some(3));
}
