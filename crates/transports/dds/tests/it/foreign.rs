//! Foreign endpoints in the domain, which are not part of a bus.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{domain, url};
use helio_bus::{Bus, Event, Message, Qos, Start, Subscribe, TopicSpec};
use helio_core::qos::{Durability, History, Retention};
use helio_core::{HeadersRef, SchemaId, Tai};
use helio_dds::entity::{
    self, Domain, Participant, Reader, Representation, Struct, Topic, Type, Writer,
};
use helio_dds::envelope::{self, Header};

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn plain() -> Qos {
    let retention = Retention { last_value: false, ..Qos::telemetry().retention };
    let (durability, history) = (Durability::Volatile, History::None);
    Qos { durability, history, retention, ..Qos::telemetry() }
}

/// A foreign participant, in a domain that the bus has opened in this process.
fn participant(domain: u32) -> Arc<Participant> {
    let config = helio_dds::configuration(&url(domain)).unwrap();
    Participant::join(Domain::open(domain, &config).unwrap(), &entity::Qos::new()).unwrap()
}

fn envelopes(domain: u32, of: &Struct) -> Arc<Topic> {
    Topic::create(&participant(domain), "_helio/envelopes/shared", of, &entity::Qos::new()).unwrap()
}

fn qos() -> entity::Qos {
    qos_in("0")
}

fn qos_in(partition: &str) -> entity::Qos {
    let qos = entity::Qos::new().keep_all().representations(&[Representation::Xcdr2]);
    qos.partitions(&[partition]).unwrap()
}

/// Foreign writers leave the header empty.
fn empty() -> Header<'static> {
    Header {
        producer: "",
        incarnation: 0,
        sequence: 0,
        previous: 0,
        time: Tai::from_nanos(0),
        schema: SchemaId::BYTES,
        partition: 0,
        level: 0,
        flags: 0,
        trace: None,
        key: b"k",
        headers: HeadersRef::EMPTY,
    }
}

fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "it never came");
        std::thread::yield_now();
    }
}

#[test]
fn who_does_not_fit_is_told_on_both_sides_with_the_policy() {
    let domain = domain();
    let bus = Bus::connect(&url(domain)).unwrap();
    let topic = bus.topic(TopicSpec::new("shared").unwrap().qos(plain())).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let publisher = topic.publisher().unwrap();
    assert!(publisher.incompatible().is_empty());
    let foreign = envelopes(domain, &envelope::envelope_type());
    // Offers less than requested, and requests more than offered.
    let _writer = Writer::open(&foreign, &qos().best_effort(), None).unwrap();
    let late = qos().reliable(Duration::ZERO).transient_local(Some(1));
    let _reader = Reader::open(&foreign, &late, None).unwrap();
    let told = until(|| match samples.next_timeout(TEST_TIMEOUT).unwrap().unwrap() {
        Event::Incompatible(told) => Some(told),
        _ => None,
    });
    assert_eq!(told.policy, "reliability");
    let told = until(|| publisher.incompatible().pop());
    assert_eq!(told.policy, "durability");
}

#[test]
fn another_type_of_the_same_name_is_told_too() {
    let domain = domain();
    let bus = Bus::connect(&url(domain)).unwrap();
    let topic = bus.topic(TopicSpec::new("shared").unwrap().qos(plain())).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let mut other = envelope::envelope_type();
    other.members[1].of = Type::Int64;
    let foreign = envelopes(domain, &other);
    let _writer = Writer::open(&foreign, &qos().reliable(Duration::ZERO), None).unwrap();
    let told = until(|| match samples.next_timeout(TEST_TIMEOUT).unwrap().unwrap() {
        Event::Incompatible(told) => Some(told),
        _ => None,
    });
    assert_eq!(told.policy, "type consistency");
}

