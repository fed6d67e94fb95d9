//! Readers of exclusive topics, on engines that report replaced owners with a delay.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::support::HANG_TIMEOUT;
use helio_bus::transport::fault::{FaultPlan, FaultTransport};
use helio_bus::transport::{Decorator, OwnerOrder, TopicDecorator, Transport, TransportTopic};
use helio_bus::{
    Bus, Event, HeadersRef, Qos, SampleRef, SchemaId, Start, Subscribe, Subscription, Tai, Topic,
    TopicName, TopicSpec,
};
use helio_core::qos::Ownership;
use helio_core::{Producer, ProducerName};

/// The engine's answer, and the number of recent queries.
type Says = Arc<Mutex<(OwnerOrder, u64)>>;

/// A memory transport with a configurable answer about its topics' owners.
struct Saying(Arc<FaultTransport>, Says);

impl Decorator for Saying {
    fn inner(&self) -> &dyn Transport {
        &*self.0
    }

    fn topic(&self, inner: Arc<dyn TransportTopic>, _name: &TopicName) -> Arc<dyn TransportTopic> {
        Arc::new(SayingTopic(inner, Arc::clone(&self.1)))
    }
}

struct SayingTopic(Arc<dyn TransportTopic>, Says);

impl TopicDecorator for SayingTopic {
    fn inner(&self) -> &dyn TransportTopic {
        &*self.0
    }

    fn owners_in_order(&self, _producer: &Producer, _since: Instant) -> OwnerOrder {
        let mut says = self.1.lock().unwrap();
        says.1 += 1;
        says.0
    }
}

/// An exclusive topic, its reader, and its engine's answer.
struct Site {
    topic: Topic,
    samples: Subscription,
    says: Says,
}

impl Site {
    /// The newest incarnation is 1,000.
    fn new() -> Self {
        let says: Says = Arc::new(Mutex::new((OwnerOrder::Asked, 0)));
        let inner = FaultTransport::connect("memory:", FaultPlan::default()).unwrap();
        let bus = Bus::builder().over(Arc::new(Saying(inner, Arc::clone(&says)))).unwrap();
        let qos = Qos { ownership: Ownership::Exclusive, ..Qos::stream() };
        let topic = bus.topic(TopicSpec::new("wind").unwrap().qos(qos)).unwrap();
        let samples = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
        let mut site = Self { topic, samples, says };
        site.publish("owner", 1_000, 1);
        assert_eq!(site.next(), ("owner".to_owned(), 1));
        assert_eq!(site.asked(), 0);
        site
    }

    /// Publishes as a bridge does: with incarnation and sequence of another bus.
    fn publish(&self, name: &str, incarnation: u64, sequence: u64) {
        let producer = Producer { name: ProducerName::new(name).unwrap(), incarnation };
        let mut forwarder = self.topic.forwarder(&producer, 0).unwrap();
        let sample = SampleRef {
            partition: 0,
            offset: 0,
            key: b"",
            producer: &producer,
            sequence,
            time: Tai::from_nanos(0),
            schema: SchemaId::BYTES,
            level: 0,
            trace: None,
            headers: HeadersRef::EMPTY,
            payload: b"7.5",
            origin: helio_bus::transport::Origin::Log,
            pin: None,
        };
        forwarder.forward(&sample, HeadersRef::EMPTY).unwrap().wait().unwrap();
    }

    fn say(&self, order: OwnerOrder) {
        *self.says.lock().unwrap() = (order, 0);
    }

    fn asked(&self) -> u64 {
        self.says.lock().unwrap().1
    }

    /// The next sample's producer and number.
    fn next(&mut self) -> (String, u64) {
        let event = self.samples.next_timeout(HANG_TIMEOUT).unwrap().expect("a sample");
        let Event::Sample(sample) = event else { panic!("{event:?}") };
        (sample.header.producer.name.to_string(), sample.header.sequence)
    }

    fn is_quiet(&mut self) -> bool {
        self.samples.try_next().unwrap().is_none()
    }
}

#[test]
fn what_is_yet_to_be_said_holds_up_what_lies_behind_it_and_nobody_else() {
    let mut site = Site::new();
    site.publish("bridged", 3, 1);
    site.publish("owner", 1_000, 2);
    assert!(site.is_quiet() && site.is_quiet());
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(site.samples.poll_event(&mut context), Poll::Pending));
    assert!(site.samples.next_timeout(Duration::from_millis(20)).unwrap().is_none());
    assert!(site.asked() < 100, "asked {} times: nobody slept", site.asked());
    let says = Arc::clone(&site.says);
    let later = std::thread::spawn(move || says.lock().unwrap().0 = OwnerOrder::No);
    assert_eq!(site.next(), ("bridged".to_owned(), 1));
    later.join().unwrap();
    assert_eq!(site.next(), ("owner".to_owned(), 2));
    // That is final.
    site.say(OwnerOrder::Yes);
    site.publish("bridged", 3, 2);
    assert_eq!(site.next(), ("bridged".to_owned(), 2));
    assert_eq!(site.asked(), 0);
}

#[test]
fn an_engine_that_could_not_say_it_has_nobody_dropped() {
    let mut site = Site::new();
    site.say(OwnerOrder::Unknown);
    for number in 1..=2 {
        site.publish("bridged", 3, number);
        assert_eq!(site.next(), ("bridged".to_owned(), number));
    }
    // It is queried again, and may report that they were replaced after all.
    site.say(OwnerOrder::Yes);
    site.publish("bridged", 3, 3);
    let event = site.samples.next_timeout(HANG_TIMEOUT).unwrap();
    assert!(matches!(event, Some(Event::Fenced(_))), "{event:?}");
    assert_eq!(site.samples.stats().received, 3);
}

#[test]
fn who_was_fenced_is_let_in_when_the_engine_says_otherwise() {
    let mut site = Site::new();
    site.say(OwnerOrder::Yes);
    site.publish("bridged", 3, 1);
    let event = site.samples.next_timeout(HANG_TIMEOUT).unwrap();
    assert!(matches!(event, Some(Event::Fenced(_))), "{event:?}");
    // During the next query nothing blocks, and the last answer holds.
    site.say(OwnerOrder::Asked);
    site.publish("bridged", 3, 2);
    site.publish("owner", 1_000, 2);
    assert_eq!(site.next(), ("owner".to_owned(), 2));
    assert_eq!(site.samples.stats().fenced, 2);
    site.say(OwnerOrder::No);
    site.publish("bridged", 3, 3);
    let event = site.samples.next_timeout(HANG_TIMEOUT).unwrap();
    assert!(matches!(event, Some(Event::Gap(_) | Event::Sample(_))), "{event:?}");
}

#[test]
fn a_sample_that_is_undecided_is_not_committed() {
    let mut site = Site::new();
    let group = |site: &Site| {
        let options = Subscribe::from(Start::Latest).group("archive");
        let mut samples = site.topic.subscribe(options).unwrap();
        let event = samples.next_timeout(HANG_TIMEOUT).unwrap();
        assert!(matches!(event, Some(Event::Assigned(_))), "{event:?}");
        samples
    };
    site.samples = group(&site);
    site.publish("owner", 1_000, 2);
    assert_eq!(site.next(), ("owner".to_owned(), 2));
    site.publish("bridged", 3, 1);
    assert!(site.is_quiet());
    site.samples.commit().unwrap();
    site.samples = site.topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    site.samples = group(&site);
    assert_eq!(site.next(), ("bridged".to_owned(), 1));
}
