//! How fast results are: a visit of packets of 139 kB on a journal, 100 users of whom each gets 20.
//!
//! `cargo run --release -p helio-alert-filters --example results_speed [ALERTS [FOLDER]]` prints a
//! JSON line for each content: milliseconds from the closing record to the last result, bytes,
//! processor time of the process, and its anonymous memory.
#![allow(clippy::unwrap_used, reason = "an example that cannot run ends")]

mod visits;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use helio_alert_filters::{
    Content, Delivery, FilterStore, Force, Format, Language, Options, Service,
};
use helio_alerts::generator::{Generator, GeneratorOptions};
use helio_alerts::producer::{CcdProducer, ProducerOptions};
use helio_alerts::rubin::Version;
use helio_bus::Bus;

use visits::{DETECTORS, TOPIC, close, publish, until};

const USERS: usize = 100;
const COLUMNS: &str = "diaSourceId, diaSource.ra, diaSource.dec, diaSource.snr";

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap()
}

fn rss_anon_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let alerts: u32 = arguments.next().map_or(10_000, |alerts| alerts.parse().unwrap());
    let folder = match arguments.next() {
        Some(folder) => tempfile::tempdir_in(folder).unwrap(),
        None => tempfile::tempdir().unwrap(),
    };
    let url = format!("journal:{}", folder.path().display());
    let bus = |name: &str| Bus::builder().producer(name).connect(&url).unwrap();
    let (night, service) = (bus("night"), bus("service"));
    let generated =
        GeneratorOptions { alerts_per_visit: alerts, detectors: DETECTORS, ..Default::default() };
    let mut generator = Generator::new(generated);
    let producer =
        CcdProducer::open(&night, TOPIC, Version::LATEST.schema(), ProducerOptions::default());
    let producer = producer.unwrap();
    let mut store = FilterStore::open(&night, TOPIC).unwrap();
    for user in 0..USERS {
        let text = format!(
            "SELECT {{}} FROM alerts WHERE diaSource.snr > {} ORDER BY diaSource.snr + {user} DESC",
            f64::from(user as u32) / 100.0
        );
        for (name, columns) in [("columns", COLUMNS), ("packets", "*")] {
            let text = text.replace("{}", columns);
            store.add(&format!("user{user}"), name, Language::Sql, &text).unwrap();
        }
    }
    let running = Service::start(&service, &Options::of(TOPIC)).unwrap();
    let counters = running.counters();
    let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let contents = [
        ("reference", "columns", Content::Reference),
        ("columns", "columns", Content::Selected),
        ("packets without stamps", "packets", Content::Selected),
        ("packets with stamps", "packets", Content::WithStamps),
    ];
    for (visit, (name, filter, content)) in (0..).zip(contents) {
        let mut store = FilterStore::open(&night, TOPIC).unwrap();
        for user in (0..USERS).map(|user| format!("user{user}")) {
            let others = ["columns", "packets"].into_iter().filter(|other| *other != filter);
            others.for_each(|other| drop(store.deactivate(&user, other)));
            let id = format!("{user}/{filter}@1").parse().unwrap();
            store.activate(&id, Force::Yes).unwrap();
            store.set_delivery(&user, Delivery { format: Format::Confluent, content }).unwrap();
        }
        let (seen, results, bytes) =
            (get(&counters.alerts), get(&counters.results), get(&counters.result_bytes));
        let (filters, decode) = (get(&counters.filter_cpu_ns), get(&counters.decode_cpu_ns));
        publish(&mut generator, &producer, visit);
        until(|| get(&counters.alerts) - seen == u64::from(alerts));
        let (start, cpu) = (Instant::now(), processor_time());
        close(&night, generator.visit_id(visit));
        until(|| get(&counters.visits_decided) > u64::from(visit));
        println!(
            "{{\"content\":\"{name}\",\"alerts\":{alerts},\"results\":{},\"bytes\":{},\
             \"ms\":{:.1},\"cpu_ms\":{:.1},\"filter_ms\":{:.1},\"decode_ms\":{:.1},\
             \"rss_anon_mb\":{}}}",
            get(&counters.results) - results,
            get(&counters.result_bytes) - bytes,
            start.elapsed().as_secs_f64() * 1e3,
            (processor_time() - cpu).as_secs_f64() * 1e3,
            (get(&counters.filter_cpu_ns) - filters) as f64 / 1e6,
            (get(&counters.decode_cpu_ns) - decode) as f64 / 1e6,
            rss_anon_mb()
        );
    }
}
