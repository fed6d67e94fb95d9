//! How fast the service filters a visit of packets of 139 kB on a journal: the columns' projection
//! from the packets and the filters, with a hundred users' flat filters, and with twenty of light
//! curves of 100 points.
//!
//! `cargo run --release -p helio-alert-filters --example visit_speed [ALERTS [FOLDER]]` prints a
//! JSON line a visit, with processor time by the service's own counters.
#![allow(clippy::unwrap_used, reason = "an example that cannot run ends")]

mod visits;

use std::sync::atomic::{AtomicU64, Ordering};

use helio_alert_filters::{FilterStore, Force, Language, Options, Service};
use helio_alerts::arrays::{self, Kind};
use helio_alerts::generator::{Generator, GeneratorOptions, History};
use helio_alerts::producer::{CcdProducer, ProducerOptions};
use helio_alerts::rubin::Version;
use helio_bus::Bus;

use visits::{DETECTORS, TOPIC, close, publish, until};

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
