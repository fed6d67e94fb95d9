//! Groups' positions in a journal whose log was restored from an older copy.

use std::path::Path;

use helio_bus::{
    Bus, Event, Gap, GapCause, Message, Qos, Start, Subscribe, Subscription, TopicSpec,
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
