//! Failures while a topic is forwarded: samples that were read are kept, refused ones are counted
//! and reported, and slow topics block no others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::*;
use helio_bridge::{Begin, Bridge, NoticeKind, Turn};
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::{
    Alive, Bus, Event, Producer, ProducerName, PublishError, Qos, SizeLimit, Subscription,
    TopicName, TopicSpec, TransportError, WriterInfo,
};
use helio_core::qos::{Liveliness, Ownership};

/// Turns until a condition holds; returns the notices.
fn notices_until(
    bridge: &mut Bridge,
    mut holds: impl FnMut(&mut Bridge) -> bool,
) -> Vec<NoticeKind> {
    let end = Instant::now() + TIMEOUT;
    let mut told = Vec::new();
    while !holds(bridge) {
        assert!(Instant::now() < end, "{:?} {told:?}", bridge.figures());
        bridge.turn(Duration::from_millis(20));
        told.extend(bridge.notices());
    }
    told.extend(bridge.notices());
    told.into_iter().map(|notice| notice.kind).collect()
}

fn opened(bridge: &mut Bridge) {
    is_told(bridge, NoticeKind::Opened);
}

/// Producers and sequences of the stored samples.
fn read(samples: &mut Subscription) -> Vec<(String, u64)> {
    let events = std::iter::from_fn(|| samples.try_next().unwrap());
    let samples = events.filter_map(Event::into_sample);
    samples.map(|s| (s.header.producer.name.to_string(), s.header.sequence)).collect()
}

fn numbers(name: &str, numbers: impl IntoIterator<Item = u64>) -> Vec<(String, u64)> {
    numbers.into_iter().map(|number| (name.to_owned(), number)).collect()
}

/// A topic begins at its end, and the target is gone when its first sample comes.
fn goes_on_from_its_beginning(from: &Bus) {
    let engine = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
    let cable = engine.cable();
    let to = Bus::builder().over(engine).unwrap();
    let mount = publisher(from, "t", "Mount", stream());
    let mut bridge = bridge_from(from, &to, Begin::Latest);
    opened(&mut bridge);
    cable.pull();
    publish(&mount, 0..10);
    is_told(&mut bridge, NoticeKind::Failed);
    publish(&mount, 10..20);
    cable.put_back();
    forwarded(&mut bridge, 20);
    assert_eq!(read(&mut everything(&to, "t")), numbers("Mount", 1..=20));
    assert_eq!(bridge.figures()[0].lost, 0);
}

#[test]
fn a_topic_that_begins_at_its_end_goes_on_where_it_began() {
    goes_on_from_its_beginning(&Bus::connect("memory:").unwrap());
}

fn without_places() -> Bus {
    placeless(FaultTransport::connect("memory:", FaultPlan::default()).unwrap())
}

#[test]
fn a_source_without_places_loses_nothing_that_was_read() {
    goes_on_from_its_beginning(&without_places());
}

#[test]
fn what_is_published_while_the_target_cannot_be_opened_is_not_missed() {
    for from in [Bus::connect("memory:").unwrap(), without_places()] {
        let engine = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
        let cable = engine.cable();
        let to = Bus::builder().over(engine).unwrap();
        publish(&publisher(&to, "t", "Other", stream()), 0..3);
        let mount = publisher(&from, "t", "Mount", stream());
        publish(&mount, 0..5);
        cable.break_topic(&TopicName::new("t").unwrap());
        let mut bridge = bridge_from(&from, &to, Begin::Latest);
        is_told(&mut bridge, NoticeKind::Failed);
        publish(&mount, 5..10);
        cable.mend_topic(&TopicName::new("t").unwrap());
        forwarded(&mut bridge, 5);
        let all = [numbers("Other", 1..=3), numbers("Mount", 6..=10)].concat();
        let rewinds = from.capabilities().rewind;
        assert_eq!(read(&mut everything(&to, "t")), all, "rewinds: {rewinds:?}");
    }
}

#[test]
fn a_failure_is_told_again_when_it_was_well_between() {
    let from = Bus::connect("memory:").unwrap();
    let engine = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
    let cable = engine.cable();
    let to = Bus::builder().over(engine).unwrap();
    let mount = publisher(&from, "t", "Mount", stream());
    let mut bridge = bridge(&from, &to);
    for n in 0..3 {
        publish(&mount, 2 * n..2 * n + 1);
        forwarded(&mut bridge, 2 * n + 1);
        cable.pull();
        publish(&mount, 2 * n + 1..2 * n + 2);
        // The first time and each later time.
        is_told(&mut bridge, NoticeKind::Failed);
        cable.put_back();
        forwarded(&mut bridge, 2 * n + 2);
    }
}

