//! One small round trip of each kind on a real broker, which other programs use at the same time.

use helio_bus::{
    Bus, Event, Message, Qos, Sample, SchemaText, Start, Subscribe, Subscription, Topic,
    TopicError, TopicSpec, TransportError,
};
use helio_core::qos::Ownership;
use helio_core::schema::build::{double, record};

use crate::support::{HANG_TIMEOUT, deliver_keyed, plain, shared_broker, unique};

fn next(samples: &mut Subscription) -> Sample {
    loop {
        match samples.next_timeout(HANG_TIMEOUT).unwrap().expect("it comes in time") {
            Event::Sample(sample) => return sample,
            Event::Assigned(_) => {}
            other => panic!("{other:?} came"),
        }
    }
}

fn publish(topic: &Topic, key: &[u8], payload: &[u8]) {
    let message = Message::new(payload).key(key);
    topic.publisher().unwrap().publish(message).wait_timeout(HANG_TIMEOUT).unwrap();
}

fn opened(bus: &Bus, base: &str, qos: Qos) -> Topic {
    bus.topic(TopicSpec::new(&unique(base)).unwrap().qos(qos)).unwrap()
}

#[test]
fn samples_of_a_schema_come_with_it_to_another_connection() {
    let Some(broker) = shared_broker() else { return };
    let schema = record("test.Wind").field("speed", double()).units("m/s").schema().unwrap();
    let schema: SchemaText = (&schema).into();
    let spec = TopicSpec::new(&unique("typed")).unwrap().qos(Qos::event()).schema(schema.clone());
    let [writer, reader] = ["Mount", "reader"].map(|name| broker.bus(name));
    let topic = writer.topic(spec.clone()).unwrap();
    let value = 7.5_f64.to_le_bytes();
    publish(&topic, b"k", &value);
    let mut samples =
        reader.topic(spec).unwrap().subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let sample = next(&mut samples);
    assert_eq!((&sample.key[..], &sample.payload[..]), (&b"k"[..], &value[..]));
    assert_eq!(sample.header.schema, schema.id);
    assert_eq!(sample.header.producer.name.as_str(), "Mount");
    assert_eq!(*reader.schema(schema.id).unwrap().unwrap(), *schema.text);
}

#[test]
fn a_late_joiner_gets_the_newest_of_each_key() {
    let Some(broker) = shared_broker() else { return };
    let topic = opened(&broker.bus("Mount"), "late", Qos::event());
    for (key, payload) in [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")] {
        publish(&topic, key, payload);
    }
    let mut samples = topic.subscribe(Subscribe::from(Start::Last(1))).unwrap();
    let mut read = [(); 2].map(|()| next(&mut samples).payload.to_vec());
    read.sort();
    assert_eq!(read, [b"2", b"3"]);
    publish(&topic, b"b", b"4");
    assert_eq!(next(&mut samples).payload[..], *b"4");
}

#[test]
fn a_group_goes_on_where_it_has_committed() {
    let Some(broker) = shared_broker() else { return };
    let topic = opened(&broker.bus("Mount"), "grouped", Qos::stream());
    let member = || topic.subscribe(Subscribe::from(Start::Earliest).group("g")).unwrap();
    publish(&topic, b"", b"1");
    publish(&topic, b"", b"2");
    let mut first = member();
    assert_eq!(next(&mut first).payload[..], *b"1");
    first.commit().unwrap();
    drop(first);
    assert_eq!(next(&mut member()).payload[..], *b"2");
}

