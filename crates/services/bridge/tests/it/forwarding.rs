//! Forwarding: bounds, losses, refusals, ownership, loops and new topics.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bridge::hops::{self, Hops, Mark};
use helio_bridge::{Bridge, Options};
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::{
    Bus, Event, Headers, Message, Qos, Start, Subscribe, Subscription, Topic, TopicSpec,
};

use crate::support::*;

const PARTITIONS: u32 = 3;
const TOPIC: &str = "site/events";

fn open(bus: &Bus) -> Topic {
    let qos = Qos { partitions: PARTITIONS, ..Qos::stream() };
    bus.topic(TopicSpec::new(TOPIC).unwrap().qos(qos)).unwrap()
}

/// The number of samples; asserts that none is missing.
fn count(samples: &mut Subscription) -> usize {
    let events = std::iter::from_fn(|| samples.try_next().unwrap());
    let count = events.inspect(|event| assert!(matches!(event, Event::Sample(_)))).count();
    assert_eq!((samples.stats().lost, samples.stats().fenced), (0, 0));
    count
}

#[test]
fn a_target_that_is_frozen_holds_the_bridge_up_within_bounds() {
    let from = Bus::connect("memory:").unwrap();
    let engine =
        FaultTransport::connect("memory:", FaultPlan { queue: 100, ..FaultPlan::default() });
    let engine = engine.unwrap();
    let cable = engine.cable();
    let to = Bus::builder().over(engine).unwrap();
    let publisher = open(&from).publisher().unwrap();
    publisher.publish(Message::new(b"0").key(b"k")).wait().unwrap();
    let mut bridge = bridge(&from, &to);
    until(&mut bridge, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    cable.freeze();
    for _ in 0..5_000 {
        publisher.publish(Message::new(b"1").key(b"k")).wait().unwrap();
    }
    until(&mut bridge, |bridge| bridge.figures()[0].under_way > 100);
    for _ in 0..20 {
        bridge.turn(Duration::ZERO);
    }
    assert_eq!(bridge.figures()[0].under_way, 101, "a full queue, and the one that waits");
    cable.thaw();
    until(&mut bridge, |bridge| bridge.figures()[0].forwarded == 5_001);
    assert_eq!(count(&mut everything(&to, TOPIC)), 5_001);
}

/// The keys that have a last value.
fn last_keys(bus: &Bus) -> BTreeSet<Vec<u8>> {
    let topic = bus.topic(TopicSpec::new(TOPIC).unwrap()).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Last(1))).unwrap();
    let events = std::iter::from_fn(|| samples.try_next().unwrap());
    events.filter_map(Event::into_sample).map(|sample| sample.key.to_vec()).collect()
}

#[test]
fn nulls_are_forwarded_and_both_sides_have_the_same_keys() {
    let buses = [(); 2].map(|()| Bus::connect("memory:").unwrap());
    let publishers = buses.each_ref().map(|bus| open(bus).publisher().unwrap());
    let both_ways = || {
        whole(bridge(&buses[0], &buses[1]));
        whole(bridge(&buses[1], &buses[0]));
    };
    let own = |side: usize, number: u8| [b"ab"[side], number];
    for (side, publisher) in publishers.iter().enumerate() {
        for number in 0..20 {
            publisher.publish(Message::new(b"v").key(&own(side, number))).wait().unwrap();
        }
    }
    both_ways();
    assert_eq!(buses.each_ref().map(|bus| last_keys(bus).len()), [40, 40]);
    // Half of them are deleted where they are from, some of the others on the other side.
    for (side, publisher) in publishers.iter().enumerate() {
        for number in 0..10 {
            publisher.publish(Message::null(&own(side, number))).wait().unwrap();
        }
        publisher.publish(Message::null(&own(1 - side, 15))).wait().unwrap();
    }
    both_ways();
    let left = (0..2).flat_map(|side| (10..20).map(move |number| own(side, number).to_vec()));
    let left: BTreeSet<_> = left.filter(|key| key[1] != 15).collect();
    for bus in &buses {
        assert_eq!(last_keys(bus), left);
    }
}

