//! Engines that fail for a while: no alert is lost, and none is dropped for it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use helio_alerts::layout::Ccd;
use helio_alerts::producer::{CcdProducer, ProducerOptions, TopicLayout};
use helio_alerts::reader::{
    AlertReader, ReaderOptions, StampFetcher, Stamps, Start, Stream, VisitEvent,
};
use helio_alerts::rubin::Version;
use helio_alerts::stamps::Packing;
use helio_alerts::topics::{Part, control_topic};
use helio_alerts::visit::{Control, Digest, Extent, Manifest};
use helio_bus::transport::fault::{Cable, FaultPlan, FaultTransport};
use helio_bus::transport::{Decorator, TopicDecorator, Transport, TransportTopic};
use helio_bus::{Bus, Event, Message, Subscribe, TestClock, TransportError};
use helio_core::codec::Codec;
use helio_core::schema::HasSchema;
use helio_core::{Tai, TopicName};

use crate::support::{
    Found, TOPIC, WINDOW_NS, bus, made, open, opening, options, packets_of, publish_visit,
    read_all, read_until,
};

fn faulty(url: &str, name: &str) -> (Bus, Cable) {
    let faults = FaultTransport::connect(url, FaultPlan::default()).unwrap();
    let cable = faults.cable();
    (Bus::builder().producer(name).over(faults).unwrap(), cable)
}

/// Reads all that is stored, and counts the calls that fail; `mend` is called after the first.
fn read_through(reader: &mut AlertReader, mut mend: impl FnMut()) -> (Found, usize) {
    let (mut found, mut failed) = (Found::default(), 0);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match reader.read(1_000, 1 << 30, Duration::ZERO) {
            Ok(read) => {
                let is_empty = read.is_empty();
                found.add(read);
                if is_empty && reader.lag() == 0 {
                    return (found, failed);
                }
            }
            Err(_) => {
                failed += 1;
                mend();
            }
        }
        assert!(Instant::now() < until, "{reader:?}");
    }
}

/// The file of a schema in a journal.
fn schema_file(journal: &Path, version: Version) -> PathBuf {
    journal.join("schemas").join(format!("{:016x}.avsc", version.schema().id().0))
}

#[test]
fn a_schema_that_cannot_be_looked_up_for_a_while_costs_no_packet() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    publish_visit(&url, 0, Version::V10_0, &options());
    publish_visit(&url, 1, Version::V11_1, &options());
    let file = schema_file(folder.path(), Version::V11_1);
    let text = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let bus = bus(&url, "reader");
    let mut reader = open(&bus, Start::Earliest, Stamps::Inline);
    let (found, failed) = read_through(&mut reader, || {
        if file.is_dir() {
            std::fs::remove_dir(&file).unwrap();
            std::fs::write(&file, &text).unwrap();
        }
    });
    let ids: Vec<_> = found.alerts.iter().map(|alert| alert.id).collect();
    let expected: BTreeSet<_> = [made(0, Version::V10_0), made(1, Version::V11_1)]
        .into_iter()
        .flat_map(std::collections::BTreeMap::into_keys)
        .collect();
    assert_eq!((ids.len(), found.ids()), (expected.len(), expected), "before the error, too");
    assert_eq!((failed, reader.dropped().total()), (1, 0));
}

#[test]
fn stamps_that_cannot_be_read_for_a_while_cost_no_alert() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    let layout = TopicLayout::Split(Packing::ShuffleZstd);
    publish_visit(&url, 0, Version::LATEST, &ProducerOptions { layout, ..options() });
    for stamps in [Stamps::Inline, Stamps::Linked] {
        let (bus, cable) = faulty(&url, "reader");
        let topic = Part::Stamps.name(TOPIC).unwrap();
        let mut reader = open(&bus, Start::Earliest, stamps);
        cable.break_topic(&topic);
        let (found, failed) = read_through(&mut reader, || cable.mend_topic(&topic));
        assert_eq!((failed, found.alerts.len(), found.ids().len()), (1, 22, 22));
        assert!(reader.dropped().is_empty(), "{:?}", reader.dropped());
    }
}

/// A transport that does not tell what groups have committed, while that is set.
struct Forgetful {
    inner: Arc<FaultTransport>,
    fails: Arc<AtomicBool>,
}

struct ForgetfulTopic {
    inner: Arc<dyn TransportTopic>,
    fails: Arc<AtomicBool>,
}

impl Decorator for Forgetful {
    fn inner(&self) -> &dyn Transport {
        &*self.inner
    }

    fn topic(&self, inner: Arc<dyn TransportTopic>, _: &TopicName) -> Arc<dyn TransportTopic> {
        Arc::new(ForgetfulTopic { inner, fails: Arc::clone(&self.fails) })
    }
}

impl TopicDecorator for ForgetfulTopic {
    fn inner(&self) -> &dyn TransportTopic {
        &*self.inner
    }

