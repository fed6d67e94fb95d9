//! Three brokers, of which one after the other is killed: nothing acknowledged is lost or repeated.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Broker, unique};
use helio_bus::{Bus, Event, Guarantee, Message, Publisher, Qos, Start, Subscribe, TopicSpec};

const PATIENCE: Duration = Duration::from_secs(120);

/// Publishes numbers until it is told to stop, some ahead of their receipts; gives how many were
/// acknowledged, all of them in order.
fn storm(publisher: &Publisher, stop: &AtomicBool) -> u64 {
    let mut pending = std::collections::VecDeque::new();
    let mut acknowledged = 0;
    for number in 0_u64.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let bytes = number.to_le_bytes();
        let message = Message::new(&bytes).key(b"k").guarantee(Guarantee::Durable);
        pending.push_back(publisher.publish(message));
        if pending.len() >= 500 {
            pending.pop_front().unwrap().wait_timeout(PATIENCE).unwrap();
            acknowledged += 1;
        }
    }
    for one in pending {
        one.wait_timeout(PATIENCE).unwrap();
        acknowledged += 1;
    }
    acknowledged
}

#[test]
fn a_storm_survives_the_death_of_one_broker_after_the_other() {
    let Some(cluster) = Broker::start(3) else { return };
    let bus = Bus::builder().producer("Mount").connect(&cluster.url("replication=3")).unwrap();
    let topic = TopicSpec::new(&unique("storm")).unwrap().qos(Qos::stream());
    let topic = bus.topic(topic).unwrap();
    let publisher = topic.publisher().unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let storming = {
        let (publisher, stop) = (publisher.clone(), Arc::clone(&stop));
        std::thread::spawn(move || storm(&publisher, &stop))
    };
    // Whoever leads the partition is killed in the course of this, and both who follow.
    for node in ["1", "2", "3", "1"] {
        let before = publisher.stats().taken;
        cluster.does_to("kill", node);
        let receipt = publisher.publish(Message::new(&[]).guarantee(Guarantee::Durable));
        receipt.wait_timeout(PATIENCE).unwrap();
        cluster.does_to("restart", node);
        assert!(publisher.stats().taken > before, "nothing was published meanwhile");
    }
    stop.store(true, Ordering::Release);
    let acknowledged = storming.join().unwrap();
    let until = Instant::now() + PATIENCE;
    let mut next = 0;
    while next < acknowledged {
        let left = until.saturating_duration_since(Instant::now());
        match samples.next_timeout(left).unwrap() {
            Some(Event::Sample(sample)) if sample.payload.is_empty() => {}
            Some(Event::Sample(sample)) => {
                let number = u64::from_le_bytes(sample.payload[..].try_into().unwrap());
                assert_eq!(number, next, "lost, repeated or out of order");
                next += 1;
            }
            Some(Event::Outage(_)) => {}
            other => panic!("{other:?} came for {next} of {acknowledged}"),
        }
    }
    let stats = samples.stats();
    assert_eq!((stats.lost, stats.duplicates), (0, 0), "{stats:?}");
}
