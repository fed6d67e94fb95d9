//! Producers of detectors on a bus, and readers of the whole visit.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use helio_alerts::framing::{Schemas, put_single_object};
use helio_alerts::layout::{Ccd, Layout};
use helio_alerts::producer::{
    CcdOutcome, CcdProducer, ProducerError, ProducerOptions, TopicLayout,
};
use helio_alerts::rubin::Version;
use helio_alerts::stamps::{Packing, alert_of, unpack};
use helio_alerts::topics::{DETECTOR_HEADER, VISIT_HEADER, control_topic};
use helio_alerts::visit::{
    Closing, Control, Effect, Position, ReadAlert, Reader, Role, payload_hash,
};
use helio_bus::transport::fault::{Cable, FaultPlan, FaultTransport};
use helio_bus::{Bus, Event, Sample, Start, Subscribe, TopicSpec};
use helio_core::codec::Codec;
use helio_core::qos::Overload;
use helio_core::schema::HasSchema;

use crate::support::{
    DETECTORS, PARTITIONS, TOPIC, bus, opening, options, packets, packets_of, publish,
};

/// All samples of a topic.
fn samples(bus: &Bus, spec: TopicSpec) -> Vec<Sample> {
    let topic = bus.topic(spec).unwrap();
    let end: u64 = topic.partitions().unwrap().iter().map(|partition| partition.end).sum();
    let mut subscription = topic.subscribe(Subscribe::from(Start::Earliest)).unwrap();
    let mut samples = Vec::new();
    while (samples.len() as u64) < end {
        match subscription.next_timeout(Duration::from_secs(60)).unwrap() {
            Some(Event::Sample(sample)) => samples.push(sample),
            Some(Event::Gap(gap)) => panic!("{gap:?}"),
            Some(_) => {}
            None => panic!("{} of {end} samples", samples.len()),
        }
    }
    samples
}

fn alerts(bus: &Bus) -> Vec<Sample> {
    samples(bus, TopicSpec::new(TOPIC).unwrap().schema(Version::LATEST.schema()))
}

/// Has a reader read the visit, in the order of the subscription, and returns it with its proposal.
fn read(bus: &Bus) -> (Reader, Option<Closing>) {
    let mut reader = Reader::new("reader", Role::Whole, vec![0; PARTITIONS as usize]);
    let mut proposed = None;
    let mut take = |effects: Vec<Effect>| {
        for effect in effects {
            if let Effect::Propose(closing) = effect {
                proposed = Some(closing);
            }
        }
    };
    let control = control_topic(bus, TOPIC).unwrap();
    let codec = Codec::new(&Control::schema().unwrap());
    let spec = TopicSpec::of(control.name().clone()).qos(control.qos().clone());
    for sample in samples(bus, spec) {
        take(reader.control(codec.deserialize(&sample.payload).unwrap(), 0));
    }
    let layout = Layout::new(Version::LATEST.schema());
    for sample in alerts(bus) {
        let ccd = layout.ccd(&sample.payload).unwrap().unwrap();
        let number = |name| {
            let value = sample.headers.as_ref().get(name).unwrap();
            std::str::from_utf8(value).unwrap().parse::<i64>().unwrap()
        };
        let header = Ccd { visit: number(VISIT_HEADER), detector: number(DETECTOR_HEADER) as i32 };
        assert_eq!(header, ccd);
        assert_eq!(sample.partition, ccd.detector as u32 % PARTITIONS);
        let alert = ReadAlert {
            visit: ccd.visit,
            detector: ccd.detector,
            id: layout.alert_id(&sample.payload).unwrap().unwrap(),
            payload: payload_hash(&sample.payload),
            at: Position { partition: sample.partition, offset: sample.offset },
        };
        take(reader.alert(&alert).1);
    }
    (reader, proposed)
}

#[test]
fn a_visit_goes_over_the_bus_and_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    let outcomes = publish(&url, &options());
    assert!(outcomes.iter().all(CcdOutcome::is_published), "{outcomes:?}");
    let bus = bus(&url, "reader");
    let (reader, closing) = read(&bus);
    let closing = closing.unwrap();
    assert!(closing.is_complete() && closing.repeated.is_empty(), "{closing:?}");
    assert_eq!(closing.totals.count(), 22);
    assert!(reader.audit(closing.visit).unwrap().is_equal());
    // Byte for byte, and readable without the registry.
    let (_, packets) = packets();
    let published: Vec<_> = packets.into_iter().flatten().collect();
    assert!(alerts(&bus).iter().all(|sample| published.iter().any(|p| **p == *sample.payload)));
    let mut framed = Vec::new();
    put_single_object(Version::LATEST.schema(), &published[0], &mut framed);
    assert!(*Schemas::rubin().open(&framed).unwrap().datums[0] == published[0][..]);
}

