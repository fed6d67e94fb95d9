//! A stream of generated visits on a journal, and what an export of it has written.
#![allow(dead_code, reason = "each binary uses a part")]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use helio_alert_export::{Export, ExportOptions, Job, Outcome, Selection};
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History, WithStamps};
use helio_alerts::layout::{Ccd, Layout};
use helio_alerts::producer::{CcdProducer, ProducerOptions, TopicLayout};
use helio_alerts::rubin::Version;
use helio_alerts::topics::{DETECTOR_HEADER, VISIT_HEADER, control_topic};
use helio_alerts::visit::{
    Closing, Control, Effect, Opening, Position, ReadAlert, Reader, Role, payload_hash,
};
use helio_bus::{
    Bus, Event, Headers, Message, ProducerName, Publisher, Start, Subscribe, Subscription,
    TopicSpec,
};
use helio_core::codec::Codec;
use helio_core::schema::HasSchema;

pub(crate) mod kills;

pub(crate) const TOPIC: &str = "alerts";
pub(crate) const PARTITIONS: u32 = 3;
pub(crate) const DETECTORS: u16 = 5;
pub(crate) const ALERTS: u32 = 43;
/// 2026-11-26T03:00:00 TAI: the night of the 25th.
pub(crate) const SHUTTER_NS: i64 = 1_795_662_000_000_000_000;
pub(crate) const NIGHT: &str = "2026-11-25";
/// A guard against hanging, not an expectation.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);
const CADENCE_NS: i64 = 39_000_000_000;

/// A stream of alerts, with a reader that closes its visits.
pub(crate) struct Stream {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) bus: Bus,
    /// The test of the binary that is started as an export.
    pub(crate) child: Option<&'static str>,
    pub(crate) generator: Generator,
    producer: CcdProducer,
    control: Publisher,
    reader: Reader,
    alerts: Subscription,
    records: Subscription,
    /// The published packets, by alert.
    pub(crate) packets: HashMap<i64, Vec<u8>>,
}

pub(crate) fn generator(version: Version) -> GeneratorOptions {
    GeneratorOptions {
        version,
        alerts_per_visit: ALERTS,
        detectors: DETECTORS,
        history: History::Points(4),
        stamps: WithStamps::None,
        ..GeneratorOptions::default()
    }
}

impl Stream {
    pub(crate) fn new() -> Self {
        Self::with(generator(Version::LATEST), TopicLayout::Inline)
    }

    pub(crate) fn with(options: GeneratorOptions, layout: TopicLayout) -> Self {
        Self::at(None, options, layout)
    }

