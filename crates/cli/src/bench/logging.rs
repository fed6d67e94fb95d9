//! `helio bench logging`: log records from producer processes to client processes, with urgent
//! records in the flood.
//!
//! Latency runs from a record's due time. Each client accounts for every record. Clients that were
//! suspended during the measurement read the stored records afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use helio_core::Qos;
use helio_logging::{Lanes, Level};
use serde::Serialize;

use super::report::{Latency, histogram, print};
use crate::args::{LogPath, LoggingArgs};
use crate::clock::{cpu_s, load, monotonic_ns};
use crate::error::{CliError, CliResult};
use crate::log::workers::accounting::ClientCounts;
use crate::log::workers::messages::{
    ClientReport, ClientTask, Content, ProducerReport, ProducerTask, Spent, Urgent, Way,
};
use crate::log::workers::server::Server;
use crate::log::workers::{LogProcesses, sum};
use crate::out::Progress;
use crate::run_bus::RunBus;
use crate::stop::Stop;
use crate::units::human_count;

/// The prefix of clients' names.
const CLIENT: &str = "client";
const STALLED: &str = "stalled";

/// CPU microseconds per record.
#[derive(Debug, Serialize)]
struct CpuPerRecord {
    /// All producers together, per offered record, without pacing.
    producer: f64,
    /// The service between them and the clients, per offered record, without an engine's server.
    path: f64,
    /// One client, per delivered record; `None` without clients.
    client: Option<f64>,
}

#[derive(Serialize)]
struct Report {
    workload: &'static str,
    url: String,
    path: LogPath,
    producers: u32,
    clients: u32,
    stalled: u32,
    size_bytes: usize,
    batch: String,
    rate_hz: Option<f64>,
    urgent_every_s: f64,
    seconds: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    qos: Vec<String>,
    records_per_s: f64,
    cpu_s: BTreeMap<String, f64>,
    cpu_us_per_record: CpuPerRecord,
    /// CPU microseconds per record of the producers' pacing, a cost of the schedule and not of the
    /// library.
    pacing_us_per_record: f64,
    rss_mb: BTreeMap<String, f64>,
    bytes_per_record: f64,
    offered: u64,
    delivered: u64,
    dropped: u64,
    unaccounted: u64,
    urgent_us: Option<Latency>,
    tail_us: Option<Latency>,
    load: f64,
    version: &'static str,
}

/// Runs `helio bench logging`.
pub(crate) fn run(args: &LoggingArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let site = RunBus::fresh("helio-bench", args.run.dir.as_deref(), url)?;
    site.refuse_memory(3)?;
    let load_before = load();
    let kept = Keeper::where_wanted(args, site.url())?;
    let progress = Progress::new();
    let measured = measure(args, &site, &kept, stop)?;
    drop(progress);
    let report = report(args, &site, &measured, load_before);
    show(&report, args.run.output.json)?;
    match report.unaccounted {
        0 => Ok(()),
        some => Err(CliError::Lost(format!("{some} records are unaccounted for"))),
    }
}

/// A durability service in a thread of this process, for a DDS domain without one.
struct Keeper {
    #[cfg(feature = "dds")]
    service: Option<crate::demo::durability::Service>,
}

impl Keeper {
    #[cfg(feature = "dds")]
    fn where_wanted(args: &LoggingArgs, url: &str) -> CliResult<Self> {
        let service = crate::demo::durability::where_wanted(url, args.run.dir.as_deref())?;
        Ok(Self { service })
    }

    #[cfg(not(feature = "dds"))]
    fn where_wanted(_: &LoggingArgs, _: &str) -> CliResult<Self> {
        Ok(Self {})
    }

    /// CPU seconds of this process, most of them the service's.
    fn cpu_s(&self) -> f64 {
        #[cfg(feature = "dds")]
        let works = self.service.is_some();
        #[cfg(not(feature = "dds"))]
        let works = false;
        if works { cpu_s() } else { 0.0 }
    }
}

/// The measured figures.
struct Measured {
    start_ns: u64,
    producers: BTreeMap<String, ProducerReport>,
    clients: BTreeMap<String, ClientReport>,
    stalled: BTreeMap<String, ClientReport>,
    path: Spent,
}