#[test]
fn split_packets_are_whole_again() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    let layout = TopicLayout::Split(Packing::ShuffleZstd);
    let outcomes = publish(&url, &ProducerOptions { layout, ..options() });
    assert!(outcomes.iter().all(CcdOutcome::is_published), "{outcomes:?}");
    let bus = bus(&url, "reader");
    let (reader, closing) = read(&bus);
    assert!(reader.audit(closing.unwrap().visit).unwrap().is_equal());
    let stamps = samples(&bus, TopicSpec::new("alerts/stamps").unwrap());
    let mut parts = HashMap::new();
    let mut by_alert = HashMap::new();
    for sample in &stamps {
        match alert_of(&sample.payload).unwrap() {
            0 => {
                let part = unpack(&sample.payload, |_| None).unwrap().files.remove(0).unwrap();
                parts.insert(format!("{:032x}", xxhash(&part)), part);
            }
            id => _ = by_alert.insert(id, sample.payload.clone()),
        }
    }
    assert_eq!(parts.len(), 2 * usize::from(DETECTORS), "two PSFs a detector");
    let (_, packets) = packets();
    let packets: HashMap<_, _> = packets
        .into_iter()
        .flatten()
        .map(|datum| (Layout::new(Version::LATEST.schema()).alert_id(&datum).unwrap(), datum))
        .collect();
    let layout = Layout::new(Version::LATEST.schema());
    for sample in alerts(&bus) {
        let id = layout.alert_id(&sample.payload).unwrap();
        let find = |hash| parts.get(&format!("{hash:032x}")).map(|part| &part[..]);
        let stamps = unpack(&by_alert[&id.unwrap()], find).unwrap();
        let files: Vec<_> = stamps.files.iter().map(Option::as_deref).collect();
        let mut whole = Vec::new();
        layout.join(&sample.payload, &files, &mut whole).unwrap();
        assert!(whole == packets[&id]);
    }
}

fn xxhash(part: &[u8]) -> u128 {
    payload_hash(part)
}

/// Half of the publishes find a full queue, and a third are stored and reported as unknown.
#[test]
fn what_is_refused_is_published_again_and_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    let faulty = format!("fault:{url}?seed=4&refuse=0.5&doubt=0.3");
    let outcomes = publish(&faulty, &options());
    assert!(outcomes.iter().all(CcdOutcome::is_published), "{outcomes:?}");
    let bus = bus(&url, "reader");
    assert!(alerts(&bus).len() > 22, "some came twice");
    let (reader, closing) = read(&bus);
    let closing = closing.unwrap();
    assert!(closing.is_complete() && !closing.repeated.is_empty(), "{closing:?}");
    assert!(reader.audit(closing.visit).unwrap().is_equal());
}

#[test]
fn what_fails_is_named_spilled_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().join("journal").display());
    let spill = folder.path().join("spill");
    let retry_for = Duration::from_millis(50);
    let options = ProducerOptions { spill: Some(spill.clone()), retry_for, ..options() };
    let faults = FaultTransport::connect(&url, FaultPlan::default()).unwrap();
    let cable = faults.cable();
    let bus = Bus::builder().producer("ccds").over(faults).unwrap();
    let producer = CcdProducer::open(&bus, TOPIC, Version::LATEST.schema(), options).unwrap();
    let (visit, all) = packets();
    let layout = Layout::new(Version::LATEST.schema());
    producer.open_visit(opening(visit)).unwrap();
    cable.pull();
    let mut outcomes = Vec::new();
    for (detector, packets) in (0..).zip(&all) {
        let outcome = producer.publish(Ccd { visit, detector }, packets).unwrap();
        let mut ids: Vec<_> =
            packets.iter().map(|datum| layout.alert_id(datum).unwrap().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!((&outcome.failed, outcome.is_announced), (&ids, false));
        assert!(outcome.cause.is_some());
        assert!(outcome.spilled.as_ref().unwrap().starts_with(&spill));
        outcomes.push(outcome);
    }
    let file = outcomes[0].spilled.as_ref().unwrap();
    assert!(!producer.replay(file).unwrap().is_published() && file.exists());
    cable.put_back();
    for outcome in &outcomes {
        let file = outcome.spilled.as_ref().unwrap();
        let replayed = producer.replay(file).unwrap();
        assert!(replayed.is_published() && !file.exists(), "{replayed:?}");
        assert_eq!(replayed.manifest.alerts, outcome.manifest.alerts);
    }
    let (reader, closing) = read(&bus);
    assert!(closing.unwrap().is_complete());
    assert!(reader.audit(visit).unwrap().is_equal());
    assert!(producer.replay(&spill.join("other.avro")).is_err());
}

