//! Real packets, Rubin's published schemas, and a small stream.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions};
use helio_alerts::layout::{Ccd, Layout};
use helio_alerts::producer::{CcdOutcome, CcdProducer, ProducerOptions};
use helio_alerts::reader::{
    Alert, AlertReader, Dropped, Read, ReaderOptions, Stamps, Start, VisitEvent,
};
use helio_alerts::rubin::Version;
use helio_alerts::visit::{Closing, Opening};
use helio_bus::Bus;
use helio_core::schema::{Schema, SchemaSet};

/// A real packet; where it is absent the test says that it is skipped.
pub(crate) fn shared_data(part: &str) -> Option<Vec<u8>> {
    let root = std::env::var_os("HELIO_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data"),
        PathBuf::from,
    );
    let path = root.join(part);
    let found = std::fs::read(&path).ok();
    if found.is_none() {
        println!("skipped: {} not found", path.display());
    }
    found
}

/// A real packet of version 9.0, with its Confluent frame.
pub(crate) fn rubin_packet() -> Option<Vec<u8>> {
    shared_data("alerts/lsst-v9_0-confluent-framed.bin")
}

/// A version's published schema, from the package lsst-alert-packet where the repository's Python
/// environment has it. Where it is absent the test says that it is skipped.
pub(crate) fn published(version: helio_alerts::rubin::Version) -> Option<Schema> {
    let venv = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../.venv/lib");
    let part = version.to_string().replace('.', "/");
    let part = format!("site-packages/lsst/alert/packet/schema/{part}");
    let pythons = std::fs::read_dir(venv).into_iter().flatten().flatten();
    let Some(folder) = pythons.map(|p| p.path().join(&part)).find(|folder| folder.is_dir()) else {
        println!("skipped: {venv} has no {part}; `make python` installs lsst-alert-packet");
        return None;
    };
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|e| e == "avsc"));
    let texts: Vec<_> = files
        .map(|file| (file.display().to_string(), std::fs::read_to_string(&file).unwrap()))
        .collect();
    let set = SchemaSet::load(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let name = format!("lsst.v{}.alert", version.to_string().replace('.', "_"));
    Some(set.unwrap().schema(&name).unwrap())
}

pub(crate) const TOPIC: &str = "alerts";
pub(crate) const PARTITIONS: u32 = 3;
/// How long after its opening a visit may be closed.
pub(crate) const WINDOW_NS: i64 = 60_000_000_000;
/// When the shutter closed, for all visits.
pub(crate) const SHUTTER_CLOSE_NS: i64 = 1_800_000_000_000_000_000;
pub(crate) const DETECTORS: u16 = 4;

pub(crate) fn options() -> ProducerOptions {
    ProducerOptions { partitions: PARTITIONS, ..ProducerOptions::default() }
}

pub(crate) fn bus(url: &str, name: &str) -> Bus {
    Bus::builder().producer(name).connect(url).unwrap()
}

/// The packets of the first visit, by detector.
pub(crate) fn packets() -> (i64, Vec<Vec<Vec<u8>>>) {
    packets_of(0, Version::LATEST)
}

/// The packets of a visit, by detector.
pub(crate) fn packets_of(visit: u32, version: Version) -> (i64, Vec<Vec<Vec<u8>>>) {
    let options = GeneratorOptions {
        alerts_per_visit: 22,
        detectors: DETECTORS,
        version,
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(options);
    let mut all = Vec::new();
    for detector in 0..DETECTORS {
        let mut packets = Vec::new();
        for number in 0..generator.alerts(detector) {
            let mut datum = Vec::new();
            generator.write(AlertNumber { visit, detector, number }, &mut datum);
            packets.push(datum);
        }
        all.push(packets);
    }
    (generator.visit_id(visit), all)
}

pub(crate) fn opening(visit: i64) -> Opening {
    Opening {
        visit,
        detectors: (0..DETECTORS.into()).collect(),
        shutter_close_ns: SHUTTER_CLOSE_NS,
        window_ns: WINDOW_NS,
        starts: Vec::new(),
    }
}

/// Publishes a visit, each detector by a producer with a name of its own.
pub(crate) fn publish(url: &str, options: &ProducerOptions) -> Vec<CcdOutcome> {
    publish_visit(url, 0, Version::LATEST, options)
}

/// The same, of any visit and version.
pub(crate) fn publish_visit(
    url: &str,
    visit: u32,
    version: Version,
    options: &ProducerOptions,
) -> Vec<CcdOutcome> {
    let (visit, all) = packets_of(visit, version);
    let mut outcomes = Vec::new();
    for (detector, packets) in (0..).zip(&all) {
        let bus = bus(url, &format!("ccd-{detector}"));
        let producer = CcdProducer::open(&bus, TOPIC, version.schema(), options.clone()).unwrap();
        if detector == 0 {
            producer.open_visit(opening(visit)).unwrap();
        }
        outcomes.push(producer.publish(Ccd { visit, detector }, packets).unwrap());
    }
    outcomes
}

/// A place for a stream on each transport of one machine.
pub(crate) fn places(test: &str, each: impl Fn(&str)) {
    each(&format!("memory:{test}"));
    let folder = tempfile::tempdir().unwrap();
    each(&format!("journal:{}", folder.path().display()));
}

/// The packets of a visit as they were made, by identifier.
pub(crate) fn made(visit: u32, version: Version) -> BTreeMap<i64, Vec<u8>> {
    let layout = Layout::new(version.schema());
    let packets = packets_of(visit, version).1.into_iter().flatten();
    packets.map(|datum| (layout.alert_id(&datum).unwrap().unwrap(), datum)).collect()
}

/// No test waits longer for what has to come.
const GUARD: Duration = Duration::from_secs(60);

/// All that readers have returned.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) alerts: Vec<Alert>,
    pub(crate) decided: Vec<Closing>,
    pub(crate) events: Vec<VisitEvent>,
    pub(crate) named: Vec<Dropped>,
}

impl Found {
    pub(crate) fn add(&mut self, read: Read) {
        for event in read.events {
            if let VisitEvent::Decided { closing, .. } = &event {
                self.decided.push(closing.clone());
            }
            self.events.push(event);
        }
        self.alerts.extend(read.alerts);
        self.named.extend(read.dropped.named);
    }

    pub(crate) fn ids(&self) -> BTreeSet<i64> {
        self.alerts.iter().map(|alert| alert.id).collect()
    }
}

/// Reads until something holds.
pub(crate) fn read_until(reader: &mut AlertReader, done: impl Fn(&Found) -> bool) -> Found {
    let (mut found, until) = (Found::default(), Instant::now() + GUARD);
    while !done(&found) {
        let alerts = found.alerts.len();
        assert!(Instant::now() < until, "{alerts} alerts, {:?}, {reader:?}", found.events);
        found.add(reader.read(7, 1 << 20, Duration::from_millis(20)).unwrap());
    }
    found
}

/// Reads all that is stored.
pub(crate) fn read_all(reader: &mut AlertReader) -> Found {
    let (mut found, until) = (Found::default(), Instant::now() + GUARD);
    loop {
        let read = reader.read(7, 1 << 20, Duration::ZERO).unwrap();
        let is_empty = read.is_empty();
        found.add(read);
        if is_empty && reader.lag() == 0 {
            return found;
        }
        assert!(Instant::now() < until, "{reader:?}");
    }
}

pub(crate) fn open(bus: &Bus, start: Start, stamps: Stamps) -> AlertReader {
    let options = ReaderOptions { start, stamps, ..ReaderOptions::default() };
    AlertReader::open(bus, TOPIC, options).unwrap()
}