#[test]
fn others_write_without_a_header_and_read_ours() {
    let domain = domain();
    let bus = Bus::builder().producer("Mount").connect(&url(domain)).unwrap();
    let topic = bus.topic(TopicSpec::new("shared").unwrap().qos(plain())).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let publisher = topic.publisher().unwrap();
    let foreign = envelopes(domain, &envelope::envelope_type());
    let reliable = || qos().reliable(Duration::ZERO);
    let writer = Writer::open(&foreign, &reliable(), None).unwrap();
    let reader = Reader::open(&foreign, &reliable(), None).unwrap();
    let mut head = Vec::new();
    let mut incarnation = 0;
    for number in 1..=3_u64 {
        envelope::write_head(&empty(), 3, &mut head);
        writer.write(&envelope::pieces(&head, b"abc"), 1_700_000_000_000_000_000).unwrap();
        let sample = until(|| samples.next_timeout(TEST_TIMEOUT).unwrap().unwrap().into_sample());
        assert_eq!((&sample.payload[..], &sample.key[..]), (&b"abc"[..], &b"k"[..]));
        let header = &sample.header;
        assert_eq!((header.producer.name.as_str(), header.sequence), ("dds", number));
        assert!(number == 1 || header.producer.incarnation == incarnation);
        incarnation = header.producer.incarnation;
        assert_eq!(header.time.unix_nanos(), 1_700_000_000_000_000_000);
    }
    assert_eq!(samples.stats().lost, 0);
    // A forwarder that restarts numbers its samples from 1: that is a newer incarnation.
    let mut again = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    writer.write(&envelope::pieces(&head, b"abc"), 1_700_000_000_000_000_000).unwrap();
    let sample = until(|| again.next_timeout(TEST_TIMEOUT).unwrap().unwrap().into_sample());
    assert_eq!(sample.header.sequence, 1);
    assert!(sample.header.producer.incarnation > incarnation);
    publisher.publish(Message::new(b"ours").key(b"key").level(7)).wait().unwrap();
    let mut taken = Vec::new();
    let read = until(|| {
        reader.take(&mut taken).unwrap();
        let ours = taken.iter().filter_map(|sample| envelope::parse(sample.cdr()));
        ours.filter(|(header, _)| header.sequence > 0).map(|(h, p)| (h.level, p.to_vec())).next()
    });
    assert_eq!(read, (7, b"ours".to_vec()));
}

#[test]
fn others_write_the_partition_that_their_writer_is_in() {
    let domain = domain();
    let bus = Bus::connect(&url(domain)).unwrap();
    let qos = Qos { partitions: 4, ..plain() };
    let topic = bus.topic(TopicSpec::new("shared").unwrap().qos(qos)).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Latest)).unwrap();
    let foreign = envelopes(domain, &envelope::envelope_type());
    let mut head = Vec::new();
    let mut one = None;
    let mut writers = Vec::new();
    for partition in [3, 1] {
        let qos = qos_in(&partition.to_string()).reliable(Duration::ZERO);
        let writer = Writer::open(&foreign, &qos, None).unwrap();
        until(|| (!writer.readers().unwrap().is_empty()).then_some(()));
        // A forged incarnation fences no writer.
        for incarnation in [9, 0] {
            envelope::write_head(&Header { incarnation, ..empty() }, 3, &mut head);
            writer.write(&envelope::pieces(&head, b"abc"), 1).unwrap();
            let sample =
                until(|| samples.next_timeout(TEST_TIMEOUT).unwrap().unwrap().into_sample());
            assert_eq!(sample.partition, partition);
            let of = sample.header.producer.incarnation;
            assert_eq!(*one.get_or_insert(of), of);
        }
        writers.push(writer);
    }
    // Back to each writer: samples of the others in between are not lost.
    for (writer, partition) in writers.iter().zip([3, 1]) {
        envelope::write_head(&empty(), 3, &mut head);
        writer.write(&envelope::pieces(&head, b"abc"), 1).unwrap();
        let sample = until(|| samples.next_timeout(TEST_TIMEOUT).unwrap().unwrap().into_sample());
        assert_eq!((sample.partition, sample.header.sequence), (partition, 3));
    }
    assert_eq!((samples.stats().lost, samples.stats().duplicates), (0, 0));
}
