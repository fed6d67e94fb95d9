//! Leases over a bridge. The tests wait for some of them to expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use helio_bridge::{Bridge, Turn};
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::{Alive, Bus, ProducerName, Qos, TopicSpec, WriterInfo};
use helio_core::qos::Liveliness;

use crate::support::*;

#[test]
fn a_topic_that_is_slow_to_open_lets_no_lease_lapse() {
    const LEASE: Duration = Duration::from_secs(2);
    let from = Bus::connect("memory:").unwrap();
    let engine = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
    let cable = engine.cable();
    let to = Bus::builder().over(engine).unwrap();
    let state = Qos { liveliness: Liveliness::Lease(LEASE), ..Qos::state() };
    let owner = |bus: &Bus, name: &str| {
        let name = ProducerName::new(name).unwrap();
        let spec = TopicSpec::new("state").unwrap().qos(state.clone()).producer(name);
        bus.topic(spec).unwrap().publisher()
    };
    let own = owner(&from, "Mount").unwrap();
    publish(&own, 0..1);
    let mut bridge = bridge(&from, &to);
    forwarded(&mut bridge, 1);
    // The position of this topic is read from a target that delivers nothing.
    publish(&publisher(&to, "slow", "Other", stream()), 0..3);
    cable.freeze();
    publish(&publisher(&from, "slow", "Mount", stream()), 0..3);
    let until = Instant::now() + 3 * LEASE;
    while Instant::now() < until {
        own.assert_alive().unwrap();
        bridge.turn(Duration::from_millis(20));
        let other = owner(&to, "Stranger");
        assert!(other.is_err(), "the topic is {:?}'s, who lives on the source", own.producer());
    }
    cable.thaw();
    forwarded(&mut bridge, 4);
    assert!(owner(&to, "Stranger").is_err());
}

#[test]
fn who_lives_and_says_nothing_lives_behind_the_next_bridge_too() {
    const LEASE: Duration = Duration::from_secs(1);
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let state = Qos { liveliness: Liveliness::Lease(LEASE), ..Qos::state() };
    let spec = || TopicSpec::new("state").unwrap().qos(state.clone());
    let mount = spec().producer(ProducerName::new("Mount").unwrap());
    let own = from.topic(mount).unwrap().publisher().unwrap();
    publish(&own, 0..1);
    let mut first = bridge(&from, &to);
    forwarded(&mut first, 1);
    drop(first);
    let there = to.topic(spec()).unwrap();
    let lives = || {
        let writers = there.writers().unwrap();
        writers.iter().any(|info| info.alive == Some(Alive::Yes))
    };
    assert!(!lives(), "its bridge has gone");
    let mut next = bridge(&from, &to);
    until(&mut next, |_| {
        own.assert_alive().unwrap();
        lives()
    });
    let until = Instant::now() + 3 * LEASE;
    while Instant::now() < until {
        own.assert_alive().unwrap();
        next.turn(Duration::from_millis(20));
        assert!(lives(), "it is asserted as long as it lives on the source");
    }
    drop(own);
    crate::support::until(&mut next, |_| !lives());
    assert_eq!(next.figures()[0].forwarded, 0);
}

#[test]
fn leases_are_asserted_while_their_topic_is_opened_anew() {
    const LEASE: Duration = Duration::from_secs(2);
    let (from, url) = (Bus::connect("memory:").unwrap(), "memory:leased-to");
    let panics = Arc::new(AtomicBool::new(false));
    let to = panicking(url, doubts(2), &panics);
    let state = Qos { liveliness: Liveliness::Lease(LEASE), ..Qos::state() };
    let own = publisher(&from, "t", "Mount", state.clone());
    publish(&own, 0..1);
    let mut bridge = bridge(&from, &to);
    until(&mut bridge, |bridge| bridge.figures().iter().any(|f| f.forwarded == 1));
    let plain = Bus::connect(url).unwrap();
    let there = plain.topic(TopicSpec::new("t").unwrap()).unwrap();
    let lives = || there.writers().unwrap().iter().any(|info| info.alive == Some(Alive::Yes));
    // Long enough for one query of the source's producers.
    let turn = |bridge: &mut Bridge, time| {
        let end = Instant::now() + time;
        while Instant::now() < end {
            own.assert_alive().unwrap();
            bridge.turn(Duration::from_millis(20));
            assert!(lives(), "it lives on the source");
        }
    };
    turn(&mut bridge, LEASE);
    panics.store(true, Ordering::SeqCst);
    publish(&own, 1..2);
    turn(&mut bridge, 3 * LEASE);
    assert_eq!(bridge.figures()[0].forwarded, 1, "it could not be opened");
    panics.store(false, Ordering::SeqCst);
    until(&mut bridge, |bridge| bridge.figures()[0].forwarded == 2);
}

#[test]
fn who_lives_without_a_word_is_there_once_another_has_let_go() {
    let (from, to) = (Bus::connect("memory:").unwrap(), Bus::connect("memory:").unwrap());
    let own = publisher(&from, "t", "Mount", Qos::state());
    publish(&own, 0..1);
    assert_eq!(whole(bridge(&from, &to)).forwarded, 1);
    // When the next bridge comes, another producer owns the topic, like a killed bridge until its
    // lease expires.
    let other = publisher(&to, "t", "Stranger", Qos::state());
    let mut next = bridge(&from, &to);
    until(&mut next, |bridge| bridge.turn(Duration::ZERO) == Turn::CaughtUp);
    let there = to.topic(TopicSpec::new("t").unwrap()).unwrap();
    let lives = |name: &str| {
        let writers = there.writers().unwrap();
        let own = |info: &&WriterInfo| info.producer.name.as_str() == name;
        writers.iter().find(own).is_some_and(|info| info.alive == Some(Alive::Yes))
    };
    assert!(lives("Stranger") && !lives("Mount"));
    let end = Instant::now() + Duration::from_secs(2);
    until(&mut next, |_| Instant::now() > end);
    drop(other);
    until(&mut next, |_| lives("Mount"));
}
