//! `helio bench latency` and `throughput`: starts the processes and combines their reports.

use helio_core::Qos;
use helio_core::qos::{Durability, History};

use super::messages::{
    BenchTopic, Content, Go, Pace, PublisherReport, PublisherTask, Schedule, SubscriberReport,
    SubscriberTask, writer_name,
};
use super::report::{Cpu, Latency, Report, Shape, latencies};
use crate::args::{LatencyArgs, LoadArgs, ThroughputArgs};
use crate::clock::monotonic_ns;
use crate::error::{CliError, CliResult};
use crate::out::{Out, Progress, table};
use crate::run_bus::RunBus;
use crate::stop::Stop;
use crate::units::human_count;
use crate::worker::Worker;

/// The first message is due this long after the order to begin.
const LEAD_NS: u64 = 100_000_000;
/// A throughput run publishes about this much, unless a count is given.
const VOLUME_BYTES: usize = 300 << 20;
/// The assumed size of a topic's message: the largest of the benchmarks.
const TYPED_BYTES: usize = 3_333;
/// …and at most this many messages.
const COUNT_MAX: usize = 1_000_000;

/// One bench.
struct Load<'a> {
    workload: &'static str,
    rate_hz: Option<f64>,
    burst: u64,
    count: u64,
    batch: usize,
    window: usize,
    args: &'a LoadArgs,
}

/// Runs `helio bench latency`.
pub(crate) fn latency(args: &LatencyArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let load = Load {
        workload: "latency",
        rate_hz: Some(args.rate),
        burst: 1,
        count: args.count,
        batch: 1,
        window: args.load.window,
        args: &args.load,
    };
    run(&load, url, stop)
}

/// Runs `helio bench throughput`.
pub(crate) fn throughput(args: &ThroughputArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let payload = match (&args.load.topic, args.load.payload) {
        (Some(_), _) => TYPED_BYTES,
        (None, payload) => payload.unwrap_or(LoadArgs::PAYLOAD).max(1),
    };
    let count = args.count.unwrap_or((VOLUME_BYTES / payload).clamp(100, COUNT_MAX) as u64);
    let load = Load {
        workload: "throughput",
        rate_hz: args.rate,
        burst: args.burst,
        count,
        batch: args.batch,
        window: args.load.window,
        args: &args.load,
    };
    run(&load, url, stop)
}

impl Load<'_> {
    fn content(&self) -> CliResult<Content> {
        match (&self.args.topic, &self.args.interfaces) {
            (None, None) => Ok(Content::Bytes(self.args.payload.unwrap_or(LoadArgs::PAYLOAD))),
            (Some(topic), Some(folder)) => {
                let interfaces = std::fs::canonicalize(folder);
                let interfaces = interfaces.map_err(|e| CliError::file(folder, &e))?;
                Ok(Content::Typed { interfaces, topic: topic.clone() })
            }
            _ => Err(CliError::Usage("--topic and --interfaces belong together".to_owned())),
        }
    }

    fn place(&self, site: &RunBus) -> CliResult<BenchTopic> {
        let profile = &self.args.profile;
        let mut qos = Qos::profile(profile).ok_or_else(|| {
            CliError::Usage(format!("no profile is named {profile:?}; try stream or telemetry"))
        })?;
        qos.guarantee = self.args.guarantee.into();
        if self.args.volatile {
            (qos.durability, qos.history) = (Durability::Volatile, History::None);
        }
        let run = format!("{}-{}", std::process::id(), monotonic_ns());
        Ok(BenchTopic {
            url: site.url().to_owned(),
            topic: format!("bench/{}/{run}", self.workload),
            qos,
            content: self.content()?,
        })
    }

    /// Messages of all writers.
    fn expected(&self) -> u64 {
        self.count * u64::from(self.args.writers)
    }

    fn subscriber(&self, place: &BenchTopic, pace: Pace) -> SubscriberTask {
        let (place, schedule) = (place.clone(), self.schedule());
        SubscriberTask { place, pace, expected: self.expected(), schedule }
    }

    fn schedule(&self) -> Option<Schedule> {
        self.rate_hz.map(|rate| Schedule::new(rate, self.burst))
    }

    fn publisher(&self, place: &BenchTopic, writer: u32) -> PublisherTask {
        PublisherTask {
            place: place.clone(),
            writer,
            schedule: self.schedule(),
            count: self.count,
            batch: self.batch,
            guarantee: self.args.guarantee.into(),
            window: self.window,
        }
    }

    fn shape(&self) -> Shape {
        let many = |n: u32, usual: u32| (n != usual).then_some(n);
        Shape {
            topic: self.args.topic.clone(),
            writers: many(self.args.writers, 1),
            readers: many(self.args.readers, 1),
            stalled: many(self.args.stalled, 0),
            burst: (self.burst != 1).then_some(self.burst),
            batch: (self.batch != 1).then_some(self.batch),
            window: (self.window != LoadArgs::WINDOW).then_some(self.window),
            volatile: self.args.volatile,
        }
    }
}

/// The processes of a bench, each ready to begin.
struct Processes {
    subscribers: Vec<Worker>,
    stalled: Vec<Worker>,
    publishers: Vec<Worker>,
}

