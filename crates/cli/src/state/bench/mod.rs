//! `helio state bench`: this program's store beside its peers, by one client.
//!
//! Every run starts every store in turn (A B A B), each empty, so that what is compared was
//! measured in the same minutes. A figure that could not be measured is no figure of another kind:
//! peers that are not there are named.

pub(crate) mod embedded;
mod report;
mod stores;

use std::path::Path;
use std::time::Duration;

use helio_state_load::speed::{self, Background, Crowd, Operation, Pace, Rate};
use helio_state_load::summary::Summary;
use serde::Serialize;
use serde_json::{Value, json};

use self::report::Report;
use self::stores::{Store, disk_bytes, used};
use super::ask::failed;
use super::process::Server;
use crate::args::StateBenchArgs;
use crate::clock;
use crate::error::{CliError, CliResult};
use crate::out::{Out, Progress};
use crate::run_bus::RunBus;
use crate::stop::Stop;

/// The seed's: three clients at a hundred requests a second.
const CLIENTS: u16 = 3;
const PER_SECOND: f64 = 100.0;
/// Full speed: clients, and the connections that they share.
const CROWD: usize = 100;
const CONNECTIONS: usize = 10;
/// Keys whose memory is measured, and how often each is put after that.
const MEMORY_KEYS: usize = 100_000;
const OLD_REVISIONS: usize = 2;
/// The sizes of `--full` and `--smoke`.
const FULL_TIME: Duration = Duration::from_secs(300);
const SMOKE_TIME: Duration = Duration::from_millis(500);
const SMOKE_MEMORY_KEYS: usize = 2_000;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    runs: u16,
    time: Duration,
    memory_keys: usize,
}

/// What was measured of a store in a run.
#[derive(Debug, Clone, Serialize)]
struct Row {
    store: &'static str,
    run: u16,
    /// `latency`, `full` or `memory`.
    what: &'static str,
    pods: u16,
    figures: Value,
    /// The machine's load average before it.
    load: f64,
    smoke: bool,
}

/// Runs `helio state bench`.
pub(super) fn run(args: &StateBenchArgs, stop: &Stop) -> CliResult {
    let sizes = Sizes {
        runs: if args.smoke { 1 } else { args.runs },
        time: match (args.smoke, args.full) {
            (true, _) => SMOKE_TIME,
            (_, true) => FULL_TIME,
            _ => args.seconds,
        },
        memory_keys: if args.smoke { SMOKE_MEMORY_KEYS } else { MEMORY_KEYS },
    };
    let site = RunBus::fresh("helio-state-bench", args.dir.as_deref(), None)?;
    let folder = site.scratch().unwrap_or_else(|| Path::new("."));
    let (stores, absent) = stores::chosen(args)?;
    let mut bench =
        Bench { args, sizes, folder, stop, progress: Progress::new(), rows: Vec::new() };
    for one in &absent {
        bench.progress.clear();
        eprintln!("helio: {} is not run: {}", one.name, one.why);
    }
    for run in 1..=sizes.runs {
        for store in &stores {
            for &pods in &args.pods {
                bench.latency(store, run, pods)?;
            }
            bench.full(store, run)?;
            if run == 1 {
                bench.memory(store)?;
            }
        }
    }
    let embedded = bench.embedded()?;
    drop(bench.progress);
    let report = Report::of(&bench.rows, embedded, &absent);
    let mut out = Out::new();
    match args.output.json {
        true => out.json(&report)?,
        false => report.lines().iter().try_for_each(|line| out.line(line))?,
    }
    out.flush()?;
    report.verdict()
}

struct Bench<'a> {
    args: &'a StateBenchArgs,
    sizes: Sizes,
    folder: &'a Path,
    stop: &'a Stop,
    progress: Progress,
    rows: Vec<Row>,
}

