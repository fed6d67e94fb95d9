//! The bus between processes on DDS, some of which are killed or stopped without warning.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Process, domain, url};
use helio_bus::{
    Alive, Bus, Event, Guarantee, Lagging, Message, PublishError, Qos, Sample, Start, Subscribe,
    Subscription, Topic, TopicSpec, TransportError,
};
use helio_core::qos::{Durability, History, Overload, Retention};
use rustix::process::Signal;

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The exit code of a process that was fenced.
const FENCED_EXIT_CODE: i32 = 33;

/// Not a test by itself: the other processes run it.
#[test]
fn child() {
    let Ok(role) = std::env::var("HELIO_TEST_ROLE") else { return };
    helio_dds::register();
    let url = std::env::var("HELIO_TEST_URL").unwrap();
    match role.as_str() {
        "keeper" => {
            let bus = Bus::builder().producer("Keeper").connect(&url).unwrap();
            let publisher = topic(&bus, "kept", telemetry()).publisher().unwrap();
            for number in 0..30_u64 {
                let key = [b'a' + (number % 3) as u8];
                let message = number.to_le_bytes();
                publisher.publish(Message::new(&message).key(&key)).wait().unwrap();
            }
            // Samples written by now are history for late joiners.
            let ready = topic(&bus, "ready", telemetry()).publisher().unwrap();
            ready.publish(Message::new(b"ready")).wait().unwrap();
            park()
        }
        "acknowledger" => {
            let bus = Bus::connect(&url).unwrap();
            let mut samples = latest(&topic(&bus, "flood", refusing()));
            let ready = topic(&bus, "ready", telemetry()).publisher().unwrap();
            ready.publish(Message::new(b"ready")).wait().unwrap();
            loop {
                samples.next_blocking().unwrap();
            }
        }
        "echo" => {
            let bus = Bus::connect(&url).unwrap();
            let back = topic(&bus, "pong", plain()).publisher().unwrap();
            let mut samples = latest(&topic(&bus, "ping", plain()));
            let ready = topic(&bus, "ready", telemetry()).publisher().unwrap();
            ready.publish(Message::new(b"ready")).wait().unwrap();
            loop {
                let sample = samples.next_sample().unwrap();
                back.publish(Message::new(&sample.payload)).wait().unwrap();
            }
        }
        "writer" => {
            let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
            let publisher = topic(&bus, "track", plain()).publisher().unwrap();
            for number in 0_u64.. {
                match publisher.publish(Message::new(&number.to_le_bytes()).key(b"k")).wait() {
                    Ok(_) => std::thread::sleep(Duration::from_millis(1)),
                    Err(PublishError::Transport(TransportError::Fenced { .. })) => {
                        std::process::exit(FENCED_EXIT_CODE)
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        "counter" => {
            let bus = Bus::connect(&url).unwrap();
            let topic_of_flood = topic(&bus, "flood", refusing());
            let lossless = Subscribe::from(Start::Latest).lagging(Lagging::Lossless);
            let mut samples = topic_of_flood.subscribe(lossless).unwrap();
            let back = topic(&bus, "counted", telemetry()).publisher().unwrap();
            back.publish(Message::new(&0_u64.to_le_bytes())).wait().unwrap();
            for count in 1_u64.. {
                samples.next_sample().unwrap();
                let lost = samples.stats().lost;
                back.publish(Message::new(&(count + lost).to_le_bytes())).wait().unwrap();
            }
        }
        other => panic!("no role {other}"),
    }
}

fn park() -> ! {
    loop {
        std::thread::park();
    }
}

fn topic(bus: &Bus, name: &str, qos: Qos) -> Topic {
    bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap()
}

fn telemetry() -> Qos {
    Qos::telemetry()
}

fn plain() -> Qos {
    let retention = Retention { last_value: false, ..Qos::telemetry().retention };
    let (durability, history) = (Durability::Volatile, History::None);
    Qos { durability, history, retention, overload: Overload::Block, ..telemetry() }
}

fn refusing() -> Qos {
    Qos { overload: Overload::Refuse, guarantee: Guarantee::Accepted, ..plain() }
}

fn latest(topic: &Topic) -> Subscription {
    topic.subscribe(Subscribe::from(Start::Latest)).unwrap()
}

fn number(sample: &Sample) -> u64 {
    u64::from_le_bytes(sample.payload[..].try_into().unwrap())
}

fn next(samples: &mut Subscription) -> Sample {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let event = samples.next_timeout(left).unwrap().expect("it comes in time");
        if let Some(sample) = event.into_sample() {
            return sample;
        }
    }
}

/// Waits until a process announces that it is ready.
fn ready(bus: &Bus) {
    let last = Subscribe::from(Start::Last(1));
    next(&mut topic(bus, "ready", telemetry()).subscribe(last).unwrap());
}

#[test]
fn a_late_joiner_in_another_process_gets_the_last_values_and_the_quality_of_service() {
    let url = url(domain());
    let _keeper = Process::start(module_path!(), "keeper", &url);
    let bus = Bus::connect(&url).unwrap();
    ready(&bus);
    let kept = bus.topic(TopicSpec::new("kept").unwrap()).unwrap();
    assert_eq!(*kept.qos(), telemetry());
    let mut samples = kept.subscribe(Subscribe::from(Start::Last(1))).unwrap();
    let numbers: Vec<_> = (0..3)
        .map(|_| number(&samples.try_next().unwrap().unwrap().into_sample().unwrap()))
        .collect();
    assert_eq!(numbers, [27, 28, 29], "all of it is there when the subscription is");
    assert!(samples.try_next().unwrap().is_none());
}

#[test]
fn the_first_sample_after_opening_reaches_those_who_read() {
    let url = url(domain());
    let _echo = Process::start(module_path!(), "echo", &url);
    let bus = Bus::connect(&url).unwrap();
    ready(&bus);
    let mut answers = latest(&topic(&bus, "pong", plain()));
    for round in 0_u64..5 {
        let publisher = topic(&bus, "ping", plain()).publisher().unwrap();
        publisher.publish(Message::new(&round.to_le_bytes())).wait().unwrap();
        assert_eq!(number(&next(&mut answers)), round);
    }
}

#[test]
fn a_writer_that_is_killed_is_seen_when_its_lease_is_over() {
    let url = format!("{}&lease_s=2", url(domain()));
    let writer = Process::start(module_path!(), "writer", &url);
    let bus = Bus::connect(&url).unwrap();
    let options = Subscribe::from(Start::Latest).watch_writers();
    let mut samples = topic(&bus, "track", plain()).subscribe(options).unwrap();
    next(&mut samples);
    writer.signal(Signal::KILL);
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match samples.next_timeout(left).unwrap().expect("its going is told") {
            Event::Liveliness(told) if told.alive == Alive::No => break,
            _ => {}
        }
    }
}

#[test]
fn a_zombie_is_dropped_and_told() {
    let url = format!("{}&lease_s=2", url(domain()));
    let mut zombie = Process::start(module_path!(), "writer", &url);
    let reading = Bus::connect(&url).unwrap();
    let lossless = Subscribe::from(Start::Latest).lagging(Lagging::Lossless);
    let mut samples = topic(&reading, "track", plain()).subscribe(lossless).unwrap();
    let old = next(&mut samples).header.producer.incarnation;
    zombie.signal(Signal::STOP);
    let bus = Bus::builder().producer("Mount").connect(&url).unwrap();
    let successor = topic(&bus, "track", plain()).publisher().unwrap();
    assert!(successor.producer().incarnation > old);
    successor.publish(Message::new(&u64::MAX.to_le_bytes()).key(b"k")).wait().unwrap();
    while number(&next(&mut samples)) != u64::MAX {}
    zombie.signal(Signal::CONT);
    assert_eq!(zombie.wait(), Some(FENCED_EXIT_CODE), "the zombie is told");
    for number in 0..10_u64 {
        successor.publish(Message::new(&number.to_le_bytes()).key(b"k")).wait().unwrap();
        let sample = next(&mut samples);
        assert_eq!(sample.header.producer, successor.producer(), "only the successor is read");
    }
}

#[test]
fn receipts_come_though_others_publish_all_the_while() {
    let url = url(domain());
    let _acknowledger = Process::start(module_path!(), "acknowledger", &url);
    let bus = Bus::connect(&url).unwrap();
    ready(&bus);
    let publisher = topic(&bus, "flood", refusing()).publisher().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                // A publish without room is not waited for.
                let _ = publisher.publish(Message::new(&[1; 50])).outcome();
            }
        });
        for _ in 0..20 {
            let stored = Message::new(b"stored").guarantee(Guarantee::Stored);
            let until = Instant::now() + TEST_TIMEOUT;
            loop {
                match publisher.publish(stored).wait_timeout(TEST_TIMEOUT) {
                    Ok(receipt) => {
                        assert_eq!(receipt.guarantee, Guarantee::Stored);
                        break;
                    }
                    Err(PublishError::Full { .. }) if Instant::now() < until => {}
                    Err(error) => {
                        over.store(true, Ordering::Release);
                        panic!("{error}");
                    }
                }
            }
        }
        over.store(true, Ordering::Release);
    });
}