fn measure(args: &LoggingArgs, site: &RunBus, kept: &Keeper, stop: &Stop) -> CliResult<Measured> {
    let prefix = format!("bench/log-{}-{}", std::process::id(), monotonic_ns());
    let ordinary = ordinary(args);
    let name = |what: &str, number: u32| format!("{what}-{number}");
    let names = (1..=args.clients).map(|n| name(CLIENT, n));
    let names = names.chain((1..=args.stalled).map(|n| name(STALLED, n)));
    let task = |name| ClientTask {
        url: site.url().to_owned(),
        prefix: prefix.clone(),
        ordinary: ordinary.clone(),
        name,
        predicate: String::new(),
    };
    let mut processes = LogProcesses::of(&names.map(task).collect::<Vec<_>>(), stop)?;
    for number in 1..=args.stalled {
        processes.pause(&name(STALLED, number))?;
    }
    let server = match args.path {
        LogPath::Direct => None,
        LogPath::Central => Some(Server::start(site.url(), &prefix, stop)?),
    };
    let way = match &server {
        None => Way::Bus { batch: args.batch },
        Some(server) => Way::Syslog { address: server.address.clone() },
    };
    for number in 1..=args.producers {
        let place = (site.url(), &*prefix, &ordinary);
        processes.add(&producer(args, place, way.clone(), number), None)?;
    }
    let cpu = kept.cpu_s();
    let start_ns = processes.begin()?;
    let producers = processes.produced()?;
    let offered = sum(&producers);
    let live = |name: &str| name.starts_with(CLIENT);
    let mut clients = processes.consumed(live, &offered)?;
    let mut path = Spent { cpu_s: kept.cpu_s() - cpu, rss_mb: 0.0 };
    for number in 1..=args.stalled {
        processes.resume(&name(STALLED, number))?;
    }
    let mut stalled = processes.consumed(|name| !live(name), &offered)?;
    if let Some(served) = server.map(Server::end).transpose()? {
        path.cpu_s += served.used.cpu_s;
        path.rss_mb = served.used.rss_mb;
        for report in clients.values_mut().chain(stalled.values_mut()) {
            report.account.shed += served.dropped;
        }
    }
    processes.finish()?;
    Ok(Measured { start_ns, producers, clients, stalled, path })
}

/// The quality of service of ordinary lanes, if not the library's.
fn ordinary(args: &LoggingArgs) -> Option<Qos> {
    let mut qos = Lanes::default().qos(Level::INFO);
    args.qos.iter().for_each(|change| change.apply(&mut qos));
    (!args.qos.is_empty()).then_some(qos)
}

