//! Deadline, lifespan, liveliness and ownership are DDS's own: foreign participants observe them.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::others::Foreign;
use crate::support::{domain, url};
use helio_bus::{Bus, Message, Publisher, Qos, TopicSpec};
use helio_core::idl::TopicType;
use helio_core::qos::{Liveliness, Ownership};
use helio_core::schema::Schema;
use helio_dds::dynamic_types::runtime_type;
use helio_dds::entity::{
    self, Domain, Participant, Reader, Representation, Sample, StatusEvent, Topic, Writer,
};
use serde_json::json;

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const POLICY_PERIOD: Duration = Duration::from_millis(300);

const NOTE_SCHEMA: &str = r#"{"type": "record", "name": "obs.Note", "fields": [
    {"name": "salIndex", "type": "int"}]}"#;

fn publisher(bus: &Bus, qos: Qos) -> Publisher {
    let schema = Schema::parse(NOTE_SCHEMA).unwrap();
    let spec = TopicSpec::new("note").unwrap().qos(qos).schema(&schema);
    bus.topic(spec).unwrap().publisher().unwrap()
}

/// A foreign participant, and a topic of the same type.
fn topic(domain: u32) -> Arc<Topic> {
    let config = helio_dds::configuration(&url(domain)).unwrap();
    let there = Domain::open(domain, &config).unwrap();
    let there = Participant::join(there, &entity::Qos::new()).unwrap();
    let of = runtime_type(&TopicType::new(&Schema::parse(NOTE_SCHEMA).unwrap()).unwrap());
    Topic::create(&there, "note", &of, &entity::Qos::new()).unwrap()
}

fn qos() -> entity::Qos {
    let qos = entity::Qos::new().reliable(TEST_TIMEOUT).keep_all().transient_local(None);
    qos.representations(&[Representation::Xcdr2]).partitions(&["0"]).unwrap()
}

fn reader(topic: &Arc<Topic>, qos: &entity::Qos) -> (Reader, mpsc::Receiver<StatusEvent>) {
    let (tell, told) = mpsc::channel();
    let tell = Box::new(move |news| tell.send(news).unwrap_or_default());
    (Reader::open(topic, qos, Some(tell)).unwrap(), told)
}

/// Waits for a status event.
fn until(told: &mpsc::Receiver<StatusEvent>, wanted: impl Fn(&StatusEvent) -> bool) {
    while !wanted(&told.recv_timeout(TEST_TIMEOUT).expect("it is told in time")) {}
}

/// Takes samples until a number of them has arrived.
fn take(reader: &Reader, told: &mpsc::Receiver<StatusEvent>, count: usize) -> Vec<Sample> {
    let mut samples = Vec::new();
    while samples.len() < count {
        until(told, |news| *news == StatusEvent::Data);
        reader.take(&mut samples).unwrap();
        samples.retain(|sample| sample.valid);
    }
    samples
}

#[test]
fn others_see_the_policies_in_the_built_in_topics() {
    let domain = domain();
    let bus = Bus::connect(&url(domain)).unwrap();
    let _publisher = publisher(
        &bus,
        Qos {
            deadline: Some(Duration::from_secs(3)),
            lifespan: Some(Duration::from_secs(5)),
            liveliness: Liveliness::Lease(Duration::from_secs(7)),
            ownership: Ownership::Exclusive,
            ..Qos::telemetry()
        },
    );
    let of = TopicType::new(&Schema::parse(NOTE_SCHEMA).unwrap()).unwrap();
    let Some(mut there) = Foreign::join(domain, &of.text()) else { return };
    there.ask("policies", json!({"topic": "note"}));
    let seen = there.answered()["policies"].to_string();
    for policy in [
        "Deadline(deadline=3000000000)",
        "Lifespan(lifespan=5000000000)",
        "ManualByTopic(lease_duration=7000000000)",
        "Ownership.Exclusive",
        "OwnershipStrength(strength=1)",
    ] {
        assert!(seen.contains(policy), "{policy} is not in {seen}");
    }
}

