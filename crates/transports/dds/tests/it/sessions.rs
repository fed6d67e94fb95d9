//! Several sessions of one process: their announcements, and their clocks.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::support::{domain, url};
use helio_bus::{
    Alive, Bus, Message, Qos, Sample, Start, Subscribe, Subscription, TestClock, Topic, TopicError,
    TopicSpec, TransportError,
};
use helio_core::qos::{Durability, History, Liveliness, Overload, Ownership, Retention};
use helio_core::{Producer, ProducerName, Tai};

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const LEASE: Duration = Duration::from_secs(5);

fn telemetry() -> Qos {
    Qos::telemetry()
}

fn plain() -> Qos {
    let retention = Retention { last_value: false, ..Qos::telemetry().retention };
    let (durability, history) = (Durability::Volatile, History::None);
    Qos { durability, history, retention, overload: Overload::Block, ..telemetry() }
}

fn leased() -> Qos {
    let liveliness = Liveliness::Lease(LEASE);
    Qos { ownership: Ownership::Exclusive, liveliness, ..plain() }
}

fn topic(bus: &Bus, name: &str, qos: Qos) -> Topic {
    bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap()
}

fn named(producer: &str, url: &str, clock: &TestClock) -> Bus {
    Bus::builder().producer(producer).clock(Arc::new(clock.clone())).connect(url).unwrap()
}

/// A time in 2023, and later by a duration.
fn clock(later: Duration) -> TestClock {
    let start = Tai::from_unix_nanos(1_700_000_000_000_000_000).nanos();
    TestClock::new(Tai::from_nanos(start + i64::try_from(later.as_nanos()).unwrap()))
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

#[test]
fn subscriptions_that_are_opened_at_once_have_their_history_each() {
    const SUBSCRIPTION_COUNT: usize = 8;
    let url = url(domain());
    let (writing, reading) = (Bus::connect(&url).unwrap(), Bus::connect(&url).unwrap());
    for round in 0..5 {
        let names: Vec<_> = (0..SUBSCRIPTION_COUNT).map(|n| format!("kept-{round}-{n}")).collect();
        let open = |name: &String| {
            let publisher = topic(&writing, name, telemetry()).publisher().unwrap();
            publisher.publish(Message::new(name.as_bytes())).wait().unwrap();
            publisher
        };
        let _held: Vec<_> = names.iter().map(open).collect();
        let start = Barrier::new(SUBSCRIPTION_COUNT);
        std::thread::scope(|scope| {
            for name in &names {
                scope.spawn(|| {
                    let topic = topic(&reading, name, telemetry());
                    start.wait();
                    let mut samples = topic.subscribe(Subscribe::from(Start::Last(1))).unwrap();
                    let first = samples.try_next().unwrap().expect("it is there at once");
                    assert_eq!(first.into_sample().unwrap().payload, name.as_bytes());
                });
            }
        });
    }
}

#[test]
fn a_producer_that_starts_on_a_host_whose_clock_is_behind_is_read() {
    let url = url(domain());
    let reading = Bus::connect(&url).unwrap();
    let read = topic(&reading, "track", plain());
    let mut samples = read.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let first = named("Mount", &url, &clock(HOUR));
    let publisher = topic(&first, "track", plain()).publisher().unwrap();
    publisher.publish(Message::new(b"first")).wait().unwrap();
    let before = next(&mut samples).header.producer.clone();
    drop(publisher);
    first.close();
    // No session repeats the announcement of the first one.
    let again = named("Mount", &url, &clock(Duration::ZERO));
    let publisher = topic(&again, "track", plain()).publisher().unwrap();
    assert_eq!(publisher.producer().incarnation, before.incarnation + 1);
    publisher.publish(Message::new(b"second")).wait().unwrap();
    assert_eq!(&next(&mut samples).payload[..], b"second");
}

fn owned(topic: &Topic) -> bool {
    let refused = topic.publisher();
    matches!(refused, Err(TopicError::Transport(TransportError::Owned { .. })))
}

#[test]
fn leases_run_by_each_hosts_own_clock_however_far_the_times_of_day_are_apart() {
    let url = url(domain());
    for (ahead, behind) in [(HOUR, Duration::ZERO), (Duration::ZERO, HOUR)] {
        let (one, other) = (clock(ahead), clock(behind));
        let (holding, wanting) = (named("holder", &url, &one), named("other", &url, &other));
        let name = format!("lease-{}", ahead.as_secs());
        let held = topic(&holding, &name, leased()).publisher().unwrap();
        let wanted = topic(&wanting, &name, leased());
        assert!(owned(&wanted), "the holder lives");
        let writers = wanted.writers().unwrap();
        assert_eq!(writers[0].alive, Some(Alive::Yes), "{writers:?}");
        other.advance(LEASE * 2);
        assert_eq!(wanted.writers().unwrap()[0].alive, Some(Alive::No));
        one.advance(LEASE * 9 / 10);
        held.assert_alive().unwrap();
        assert!(owned(&wanted), "it has asserted that it lives");
        other.advance(LEASE * 2);
        let _taken = wanted.publisher().unwrap();
        assert!(matches!(held.assert_alive(), Err(TransportError::Fenced { .. })));
    }
}

#[test]
fn who_joins_late_is_told_how_long_a_writer_has_been_quiet() {
    let url = url(domain());
    let one = clock(Duration::ZERO);
    let holding = named("holder", &url, &one);
    let _held = topic(&holding, "quiet", leased()).publisher().unwrap();
    one.advance(LEASE * 2);
    let joining = named("other", &url, &clock(HOUR));
    let wanted = topic(&joining, "quiet", leased());
    assert_eq!(wanted.writers().unwrap()[0].alive, Some(Alive::No));
    drop(wanted.publisher().unwrap());
}

#[test]
fn a_restart_that_one_partition_has_forwarded_fences_nothing_in_the_others() {
    let url = url(domain());
    let [one, other] = [(); 2].map(|()| Bus::connect(&url).unwrap());
    let qos = Qos { partitions: 2, ..plain() };
    let [there, next] = [&one, &other].map(|bus| topic(bus, "t", qos.clone()));
    let mount = |incarnation| Producer { name: ProducerName::new("Mount").unwrap(), incarnation };
    let first = there.forwarder(&mount(8), 0).unwrap();
    // By the next bridge, too.
    let before = next.forwarder(&mount(7), 1).unwrap();
    drop((first, before));
    let before = there.forwarder(&mount(7), 1).unwrap();
    let newer = next.forwarder(&mount(8), 1).unwrap();
    drop((before, newer));
    let fenced = there.forwarder(&mount(7), 1).err().unwrap();
    let TopicError::Transport(TransportError::Fenced { newer, .. }) = fenced else {
        panic!("{fenced}")
    };
    assert_eq!(newer, 8, "where it was forwarded it is fenced");
}

#[test]
fn closing_ends_who_waits_for_answers() {
    let url = url(domain());
    let (one, other) = (Bus::connect(&url).unwrap(), Bus::connect(&url).unwrap());
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            (0..)
                .map(|n| other.topic(TopicSpec::new(&format!("t-{n}")).unwrap().qos(plain())))
                .find_map(Result::err)
        });
        other.close();
        let error = opening.join().unwrap().expect("it ends");
        assert!(matches!(error, TopicError::Transport(TransportError::Closed)), "{error}");
    });
    one.close();
}
