//! Nights of generated alerts, processes of the service stepped by hand, and what users get.
#![allow(dead_code, reason = "each binary uses a part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use helio_alert_filters::{
    Counters, FilterId, FilterStore, FilterWorker, Force, Language, Options, Progress,
    ResultPublisher, Topics,
};
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History, WithStamps};
use helio_alerts::layout::Ccd;
use helio_alerts::producer::{CcdProducer, ProducerOptions, control_topic};
use helio_alerts::rubin::Version;
use helio_alerts::topics::Keep;
use helio_alerts::visit::{Closing, Control, Digest, Opening};
use helio_bus::{Bus, Event, Message, Sample, Start, Subscribe, TopicSpec};
use helio_columns::{Decoder, Layout};
use helio_core::codec::Codec;
use helio_core::schema::HasSchema;

/// A guard against hanging, not an expectation.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(120);
pub(crate) const TOPIC: &str = "alerts";
pub(crate) const PARTITIONS: u32 = 4;
pub(crate) const DETECTORS: u16 = 6;

pub(crate) mod faulty;
pub(crate) mod kills;

pub(crate) fn bus(url: &str, name: &str) -> Bus {
    Bus::builder().producer(name).connect(url).unwrap()
}

/// A night's alerts, and their producer.
pub(crate) struct Night {
    pub(crate) bus: Bus,
    /// How long after its opening a visit may be closed.
    pub(crate) window: Duration,
    generator: Generator,
    producer: CcdProducer,
}

/// An alert with the values that tests filter by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Alert {
    pub(crate) id: i64,
    pub(crate) snr: Option<f32>,
    pub(crate) ra: f64,
    pub(crate) dec: f64,
    pub(crate) packet: Vec<u8>,
}

pub(crate) fn generated(alerts: u32) -> GeneratorOptions {
    GeneratorOptions {
        alerts_per_visit: alerts,
        detectors: DETECTORS,
        stamps: WithStamps::None,
        history: History::Points(3),
        ..GeneratorOptions::default()
    }
}

/// How a night is produced.
pub(crate) fn producing() -> ProducerOptions {
    // In memory a partition keeps 64 MiB by default.
    let keep = Keep { partition_bytes: Some(256 << 20), ..Keep::default() };
    ProducerOptions { partitions: PARTITIONS, keep, ..ProducerOptions::default() }
}

impl Night {
    /// Creates the topics, with a visit of so many alerts.
    pub(crate) fn new(bus: &Bus, generated: GeneratorOptions) -> Self {
        Self::with(bus, generated, producing())
    }

    /// The same, produced in another way.
    pub(crate) fn with(bus: &Bus, generated: GeneratorOptions, options: ProducerOptions) -> Self {
        let schema = Version::LATEST.schema();
        let producer = CcdProducer::open(bus, TOPIC, schema, options).unwrap();
        let window = Duration::from_secs(60);
        Self { bus: bus.clone(), window, generator: Generator::new(generated), producer }
    }

    pub(crate) fn id(&self, visit: u32) -> i64 {
        self.generator.visit_id(visit)
    }

    pub(crate) fn open(&self, visit: u32) {
        let opening = Opening {
            visit: self.id(visit),
            detectors: (0..DETECTORS.into()).collect(),
            shutter_close_ns: 77,
            window_ns: self.window.as_nanos() as i64,
            starts: Vec::new(),
        };
        self.producer.open_visit(opening).unwrap();
    }

    /// The packets of a detector.
    pub(crate) fn packets(&mut self, visit: u32, detector: u16) -> Vec<Vec<u8>> {
        let alerts = self.generator.alerts(detector);
        let packet = |number| {
            let mut datum = Vec::new();
            self.generator.write(AlertNumber { visit, detector, number }, &mut datum);
            datum
        };
        (0..alerts).map(packet).collect()
    }

    pub(crate) fn publish_packets(&self, visit: u32, detector: u16, packets: &[Vec<u8>]) {
        let ccd = Ccd { visit: self.id(visit), detector: detector.into() };
        assert!(self.producer.publish(ccd, packets).unwrap().is_published());
    }

    /// Publishes the alerts of some detectors, and returns them.
    pub(crate) fn publish(
        &mut self,
        visit: u32,
        detectors: impl IntoIterator<Item = u16>,
    ) -> Vec<Alert> {
        let mut all = Vec::new();
        for detector in detectors {
            let packets = self.packets(visit, detector);
            self.publish_packets(visit, detector, &packets);
            all.extend(packets);
        }
        alerts(&all)
    }

    /// Decides that what is published by now is in time.
    pub(crate) fn close(&self, visit: u32) {
        let topic = self.bus.topic(TopicSpec::new(TOPIC).unwrap()).unwrap();
        let ends = topic.partitions().unwrap().iter().map(|p| p.end as i64).collect();
        self.control(&Control::Closing(Closing {
            visit: self.id(visit),
            closer: "test".to_owned(),
            totals: Digest::default(),
            ends,
            missing: Vec::new(),
            short: Vec::new(),
            repeated: Vec::new(),
        }));
    }

    pub(crate) fn control(&self, record: &Control) {
        let mut payload = Vec::new();
        Codec::new(&Control::schema().unwrap()).serialize(record, &mut payload).unwrap();
        let control = control_topic(&self.bus, TOPIC).unwrap().publisher().unwrap();
        control.publish(Message::new(&payload)).wait().unwrap();
    }

    /// A whole visit.
    pub(crate) fn visit(&mut self, visit: u32) -> Vec<Alert> {
        self.open(visit);
        let alerts = self.publish(visit, 0..DETECTORS);
        self.close(visit);
        alerts
    }
}

