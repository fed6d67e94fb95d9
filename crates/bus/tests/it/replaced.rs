//! Groups' positions in a journal whose log was restored from an older copy.

use std::path::Path;

use helio_bus::{
    Bus, Event, Gap, GapCause, Message, Qos, Start, Subscribe, Subscription, TopicSpec,
};
use helio_core::{ProducerName, TopicName};
use helio_journal::{
    Journal, JournalOptions, Maintenance, Ownership, Record, TopicConfig, WriterOptions,
};

/// The samples and other events that are there.
fn read(samples: &mut Subscription) -> (Vec<u64>, Vec<Event>) {
    let (mut offsets, mut others) = (Vec::new(), Vec::new());
    while let Some(event) = samples.try_next().unwrap() {
        match event {
            Event::Sample(sample) => offsets.push(sample.offset),
            Event::Assigned(_) => {}
            other => others.push(other),
        }
    }
    (offsets, others)
}

fn group(bus: &Bus, publish: usize) -> Subscription {
    let topic = bus.topic(TopicSpec::new("wind").unwrap().qos(Qos::stream())).unwrap();
    let publisher = topic.publisher().unwrap();
    (0..publish).for_each(|_| _ = publisher.publish(Message::new(b"1")).wait().unwrap());
    topic.subscribe(Subscribe::from(Start::Latest).group("archive")).unwrap()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn a_group_resumes_where_another_log_begins_below_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("j");
    let (live, saved) = (journal.join("topics/wind/0"), folder.path().join("saved"));
    let open = || Bus::connect(&format!("journal:{}", journal.display())).unwrap();
    let bus = open();
    // Joins before anything is published, as the group begins with the latest.
    let mut samples = group(&bus, 0);
    assert!(read(&mut samples).0.is_empty());
    samples.commit_at(0, 0).unwrap();
    drop(samples);
    drop(group(&bus, 4));
    bus.close();
    copy(&live, &saved);
    let bus = open();
    let mut samples = group(&bus, 2);
    assert_eq!(read(&mut samples).0, [0, 1, 2, 3, 4, 5]);
    samples.commit().unwrap();
    drop(samples);
    bus.close();
    std::fs::remove_dir_all(&live).unwrap();
    copy(&saved, &live);
    for _ in 0..2 {
        let bus = open();
        let mut samples = group(&bus, 0);
        let cause = GapCause::Replaced { from: 4, to: 6 };
        let (_, events) = read(&mut samples);
        let [Event::Gap(gap)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(*gap, Gap { partition: 0, lost: 0, cause });
        bus.close();
    }
    let bus = open();
    let mut samples = group(&bus, 5);
    let (offsets, events) = read(&mut samples);
    assert_eq!((offsets, events.len()), (vec![4, 5, 6, 7, 8], 1));
    samples.commit().unwrap();
    drop(samples);
    let (offsets, events) = read(&mut group(&bus, 1));
    assert_eq!((offsets, events.len()), (vec![9], 0));
}

/// Of a log that has nothing in common with the former one, the group has read nothing.
#[test]
fn samples_of_an_unrelated_log_that_retention_took_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, other) = (folder.path().join("j"), folder.path().join("other"));
    let bus = Bus::connect(&format!("journal:{}", journal.display())).unwrap();
    let mut samples = group(&bus, 0);
    assert!(read(&mut samples).0.is_empty());
    group(&bus, 20);
    assert_eq!(read(&mut samples).0.len(), 20);
    samples.commit().unwrap();
    drop(samples);
    bus.close();
    let first = {
        let options =
            JournalOptions { maintenance: Maintenance::Manual, ..JournalOptions::default() };
        let journal = Journal::open(&other, options).unwrap();
        let config = TopicConfig { segment_bytes: 16 << 10, ..TopicConfig::default() };
        let topic = journal.create_topic(&TopicName::new("wind").unwrap(), &config).unwrap();
        let producer = ProducerName::new("Mount").unwrap();
        let options = WriterOptions { producer, ownership: Ownership::Shared };
        let mut writer = topic.writer(0, &options).unwrap();
        for _ in 0..60 {
            writer.append(&Record { payload: &[7; 1000], ..Record::default() }).unwrap();
        }
        topic.compact_below(0, 50).unwrap();
        topic.info(0).unwrap().first_offset
    };
    assert!((1..=50).contains(&first), "{first}");
    std::fs::remove_dir_all(journal.join("topics/wind/0")).unwrap();
    copy(&other.join("topics/wind/0"), &journal.join("topics/wind/0"));
    let bus = Bus::connect(&format!("journal:{}", journal.display())).unwrap();
    let (offsets, events) = read(&mut group(&bus, 0));
    assert!(offsets.into_iter().eq(first..60));
    let [Event::Gap(replaced), Event::Gap(taken)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(replaced.cause, GapCause::Replaced { from: 0, to: 20 });
    assert_eq!(*taken, Gap::retention(0, 0, first));
}