#[test]
fn headers_of_other_programs_are_forwarded_as_they_are() {
    let [from, to] = [(); 2].map(|()| Bus::connect("memory:").unwrap());
    let publisher = open(&from).publisher().unwrap();
    let given: [(&str, &[u8]); 4] =
        [("a", b"0"), ("Content-Type", b"1"), ("a", b"2"), ("Content-Type", b"3")];
    let add =
        |headers: Headers, (name, value): (&str, &[u8])| headers.with_foreign(name, value).unwrap();
    let headers = given.into_iter().fold(Headers::new(), add);
    publisher.publish(Message::new(b"v").headers(headers.as_ref())).wait().unwrap();
    let refused = Headers::new().with("helio-refused", "5000").unwrap();
    publisher.publish(Message::new(b"w").headers(refused.as_ref())).wait().unwrap();
    let mut bridge = bridge(&from, &to);
    until(&mut bridge, |bridge| bridge.figures().iter().any(|figures| figures.skipped == 1));
    assert!(bridge.notices().iter().any(|notice| notice.text.contains("5000 bytes")));
    assert!(bridge.finish(TIMEOUT));
    let sample = everything(&to, TOPIC).next_sample().unwrap();
    let found = sample.headers.as_ref().iter().filter(|(name, _)| *name != hops::NAME);
    assert_eq!(found.collect::<Vec<_>>(), given);
}

