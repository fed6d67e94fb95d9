//! Plain Kafka clients and the bus read each other's records.

use std::time::Instant;

use helio_bus::{
    Bus, Event, Headers, Message, Qos, Sample, SchemaId, Start, Subscribe, Subscription, TopicSpec,
    TransportError,
};
use helio_core::qos::Ownership;
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::support::{Broker, HANG_TIMEOUT, admin, broker, config, done, unique};

fn gathered(subscription: &mut Subscription, count: usize) -> Vec<Sample> {
    let until = Instant::now() + HANG_TIMEOUT;
    let mut samples = Vec::new();
    while samples.len() < count {
        let left = until.saturating_duration_since(Instant::now());
        match subscription.next_timeout(left).unwrap() {
            Some(Event::Sample(sample)) => samples.push(sample),
            Some(other) => panic!("{other:?} came"),
            None => panic!("{} samples of {count} came", samples.len()),
        }
    }
    samples
}

fn make(broker: &Broker, name: &str, partitions: i32, options: &[(&str, &str)]) {
    let admin = admin(broker);
    let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let topic = options.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
    let made = done(admin.create_topics([&topic], &AdminOptions::new())).unwrap();
    made.into_iter().for_each(|made| assert!(made.is_ok(), "{made:?}"));
    // Brokers learn of a new topic a little later.
    let until = Instant::now() + HANG_TIMEOUT;
    let known = || admin.inner().fetch_metadata(Some(name), HANG_TIMEOUT).unwrap();
    while known().topics().iter().any(|topic| topic.error().is_some()) {
        assert!(Instant::now() < until, "the broker does not know {name}");
    }
}