    fn committed(&self, group: &str) -> Result<Vec<(u32, u64)>, TransportError> {
        if self.fails.load(Ordering::Acquire) {
            let cause = "the coordinator moves".to_owned();
            return Err(TransportError::Outage { transport: "test".to_owned(), cause });
        }
        self.inner.committed(group)
    }
}

fn member(bus: &Bus) -> AlertReader {
    let (group, start) = (Some("filters".to_owned()), Start::Committed);
    let options = ReaderOptions { group, start, ..ReaderOptions::default() };
    AlertReader::open(bus, TOPIC, options).unwrap()
}

#[test]
fn an_assignment_that_fails_is_repeated() {
    let url = "memory:reassigned";
    publish_visit(url, 0, Version::LATEST, &options());
    let fails = Arc::new(AtomicBool::new(false));
    let inner = FaultTransport::connect(url, FaultPlan::default()).unwrap();
    let transport = Arc::new(Forgetful { inner, fails: Arc::clone(&fails) });
    let bus = Bus::builder().producer("member").over(transport).unwrap();
    let mut reader = member(&bus);
    fails.store(true, Ordering::Release);
    let until = Instant::now() + Duration::from_secs(60);
    while reader.read(7, 1 << 20, Duration::from_millis(20)).is_ok() {
        assert!(Instant::now() < until, "no assignment");
    }
    assert!(reader.read(7, 1 << 20, Duration::ZERO).is_err(), "it fails again");
    fails.store(false, Ordering::Release);
    let found = read_until(&mut reader, |found| found.ids().len() == 22);
    assert_eq!(found.alerts.len(), 22);
    let is_assigned =
        |event: &VisitEvent| matches!(event, VisitEvent::Assigned(own) if own.len() == 3);
    assert!(found.events.iter().any(is_assigned), "{:?}", found.events);
}

#[test]
fn a_member_does_not_replace_the_digests_of_partitions_that_it_gains() {
    let url = "memory:digests";
    publish_visit(url, 0, Version::LATEST, &options());
    let buses = ["a", "b"].map(|name| bus(url, name));
    let [mut a, mut b] = buses.each_ref().map(member);
    let until = Instant::now() + Duration::from_secs(60);
    let mut read = [Found::default(), Found::default()];
    let own = |found: &Found| {
        found.events.iter().rev().find_map(|event| match event {
            VisitEvent::Assigned(own) => Some(own.len()),
            _ => None,
        })
    };
    let mut pump = |done: &dyn Fn(&[Found; 2]) -> bool| {
        while !done(&read) {
            for (reader, found) in [&mut a, &mut b].into_iter().zip(&mut read) {
                found.add(reader.read(7, 1 << 20, Duration::from_millis(5)).unwrap());
            }
            assert!(Instant::now() < until, "{read:?}");
        }
    };
    pump(&|read| {
        read.iter().filter_map(own).sum::<usize>() == 3 && read.iter().all(|r| own(r).is_some())
    });
    publish_visit(url, 1, Version::LATEST, &options());
    let (visit, _) = packets_of(1, Version::LATEST);
    let closer = bus(url, "closer");
    let mut closing = open(&closer, Start::Earliest, Stamps::None);
    read_until(&mut closing, |found| found.decided.iter().any(|one| one.visit == visit));
    pump(&|read| read.iter().all(|r| r.decided.iter().any(|one| one.visit == visit)));
    b.commit().unwrap();
    drop(b);
    read_until(&mut a, |found| own(found) == Some(3));
    a.commit().unwrap();
    let audit = Stream { bus: &buses[0], name: TOPIC }.audit_group("filters", visit).unwrap();
    assert!(audit.is_equal(), "{audit:?}");
    let names: BTreeSet<_> = audit.members.values().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["a", "b"]));
}

/// Publishes the packets of detector 0 of visits, in this order, after all are opened.
fn publish_interleaved(url: &str, visits: u32, order: &[u32]) -> Vec<i64> {
    let bus = bus(url, "ccd");
    let producer = CcdProducer::open(&bus, TOPIC, Version::LATEST.schema(), options()).unwrap();
    let all: Vec<_> = (0..visits).map(|visit| packets_of(visit, Version::LATEST)).collect();
    for (visit, _) in &all {
        producer.open_visit(opening(*visit)).unwrap();
    }
    for number in order {
        let (visit, packets) = &all[*number as usize];
        producer.publish(Ccd { visit: *visit, detector: 0 }, &packets[0]).unwrap();
    }
    all.into_iter().map(|(visit, _)| visit).collect()
}