#[test]
fn others_are_told_of_a_deadline_that_is_missed() {
    let domain = domain();
    let bus = Bus::connect(&url(domain)).unwrap();
    let publisher = publisher(&bus, Qos { deadline: Some(POLICY_PERIOD), ..Qos::telemetry() });
    let (_reader, told) = reader(&topic(domain), &qos().deadline(POLICY_PERIOD));
    publisher.publish(Message::new(&[2]).key(&[2])).wait().unwrap();
    until(&told, |news| matches!(news, StatusEvent::DeadlineMissed { .. }));
}

#[test]
fn others_who_join_late_do_not_get_what_has_expired() {
    let domain = domain();
    let bus = Bus::connect(&url(domain)).unwrap();
    let publisher = publisher(&bus, Qos { lifespan: Some(POLICY_PERIOD), ..Qos::telemetry() });
    publisher.publish(Message::new(&[2]).key(&[2])).wait().unwrap();
    // No event reports that a sample has expired.
    std::thread::sleep(POLICY_PERIOD * 2);
    let (reader, told) = reader(&topic(domain), &qos());
    publisher.publish(Message::new(&[4]).key(&[4])).wait().unwrap();
    let come = take(&reader, &told, 1);
    assert_eq!(come.len(), 1);
    let of = TopicType::new(&Schema::parse(NOTE_SCHEMA).unwrap()).unwrap();
    let mut avro = Vec::new();
    of.from_cdr(come[0].cdr(), &mut avro, &mut Vec::new()).unwrap();
    assert_eq!(avro, [4], "the one that is not older than its lifespan");
}

#[test]
fn others_are_told_of_a_writer_that_lets_its_lease_run_out() {
    let domain = domain();
    let bus = Bus::connect(&url(domain)).unwrap();
    let publisher =
        publisher(&bus, Qos { liveliness: Liveliness::Lease(POLICY_PERIOD), ..Qos::telemetry() });
    let asked = qos().liveliness(entity::Liveliness::ManualByTopic, POLICY_PERIOD);
    let (_reader, told) = reader(&topic(domain), &asked);
    publisher.publish(Message::new(&[2]).key(&[2])).wait().unwrap();
    until(&told, |news| matches!(news, StatusEvent::Liveliness { gone: 1, .. }));
    publisher.publish(Message::new(&[2]).key(&[2])).wait().unwrap();
    until(&told, |news| matches!(news, StatusEvent::Liveliness { alive: 1, .. }));
}

#[test]
fn a_key_is_its_strongest_writers() {
    let domain = domain();
    let bus = Bus::builder().producer("Mount").connect(&url(domain)).unwrap();
    let publisher = publisher(&bus, Qos { ownership: Ownership::Exclusive, ..Qos::telemetry() });
    let (other, of) =
        (topic(domain), TopicType::new(&Schema::parse(NOTE_SCHEMA).unwrap()).unwrap());
    let (reader, told) = reader(&topic(domain), &qos().exclusive(0));
    let stronger = Writer::open(&other, &qos().exclusive(1_000), None).unwrap();
    let mut cdr = Vec::new();
    of.to_cdr(&Default::default(), &[2], &mut cdr).unwrap();
    stronger.write(&[std::io::IoSlice::new(&cdr)], 1).unwrap();
    let strong = take(&reader, &told, 1).remove(0).writer;
    // Of the stronger writer's key none of our samples is read, of another key all are.
    for key in [2, 4] {
        publisher.publish(Message::new(&[key]).key(&[key])).wait().unwrap();
    }
    let next = take(&reader, &told, 1).remove(0);
    let (mut avro, mut key) = (Vec::new(), Vec::new());
    let head = of.from_cdr(next.cdr(), &mut avro, &mut key).unwrap();
    assert_eq!((head.producer, &avro[..]), ("Mount", &[4][..]));
    assert_ne!(next.writer, strong);
}