fn send(producer: &BaseProducer, records: &[BaseRecord<'_, [u8], [u8]>]) {
    for record in records {
        let mut again = BaseRecord::to(record.topic).partition(0);
        (again.key, again.payload) = (record.key, record.payload);
        again.headers.clone_from(&record.headers);
        again.timestamp = record.timestamp;
        producer.send(again).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(HANG_TIMEOUT).unwrap();
}

#[test]
fn what_others_write_is_read() {
    let Some(broker) = broker() else { return };
    let name = unique("lsst.sal.Test.logevent_scalars").replace('/', "_");
    make(broker, &name, 2, &[("cleanup.policy", "compact"), ("segment.ms", "100")]);
    let producer: BaseProducer = config(broker).create().unwrap();
    let odd = Header { key: "UPPER case", value: Some("kept") };
    let own = Header { key: "origin", value: Some("sal") };
    let none = Header { key: "none", value: None::<&str> };
    let again = Header { key: "origin", value: Some("again") };
    let headers = OwnedHeaders::new().insert(odd).insert(own).insert(none).insert(again);
    let bare = |key: &'static [u8], payload: &'static [u8]| {
        BaseRecord::to(name.as_str()).key(key).payload(payload).timestamp(1_700_000_000_123)
    };
    let with_headers = bare(b"k", b"one").headers(headers);
    let tombstone = BaseRecord::<[u8], [u8]>::to(&name).key(b"gone").timestamp(1_700_000_000_124);
    send(&producer, &[with_headers, tombstone, bare(b"k", b"two")]);

    let bus = broker.bus("reader");
    let topic = bus.topic(TopicSpec::new(&name).unwrap()).unwrap();
    assert_eq!(topic.qos().partitions, 2);
    assert!(topic.qos().retention.last_value && topic.qos().retention.age.is_none());
    let listed = bus.topics().unwrap();
    assert!(listed.iter().any(|listed| listed.as_str() == name), "{listed:?}");
    assert!(!listed.iter().any(|listed| listed.as_str().starts_with("_helio")), "{listed:?}");
    let mut all = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let samples = gathered(&mut all, 3);
    let payloads: Vec<_> = samples.iter().map(|sample| &sample.payload[..]).collect();
    assert_eq!(payloads, [&b"one"[..], b"", b"two"]);
    let first = &samples[0].header;
    assert_eq!((first.producer.name.as_str(), first.schema), ("kafka", SchemaId::BYTES));
    assert_eq!(first.time.unix_nanos(), 1_700_000_000_123_000_000);
    let numbers: Vec<_> = samples.iter().map(|sample| sample.header.sequence).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let nulls: Vec<_> = samples.iter().map(helio_bus::Sample::is_null).collect();
    assert_eq!(nulls, [false, true, false]);
    let headers: Vec<_> = samples[0].headers.as_ref().into_iter().collect();
    let expected: [(&str, &[u8]); 4] =
        [("none", b""), ("origin", b"sal"), ("UPPER case", b"kept"), ("origin", b"again")];
    assert_eq!(headers, expected);
    assert_eq!(all.stats().lost, 0);

    let mut last = topic.subscribe(Subscribe::from(Start::Last(1))).unwrap();
    let last: Vec<_> = gathered(&mut last, 1).into_iter().map(|s| (s.key, s.payload)).collect();
    let expected = [(&b"k"[..], &b"two"[..])];
    assert!(last.iter().map(|(k, p)| (&k[..], &p[..])).eq(expected), "{last:?}");
    let replies = topic.publisher().unwrap().publish(Message::new(b"three").key(b"k").partition(0));
    assert_eq!(replies.wait().unwrap().offset, Some(3));
    assert_eq!(&gathered(&mut all, 1)[0].payload[..], b"three");
}

#[test]
fn headers_beyond_the_limit_are_refused_by_name() {
    let Some(broker) = broker() else { return };
    let name = unique("large-headers").replace('/', "_");
    make(broker, &name, 1, &[]);
    let producer: BaseProducer = config(broker).create().unwrap();
    let large = vec![7; 5_000];
    let headers = OwnedHeaders::new().insert(Header { key: "Large", value: Some(&large) });
    let record = |payload: &'static [u8]| BaseRecord::<[u8], [u8]>::to(&name).payload(payload);
    send(&producer, &[record(b"one").headers(headers), record(b"two")]);
    let topic = broker.bus("reader").topic(TopicSpec::new(&name).unwrap()).unwrap();
    let mut all = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let Some(Event::Undecodable(refused)) = all.next_timeout(HANG_TIMEOUT).unwrap() else {
        panic!("the headers are not refused");
    };
    assert!(refused.reason.contains("5005 bytes"), "{}", refused.reason);
    assert_eq!(&refused.sample.payload[..], b"one");
    assert_eq!(&gathered(&mut all, 1)[0].payload[..], b"two");
    assert_eq!((all.stats().undecodable, all.stats().lost), (1, 0));
}

#[test]
fn a_null_of_the_bus_is_a_tombstone_for_others() {
    let Some(broker) = broker() else { return };
    let name = unique("null").replace('/', "_");
    let topic = broker.bus("Mount").topic(TopicSpec::new(&name).unwrap().qos(Qos::event()));
    let publisher = topic.unwrap().publisher().unwrap();
    let note = Headers::new().with("note", "why").unwrap().null().unwrap();
    for message in [Message::new(b"v").key(b"k"), Message::null(b"k").headers(note.as_ref())] {
        publisher.publish(message).wait().unwrap();
    }
    for topic in [name.clone(), format!("_helio.last.{name}")] {
        let consumer: BaseConsumer = config(broker).set("group.id", "plain").create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&topic, 0, Offset::Offset(1)).unwrap();
        consumer.assign(&list).unwrap();
        let record = consumer.poll(HANG_TIMEOUT).expect("it comes").unwrap();
        assert_eq!((record.key(), record.payload()), (Some(&b"k"[..]), None));
        let names: Vec<_> = record.headers().unwrap().iter().map(|header| header.key).collect();
        assert_eq!(names, ["helio", "note"], "{topic}");
    }
}

#[test]
fn a_null_is_refused_on_a_topic_of_sal_unless_it_is_allowed() {
    let Some(broker) = broker() else { return };
    let name = format!("Test{}/event/x", std::process::id());
    let open = |options: &str| {
        let url = broker.url(&format!("naming=sal&subname=null{options}"));
        Bus::connect(&url).unwrap().topic(TopicSpec::new(&name).unwrap().qos(Qos::event())).unwrap()
    };
    let topic = open("");
    let told = topic.publisher().unwrap().publish(Message::null(&[4])).wait().unwrap_err();
    assert!(told.to_string().contains("null=allow"), "{told}");
    let topic = open("&null=allow");
    let publisher = topic.publisher().unwrap();
    publisher.publish(Message::new(&[4, 1]).key(&[4])).wait().unwrap();
    publisher.publish(Message::null(&[4])).wait().unwrap();
    publisher.publish(Message::new(&[6, 1]).key(&[6])).wait().unwrap();
    let mut all = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let seen = gathered(&mut all, 3).into_iter().map(|s| (s.is_null(), s.key.to_vec()));
    let expected = [(false, vec![4]), (true, vec![4]), (false, vec![6])];
    assert!(seen.eq(expected));
    let mut last = topic.subscribe(Subscribe::from(Start::Last(1))).unwrap();
    assert_eq!(gathered(&mut last, 1)[0].key[..], [6]);
}

#[test]
fn a_topic_of_others_may_be_described_once() {
    let Some(broker) = broker() else { return };
    let name = unique("described").replace('/', "_");
    make(broker, &name, 1, &[]);
    let bus = broker.bus("one");
    let opened = |qos: Qos| bus.topic(TopicSpec::new(&name).unwrap().qos(qos));
    let two = Qos { partitions: 2, ..Qos::event() };
    let told = opened(two).unwrap_err().to_string();
    assert!(told.contains("partitions = 1"), "{told}");
    opened(Qos::event()).unwrap();
    let again = broker.bus("two").topic(TopicSpec::new(&name).unwrap()).unwrap();
    assert_eq!(*again.qos(), Qos::event());
    let differs = matches!(
        opened(Qos::command()),
        Err(helio_bus::TopicError::Transport(TransportError::Differs { .. }))
    );
    assert!(differs, "another quality of service was taken");
}

#[test]
fn what_others_write_into_a_topic_with_an_owner_is_read() {
    let Some(broker) = broker() else { return };
    let name = unique("owned");
    let bus = broker.bus("Mount");
    let opened = |name: &str| {
        let qos = Qos { ownership: Ownership::Exclusive, ..Qos::stream() };
        bus.topic(TopicSpec::new(name).unwrap().qos(qos)).unwrap()
    };
    // Another topic gets the first incarnation of all.
    drop(opened(&unique("first")).publisher().unwrap());
    let topic = opened(&name);
    let publisher = topic.publisher().unwrap();
    assert!(publisher.producer().incarnation > 1);
    let mut all = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let (producer, kafka) = (config(broker).create().unwrap(), name.replace('/', ".."));
    let plain = |payload: &'static [u8]| {
        send(&producer, &[BaseRecord::to(kafka.as_str()).key(b"k".as_slice()).payload(payload)]);
    };
    let own = |payload: &[u8]| publisher.publish(Message::new(payload)).wait().unwrap();
    own(b"1");
    plain(b"2");
    plain(b"3");
    own(b"4");
    plain(b"5");
    let samples = gathered(&mut all, 5);
    let payloads: Vec<_> = samples.iter().flat_map(|sample| sample.payload.to_vec()).collect();
    assert_eq!(payloads, *b"12345");
    assert_eq!((all.stats().fenced, all.stats().lost), (0, 0));
}