impl Processes {
    fn start(load: &Load<'_>, place: &BenchTopic, stop: &Stop) -> CliResult<Self> {
        let subscriber = |pace| {
            let task = load.subscriber(place, pace);
            Worker::start("bench-subscriber", "bench subscriber", &task, stop)
        };
        let publisher = |writer| {
            let task = load.publisher(place, writer);
            Worker::start("bench-publisher", &writer_name(writer), &task, stop)
        };
        let mut processes = Self {
            subscribers: repeat(load.args.readers, |_| subscriber(Pace::Reads))?,
            stalled: repeat(load.args.stalled, |_| subscriber(Pace::Stalled))?,
            publishers: Vec::new(),
        };
        for worker in processes.subscribers.iter_mut().chain(&mut processes.stalled) {
            worker.reply::<()>()?;
        }
        processes.publishers = repeat(load.args.writers, publisher)?;
        for worker in &mut processes.publishers {
            worker.reply::<()>()?;
        }
        Ok(processes)
    }

    /// Sends the order to begin and returns the start time.
    fn go(&mut self) -> CliResult<u64> {
        let start_ns = monotonic_ns() + LEAD_NS;
        let all = self.subscribers.iter_mut().chain(&mut self.stalled).chain(&mut self.publishers);
        for worker in all {
            worker.order(&Go { start_ns })?;
        }
        Ok(start_ns)
    }

    fn reports(self) -> CliResult<(Vec<PublisherReport>, Vec<SubscriberReport>)> {
        let publishers = self.publishers.into_iter().map(last_word).collect::<CliResult<_>>()?;
        let subscribers = self.subscribers.into_iter().map(last_word).collect::<CliResult<_>>()?;
        for worker in self.stalled {
            worker.finish()?;
        }
        Ok((publishers, subscribers))
    }
}

fn last_word<T: serde::de::DeserializeOwned>(mut worker: Worker) -> CliResult<T> {
    let report = worker.reply()?;
    worker.finish()?;
    Ok(report)
}

fn repeat<T>(times: u32, make: impl Fn(u32) -> CliResult<T>) -> CliResult<Vec<T>> {
    (0..times).map(make).collect()
}

fn run(load: &Load<'_>, url: Option<&str>, stop: &Stop) -> CliResult {
    let site = RunBus::fresh("helio-bench", load.args.run.dir.as_deref(), url)?;
    site.refuse_memory(2)?;
    let place = load.place(&site)?;
    let progress = Progress::new();
    let load_before = crate::clock::load();
    let mut processes = Processes::start(load, &place, stop)?;
    let start_ns = processes.go()?;
    let reports = processes.reports()?;
    drop(progress);
    let report = join(load, &site, start_ns, &reports.0, &reports.1, load_before);
    print(&report, load.args.run.output.json)?;
    if report.lost > 0 {
        let text = format!("{} of {} messages are lost", report.lost, report.count);
        return Err(CliError::Lost(text));
    }
    Ok(())
}

fn join(
    load: &Load<'_>,
    site: &RunBus,
    start_ns: u64,
    publishers: &[PublisherReport],
    subscribers: &[SubscriberReport],
    load_before: f64,
) -> Report {
    let acknowledged: u64 = publishers.iter().map(|p| p.acknowledged).sum();
    let received = subscribers.iter().map(|s| s.received).min().unwrap_or(0);
    let per_s = |count: u64, end_ns: Option<u64>| {
        let ns = end_ns.unwrap_or(start_ns).saturating_sub(start_ns).max(1);
        (count as f64 * 1e9 / ns as f64).round()
    };
    let used = publishers.iter().map(|p| p.used).chain(subscribers.iter().map(|s| s.used));
    Report {
        workload: load.workload,
        url: site.url().to_owned(),
        payload_bytes: publishers.first().map_or(0, |p| p.payload_bytes),
        rate_hz: load.rate_hz,
        count: acknowledged,
        received,
        lost: acknowledged.saturating_sub(received),
        duplicated: subscribers.iter().map(|s| s.duplicated).sum(),
        latency_us: Latency::of(&latencies(publishers, subscribers)),
        write_per_s: per_s(acknowledged, publishers.iter().map(|p| p.end_ns).max()),
        read_per_s: per_s(received, subscribers.iter().map(|s| s.end_ns).max()),
        cpu_s: Cpu {
            publisher: seconds(publishers.iter().map(|p| p.used.cpu_s).sum()),
            subscriber: seconds(subscribers.iter().map(|s| s.used.cpu_s).sum()),
        },
        rss_mb: used.map(|u| u.rss_mb).fold(0.0, f64::max).round(),
        load: load_before,
        version: env!("CARGO_PKG_VERSION"),
        receipt: load.args.guarantee.to_string(),
        shape: load.shape(),
    }
}

/// Rounded to the microsecond.
fn seconds(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn print(report: &Report, json: bool) -> CliResult {
    let mut out = Out::new();
    if json {
        out.json(report)?;
        return out.flush();
    }
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("messages", human_count(report.count)),
        row("bytes each", report.payload_bytes.to_string()),
        row("received", human_count(report.received)),
        row("lost", human_count(report.lost)),
        row("written per second", human_count(report.write_per_s as u64)),
        row("read per second", human_count(report.read_per_s as u64)),
    ];
    if let Some(latency) = report.latency_us {
        let names = ["mean", "stdev", "min", "p50", "p99", "p99.9", "max"];
        let Latency { mean, stdev, min, p50, p99, p999, max } = latency;
        for (name, value) in names.into_iter().zip([mean, stdev, min, p50, p99, p999, max]) {
            rows.push(row(&format!("latency {name}, us"), format!("{value:.1}")));
        }
    }
    rows.push(row("CPU publisher, s", format!("{:.3}", report.cpu_s.publisher)));
    rows.push(row("CPU subscriber, s", format!("{:.3}", report.cpu_s.subscriber)));
    rows.push(row("receipt", report.receipt.clone()));
    for line in table(&[report.workload, &report.url], &rows) {
        out.line(&line)?;
    }
    out.flush()
}