fn too_large() -> PublishError {
    let (what, transport) = ("the record", "odd".to_owned());
    TransportError::TooLarge { what, bytes: 2, limit: SizeLimit::Bytes(1), transport }.into()
}

fn failed() -> PublishError {
    TransportError::Engine {
        transport: "odd".to_owned(),
        what: "deliver".to_owned(),
        source: Arc::new(std::io::Error::other("for this once")),
    }
    .into()
}

fn invalid() -> PublishError {
    PublishError::Encode("the broker finds it invalid".to_owned())
}

fn unknown() -> PublishError {
    PublishError::Unknown { cause: "the broker has gone".to_owned() }
}

fn fenced() -> PublishError {
    let producer = Producer { name: ProducerName::new("Mount").unwrap(), incarnation: 1 };
    TransportError::Fenced { producer, newer: 1 }.into()
}

/// Refuses these sequences of a producer so many times.
fn refuses(
    whose: &'static str,
    which: impl Fn(u64) -> bool + Send + Sync + 'static,
    times: u32,
    error: fn() -> PublishError,
) -> Option<Refuses> {
    let tried = Mutex::new(HashMap::<u64, u32>::new());
    Some(Arc::new(move |name, number| {
        if name != whose || !which(number) {
            return None;
        }
        let mut tried = tried.lock().unwrap();
        let times_before = tried.entry(number).or_default();
        *times_before += 1;
        (*times_before <= times).then(error)
    }))
}

fn caught_up(bridge: &mut Bridge) -> Vec<NoticeKind> {
    notices_until(bridge, |bridge| bridge.turn(Duration::ZERO) == Turn::CaughtUp)
}

#[test]
fn what_is_refused_late_while_later_ones_are_taken_is_counted_and_told() {
    let from = Bus::connect("memory:").unwrap();
    publish(&publisher(&from, "t", "Mount", stream()), 0..200);
    let to = target(refuses("Mount", |number| number == 100, u32::MAX, too_large));
    let mut bridge = bridge(&from, &to);
    let told = caught_up(&mut bridge);
    let figures = bridge.figures().remove(0);
    assert_eq!((figures.forwarded, figures.skipped), (199, 1), "{figures:?}");
    assert_eq!(told.iter().filter(|kind| **kind == NoticeKind::Skipped).count(), 1, "{told:?}");
    let mut there = everything(&to, "t");
    assert_eq!(read(&mut there), numbers("Mount", (1..100).chain(101..=200)));
    assert_eq!((there.stats().lost, there.stats().duplicates), (1, 0));
}

#[test]
fn the_last_one_that_is_refused_for_ever_is_counted_too() {
    let from = Bus::connect("memory:").unwrap();
    publish(&publisher(&from, "t", "Mount", stream()), 0..50);
    for error in [too_large, invalid] {
        let to = target(refuses("Mount", |number| number == 50, u32::MAX, error));
        let mut bridge = bridge(&from, &to);
        caught_up(&mut bridge);
        let figures = bridge.figures().remove(0);
        assert_eq!((figures.forwarded, figures.skipped), (49, 1), "{figures:?}");
    }
}

/// Forwards 50 samples, of which one is refused some times; returns how many were forwarded and
/// skipped.
fn forwards_50(number: u64, times: u32, error: fn() -> PublishError) -> (u64, u64) {
    let from = Bus::connect("memory:").unwrap();
    publish(&publisher(&from, "t", "Mount", stream()), 0..50);
    let to = target(refuses("Mount", move |other| other == number, times, error));
    let mut bridge = bridge(&from, &to);
    let told = caught_up(&mut bridge);
    let figures = bridge.figures().remove(0);
    assert_eq!(figures.skipped > 0, told.contains(&NoticeKind::Skipped), "{told:?}");
    (figures.forwarded, figures.skipped)
}

#[test]
fn what_is_no_samples_fault_is_waited_for_however_long() {
    assert_eq!(forwards_50(50, 3, failed), (50, 0));
}

#[test]
fn a_sample_of_which_nobody_knows_is_counted_where_later_ones_are_there() {
    assert_eq!(forwards_50(20, 1, unknown), (49, 1));
    assert_eq!(forwards_50(50, 1, unknown), (50, 0));
}

#[test]
fn a_producer_that_was_fenced_loses_nothing_where_it_is_let_in_again() {
    assert_eq!(forwards_50(20, 1, fenced), (50, 0));
    assert_eq!(forwards_50(20, u32::MAX, fenced), (49, 1));
}

