//! Packets and producers that are wrong: each costs itself alone.

use std::sync::Arc;
use std::time::Duration;

use helio_alerts::layout::Ccd;
use helio_alerts::producer::{CcdProducer, ProducerOptions, TopicLayout};
use helio_alerts::reader::{
    AlertReader, DropCause, ReaderOptions, Stamps, Start, Stream, VisitEvent,
};
use helio_alerts::rubin::{Version, reader_schema};
use helio_alerts::stamps::Packing;
use helio_alerts::topics::Part;
use helio_alerts::visit::{Finding, Rejection};
use helio_bus::{Bus, Event, Message, Subscribe, TestClock, TopicSpec};
use helio_core::{Qos, Tai, confluent};

use crate::support::{
    DETECTORS, PARTITIONS, TOPIC, WINDOW_NS, bus, made, open, opening, options, packets_of, places,
    publish_visit, read_all, read_until,
};

fn stream(bus: &Bus) -> Stream<'_> {
    Stream { bus, name: TOPIC }
}

/// Publishes payloads without a schema, as foreign producers do.
fn publish_bytes(bus: &Bus, payloads: &[Vec<u8>]) {
    let publisher = bus.topic(TopicSpec::new(TOPIC).unwrap()).unwrap().publisher().unwrap();
    for payload in payloads {
        publisher.publish(Message::new(payload).partition(0)).wait().unwrap();
    }
}

#[test]
fn a_bad_packet_drops_only_itself() {
    places("bad", |url| {
        publish_visit(url, 0, Version::LATEST, &options());
        let bus = bus(url, "reader");
        let datum = made(1, Version::V10_0).into_values().next().unwrap();
        let framed = |id: u32, datum: &[u8]| {
            let mut framed = Vec::new();
            confluent::frame(id, datum, &mut framed);
            framed
        };
        publish_bytes(
            &bus,
            &[
                b"no packet".to_vec(),
                framed(1_000, &datum[..datum.len() / 2]),
                framed(1_000, &[&datum[..], b"more"].concat()),
                framed(4_711, &datum),
                framed(1_000, &datum),
                Vec::new(),
            ],
        );
        let schema = r#"{"type":"record","name":"other","fields":[{"name":"x","type":"long"}]}"#;
        let schema = helio_core::Schema::parse(schema).unwrap();
        let spec = TopicSpec::new(TOPIC).unwrap().schema(&schema);
        let spec = spec.evolution(helio_bus::Evolution::None);
        let other = bus.topic(spec).unwrap().publisher().unwrap();
        other.publish(Message::new(&[14]).partition(1)).wait().unwrap();
        let mut reader = open(&bus, Start::Earliest, Stamps::None);
        let found = read_all(&mut reader);
        assert_eq!(found.alerts.len(), 23, "the visit, and the one that is whole");
        let counts: Vec<_> = reader.dropped().counts().filter(|(_, count)| *count > 0).collect();
        let expected =
            [(DropCause::UnknownSchema, 1), (DropCause::Damaged, 4), (DropCause::NoIdentifier, 1)];
        assert_eq!(counts, expected);
        assert_eq!(found.named.len(), 6);
        let unknown = found.named.iter().find(|one| one.cause == DropCause::UnknownSchema);
        assert!(unknown.unwrap().reason.contains("4711"), "{unknown:?}");
    });
}

#[test]
fn a_schema_changes_in_mid_night_on_one_topic() {
    places("versions", |url| {
        publish_visit(url, 0, Version::V9_0, &options());
        publish_visit(url, 1, Version::V10_0, &options());
        publish_visit(url, 2, Version::V11_1, &options());
        // A producer of the old version restarts.
        publish_visit(url, 3, Version::V10_0, &options());
        let bus = bus(url, "reader");
        let found = read_all(&mut open(&bus, Start::Earliest, Stamps::Inline));
        let (first, _) = packets_of(0, Version::LATEST);
        let versions = [Version::V9_0, Version::V10_0, Version::V11_1, Version::V10_0];
        assert_eq!(found.alerts.len(), 4 * 22);
        for alert in &found.alerts {
            let number = (alert.visit - first) as usize;
            assert_eq!(alert.layout.schema(), versions[number].schema());
            assert!(made(number as u32, versions[number])[&alert.id] == alert.datum);
        }
        // Plain subscriptions read all of them by one schema.
        let topic = bus.topic(TopicSpec::new(TOPIC).unwrap().schema(reader_schema())).unwrap();
        let mut plain = topic.subscribe(Subscribe::from(helio_bus::Start::Earliest)).unwrap();
        plain.set_fence().unwrap();
        let mut read = 0;
        while let Some(event) = plain.next_stored(Duration::from_secs(60)).unwrap() {
            assert!(matches!(event, Event::Sample(_)), "{event:?}");
            read += 1;
        }
        assert_eq!(read, 4 * 22);
    });
}