#[test]
fn a_member_that_keeps_its_partition_reads_on_where_it_has_moved_to() {
    let Some(broker) = shared_broker() else { return };
    let topic = opened(&broker.bus("Mount"), "moved", Qos::stream());
    (0..9).for_each(|number| publish(&topic, b"", &[number]));
    // Kafka gives the only partition to the member whose name sorts first.
    let [first, second] = ["a", "b"].map(|name| {
        let topic = broker.bus(name).topic(TopicSpec::new(topic.name().as_str()).unwrap());
        topic.unwrap()
    });
    let member = |topic: &Topic| topic.subscribe(Subscribe::from(Start::Earliest).group("g"));
    let mut samples = member(&first).unwrap();
    (0..9).for_each(|number| assert_eq!(next(&mut samples).payload[..], [number]));
    samples.commit().unwrap();
    samples.seek(0, 3).unwrap();
    let mut other = member(&second).unwrap();
    let event = other.next_timeout(HANG_TIMEOUT).unwrap();
    assert!(matches!(&event, Some(Event::Assigned(own)) if own.is_empty()), "{event:?}");
    (3..9).for_each(|number| assert_eq!(next(&mut samples).payload[..], [number]));
}

#[test]
fn a_second_owner_is_refused_until_the_first_has_gone() {
    let Some(broker) = shared_broker() else { return };
    let [mount, rival] = ["Mount", "rival"].map(|name| broker.bus(name));
    let name = unique("owned");
    let exclusive = Qos { ownership: Ownership::Exclusive, ..Qos::stream() };
    let spec = || TopicSpec::new(&name).unwrap().qos(exclusive.clone());
    let publisher = mount.topic(spec()).unwrap().publisher().unwrap();
    publisher.publish(Message::new(b"mine")).wait_timeout(HANG_TIMEOUT).unwrap();
    let topic = rival.topic(spec()).unwrap();
    let refused = topic.publisher().map(drop);
    assert!(
        matches!(&refused, Err(TopicError::Transport(TransportError::Owned { holder, .. }))
            if holder.contains("Mount")),
        "{refused:?}"
    );
    drop(publisher);
    mount.close();
    publish(&topic, b"", b"theirs");
}

/// A declaration of an older or newer release is no topic of another program.
#[test]
fn a_topic_of_another_release_is_refused_by_its_version() {
    let Some(broker) = shared_broker() else { return };
    let bus = broker.bus("Mount");
    let existing = unique("existing");
    bus.topic(TopicSpec::new(&existing).unwrap().qos(Qos::event())).unwrap();
    let table = broker.kafka_name("_helio.topics");
    let refused = |name: &str, found: &str| {
        let spec = TopicSpec::new(name).unwrap().qos(Qos::event());
        bus.make_topics([&spec], |_| {}).unwrap();
        let error = bus.topic(spec).map(drop).unwrap_err();
        let is_refused = matches!(
            &error,
            TopicError::Transport(TransportError::Unsupported { remedy, .. })
                if remedy.contains("the same release") && remedy.contains(&table)
        );
        assert!(is_refused && error.to_string().contains(found), "{error:?}");
    };
    let qos = serde_json::to_value(Qos::event()).unwrap();
    for (version, found) in [(None, "no version"), (Some(1), "version 1"), (Some(3), "version 3")] {
        let name = unique("other");
        let declaration = serde_json::json!({ "v": version, "qos": qos, "origin": "bus" });
        let (key, value) = (format!("{name} x"), declaration.to_string());
        let record = (key.as_bytes(), value.as_bytes());
        deliver_keyed(&plain(broker), (&table, 0), record).unwrap();
        refused(&name, found);
    }
    let schema = record("test.Wind").field("speed", double()).schema().unwrap();
    let open = |bus: &Bus| {
        bus.topic(TopicSpec::new(&existing).unwrap().schema(&schema)).unwrap().publisher().map(drop)
    };
    open(&bus).unwrap();
    let schemas = broker.kafka_name("_helio.schemas");
    let (key, value) = (format!("of {existing} x"), br#"{"schema":"1f","after":1}"#);
    deliver_keyed(&plain(broker), (&schemas, 0), (key.as_bytes(), value)).unwrap();
    let error = open(&broker.bus("Dome")).unwrap_err().to_string();
    assert!(error.contains(&schemas) && error.contains("no version"), "{error}");
}