/// An engine that does not respond: its queue is full, and the topics' policy is to block.
#[test]
fn a_blocked_queue_holds_no_producer_beyond_its_deadline() {
    for (name, layout) in
        [("inline", TopicLayout::Inline), ("split", TopicLayout::Split(Packing::Plain))]
    {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("journal:{}", folder.path().join(name).display());
        let retry_for = Duration::from_millis(50);
        let spill = Some(folder.path().join("spill"));
        let options = ProducerOptions { layout, spill, retry_for, ..options() };
        let faults =
            FaultTransport::connect(&url, FaultPlan { queue: 2, ..FaultPlan::default() }).unwrap();
        let cable = faults.cable();
        let bus = Bus::builder().producer("ccds").over(faults).unwrap();
        let topic = || bus.topic(TopicSpec::new(TOPIC).unwrap()).unwrap();
        let producer = CcdProducer::open(&bus, TOPIC, Version::LATEST.schema(), options).unwrap();
        assert_eq!(topic().qos().overload, Overload::Block);
        let (visit, all) = packets();
        producer.open_visit(opening(visit)).unwrap();
        cable.freeze();
        let layout = Layout::new(Version::LATEST.schema());
        let mut outcomes = Vec::new();
        for (detector, packets) in (0..).zip(&all) {
            let outcome = producer.publish(Ccd { visit, detector }, packets).unwrap();
            let ids = packets.iter().map(|datum| layout.alert_id(datum).unwrap().unwrap());
            let ids: BTreeSet<_> = ids.collect();
            assert_eq!(outcome.failed, ids.into_iter().collect::<Vec<_>>(), "{name}");
            assert!(!outcome.is_announced && outcome.cause.is_some(), "{name}: {outcome:?}");
            assert!(outcome.spilled.as_ref().is_some_and(|file| file.exists()), "{name}");
            outcomes.push(outcome);
        }
        // Nothing of it blocks later publishes.
        cable.thaw();
        for outcome in &outcomes {
            let replayed = producer.replay(outcome.spilled.as_ref().unwrap()).unwrap();
            assert!(replayed.is_published(), "{name}: {replayed:?}");
        }
        let (reader, closing) = read(&bus);
        assert!(closing.unwrap().is_complete(), "{name}");
        assert!(reader.audit(visit).unwrap().is_equal(), "{name}");
    }
}

/// A producer whose engine is unreachable, with the cable.
fn unreachable(folder: &Path, version: Version) -> (CcdProducer, Cable) {
    let url = format!("journal:{}", folder.join("journal").display());
    let retry_for = Duration::from_millis(50);
    let options = ProducerOptions { spill: Some(folder.join("spill")), retry_for, ..options() };
    let faults = FaultTransport::connect(&url, FaultPlan::default()).unwrap();
    let cable = faults.cable();
    let bus = Bus::builder().producer("ccds").over(faults).unwrap();
    let producer = CcdProducer::open(&bus, TOPIC, version.schema(), options).unwrap();
    cable.pull();
    (producer, cable)
}

#[test]
fn a_spill_file_of_another_schema_is_not_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let (old, cable) = unreachable(folder.path(), Version::V10_0);
    let (visit, all) = packets_of(0, Version::V10_0);
    let file = old.publish(Ccd { visit, detector: 0 }, &all[0]).unwrap().spilled.unwrap();
    cable.put_back();
    let (new, cable) = unreachable(folder.path(), Version::V11_1);
    cable.put_back();
    let error = new.replay(&file).unwrap_err();
    assert!(matches!(&error, ProducerError::SpillSchema { .. }), "{error}");
    assert!(file.exists());
    // A producer of that schema is again there.
    let (again, cable) = unreachable(folder.path(), Version::V10_0);
    cable.put_back();
    assert!(again.replay(&file).unwrap().is_published() && !file.exists());
}

#[test]
fn failed_alerts_are_named_also_if_they_cannot_be_spilled() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("spill"), "no folder").unwrap();
    let (producer, _cable) = unreachable(folder.path(), Version::LATEST);
    let (visit, all) = packets();
    let outcome = producer.publish(Ccd { visit, detector: 0 }, &all[0]).unwrap();
    assert_eq!(outcome.failed.len(), all[0].len());
    assert!(outcome.spilled.is_none() && outcome.spill_error.is_some(), "{outcome:?}");
}

/// Nothing of a batch with an invalid packet is published, in either layout.
#[test]
fn invalid_packets_are_not_published() {
    let split = TopicLayout::Split(Packing::ShuffleZstd);
    for (name, layout) in [("inline", TopicLayout::Inline), ("split", split)] {
        let bus = bus(&format!("memory:invalid-{name}"), "ccd");
        let options = ProducerOptions { layout, ..options() };
        let schema = Version::LATEST.schema();
        let producer = CcdProducer::open(&bus, TOPIC, schema, options).unwrap();
        let (visit, all) = packets();
        let ccd = Ccd { visit, detector: 0 };
        let (first, second) = (&all[0][0], &all[0][1]);
        let repeated = [first.clone(), second.clone(), first.clone()];
        let error = producer.publish(ccd, &repeated).unwrap_err();
        let is_third = matches!(&error, ProducerError::Packet { index: 2, .. });
        assert!(is_third && error.to_string().contains("packet 0"), "{error}");
        for wrong in [&second[..second.len() - 1], &[&second[..], b"!"].concat()] {
            let error = producer.publish(ccd, &[&first[..], wrong]).unwrap_err();
            assert!(matches!(&error, ProducerError::Packet { index: 1, .. }), "{error}");
        }
        assert!(alerts(&bus).is_empty());
    }
}