    /// A stream on a bus; on a journal of its own without a URL.
    pub(crate) fn at(url: Option<&str>, options: GeneratorOptions, layout: TopicLayout) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = format!("journal:{}/bus", folder.path().display());
        let url = url.unwrap_or(&own);
        let bus = Bus::builder().producer("ccd").connect(url).unwrap();
        let schema = options.version.schema();
        let producing =
            ProducerOptions { layout, partitions: PARTITIONS, ..ProducerOptions::default() };
        let producer = CcdProducer::open(&bus, TOPIC, schema, producing).unwrap();
        let control = control_topic(&bus, TOPIC).unwrap();
        let earliest = || Subscribe::from(Start::Earliest);
        let alerts = bus.topic(TopicSpec::new(TOPIC).unwrap()).unwrap();
        Self {
            folder,
            child: None,
            generator: Generator::new(options),
            producer,
            reader: Reader::new("closer", Role::Whole, vec![0; PARTITIONS as usize]),
            alerts: alerts.subscribe(earliest()).unwrap(),
            records: control.subscribe(earliest()).unwrap(),
            control: control.publisher().unwrap(),
            packets: HashMap::new(),
            bus,
        }
    }

    /// Writes with another version of the schema from now on.
    pub(crate) fn change_schema(&mut self, version: Version) {
        let producing = ProducerOptions { partitions: PARTITIONS, ..ProducerOptions::default() };
        let schema = version.schema();
        self.producer = CcdProducer::open(&self.bus, TOPIC, schema, producing).unwrap();
        self.generator = Generator::new(generator(version));
    }

    pub(crate) fn target(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn visit(&self, number: u32) -> i64 {
        self.generator.visit_id(number)
    }

    /// Opens a visit and publishes the alerts of some detectors.
    pub(crate) fn publish(&mut self, number: u32, detectors: std::ops::Range<u16>) {
        let visit = self.visit(number);
        if detectors.start == 0 {
            let opening = Opening {
                visit,
                detectors: (0..DETECTORS.into()).collect(),
                shutter_close_ns: SHUTTER_NS + i64::from(number) * CADENCE_NS,
                window_ns: 60_000_000_000,
                starts: Vec::new(),
            };
            self.producer.open_visit(opening).unwrap();
        }
        for detector in detectors {
            let packets = self.packets_of(number, detector);
            self.publish_packets(Ccd { visit, detector: detector.into() }, &packets);
        }
    }

    pub(crate) fn packets_of(&mut self, number: u32, detector: u16) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        for alert in 0..self.generator.alerts(detector) {
            let mut datum = Vec::new();
            let alert = AlertNumber { visit: number, detector, number: alert };
            self.generator.write(alert, &mut datum);
            self.packets.insert(self.generator.alert_id(alert), datum.clone());
            packets.push(datum);
        }
        packets
    }

    pub(crate) fn publish_packets(&self, ccd: Ccd, packets: &[Vec<u8>]) {
        assert!(self.producer.publish(ccd, packets).unwrap().is_published());
    }

    /// Publishes a packet as it is, to its detector's partition.
    pub(crate) fn publish_unchecked(&self, ccd: Ccd, packet: &[u8]) {
        let spec = TopicSpec::new(TOPIC).unwrap().schema(Version::LATEST.schema());
        let another = ProducerName::new("another").unwrap();
        let topic = self.bus.topic(spec.producer(another)).unwrap();
        let headers = Headers::new().with(VISIT_HEADER, ccd.visit.to_string());
        let headers = headers.unwrap().with(DETECTOR_HEADER, ccd.detector.to_string()).unwrap();
        let partition = ccd.detector.unsigned_abs() % PARTITIONS;
        let message = Message::new(packet).partition(partition).headers(headers.as_ref());
        topic.publisher().unwrap().publish(message).wait().unwrap();
    }

    /// Reads all that is published; closes visits that are complete, or all at their deadline.
    pub(crate) fn close(&mut self, now_ns: u64) {
        let codec = Codec::new(&Control::schema().unwrap());
        let layouts = Version::ALL.map(|version| Layout::new(version.schema()));
        let mut effects = Vec::new();
        while let Some(event) = self.records.try_next().unwrap() {
            let Event::Sample(sample) = event else { continue };
            let record = codec.deserialize(&sample.payload).unwrap();
            effects.extend(self.reader.control(record, now_ns.saturating_sub(1)));
        }
        while let Some(event) = self.alerts.try_next().unwrap() {
            let Event::Sample(sample) = event else { continue };
            let mut layouts = layouts.iter();
            let layout = layouts.find(|one| one.schema().id() == sample.header.schema).unwrap();
            // Readers count no packet that cannot be read.
            if layout.codec().check(&sample.payload).is_err() {
                continue;
            }
            let ccd = layout.ccd(&sample.payload).unwrap().unwrap();
            effects.extend(
                self.reader
                    .alert(&ReadAlert {
                        visit: ccd.visit,
                        detector: ccd.detector,
                        id: layout.alert_id(&sample.payload).unwrap().unwrap(),
                        payload: payload_hash(&sample.payload),
                        at: Position { partition: sample.partition, offset: sample.offset },
                    })
                    .1,
            );
        }
        effects.extend(self.reader.tick(now_ns));
        let mut pending = effects;
        while let Some(effect) = pending.pop() {
            match effect {
                Effect::Propose(closing) => self.append(&Control::Closing(closing)),
                Effect::QueryEnds { visit } => {
                    let topic = self.bus.topic(TopicSpec::new(TOPIC).unwrap()).unwrap();
                    let ends = topic.partitions().unwrap().iter().map(|one| one.end).collect();
                    pending.extend(self.reader.ends(visit, ends));
                }
                _ => {}
            }
        }
    }

    pub(crate) fn append(&self, record: &Control) {
        let mut payload = Vec::new();
        Codec::new(&Control::schema().unwrap()).serialize(record, &mut payload).unwrap();
        self.control.publish(Message::new(&payload)).wait_timeout(Duration::from_secs(60)).unwrap();
    }

    /// The closing record of a visit, as the log has it.
    pub(crate) fn closing(&mut self, number: u32) -> Closing {
        self.close(0);
        let visit = self.visit(number);
        self.reader.ledger().visit(visit).unwrap().closing().unwrap().clone()
    }

    /// Visits that overlap: of each, the first detectors are published before the last one of the
    /// visit before it.
    pub(crate) fn publish_night(&mut self, visits: u32) {
        for number in 0..visits {
            self.publish(number, 0..2);
            self.close(0);
            if number > 0 {
                self.publish(number - 1, 2..DETECTORS);
                self.close(0);
            }
        }
        self.publish(visits - 1, 2..DETECTORS);
        let until = Instant::now() + HANG_TIMEOUT;
        while !(0..visits).all(|number| self.is_closed(number)) {
            assert!(Instant::now() < until, "a visit is not closed");
            self.close(0);
        }
    }

    /// Whether the closing record of a visit was read. Engines in other processes deliver later.
    fn is_closed(&self, number: u32) -> bool {
        let visit = self.reader.ledger().visit(self.visit(number));
        visit.is_some_and(|visit| visit.closing().is_some())
    }
}

pub(crate) fn night() -> Selection {
    Selection::Night(NIGHT.parse().unwrap())
}

pub(crate) fn job(folder: &Path) -> Job {
    Job { topic: TOPIC.to_owned(), visits: night(), folder: folder.to_owned() }
}

/// Opens an export of the night and runs it.
pub(crate) fn export(stream: &Stream, folder: &Path, options: &ExportOptions) -> Outcome {
    Export::open(&stream.bus, job(folder), options.clone()).unwrap().run(&mut ()).unwrap()
}

/// The names and bytes of a folder's files.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|file| {
            let name = file.file_name().into_string().unwrap();
            (name, std::fs::read(file.path()).unwrap())
        })
        .collect()
}

/// The files of a format, in order.
pub(crate) fn parts(folder: &Path, extension: &str) -> Vec<Vec<u8>> {
    let files = files(folder).into_iter();
    files.filter(|(name, _)| name.ends_with(extension)).map(|(_, bytes)| bytes).collect()
}

pub(crate) fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort();
    all
}

/// The identifiers of all published alerts.
pub(crate) fn published(stream: &Stream) -> Vec<i64> {
    sorted(stream.packets.keys().copied().collect())
}