#[test]
fn a_checkpoint_excludes_packets_that_are_held() {
    let url = "memory:held";
    let visits = publish_interleaved(url, 3, &[2, 1, 0]);
    let bus = bus(url, "reader");
    let mut reader = open(&bus, Start::Visit(visits[1]), Stamps::None);
    let mut first = Found::default();
    let until = Instant::now() + Duration::from_secs(60);
    while first.alerts.is_empty() {
        first.add(reader.read(1, 1 << 20, Duration::ZERO).unwrap());
        assert!(Instant::now() < until, "{reader:?}");
    }
    assert_eq!(first.alerts[0].visit, visits[1]);
    reader.checkpoint("held").unwrap();
    let next = reader.positions().iter().find(|at| at.partition == 0).unwrap().next;
    assert_eq!(next, 0, "the first held packet");
    let mut resumed = open(&bus, Start::Checkpoint("held".to_owned()), Stamps::None);
    let found = read_all(&mut resumed);
    let held = found.alerts.iter().filter(|alert| alert.visit == visits[2]).count();
    assert_eq!(held, packets_of(2, Version::LATEST).1[0].len());
    let rest = read_all(&mut reader);
    assert!(rest.alerts.iter().any(|alert| alert.visit == visits[2]));
}

fn announce(bus: &Bus, manifest: Manifest) {
    let mut payload = Vec::new();
    let codec = Codec::new(&Control::schema().unwrap());
    codec.serialize(&Control::Manifest(manifest), &mut payload).unwrap();
    let publisher = control_topic(bus, TOPIC).unwrap().publisher().unwrap();
    publisher.publish(Message::new(&payload)).wait().unwrap();
}

#[test]
fn stamps_are_found_by_the_newest_extent_and_wrong_extents_are_left_out() {
    let url = "memory:extents";
    let bus = bus(url, "ccd");
    let producer = CcdProducer::open(&bus, TOPIC, Version::LATEST.schema(), options()).unwrap();
    let (visit, all) = packets_of(0, Version::LATEST);
    let (first, second) = all[0].split_at(2);
    let layout = helio_alerts::layout::Layout::new(Version::LATEST.schema());
    let id = |datum: &Vec<u8>| layout.alert_id(datum).unwrap().unwrap();
    let highest = all[0].iter().map(id).max().unwrap();
    producer.open_visit(opening(visit)).unwrap();
    producer.publish(Ccd { visit, detector: 0 }, first).unwrap();
    let mut fetcher = StampFetcher::open(&bus, TOPIC).unwrap();
    assert!(fetcher.stamps(id(&first[0]), None).is_ok());
    producer.publish(Ccd { visit, detector: 0 }, second).unwrap();
    for datum in &all[0] {
        assert!(fetcher.stamps(id(datum), None).is_ok());
    }
    for (partition, first, end) in [(0, 0, 0), (0, -1, 5), (-1, 0, 5), (0, 5, i64::MIN), (0, 5, 5)]
    {
        let (lowest_id, highest_id) = (highest + 1, highest + 1);
        let extent = Some(Extent { partition, first, end, lowest_id, highest_id });
        let manifest = Manifest {
            visit: visit + 1,
            detector: 1,
            producer: "foreign".to_owned(),
            alerts: Digest::default(),
            stamps: None,
            published_ns: 0,
            extent,
        };
        announce(&bus, manifest);
        let error = fetcher.stamps(highest + 1, None).unwrap_err();
        assert!(error.to_string().contains("no packet"), "{error}");
    }
}

/// The engine confirms the closing record late: it is proposed once, and reads go on meanwhile.
#[test]
fn a_closing_record_in_flight_is_not_proposed_again() {
    let url = "memory:in-flight";
    let clock = TestClock::new(Tai::from_nanos(1_800_000_000_000_000_000));
    let (visit, all) = packets_of(0, Version::LATEST);
    let faults = FaultTransport::connect(url, FaultPlan::default()).unwrap();
    let cable = faults.cable();
    let bus =
        Bus::builder().producer("reader").clock(Arc::new(clock.clone())).over(faults).unwrap();
    let producer = CcdProducer::open(&bus, TOPIC, Version::LATEST.schema(), options()).unwrap();
    producer.open_visit(opening(visit)).unwrap();
    producer.publish(Ccd { visit, detector: 0 }, &all[0]).unwrap();
    let mut reader = open(&bus, Start::Earliest, Stamps::None);
    assert!(read_all(&mut reader).decided.is_empty());
    cable.freeze();
    clock.advance(Duration::from_nanos(WINDOW_NS as u64));
    for _ in 0..3 {
        assert!(reader.read(7, 1 << 20, Duration::ZERO).unwrap().alerts.is_empty());
        // Longer than the time between two proposals.
        std::thread::sleep(Duration::from_millis(1_200));
    }
    cable.thaw();
    read_until(&mut reader, |found| !found.decided.is_empty());
    read_all(&mut reader);
    let control = control_topic(&bus, TOPIC).unwrap();
    let mut records = control.subscribe(Subscribe::from(helio_bus::Start::Earliest)).unwrap();
    records.set_fence().unwrap();
    let (codec, mut closings) = (Codec::new(&Control::schema().unwrap()), 0);
    while let Some(event) = records.next_stored(Duration::from_secs(60)).unwrap() {
        let Event::Sample(sample) = event else { continue };
        let record = codec.deserialize::<Control>(&sample.payload).unwrap();
        closings += usize::from(matches!(record, Control::Closing(_)));
    }
    assert_eq!(closings, 1);
}