#[test]
fn a_stopped_reader_holds_up_nobody_s_loop_and_misses_nothing() {
    let url = url(domain());
    let counter = Process::start(module_path!(), "counter", &url);
    let bus = Bus::connect(&url).unwrap();
    let counted = topic(&bus, "counted", telemetry());
    let mut counts = counted.subscribe(Subscribe::from(Start::Last(1))).unwrap();
    assert_eq!(number(&next(&mut counts)), 0);
    let publisher = topic(&bus, "flood", refusing()).publisher().unwrap();
    counter.signal(Signal::STOP);
    let payload = [1; 6_000];
    let (mut taken, mut longest) = (0_u64, Duration::ZERO);
    loop {
        let start = Instant::now();
        let outcome = publisher.publish(Message::new(&payload)).outcome();
        longest = longest.max(start.elapsed());
        match outcome.expect("nothing waits") {
            Ok(_) => taken += 1,
            Err(PublishError::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(taken < 1_000_000, "a reader that is stopped never made it full");
    }
    assert!(longest < TEST_TIMEOUT, "the longest publish took {longest:?}");
    let bytes = taken * payload.len() as u64;
    assert!(bytes > 450_000, "{bytes} bytes are less than a writer's readers may owe it");
    counter.signal(Signal::CONT);
    let last = (0..).map(|_| number(&next(&mut counts))).find(|count| *count >= taken);
    assert_eq!(last, Some(taken), "what was taken came");
    // There is room again.
    let until = Instant::now() + TEST_TIMEOUT;
    while let Err(error) = publisher.publish(Message::new(&payload)).wait() {
        assert!(matches!(error, PublishError::Full { .. }) && Instant::now() < until, "{error}");
        std::thread::yield_now();
    }
}