#[test]
fn what_the_bus_writes_others_read() {
    let Some(broker) = broker() else { return };
    let name = unique("MTMount/logevent:1");
    let bus = broker.bus("Mount:1");
    let topic = bus.topic(TopicSpec::new(&name).unwrap().qos(Qos::event())).unwrap();
    let publisher = topic.publisher().unwrap();
    let headers = Headers::new().with("helio-caller", "alice").unwrap();
    let time = helio_bus::Tai::from_unix_nanos(1_800_000_000_123_456_789);
    let message = Message::new(b"ENABLED").key(b"0").time(time).headers(headers.as_ref());
    let receipt = publisher.publish(message).wait().unwrap();

    let kafka = name.replace('/', "..").replace(':', ".-c");
    for topic in [kafka.clone(), format!("_helio.last.{kafka}")] {
        let consumer: BaseConsumer = config(broker).set("group.id", "plain").create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&topic, 0, Offset::Beginning).unwrap();
        consumer.assign(&list).unwrap();
        let record = consumer.poll(HANG_TIMEOUT).expect("it comes").unwrap();
        assert_eq!((record.key(), record.payload()), (Some(&b"0"[..]), Some(&b"ENABLED"[..])));
        assert_eq!(record.timestamp().to_millis(), Some(1_800_000_000_123));
        let headers = record.headers().unwrap();
        let names: Vec<_> = headers.iter().map(|header| header.key).collect();
        assert_eq!(names, ["helio", "helio-caller"]);
        assert_eq!(headers.get(1).value, Some(&b"alice"[..]));
        assert_eq!(u64::try_from(record.offset()).ok(), receipt.offset);
    }
}