#[test]
fn the_end_waits_for_what_is_being_opened_anew() {
    let from = Bus::connect("memory:").unwrap();
    let engine = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
    let cable = engine.cable();
    let to = Bus::builder().over(engine).unwrap();
    let mount = publisher(&from, "t", "Mount", stream());
    publish(&mount, 0..1);
    let mut bridge = bridge(&from, &to);
    forwarded(&mut bridge, 1);
    cable.pull();
    publish(&mount, 1..10);
    is_told(&mut bridge, NoticeKind::Failed);
    assert!(!bridge.finish(Duration::from_millis(200)), "nothing has been acknowledged");
    cable.put_back();
    assert!(bridge.finish(TIMEOUT));
    let there = read(&mut everything(&to, "t")).len();
    assert_eq!(there as u64, bridge.figures()[0].forwarded);
    assert!(there > 1, "what was in hand is there");
}

#[test]
fn what_is_refused_in_company_is_given_again_alone() {
    let from = Bus::connect("memory:").unwrap();
    let (mount, dome) =
        (publisher(&from, "t", "Mount", stream()), publisher(&from, "t", "Dome", stream()));
    for n in 0..50 {
        publish(&mount, n..n + 1);
        publish(&dome, n..n + 1);
    }
    // All from 20 on, like a batch that is too large; other producers' samples are accepted
    // meanwhile.
    let to = target(refuses("Mount", |number| number >= 20, 1, too_large));
    let mut bridge = bridge(&from, &to);
    caught_up(&mut bridge);
    let figures = bridge.figures().remove(0);
    assert_eq!((figures.forwarded, figures.skipped), (100, 0), "{figures:?}");
    let mut there = everything(&to, "t");
    let came = read(&mut there);
    for name in ["Mount", "Dome"] {
        let of: Vec<_> = came.iter().filter(|(whose, _)| whose == name).cloned().collect();
        assert_eq!(of, numbers(name, 1..=50));
    }
    assert_eq!((there.stats().lost, there.stats().duplicates), (0, 0));
}

#[test]
fn a_target_that_takes_no_samples_of_others_is_refused() {
    let from = Bus::connect("memory:").unwrap();
    publish(&publisher(&from, "t", "Mount", stream()), 0..5);
    let to = target(None);
    let mut bridge = bridge(&from, &to);
    let told = caught_up(&mut bridge);
    assert!(told.contains(&NoticeKind::Refused), "{told:?}");
    assert_eq!(bridge.refused(), [TopicName::new("t").unwrap()]);
    assert_eq!(bridge.figures()[0].forwarded, 0);
    for _ in 0..3 {
        assert!(!bridge.finish(Duration::from_secs(1)), "what was read is not there");
        assert!(bridge.notices().is_empty(), "it is not opened once more");
        assert_eq!(bridge.refused(), [TopicName::new("t").unwrap()]);
    }
}

#[test]
fn who_lives_and_says_nothing_lives_behind_a_failure_too() {
    let from = Bus::connect("memory:").unwrap();
    let engine = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
    let cable = engine.cable();
    let to = Bus::builder().over(engine).unwrap();
    let lease = Liveliness::Lease(Duration::from_secs(2));
    let state = Qos { liveliness: lease, ownership: Ownership::Shared, ..Qos::state() };
    let owner = |name: &str| {
        let name = ProducerName::new(name).unwrap();
        let spec = TopicSpec::new("state").unwrap().qos(state.clone()).producer(name);
        from.topic(spec).unwrap().publisher().unwrap()
    };
    let (mount, dome) = (owner("Mount"), owner("Dome"));
    publish(&mount, 0..1);
    let mut bridge = bridge(&from, &to);
    forwarded(&mut bridge, 1);
    cable.pull();
    publish(&dome, 0..1);
    is_told(&mut bridge, NoticeKind::Failed);
    cable.put_back();
    forwarded(&mut bridge, 2);
    let there = to.topic(TopicSpec::new("state").unwrap()).unwrap();
    until(&mut bridge, |_| {
        mount.assert_alive().unwrap();
        dome.assert_alive().unwrap();
        let writers = there.writers().unwrap();
        let lives = |name: &str| {
            let own = |info: &&WriterInfo| info.producer.name.as_str() == name;
            writers.iter().find(own).is_some_and(|info| info.alive == Some(Alive::Yes))
        };
        lives("Mount") && lives("Dome")
    });
    assert_eq!(bridge.figures()[0].forwarded, 2);
}