#[test]
fn a_visit_that_comes_twice_counts_once() {
    places("twice", |url| {
        publish_visit(url, 0, Version::LATEST, &options());
        publish_visit(url, 0, Version::LATEST, &options());
        let bus = bus(url, "reader");
        let mut reader = open(&bus, Start::Earliest, Stamps::None);
        let mut found = read_until(&mut reader, |found| !found.decided.is_empty());
        let rest = read_all(&mut reader);
        found.events.extend(rest.events);
        assert_eq!((found.alerts.len(), rest.alerts.len()), (22, 0));
        let (repeated, late) = (DropCause::Duplicate, DropCause::Late);
        assert_eq!(reader.dropped().of(repeated) + reader.dropped().of(late), 22);
        let visit = found.decided[0].visit;
        assert!(reader.audit(visit).unwrap().is_equal());
        assert!(stream(&bus).audit(visit).unwrap().is_equal());
        // A third time, after its end.
        publish_visit(url, 0, Version::LATEST, &options());
        let before = reader.dropped().of(late);
        let rest = read_all(&mut reader);
        assert!(rest.alerts.is_empty());
        assert_eq!(reader.dropped().of(late) - before, 22);
        let rejected = |cause: Rejection| {
            let causes = rest.events.iter().filter_map(|event| match event {
                VisitEvent::Rejected { cause, .. } => Some(*cause),
                _ => None,
            });
            causes.filter(|found| *found == cause).count()
        };
        assert_eq!(rejected(Rejection::OpenedBefore), 1);
        assert_eq!(rejected(Rejection::Closed), usize::from(DETECTORS));
        assert!(stream(&bus).audit(visit).unwrap().is_equal());
    });
}

/// One detector dies after half of its alerts, one never comes; the clock is the test's.
#[test]
fn an_incomplete_visit_is_closed_after_its_window_also_by_a_reader_that_came_late() {
    places("window", |url| {
        let clock = TestClock::new(Tai::from_nanos(1_800_000_000_000_000_000));
        let connect = |name: &str| {
            Bus::builder().producer(name).clock(Arc::new(clock.clone())).connect(url).unwrap()
        };
        let bus = connect("ccds");
        let producer = CcdProducer::open(&bus, TOPIC, Version::LATEST.schema(), options()).unwrap();
        let (visit, all) = packets_of(0, Version::LATEST);
        producer.open_visit(opening(visit)).unwrap();
        for detector in 0..2 {
            producer.publish(Ccd { visit, detector }, &all[detector as usize]).unwrap();
        }
        // The third's alerts have no manifest.
        let topic = bus.topic(TopicSpec::new(TOPIC).unwrap().schema(Version::LATEST.schema()));
        let publisher = topic.unwrap().publisher().unwrap();
        publisher.publish(Message::new(&all[2][0]).partition(2)).wait().unwrap();
        let alerts = all[0].len() + all[1].len() + 1;
        let bus = connect("late");
        let mut reader = open(&bus, Start::Latest, Stamps::None);
        assert!(read_all(&mut reader).decided.is_empty());
        clock.advance(Duration::from_nanos(WINDOW_NS as u64 - 1));
        assert!(read_all(&mut reader).decided.is_empty());
        clock.advance(Duration::from_nanos(1));
        let found = read_until(&mut reader, |found| !found.decided.is_empty());
        assert!(found.alerts.is_empty(), "they were published before it was opened");
        let closing = &found.decided[0];
        assert_eq!(closing.totals.count(), alerts as u64);
        assert_eq!((&closing.missing[..], &closing.short[..]), (&[2, 3][..], &[][..]));
        let audit = stream(&bus).audit(visit).unwrap();
        assert_eq!(audit.found, closing.totals);
        // Afterwards they are late.
        publisher.publish(Message::new(&all[2][1]).partition(2)).wait().unwrap();
        let mut other = open(&bus, Start::Earliest, Stamps::None);
        assert_eq!(read_all(&mut other).alerts.len(), alerts);
        assert_eq!(other.dropped().of(DropCause::Late), 1);
        assert_eq!(stream(&bus).audit(visit).unwrap().found, closing.totals);
    });
}

