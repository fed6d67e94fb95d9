//! How fast the service filters a visit of packets of 139 kB on a journal: the columns' projection
//! from the packets and the filters, with a hundred users' flat filters, and with twenty of light
//! curves of 100 points.
//!
//! `cargo run --release -p helio-alert-filters --example visit_speed [ALERTS [FOLDER]]` prints a
//! JSON line a visit, with processor time by the service's own counters.
#![allow(clippy::unwrap_used, reason = "an example that cannot run ends")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use helio_alert_filters::{FilterStore, Force, Language, Options, Service};
use helio_alerts::arrays::{self, Kind};
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History};
use helio_alerts::layout::Ccd;
use helio_alerts::producer::{CcdProducer, ProducerOptions, control_topic};
use helio_alerts::rubin::Version;
use helio_alerts::visit::{Closing, Control, Digest, Opening};
use helio_bus::{Bus, Message, TopicSpec};
use helio_core::codec::Codec;
use helio_core::schema::HasSchema;

const TOPIC: &str = "alerts";
const DETECTORS: u16 = 189;
/// Visits of a case.
const VISITS: u32 = 5;
/// Columns of numbers that the flat filters have among them.
const NUMBERS: usize = 24;

/// Conditions of a hundred users on the new detection alone.
fn flat() -> Vec<String> {
    let is_number = |(path, kind): &(String, Kind)| {
        path.starts_with("diaSource.") && matches!(kind, Kind::Floats | Kind::Doubles)
    };
    let all = arrays::columns(Version::LATEST.schema()).into_iter().filter(is_number);
    let names: Vec<String> = all.map(|(path, _)| path).take(NUMBERS).collect();
    let of = |number: usize| &names[number % names.len()];
    (0..100)
        .map(|n| {
            let (band, low) = (["u", "g", "r", "i", "z", "y"][n % 6], n * 3);
            format!(
                "{} > {} AND {} < {} AND abs(diaSource.psfFlux) > {low} AND diaSource.ra BETWEEN \
                 {low} AND {} AND diaSource.band = '{band}' AND {} / diaSource.psfFluxErr > {}",
                of(n),
                n % 20,
                of(n + 7),
                9_500 - n % 30,
                low + 60,
                of(n + 3),
                n as f64 / 10.0
            )
        })
        .collect()
}

/// Conditions on the past of every alert.
fn curves() -> Vec<String> {
    let past = "prvDiaSources";
    (0..20)
        .map(|n| match n % 5 {
            0 => format!("last({past}.psfFlux) > {}", 900 + n),
            1 => format!("slope({past}.psfFlux, {}) > 3", 30 + n),
            2 => format!("count_if({past}.snr > {}) > 60", 5 + n),
            3 => format!("max(CASE WHEN {past}.band = 'g' THEN {past}.psfFlux END, {n}) > 990"),
            _ => format!(
                "mean({past}.psfFlux / {past}.snr) > {} AND magnitude(last({past}.psfFlux)) < 24",
                50 + n
            ),
        })
        .collect()
}

fn publish(generator: &mut Generator, producer: &CcdProducer, visit: u32) {
    let detectors = (0..i32::from(DETECTORS)).collect();
    let id = generator.visit_id(visit);
    let (window_ns, starts) = (600_000_000_000, Vec::new());
    let opening = Opening { visit: id, detectors, shutter_close_ns: 0, window_ns, starts };
    producer.open_visit(opening).unwrap();
    for detector in 0..DETECTORS {
        let packets: Vec<Vec<u8>> = (0..generator.alerts(detector))
            .map(|number| {
                let mut datum = Vec::new();
                generator.write(AlertNumber { visit, detector, number }, &mut datum);
                datum
            })
            .collect();
        let ccd = Ccd { visit: id, detector: detector.into() };
        assert!(producer.publish(ccd, &packets).unwrap().is_published());
    }
}

/// Ends a visit, as a reader of the whole stream does.
fn close(bus: &Bus, visit: i64) {
    let topic = bus.topic(TopicSpec::new(TOPIC).unwrap()).unwrap();
    let closing = Control::Closing(Closing {
        visit,
        closer: "bench".to_owned(),
        totals: Digest::default(),
        ends: topic.partitions().unwrap().iter().map(|p| p.end as i64).collect(),
        missing: Vec::new(),
        short: Vec::new(),
        repeated: Vec::new(),
    });
    let mut payload = Vec::new();
    Codec::new(&Control::schema().unwrap()).serialize(&closing, &mut payload).unwrap();
    let publisher = control_topic(bus, TOPIC).unwrap().publisher().unwrap();
    publisher.publish(Message::new(&payload)).wait().unwrap();
}

fn until(mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < Duration::from_secs(600), "it hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn measure(case: &str, conditions: &[String], options: GeneratorOptions, folder: &std::path::Path) {
    let folder = tempfile::tempdir_in(folder).unwrap();
    let url = format!("journal:{}", folder.path().display());
    let bus = |name: &str| Bus::builder().producer(name).connect(&url).unwrap();
    let (night, service) = (bus("night"), bus("service"));
    let mut generator = Generator::new(options);
    let producer =
        CcdProducer::open(&night, TOPIC, Version::LATEST.schema(), ProducerOptions::default());
    let producer = producer.unwrap();
    let mut store = FilterStore::open(&night, TOPIC).unwrap();
    for (number, condition) in conditions.iter().enumerate() {
        let text = format!("SELECT diaSourceId FROM alerts WHERE {condition}");
        let added = store.add(&format!("user{number}"), "filter", Language::Sql, &text).unwrap();
        store.activate(&added.id(), Force::Yes).unwrap();
    }
    let running = Service::start(&service, &Options::of(TOPIC)).unwrap();
    let counters = running.counters();
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let all = u64::from(options.alerts_per_visit);
    for visit in 0..VISITS {
        let before = [&counters.filter_cpu_ns, &counters.decode_cpu_ns].map(get);
        let (alerts, matches) = (get(&counters.alerts), get(&counters.matches));
        publish(&mut generator, &producer, visit);
        until(|| get(&counters.alerts) - alerts == all);
        close(&night, generator.visit_id(visit));
        until(|| get(&counters.visits_decided) > u64::from(visit));
        let after = [&counters.filter_cpu_ns, &counters.decode_cpu_ns].map(get);
        let ms = |at: usize| (after[at] - before[at]) as f64 / 1e6;
        println!(
            "{{\"case\":\"{case}\",\"filters\":{},\"alerts\":{all},\"matches\":{},\
             \"filter_ms\":{:.1},\"projection_ms\":{:.1}}}",
            conditions.len(),
            get(&counters.matches) - matches,
            ms(0),
            ms(1),
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let alerts: u32 = arguments.next().map_or(10_000, |alerts| alerts.parse().unwrap());
    let folder = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let options =
        GeneratorOptions { alerts_per_visit: alerts, detectors: DETECTORS, ..Default::default() };
    measure("flat", &flat(), options, &folder);
    let options = GeneratorOptions { history: History::Points(100), ..options };
    measure("light curves", &curves(), options, &folder);
}