fn producer(
    args: &LoggingArgs,
    (url, prefix, ordinary): (&str, &str, &Option<Qos>),
    way: Way,
    number: u32,
) -> ProducerTask {
    let urgent = Urgent {
        level: Level::ALERT.number(),
        first_ns: 0,
        every_ns: Some(nanos(args.urgent_every)),
    };
    ProducerTask {
        url: url.to_owned(),
        prefix: prefix.to_owned(),
        ordinary: ordinary.clone(),
        name: format!("producer-{number}"),
        way,
        rate_hz: args.rate.0.map(|rate| rate / f64::from(args.producers)),
        time_ns: nanos(args.seconds),
        content: Content::Bytes(args.size),
        urgent: (number == 1).then_some(urgent),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn report(args: &LoggingArgs, site: &RunBus, measured: &Measured, load: f64) -> Report {
    let Measured { start_ns, producers, clients, stalled, path } = measured;
    let offered: u64 = sum(producers).values().sum();
    let published: u64 = producers.values().map(|report| report.published).sum();
    let bytes: u64 = producers.values().map(|report| report.bytes).sum();
    // With several clients the figures are those of the one that received least.
    let least = clients.values().min_by_key(|report| report.account.delivered);
    let all = || clients.values().chain(stalled.values());
    let books = least.map_or_else(|| nobody(offered, published), |report| report.account);
    let end_ns = match clients.values().map(|report| report.end_ns).max() {
        Some(end_ns) => end_ns,
        None => producers.values().map(|report| report.end_ns).max().unwrap_or(*start_ns),
    };
    let took_s = end_ns.saturating_sub(*start_ns).max(1) as f64 * 1e-9;
    let received: u64 = clients.values().map(|report| report.account.delivered).sum();
    let cpu = |of: f64, records: u64| rounded(of * 1e6 / records.max(1) as f64);
    let of_producers: f64 = producers.values().map(|report| report.used.cpu_s).sum();
    let of_pacing: f64 = producers.values().map(|report| report.pacing_cpu_s).sum();
    let of_clients: f64 = clients.values().map(|report| report.used.cpu_s).sum();
    let used = used(measured);
    Report {
        workload: "logging",
        url: site.url().to_owned(),
        path: args.path,
        producers: args.producers,
        clients: args.clients,
        stalled: args.stalled,
        size_bytes: args.size,
        batch: args.batch.to_string(),
        rate_hz: args.rate.0,
        urgent_every_s: args.urgent_every.as_secs_f64(),
        seconds: args.seconds.as_secs_f64(),
        qos: args.qos.iter().map(ToString::to_string).collect(),
        records_per_s: (books.delivered as f64 / took_s).round(),
        cpu_s: used.iter().map(|(name, used)| (name.clone(), rounded(used.cpu_s))).collect(),
        cpu_us_per_record: CpuPerRecord {
            producer: cpu(of_producers - of_pacing, offered),
            path: cpu(path.cpu_s, offered),
            client: (received > 0).then(|| cpu(of_clients, received)),
        },
        pacing_us_per_record: cpu(of_pacing, offered),
        rss_mb: used.iter().map(|(name, used)| (name.clone(), used.rss_mb.round())).collect(),
        bytes_per_record: rounded(bytes as f64 / published.max(1) as f64),
        offered: books.offered,
        delivered: books.delivered,
        dropped: books.dropped(),
        unaccounted: all().map(|report| report.account.unaccounted()).sum::<u64>()
            + if clients.is_empty() { books.unaccounted() } else { 0 },
        urgent_us: Latency::of(&merged(clients, |report| &report.urgent_ns)),
        tail_us: Latency::of(&merged(clients, |report| &report.tail_ns)),
        load,
        version: env!("CARGO_PKG_VERSION"),
    }
}

/// The counts without clients: acknowledged records count as delivered.
fn nobody(offered: u64, published: u64) -> ClientCounts {
    let shed = offered.saturating_sub(published);
    ClientCounts { offered, delivered: published, shed, ..ClientCounts::default() }
}

/// The resources of each process.
fn used(measured: &Measured) -> BTreeMap<String, Spent> {
    let Measured { producers, clients, stalled, path, .. } = measured;
    let of_producers = producers.iter().map(|(name, report)| (name.clone(), report.used));
    let readers = clients.iter().chain(stalled);
    let of_readers = readers.map(|(name, report)| (name.clone(), report.used));
    let between = (path.cpu_s > 0.0).then(|| ("path".to_owned(), *path));
    of_producers.chain(of_readers).chain(between).collect()
}

fn merged(
    clients: &BTreeMap<String, ClientReport>,
    which: impl Fn(&ClientReport) -> &Vec<(u64, u64)>,
) -> Histogram<u64> {
    let mut all = histogram();
    for (ns, count) in clients.values().flat_map(which) {
        all.saturating_record_n(*ns, *count);
    }
    all
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn show(report: &Report, json: bool) -> CliResult {
    let latency = |of: Option<Latency>| {
        of.map_or_else(|| "-".to_owned(), |l| format!("{:.0}, {:.0}, {:.0}", l.p50, l.p99, l.max))
    };
    let cpu = &report.cpu_us_per_record;
    let rss = report.rss_mb.values().copied().fold(0.0, f64::max);
    let rows = [
        ("records a second", human_count(report.records_per_s as u64)),
        ("offered", human_count(report.offered)),
        ("delivered", human_count(report.delivered)),
        ("dropped, counted", human_count(report.dropped)),
        ("unaccounted", human_count(report.unaccounted)),
        ("bytes a record, in packets", format!("{:.1}", report.bytes_per_record)),
        ("CPU a record, us: producers", format!("{:.3}", cpu.producer)),
        ("CPU a record, us: their schedule", format!("{:.3}", report.pacing_us_per_record)),
        ("CPU a record, us: path", format!("{:.3}", cpu.path)),
        ("CPU a record, us: client", cpu.client.map_or("-".to_owned(), |us| format!("{us:.3}"))),
        ("urgent, us (p50, p99, max)", latency(report.urgent_us)),
        ("tail, us (p50, p99, max)", latency(report.tail_us)),
        ("memory of the largest process, MB", format!("{rss:.0}")),
    ];
    print(report, json, &rows)
}