#[test]
fn alerts_whose_stamps_are_gone_come_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    let layout = TopicLayout::Split(Packing::ShuffleZstd);
    publish_visit(&url, 0, Version::LATEST, &ProducerOptions { layout, ..options() });
    let bus = bus(&url, "reader");
    assert!(bus.purge_topic(&Part::Stamps.name(TOPIC).unwrap()).unwrap());
    let mut reader = open(&bus, Start::Earliest, Stamps::Linked);
    let found = read_all(&mut reader);
    assert!(found.alerts.len() == 22 && found.alerts.iter().all(|a| a.stamps.is_none()));
    assert_eq!((reader.dropped().without_stamps, reader.dropped().total()), (22, 0));
    let mut reader = open(&bus, Start::Earliest, Stamps::Inline);
    let found = read_until(&mut reader, |found| !found.decided.is_empty());
    assert_eq!((found.alerts.len(), reader.dropped().of(DropCause::Stamps)), (0, 22));
    // The visit is complete nevertheless.
    assert!(found.decided[0].is_complete());
}

#[test]
fn a_reader_that_verifies_nothing_closes_nothing() {
    places("unverified", |url| {
        publish_visit(url, 0, Version::LATEST, &options());
        let bus = bus(url, "reader");
        let (start, verify) = (Start::Earliest, false);
        let options = ReaderOptions { start, verify, ..ReaderOptions::default() };
        let mut reader = AlertReader::open(&bus, TOPIC, options).unwrap();
        assert_eq!(read_all(&mut reader).alerts.len(), 22);
        let (visit, _) = packets_of(0, Version::LATEST);
        assert!(reader.audit(visit).unwrap_err().to_string().contains("verify"));
        assert!(reader.read(1, 1, Duration::ZERO).unwrap().events.is_empty());
        assert!(reader.ledger().visit(visit).unwrap().closing().is_none());
    });
}

/// Copies a stream's packets, but for some.
fn copy(from: &Bus, to: &Bus, leave_out: impl Fn(u64) -> bool) {
    let spec = || TopicSpec::new(TOPIC).unwrap().schema(Version::LATEST.schema());
    let qos = Qos { partitions: 1, ..Qos::stream() };
    let copy = to.topic(spec().qos(qos)).unwrap().publisher().unwrap();
    let topic = from.topic(spec()).unwrap();
    let mut packets = topic.subscribe(Subscribe::from(helio_bus::Start::Earliest)).unwrap();
    packets.set_fence().unwrap();
    let mut number = 0;
    while let Some(event) = packets.next_stored(Duration::from_secs(60)).unwrap() {
        let Event::Sample(sample) = event else { continue };
        if !leave_out(number) {
            let message = Message::new(&sample.payload).headers(sample.headers.as_ref());
            copy.publish(message).wait().unwrap();
        }
        number += 1;
    }
}

#[test]
fn a_copy_is_audited_against_the_original() {
    places("copy", |url| {
        publish_visit(url, 0, Version::LATEST, &options());
        let bus = bus(url, "reader");
        let mut reader = open(&bus, Start::Earliest, Stamps::None);
        let found = read_until(&mut reader, |found| !found.decided.is_empty());
        let visit = found.decided[0].visit;
        // A late alert is in the copy, too.
        let (_, all) = packets_of(1, Version::LATEST);
        let schema = Version::LATEST.schema();
        let producer = CcdProducer::open(&bus, TOPIC, schema, options()).unwrap();
        producer.publish(Ccd { visit, detector: 0 }, &all[0][..1]).unwrap();
        let whole = Bus::connect("memory:").unwrap();
        copy(&bus, &whole, |_| false);
        let audit = stream(&bus).audit_copy(stream(&whole), visit).unwrap();
        assert!(audit.is_equal(), "{audit:?}");
        let short = Bus::connect("memory:").unwrap();
        copy(&bus, &short, |number| number == 3);
        let audit = stream(&bus).audit_copy(stream(&short), visit).unwrap();
        let short = audit.detectors.iter().filter(|one| one.finding == Finding::Short).count();
        assert_eq!((short, audit.is_equal()), (1, false), "{audit:?}");
        assert_eq!(PARTITIONS, 3);
    });
}
