//! The bus between processes on a journal, some of which are killed.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{HANG_TIMEOUT, child_test};
use helio_bus::{
    Alive, Bus, Event, Lagging, Message, Qos, Sample, Start, Subscribe, Subscription, Topic,
    TopicError, TopicSpec, TransportError,
};
use helio_core::qos::Ownership;

/// Not a test by itself: the program of the other processes.
#[test]
fn child() {
    let Ok(role) = std::env::var("HELIO_TEST_ROLE") else { return };
    let url = std::env::var("HELIO_TEST_URL").unwrap();
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    match role.as_str() {
        "writer" => {
            let publisher = topic(&bus, Qos::stream()).publisher().unwrap();
            for number in 0_u64.. {
                publisher.publish(Message::new(&number.to_le_bytes()).key(b"k")).wait().unwrap();
            }
        }
        "owner" => {
            let _held = topic(&bus, exclusive()).publisher().unwrap();
            loop {
                std::thread::park();
            }
        }
        "member" => {
            let mut samples = member(&bus);
            loop {
                // It reads and never commits.
                let _ = samples.next_blocking().unwrap();
            }
        }
        other => panic!("no role {other}"),
    }
}

/// A process that is killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn start(role: &str, folder: &Path) -> Process {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &child_test(module_path!())])
        .env("HELIO_TEST_ROLE", role)
        .env("HELIO_TEST_URL", url(folder))
        .stdout(Stdio::null())
        .spawn();
    Process(child.unwrap())
}

fn url(folder: &Path) -> String {
    format!("journal:{}", folder.display())
}

fn topic(bus: &Bus, qos: Qos) -> Topic {
    bus.topic(TopicSpec::new("mount/track").unwrap().qos(qos)).unwrap()
}

fn exclusive() -> Qos {
    Qos { ownership: Ownership::Exclusive, ..Qos::stream() }
}

fn shared_out() -> Qos {
    Qos { partitions: 4, ..Qos::stream() }
}

fn member(bus: &Bus) -> Subscription {
    let options = Subscribe::from(Start::Earliest).group("workers");
    topic(bus, shared_out()).subscribe(options).unwrap()
}

fn next(samples: &mut Subscription) -> Event {
    match samples.next_timeout(HANG_TIMEOUT).unwrap() {
        Some(event) => event,
        None => panic!("nothing came: {:?}", samples.stats()),
    }
}

/// Reads a number of samples; other events are passed to `other`.
fn read(samples: &mut Subscription, count: usize, mut other: impl FnMut(Event)) -> Vec<Sample> {
    let mut got = Vec::new();
    while got.len() < count {
        match next(samples) {
            Event::Sample(sample) => got.push(sample),
            event => other(event),
        }
    }
    got
}

#[test]
fn a_killed_writer_is_told_and_its_successor_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let bus = Bus::connect(&url(folder.path())).unwrap();
    let options = Subscribe::from(Start::Latest).watch_writers().lagging(Lagging::Lossless);
    let mut samples = topic(&bus, Qos::stream()).subscribe(options).unwrap();
    let mut changes = Vec::new();
    for incarnation in 1..=3 {
        let writer = start("writer", folder.path());
        let mut note = |event| match event {
            Event::Liveliness(told) => changes.push((told.producer.incarnation, told.alive)),
            other => panic!("{other:?}"),
        };
        // The previous process's samples come first.
        loop {
            let sample = read(&mut samples, 1, &mut note).remove(0);
            if sample.header.producer.incarnation == incarnation {
                assert_eq!(sample.header.sequence, 1);
                break;
            }
        }
        let got = read(&mut samples, 500, &mut note);
        for (expected, sample) in (2..).zip(&got) {
            assert_eq!(sample.header.sequence, expected);
            assert_eq!(sample.header.producer.incarnation, incarnation);
        }
        drop(writer);
        let until = Instant::now() + HANG_TIMEOUT;
        while !changes.contains(&(incarnation, Alive::No)) {
            assert!(Instant::now() < until, "its death is told: {changes:?}");
            if let Event::Liveliness(told) = next(&mut samples) {
                changes.push((told.producer.incarnation, told.alive));
            }
        }
    }
    let stats = samples.stats();
    assert_eq!((stats.lost, stats.duplicates, stats.fenced), (0, 0, 0), "{stats:?}");
    let expected = (1..=3).flat_map(|n| [(n, Alive::Yes), (n, Alive::No)]);
    assert!(changes.iter().copied().eq(expected), "{changes:?}");
}

#[test]
fn an_exclusive_topic_is_free_when_its_owner_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let bus = Bus::builder().producer("StandBy").connect(&url(folder.path())).unwrap();
    let track = topic(&bus, exclusive());
    let mut watching = track.subscribe(Subscribe::from(Start::Latest).watch_writers()).unwrap();
    let owner = start("owner", folder.path());
    let came = next(&mut watching);
    assert!(matches!(&came, Event::Liveliness(told) if told.alive == Alive::Yes), "{came:?}");
    let refused = track.publisher().unwrap_err();
    let TopicError::Transport(TransportError::Owned { holder, .. }) = &refused else {
        panic!("{refused}");
    };
    assert!(holder.contains("Mount"), "{holder}");
    drop(owner);
    track.publisher().unwrap().publish(Message::new(b"mine")).wait().unwrap();
}

#[test]
fn what_a_killed_member_had_comes_to_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let bus = Bus::builder().producer("Survivor").connect(&url(folder.path())).unwrap();
    let mut own = member(&bus);
    let publisher = topic(&bus, shared_out()).publisher().unwrap();
    let other = start("member", folder.path());
    // Both are members when this one has lost two of its four partitions.
    let until = Instant::now() + HANG_TIMEOUT;
    while own.positions().len() != 2 {
        assert!(Instant::now() < until, "the other one never joined");
        own.next_timeout(Duration::from_millis(50)).unwrap();
    }
    for number in 0..100_u64 {
        let bytes = number.to_le_bytes();
        publisher.publish(Message::new(&bytes).partition(number as u32 % 4)).wait().unwrap();
    }
    let numbers = |samples: Vec<Sample>| -> HashSet<u64> {
        let number = |s: &Sample| u64::from_le_bytes(s.payload[..].try_into().unwrap());
        samples.iter().map(number).collect()
    };
    let mut seen = numbers(read(&mut own, 50, |_| {}));
    assert_eq!(seen.len(), 50);
    drop(other);
    seen.extend(numbers(read(&mut own, 50, |_| {})));
    assert_eq!(seen.len(), 100, "the survivor has everything");
    own.commit().unwrap();
    assert_eq!(own.stats().lost, 0);
}