impl Bench<'_> {
    /// Runs a store, empty, for a measurement.
    fn with<T>(
        &mut self,
        store: &Store,
        doing: &str,
        measure: impl FnOnce(&Server, &Self) -> CliResult<T>,
    ) -> CliResult<T> {
        self.stop.check()?;
        self.progress.show(|| format!("{}: {doing}", store.name));
        let folder = self.folder.join("store");
        let running = store.start(&folder, self.stop)?;
        let measured = measure(&running, self);
        drop(running);
        std::fs::remove_dir_all(&folder).map_err(|error| CliError::file(&folder, &error))?;
        measured
    }

    fn keep(&mut self, row: Row) -> CliResult {
        if self.args.output.json {
            self.progress.clear();
            let mut out = Out::new();
            out.json(&row)?;
            out.flush()?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Puts, their events, and ranges at a pace, beside the requests of a cluster.
    fn latency(&mut self, store: &Store, run: u16, pods: u16) -> CliResult {
        let load = clock::load();
        let pace = Pace { clients: CLIENTS, per_second: PER_SECOND, time: self.sizes.time / 2 };
        let doing = format!("run {run}, {pods} pods");
        let figures = self.with(store, &doing, |running, _| {
            speed::fill(running.url()).map_err(failed)?;
            let background = Background::start(running.url(), pods).map_err(failed)?;
            let begun = used(running)?.cpu_s;
            let put = speed::paced(running.url(), Operation::Put, pace).map_err(failed)?;
            let range = speed::paced(running.url(), Operation::Range, pace).map_err(failed)?;
            let cpu_s = used(running)?.cpu_s - begun;
            drop(background);
            Ok(json!({
                "put_us": summary(&put.answers),
                "event_us": summary(&put.events),
                "range_us": summary(&range.answers),
                "errors": put.errors + range.errors,
                "events_missing": put.answers.count - put.events.count,
                "cpu_s": cpu_s,
                "anonymous_bytes": used(running)?.anonymous_bytes,
            }))
        })?;
        let smoke = self.args.smoke;
        self.keep(Row { store: store.name, run, what: "latency", pods, figures, load, smoke })
    }

    /// Puts, ranges and what an API server asks for, at full speed.
    fn full(&mut self, store: &Store, run: u16) -> CliResult {
        let load = clock::load();
        let time = self.sizes.time / 5;
        let crowd = Crowd { clients: CROWD, connections: CONNECTIONS, time };
        let doing = format!("run {run}, full speed");
        let figures = self.with(store, &doing, |running, bench| {
            speed::fill(running.url()).map_err(failed)?;
            let mut figures = json!({});
            for (name, operation) in [
                ("put", Operation::Put),
                ("range", Operation::Range),
                ("update", Operation::Update),
                ("get", Operation::Get),
                ("list", Operation::List),
            ] {
                bench.stop.check()?;
                let begun = used(running)?.cpu_s;
                let rate = speed::full(running.url(), operation, crowd).map_err(failed)?;
                let cpu_us = (used(running)?.cpu_s - begun) * 1e6 / rate.count.max(1) as f64;
                figures[name] = of_rate(&rate, cpu_us);
            }
            figures["anonymous_bytes"] = used(running)?.anonymous_bytes.into();
            Ok(figures)
        })?;
        let smoke = self.args.smoke;
        self.keep(Row { store: store.name, run, what: "full", pods: 0, figures, load, smoke })
    }

    /// Memory and disk of many keys, and of their old revisions.
    fn memory(&mut self, store: &Store) -> CliResult {
        let load = clock::load();
        let keys = self.sizes.memory_keys;
        let crowd = Crowd { clients: CROWD, connections: CONNECTIONS, time: Duration::ZERO };
        let figures = self.with(store, "memory", |running, _| {
            let put = || speed::put_each(running.url(), keys, crowd).map_err(failed);
            let memory = || used(running).map(|used| used.anonymous_bytes);
            let (empty, disk_empty) = (memory()?, disk_bytes(running)?);
            put()?;
            let (filled, disk_filled) = (memory()?, disk_bytes(running)?);
            for _ in 0..OLD_REVISIONS {
                put()?;
            }
            let (old, disk_old) = (memory()?, disk_bytes(running)?);
            let revisions = (keys * OLD_REVISIONS) as f64;
            Ok(json!({
                "keys": keys,
                "key_bytes": (filled - empty) / keys as f64,
                "old_revision_bytes": (old - filled) / revisions,
                "disk_key_bytes": (disk_filled - disk_empty) as f64 / keys as f64,
                "disk_revision_bytes": (disk_old - disk_filled) as f64 / revisions,
            }))
        })?;
        let smoke = self.args.smoke;
        self.keep(Row { store: store.name, run: 1, what: "memory", pods: 0, figures, load, smoke })
    }

    /// The store as a library, without gRPC.
    fn embedded(&mut self) -> CliResult<Value> {
        self.progress.show(|| "in process".to_owned());
        let folder = self.folder.join("embedded");
        let task = embedded::Task { folder, time: self.sizes.time / 4 };
        let mut worker =
            crate::worker::Worker::start(embedded::KIND, "in process", &task, self.stop)?;
        let measured = worker.reply()?;
        worker.finish()?;
        Ok(measured)
    }
}

fn summary(of: &Summary) -> Value {
    let Summary { count, mean_us, median_us, sd_us, p99_us } = of;
    json!({ "count": count, "mean": mean_us, "median": median_us, "sd": sd_us, "p99": p99_us })
}

fn of_rate(rate: &Rate, cpu_us: f64) -> Value {
    let Rate { per_s, count, answers, errors, events } = rate;
    json!({
        "per_s": per_s, "count": count, "latency_us": summary(answers), "errors": errors,
        "events": events, "cpu_us": cpu_us,
    })
}
