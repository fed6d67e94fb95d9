//! Many topics at once; apart from the other tests, since it keeps a broker busy.

use helio_bus::{Bus, Event, Message, Qos, Start, Subscribe, TopicSpec};
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};

use crate::support::{HANG_TIMEOUT, admin, broker, done, unique};

#[test]
fn many_topics_are_made_at_once_and_whole() {
    let Some(broker) = broker() else { return };
    let (bus, base) = (broker.bus("many"), unique("many"));
    let spec = |n: usize| {
        let qos = if n.is_multiple_of(2) { Qos::event() } else { Qos::command() };
        TopicSpec::new(&format!("{base}/{n}")).unwrap().qos(qos)
    };
    // One of them exists and differs: that is reported when it is opened, and blocks no other.
    bus.topic(spec(7).qos(Qos::state())).unwrap();
    let mut specs: Vec<_> = (0..60).map(spec).collect();
    // One is rejected by the broker, because its name collides with an existing one.
    let refused = TopicSpec::new(&format!("{base}.refused")).unwrap().qos(Qos::event());
    let alike = format!("{}_refused", base.replace('/', ".."));
    let alike = NewTopic::new(&alike, 1, TopicReplication::Fixed(1));
    done(admin(broker).create_topics([&alike], &AdminOptions::new())).unwrap()[0].as_ref().unwrap();
    specs.insert(20, refused);
    let mut told = Vec::new();
    bus.make_topics(&specs, |made| told.push(made)).unwrap();
    assert_eq!((told.first(), told.last()), (Some(&1), Some(&61)));
    assert!(told.len() > 2 && told.is_sorted(), "{told:?}");
    let listed = bus.topics().unwrap();
    assert_eq!(listed.iter().filter(|name| name.as_str().starts_with(&base)).count(), 61);
    let opened = helio_bus::parallel_map(&specs, |spec| {
        let topic = bus.topic(spec.clone())?;
        topic
            .publisher()?
            .publish(Message::new(b"x").key(b"k"))
            .wait_timeout(HANG_TIMEOUT)
            .unwrap();
        Ok::<_, helio_bus::TopicError>(topic)
    });
    let refused = opened.into_iter().filter_map(|opened| Some(opened.err()?.to_string()));
    let refused: Vec<String> = refused.collect();
    let names = |text: &str| refused.iter().filter(|told| told.contains(text)).count();
    assert_eq!((refused.len(), names("/7"), names(".refused")), (2, 1, 1), "{refused:?}");
    // Repeating the call creates nothing, also on another connection.
    specs.remove(20);
    broker.bus("others").make_topics(&specs, |made| assert_eq!(made, 60)).unwrap();
    let topic = bus.topic(spec(0)).unwrap();
    let mut last = topic.subscribe(Subscribe::from(Start::Last(1))).unwrap();
    assert!(matches!(last.next_timeout(HANG_TIMEOUT).unwrap(), Some(Event::Sample(_))));
}

/// A reader of many topics fetches them at three paces, and gets all samples of each.
#[test]
fn who_reads_many_topics_misses_nothing_of_any() {
    const SAMPLES_PER_TOPIC: u64 = 3;
    let Some(broker) = broker() else { return };
    let (bus, base) = (broker.bus("reads-many"), unique("reads-many"));
    let profiles = [Qos::telemetry(), Qos::event(), Qos::command()];
    let specs: Vec<_> = (0..150)
        .map(|n| TopicSpec::new(&format!("{base}/{n}")).unwrap().qos(profiles[n % 3].clone()))
        .collect();
    bus.make_topics(&specs, |_| {}).unwrap();
    let writers = broker.bus("writes-many");
    let opened = |bus: &Bus| -> Vec<_> {
        specs.iter().map(|spec| bus.topic(spec.clone()).unwrap()).collect()
    };
    let mut readers: Vec<_> = opened(&bus)
        .iter()
        .map(|topic| topic.subscribe(Subscribe::from(Start::Latest)).unwrap())
        .collect();
    let publishers: Vec<_> =
        opened(&writers).iter().map(|topic| topic.publisher().unwrap()).collect();
    let published: Vec<_> = (0..SAMPLES_PER_TOPIC)
        .flat_map(|n| publishers.iter().map(move |to| to.publish(Message::new(&n.to_le_bytes()))))
        .collect();
    for each in published {
        each.wait_timeout(HANG_TIMEOUT).unwrap();
    }
    for (place, reader) in readers.iter_mut().enumerate() {
        for n in 0..SAMPLES_PER_TOPIC {
            match reader.next_timeout(HANG_TIMEOUT).unwrap() {
                Some(Event::Sample(sample)) => {
                    assert_eq!(sample.payload[..], n.to_le_bytes(), "of {place}");
                }
                other => panic!("{other:?} instead of sample {n} of {place}"),
            }
        }
    }
}
