//! Fairness under load, and groups whose partitions are reassigned.

use std::time::Duration;

use crate::support::HANG_TIMEOUT;
use helio_bus::{
    Bus, Event, GapCause, Lagging, Message, Publisher, Qos, Start, Subscribe, Subscription, Topic,
    TopicError, TopicSpec,
};

fn topic(bus: &Bus, name: &str, qos: Qos) -> Topic {
    bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap()
}

fn publish(publisher: &Publisher, partition: u32, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let bytes = number.to_le_bytes();
        publisher.publish(Message::new(&bytes).partition(partition)).wait().unwrap();
    }
}

/// All pending events: the samples' numbers, and whether there was a gap.
fn drain(samples: &mut Subscription) -> (Vec<u64>, bool) {
    let (mut numbers, mut gap) = (Vec::new(), false);
    while let Some(event) = samples.try_next().unwrap() {
        match event {
            Event::Sample(s) => {
                numbers.push(u64::from_le_bytes(s.payload[..].try_into().unwrap()));
            }
            Event::Gap(_) => gap = true,
            _ => {}
        }
    }
    (numbers, gap)
}

fn regained(url: &str) {
    let (bus, other) = (Bus::connect(url).unwrap(), Bus::connect(url).unwrap());
    let shared = topic(&bus, "work", Qos { partitions: 2, ..Qos::stream() });
    let publisher = shared.publisher().unwrap();
    let options = || Subscribe::from(Start::Earliest).group("g");
    let mut one = shared.subscribe(options()).unwrap();
    publish(&publisher, 0, 0..5);
    publish(&publisher, 1, 10..15);
    let (mut first, _) = drain(&mut one);
    first.sort_unstable();
    assert_eq!(first, [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]);
    // Nothing is committed. Another member receives a partition and returns it unread.
    let joined = topic(&other, "work", Qos { partitions: 2, ..Qos::stream() });
    let mut two = joined.subscribe(options()).unwrap();
    while one.positions().len() != 1 || two.positions().len() != 1 {
        one.next_timeout(Duration::from_millis(10)).unwrap();
        two.next_timeout(Duration::from_millis(10)).unwrap();
    }
    drop(two);
    let mut again = Vec::new();
    while one.positions().len() != 2 || again.len() < 5 {
        if let Some(Event::Sample(s)) = one.next_timeout(HANG_TIMEOUT).unwrap() {
            again.push(u64::from_le_bytes(s.payload[..].try_into().unwrap()));
        }
    }
    // Redelivered from the committed position, neither as duplicates nor as losses.
    assert!(again == [0, 1, 2, 3, 4] || again == [10, 11, 12, 13, 14], "{again:?}");
    let stats = one.stats();
    assert_eq!((stats.duplicates, stats.lost), (0, 0), "{stats:?}");
}

#[test]
fn a_partition_that_comes_back_is_read_again() {
    regained("memory:regained");
    let folder = tempfile::tempdir().unwrap();
    regained(&format!("journal:{}", folder.path().display()));
}

#[test]
fn a_reader_that_is_always_behind_still_gets_samples() {
    let bus = Bus::connect("memory:").unwrap();
    let wind = topic(&bus, "wind", Qos::stream());
    let publisher = wind.publisher().unwrap();
    let options = Subscribe::from(Start::Latest).lagging(Lagging::DropOldest { depth: 8 });
    let mut slow = wind.subscribe(options).unwrap();
    publish(&publisher, 0, 0..100);
    let (mut samples, mut gaps) = (0, 0);
    for round in 0..200 {
        match slow.try_next().unwrap().unwrap() {
            Event::Sample(_) => samples += 1,
            Event::Gap(gap) => {
                assert!(matches!(gap.cause, GapCause::Overload { .. }));
                gaps += 1;
            }
            other => panic!("{other:?}"),
        }
        publish(&publisher, 0, round..round + 2);
    }
    assert!(samples >= gaps && samples >= 100, "{samples} samples, {gaps} gaps");
    let (rest, _) = drain(&mut slow);
    let stats = slow.stats();
    assert_eq!(stats.received, samples + rest.len() as u64);
    assert_eq!(stats.received + stats.lost, 100 + 400, "{stats:?}");
}