/// The alerts of packets.
pub(crate) fn alerts(packets: &[Vec<u8>]) -> Vec<Alert> {
    let schema = Version::LATEST.schema();
    let paths = ["diaSourceId", "diaSource.snr", "diaSource.ra", "diaSource.dec"];
    let mut decoder = Decoder::new(&Layout::new(std::slice::from_ref(schema), &paths).unwrap());
    packets.iter().for_each(|packet| decoder.push(schema, packet).unwrap());
    let records = decoder.finish().unwrap().records;
    let ids = records.column(0).as_primitive::<Int64Type>();
    let snr = records.column(1).as_primitive::<Float32Type>();
    let [ra, dec] = [2, 3].map(|column| records.column(column).as_primitive::<Float64Type>());
    let alert = |(row, packet): (usize, &Vec<u8>)| Alert {
        id: ids.value(row),
        snr: snr.iter().nth(row).flatten(),
        ra: ra.value(row),
        dec: dec.value(row),
        packet: packet.clone(),
    };
    packets.iter().enumerate().map(alert).collect()
}

/// The best 20 by snr, descending, of those above a limit; ties by id.
pub(crate) fn best(alerts: &[Alert], above: f32) -> Vec<i64> {
    let mut found: Vec<&Alert> =
        alerts.iter().filter(|alert| alert.snr.is_some_and(|snr| snr > above)).collect();
    found.sort_by(|a, b| b.snr.unwrap().total_cmp(&a.snr.unwrap()).then(a.id.cmp(&b.id)));
    found.iter().take(20).map(|alert| alert.id).collect()
}

pub(crate) const RANKED: &str = "SELECT diaSourceId, diaSource.snr FROM alerts \
     WHERE diaSource.snr > 6 ORDER BY diaSource.snr DESC";

/// Adds a filter and activates it, whatever a dry run would say.
pub(crate) fn activate(
    bus: &Bus,
    user: &str,
    name: &str,
    language: Language,
    text: &str,
) -> FilterId {
    let mut store = FilterStore::open(bus, TOPIC).unwrap();
    let id = store.add(user, name, language, text).unwrap().id();
    store.activate(&id, Force::Yes).unwrap();
    id
}

pub(crate) fn sql(bus: &Bus, user: &str, name: &str, text: &str) -> FilterId {
    activate(bus, user, name, Language::Sql, text)
}

/// A process of the service, stepped by the test.
pub(crate) struct Process {
    pub(crate) worker: FilterWorker,
    pub(crate) publisher: ResultPublisher,
    pub(crate) counters: Arc<Counters>,
}

impl Process {
    pub(crate) fn open(bus: &Bus) -> Self {
        Self::with(bus, &Options::of(TOPIC))
    }

    pub(crate) fn with(bus: &Bus, options: &Options) -> Self {
        let counters = Arc::new(Counters::default());
        let worker = FilterWorker::open(bus, options, &counters).unwrap();
        let publisher = ResultPublisher::open(bus, options, &counters).unwrap();
        Self { worker, publisher, counters }
    }

    /// One step of both; true if either did something.
    pub(crate) fn step(&mut self) -> bool {
        let wait = Duration::from_millis(1);
        let worked = self.worker.step(wait).unwrap() == Progress::Worked;
        (self.publisher.step(wait).unwrap() == Progress::Worked) | worked
    }

    pub(crate) fn count(&self, of: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        of(&self.counters).load(Ordering::Relaxed)
    }
}

/// Steps processes until so many visits are decided by them together.
pub(crate) fn until_decided(processes: &mut [Process], visits: u64) {
    until(processes, |processes| {
        processes.iter().map(|one| one.count(|c| &c.visits_decided)).sum::<u64>() >= visits
    });
}

pub(crate) fn until(processes: &mut [Process], is_done: impl Fn(&[Process]) -> bool) {
    let start = Instant::now();
    while !is_done(processes) {
        assert!(start.elapsed() < HANG_TIMEOUT, "it hangs");
        processes.iter_mut().for_each(|process| _ = process.step());
    }
}

/// All samples of a topic; none if it does not exist.
pub(crate) fn samples(bus: &Bus, name: &str) -> Vec<Sample> {
    let Ok(topic) = bus.topic(TopicSpec::new(name).unwrap()) else { return Vec::new() };
    let mut subscription = topic.subscribe(Subscribe::from(Start::Earliest).as_written()).unwrap();
    subscription.set_fence().unwrap();
    let mut samples = Vec::new();
    while let Some(event) = subscription.next_stored(HANG_TIMEOUT).unwrap() {
        samples.extend(event.into_sample());
    }
    samples
}

/// A user's results.
pub(crate) fn results(bus: &Bus, user: &str) -> Vec<Sample> {
    samples(bus, &Topics::of(TOPIC).results(user))
}

pub(crate) fn header(sample: &Sample, name: &str) -> String {
    let value = sample.headers.as_ref().get(name);
    String::from_utf8(value.unwrap_or_default().to_vec()).unwrap()
}

/// The alerts of a user's results, by visit, in order.
pub(crate) fn chosen(bus: &Bus, user: &str) -> BTreeMap<i64, Vec<i64>> {
    let mut chosen: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for sample in results(bus, user) {
        let number = |name| header(&sample, name).parse::<i64>().unwrap();
        chosen.entry(number("visit")).or_default().push(number("alert"));
    }
    chosen
}

pub(crate) fn is_sample(event: &Event) -> bool {
    matches!(event, Event::Sample(_))
}