#[test]
fn what_retention_has_taken_is_told_counted_and_seen_by_readers() {
    let qos = Qos {
        retention: helio_core::qos::Retention {
            bytes: Some(20_000),
            age: None,
            last_value: false,
            default: false,
        },
        ..Qos::stream()
    };
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let publisher = from.topic(TopicSpec::new("t").unwrap().qos(qos)).unwrap().publisher().unwrap();
    let publish = || publisher.publish(Message::new(&[0; 100])).wait().unwrap();
    publish();
    let bridge = || {
        let topics = vec!["*".to_owned()];
        let overrides = vec!["retention.bytes=none".parse().unwrap()];
        let options = Options { topics, overrides, ..Options::default() };
        Bridge::new(from.clone(), to.clone(), options).unwrap()
    };
    let mut first = bridge();
    until(&mut first, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    drop(first);
    let topic = to.topic(TopicSpec::new("t").unwrap()).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    assert!(samples.try_next().unwrap().is_some());
    (0..1_000).for_each(|_| _ = publish());
    let mut second = bridge();
    until(&mut second, |bridge| bridge.turn(Duration::ZERO) == helio_bridge::Turn::CaughtUp);
    let figures = second.figures().remove(0);
    assert_eq!(figures.forwarded + figures.lost, 1_000, "{figures:?}");
    assert!(figures.lost > 0);
    assert!(second.notices().iter().any(|n| n.kind == helio_bridge::NoticeKind::Gap));
    while samples.try_next().unwrap().is_some() {}
    assert_eq!(samples.stats().received + samples.stats().lost, 1_001, "{:?}", samples.stats());
}

#[test]
fn refused_policies_are_told_by_name_and_can_be_chosen() {
    let from = Bus::connect("memory:").unwrap();
    let to = Bus::connect("memory:refusing?strict=1").unwrap();
    let publisher = open(&from).publisher().unwrap();
    publisher.publish(Message::new(b"1").key(b"k")).wait().unwrap();
    let mut plain = bridge(&from, &to);
    until(&mut plain, |bridge| bridge.turn(Duration::ZERO) == helio_bridge::Turn::CaughtUp);
    assert_eq!(plain.refused().len(), 1);
    let told = plain.notices();
    assert!(told[0].text.contains("durability = persistent"), "{told:?}");
    assert!(told[0].text.contains("--qos durability="), "{told:?}");
    let options = Options {
        topics: vec!["*".to_owned()],
        overrides: vec!["durability=transient_local".parse().unwrap()],
        ..Options::default()
    };
    let mut chosen = Bridge::new(from, to.clone(), options).unwrap();
    until(&mut chosen, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    let qos = to.topic(TopicSpec::new(TOPIC).unwrap()).unwrap().qos().clone();
    assert_eq!(qos.partitions, PARTITIONS);
}

#[test]
fn an_exclusive_topic_moves_with_its_writer() {
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let spec = || TopicSpec::new("state").unwrap().qos(Qos::state());
    let owner = |bus: &Bus| {
        let name = helio_bus::ProducerName::new("Mount").unwrap();
        bus.topic(spec().producer(name)).unwrap().publisher()
    };
    let before = owner(&from).unwrap();
    before.publish(Message::new(b"1").key(b"k")).wait().unwrap();
    let mut there = bridge(&from, &to);
    until(&mut there, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    assert!(owner(&to).is_err(), "its writer lives, on the other bus");
    drop(before);
    // The bridge releases the topic when its writer has ended.
    let mut after = None;
    until(&mut there, |_| {
        after = owner(&to).ok();
        after.is_some()
    });
    let after = after.unwrap();
    assert_eq!(after.producer().incarnation, 2, "the first one was forwarded");
    after.publish(Message::new(b"2").key(b"k")).wait().unwrap();
    let mut back = bridge(&to, &from);
    until(&mut back, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    let mut samples =
        from.topic(spec()).unwrap().subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let payloads: Vec<_> = std::iter::from_fn(|| samples.try_next().unwrap())
        .filter_map(Event::into_sample)
        .map(|sample| sample.payload[0])
        .collect();
    assert_eq!(payloads, b"12");
}

#[test]
fn a_sample_says_where_it_has_been_and_goes_nowhere_twice() {
    let buses = [(); 3].map(|()| Bus::connect("memory:").unwrap());
    let publisher = open(&buses[0]).publisher().unwrap();
    publisher.publish(Message::new(b"1").key(b"k")).wait().unwrap();
    let mut ring = [(0, 1), (1, 2), (2, 0)].map(|(from, to)| bridge(&buses[from], &buses[to]));
    let returned = |ring: &mut [Bridge; 3]| ring[2].figures().iter().any(|f| f.returned == 1);
    let end = Instant::now() + TIMEOUT;
    while !returned(&mut ring) {
        assert!(Instant::now() < end);
        ring.iter_mut().for_each(|bridge| _ = bridge.turn(Duration::ZERO));
    }
    assert_eq!(ring.each_mut().map(|bridge| bridge.figures()[0].forwarded), [1, 1, 0]);
    let sample = everything(&buses[2], TOPIC).next_sample().unwrap();
    let names = buses.each_ref().map(|bus| bus.identity().unwrap());
    let hops: Vec<_> = Hops::of(sample.headers.as_ref()).iter().collect();
    assert_eq!(hops, [(names[0].as_str(), Mark::alone(0)), (names[1].as_str(), Mark::alone(0))]);
    assert!(sample.headers.as_ref().get(hops::NAME).is_some());
    let same = Bridge::new(buses[0].clone(), buses[0].clone(), Options::default());
    assert!(same.is_err_and(|error| error.to_string().contains("the same bus")));
}

#[test]
fn schemas_are_carried_and_new_topics_are_found() {
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let mut bridge = bridge(&from, &to);
    bridge.turn(Duration::ZERO);
    let text: Arc<str> =
        r#"{"type":"record","name":"Wind","fields":[{"name":"speed","type":"double"}]}"#.into();
    let schema = helio_core::schema::Schema::parse(&text).unwrap();
    let spec = TopicSpec::new("wind").unwrap().qos(Qos::telemetry());
    let wind = helio_bus::SchemaText { id: schema.id(), text };
    let topic = from.topic(spec.schema(wind.clone())).unwrap();
    topic.publisher().unwrap().publish(Message::new(&7.5_f64.to_le_bytes())).wait().unwrap();
    until(&mut bridge, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    let info = to.topic_info(topic.name()).unwrap().unwrap();
    assert_eq!(info.schemas, [wind.id]);
    assert_eq!(to.schema(wind.id).unwrap().as_deref(), Some(&*wind.text));
}