#[test]
fn a_member_with_a_backlog_does_not_silence_the_others() {
    let bus = Bus::connect("memory:").unwrap();
    let (busy, quiet) = (topic(&bus, "busy", Qos::stream()), topic(&bus, "quiet", Qos::stream()));
    let latest = || Subscribe::from(Start::Latest).lagging(Lagging::Lossless);
    let mut set = bus.wait_set().unwrap();
    let of_busy = set.add(busy.subscribe(latest()).unwrap());
    let of_quiet = set.add(quiet.subscribe(latest()).unwrap());
    assert!(set.try_next().unwrap().is_none());
    publish(&busy.publisher().unwrap(), 0, 0..10_000);
    let (who, _) = set.next_timeout(HANG_TIMEOUT).unwrap().unwrap();
    assert_eq!(who, of_busy);
    publish(&quiet.publisher().unwrap(), 0, 0..1);
    let heard = (0..1_000).any(|_| set.next_timeout(HANG_TIMEOUT).unwrap().unwrap().0 == of_quiet);
    assert!(heard, "a thousand events of the busy one, and none of the quiet one");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let bus = Bus::connect("memory:").unwrap();
    let wind = topic(&bus, "wind", Qos::stream());
    let none = Lagging::DropOldest { depth: 0 };
    let senseless = [
        (Subscribe::from(Start::Last(1)).group("g"), "start"),
        (Subscribe::from(Start::Earliest).group("g").partitions([0]), "partitions"),
        (Subscribe::from(Start::Latest).lagging(none), "lagging.depth"),
        (Subscribe::from(Start::Last(0)), "start"),
        (Subscribe::from(Start::Last(256)), "start"),
        (Subscribe::from(Start::Latest).partitions([]), "partitions"),
        (Subscribe::from(Start::Latest).partitions([0, 1]), "partition"),
        (Subscribe::from(Start::Offset { partition: 7, offset: 0 }), "partition"),
    ];
    for (options, named) in senseless {
        let told = wind.subscribe(options).unwrap_err();
        assert!(matches!(told, TopicError::Invalid { field, .. } if field == named), "{told}");
    }
}

#[test]
fn conflation_of_a_long_backlog_is_bounded_and_counted() {
    let bus = Bus::connect("memory:").unwrap();
    let wind = topic(&bus, "wind", Qos::stream());
    let conflating = Subscribe::from(Start::Latest).lagging(Lagging::Conflate);
    let mut samples = wind.subscribe(conflating).unwrap();
    let publisher = wind.publisher().unwrap();
    for number in 0..50_000_u64 {
        let (bytes, key) = (number.to_le_bytes(), [number as u8 % 3]);
        publisher.publish(Message::new(&bytes).key(&key)).wait().unwrap();
    }
    let (mut newest, _) = drain(&mut samples);
    newest.sort_unstable();
    assert_eq!(newest.len(), 3);
    assert!(newest.iter().all(|number| *number > 49_000), "{newest:?}");
    let stats = samples.stats();
    assert_eq!((stats.received, stats.conflated, stats.lost), (3, 49_997, 0), "{stats:?}");
}

/// Engines that cannot refuse a zombie: the reader drops its late samples.
#[test]
fn a_zombie_that_the_engine_lets_through_is_dropped_at_the_reader() {
    let folder = tempfile::tempdir().unwrap();
    for behind in ["memory:zombies".to_owned(), format!("journal:{}", folder.path().display())] {
        let url = format!("fault:{behind}?zombie=1");
        let reader = Bus::connect(&url).unwrap();
        let mut samples = topic(&reader, "mount", Qos::stream())
            .subscribe(Subscribe::from(Start::Latest).lagging(Lagging::Lossless))
            .unwrap();
        let mut buses = Vec::new();
        for start in [0, 10, 20] {
            let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
            let publisher = topic(&bus, "mount", Qos::stream()).publisher().unwrap();
            publish(&publisher, 0, start..start + 3);
            buses.push((bus, publisher));
        }
        let (mut numbers, mut fenced) = (Vec::new(), Vec::new());
        while let Some(event) = samples.try_next().unwrap() {
            match event {
                Event::Sample(s) => {
                    numbers.push(u64::from_le_bytes(s.payload[..].try_into().unwrap()));
                }
                Event::Fenced(told) => fenced.push((told.producer.incarnation, told.newer)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(numbers, [0, 1, 2, 10, 11, 12, 20, 21, 22]);
        assert_eq!(fenced, [(1, 2), (2, 3)], "each zombie is told");
        let stats = samples.stats();
        assert_eq!((stats.fenced, stats.lost, stats.duplicates), (2, 0, 0), "{stats:?}");
    }
}
