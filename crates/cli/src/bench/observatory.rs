//! `helio bench observatory`: simulated components in a few processes, and one recorder that reads
//! everything.
//!
//! Components publish by the table of rates in an open loop: each message is stamped with its due
//! time. Latency runs from there to the recorder. *Lost* are messages with a receipt that the
//! recorder did not receive, and gaps that the bus reports.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use helio_bus::{
    Bus, Event, Lagging, Start, Subscribe, Subscription, Tai, TopicError, TopicName, TopicSpec,
    WaitSet,
};
use helio_component::MockCounts;
use serde::{Deserialize, Serialize};

use super::messages::Used;
use super::report::{Latency, histogram, print};
use crate::args::ObservatoryArgs;
use crate::args::instances::Instances;
use crate::clock::{cpu_s, load, peak_rss_mb};
use crate::component::simulate::{MockTask, absolute, all, counts, from_mock, shares, wait_until};
use crate::error::{CliError, CliResult};
use crate::out::Progress;
use crate::run_bus::RunBus;
use crate::sal;
use crate::stop::{STOP_POLL_INTERVAL, Stop};
use crate::units::human_count;
use crate::worker::{Worker, hear, orders, say};

/// The first message is due this long after the order to begin.
const LEAD: Duration = Duration::from_millis(300);
/// The time for the recorder to read the rest once the components have stopped.
const CATCH_UP: Duration = Duration::from_secs(20);
/// Components keep up if they have published this share of the schedule.
const KEPT_UP: f64 = 0.98;
/// Steps to find the largest scale: doubled until one fails, then this many bisections.
const DOUBLINGS: u32 = 10;
const HALVINGS: u32 = 3;

/// The order to publish for an interval.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Publish {
    begin_ns: i64,
    end_ns: i64,
    scale: f64,
}

/// The report of a process of components for an interval.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Published {
    published: u64,
    commands: u64,
    late_commands: u64,
    used: Used,
}

/// The recorder's task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecorderTask {
    url: String,
}

/// An order to the recorder.
#[derive(Debug, Serialize, Deserialize)]
enum Recording {
    /// Reset the counts.
    Begin,
    /// The components have stopped: read the rest and report.
    End,
}

/// The recorder's report.
#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    /// Of topics that components publish by the table.
    received: u64,
    /// Of all topics.
    messages: u64,
    bytes: u64,
    lost: u64,
    longest_loss: u64,
    latencies: Vec<(u64, u64)>,
    used: Used,
}

/// The figures of one scale.
#[derive(Debug, Serialize)]
struct Figures {
    scale: f64,
    seconds: f64,
    count: u64,
    received: u64,
    lost: u64,
    /// The most missing messages of one stream in a row.
    longest_loss: u64,
    messages_per_s: f64,
    mb_per_s: f64,
    kept_up: f64,
    commands: u64,
    late_commands: u64,
    latency_us: Option<Latency>,
    cpu_s: Cpu,
}

#[derive(Debug, Serialize)]
struct Cpu {
    publisher: f64,
    subscriber: f64,
}

#[derive(Serialize)]
struct Report {
    workload: &'static str,
    url: String,
    components: usize,
    instances: usize,
    processes: u32,
    #[serde(flatten)]
    figures: Figures,
    start_s: f64,
    rss_mb: f64,
    rss_mb_per_component: f64,
    cpu_percent_per_component: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scale_limit: Option<f64>,
    load: f64,
    version: &'static str,
}

/// Runs `helio bench observatory`.
pub(crate) fn run(args: &ObservatoryArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let site = RunBus::fresh("helio-bench", args.run.dir.as_deref(), url)?;
    let load_before = load();
    let mut progress = Progress::new();
    progress.show(|| "the components start".to_owned());
    let begun = Instant::now();
    let mut processes = Processes::start(args, site.url(), &mut progress, stop)?;
    let start_s = begun.elapsed().as_secs_f64();
    progress.show(|| format!("{} components at scale {}", processes.components, args.scale));
    let figures = processes.measure(args.scale, args.seconds)?;
    let rss_mb = processes.rss_mb;
    let mut limit = None;
    if args.find_limit {
        let tried = |processes: &mut Processes, scale: f64| {
            progress.show(|| format!("scale {scale}"));
            processes.measure(scale, args.seconds).map(|figures| figures.holds())
        };
        limit = Some(find_limit(&mut processes, args.scale, figures.holds(), tried)?);
    }
    drop(progress);
    let instances = processes.instances;
    let per_component = |value: f64| (value / instances.max(1) as f64 * 1e3).round() / 1e3;
    let report = Report {
        workload: "observatory",
        url: site.url().to_owned(),
        components: processes.components,
        instances,
        processes: args.processes,
        start_s: (start_s * 1e3).round() / 1e3,
        rss_mb: rss_mb.round(),
        rss_mb_per_component: per_component(rss_mb),
        cpu_percent_per_component: per_component(
            100.0 * figures.cpu_s.publisher / figures.seconds.max(1e-9),
        ),
        figures,
        scale_limit: limit,
        load: load_before,
        version: env!("CARGO_PKG_VERSION"),
    };
    processes.finish()?;
    show(&report, args.run.output.json)?;
    match report.figures.lost {
        0 => Ok(()),
        lost => Err(CliError::Lost(format!("{lost} messages are lost"))),
    }
}

impl Figures {
    /// Whether nothing was lost and the components kept up with their schedule.
    fn holds(&self) -> bool {
        self.lost == 0 && self.kept_up >= KEPT_UP
    }
}

/// The largest scale that holds; 0 if not even the first does.
fn find_limit(
    processes: &mut Processes,
    first: f64,
    holds: bool,
    mut tried: impl FnMut(&mut Processes, f64) -> CliResult<bool>,
) -> CliResult<f64> {
    let (mut good, mut bad) = if holds { (first, None) } else { (0.0, Some(first)) };
    for _ in 0..DOUBLINGS {
        if bad.is_some() {
            break;
        }
        match tried(processes, good * 2.0)? {
            true => good *= 2.0,
            false => bad = Some(good * 2.0),
        }
    }
    let Some(mut bad) = bad else { return Ok(good) };
    for _ in 0..HALVINGS {
        let middle = (good + bad) / 2.0;
        match tried(processes, middle)? {
            true => good = middle,
            false => bad = middle,
        }
    }
    Ok(good)
}

/// The processes of the bench.
struct Processes {
    publishers: Vec<Worker>,
    recorder: Worker,
    components: usize,
    instances: usize,
    expected_hz: f64,
    rss_mb: f64,
    bus: Bus,
}

impl Processes {
    fn start(
        args: &ObservatoryArgs,
        url: &str,
        progress: &mut Progress,
        stop: &Stop,
    ) -> CliResult<Self> {
        let interfaces = sal::folder_or_own(args.interfaces.as_deref())?;
        let rules: Vec<Instances> =
            std::iter::once(Instances::One).chain(args.instances.iter().cloned()).collect();
        let task = MockTask {
            url: url.to_owned(),
            interfaces: absolute(args.interfaces.as_deref())?,
            instances: all(&interfaces, &rules)?,
            state: "ENABLED".to_owned(),
            rates: None,
            scale: 1.0,
            evolution: None,
        };
        let (components, instances) = counts(&task.instances);
        let bus = Bus::connect(url)?;
        task.make_topics(&bus, progress)?;
        let start = |task| Worker::start("bench-observatory", "components", task, stop);
        progress.show(|| format!("{instances} components start"));
        let tasks = shares(&task, args.processes);
        let mut publishers = tasks.iter().map(start).collect::<CliResult<Vec<_>>>()?;
        let mut expected_hz = 0.0;
        for publisher in &mut publishers {
            expected_hz += publisher.reply::<f64>()?;
        }
        progress.show(|| "the recorder opens all topics".to_owned());
        let task = RecorderTask { url: url.to_owned() };
        let mut recorder = Worker::start("bench-recorder", "recorder", &task, stop)?;
        recorder.reply::<()>()?;
        Ok(Self { publishers, recorder, components, instances, expected_hz, rss_mb: 0.0, bus })
    }

    fn measure(&mut self, scale: f64, seconds: Duration) -> CliResult<Figures> {
        self.recorder.order(&Recording::Begin)?;
        self.recorder.reply::<()>()?;
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let begin_ns = self.bus.clock().now().nanos() + nanos(LEAD);
        let order = Publish { begin_ns, end_ns: begin_ns + nanos(seconds), scale };
        for publisher in &mut self.publishers {
            publisher.order(&order)?;
        }
        let (mut published, mut commands, mut late, mut cpu, mut rss) = (0, 0, 0, 0.0, 0.0);
        for publisher in &mut self.publishers {
            let report: Published = publisher.reply()?;
            published += report.published;
            commands += report.commands;
            late += report.late_commands;
            cpu += report.used.cpu_s;
            rss += report.used.rss_mb;
        }
        self.rss_mb = rss;
        self.recorder.order(&Recording::End)?;
        let recorded: Recorded = self.recorder.reply()?;
        let mut latencies = histogram();
        for (value, count) in &recorded.latencies {
            latencies.saturating_record_n(*value, *count);
        }
        let seconds = seconds.as_secs_f64();
        let rounded = |value: f64| (value * 1e3).round() / 1e3;
        let due = self.expected_hz * scale * seconds;
        let lost = published.saturating_sub(recorded.received).max(recorded.lost);
        // Losses without a gap are at the ends of streams; assume a single stream.
        let longest_loss = recorded.longest_loss.max(lost - recorded.lost);
        Ok(Figures {
            scale,
            seconds: rounded(seconds),
            count: published,
            received: recorded.received,
            lost,
            longest_loss,
            messages_per_s: rounded(recorded.messages as f64 / seconds),
            mb_per_s: rounded(recorded.bytes as f64 * 1e-6 / seconds),
            kept_up: rounded((published + commands) as f64 / due.max(1.0)),
            commands,
            late_commands: late,
            latency_us: Latency::of(&latencies),
            cpu_s: Cpu { publisher: rounded(cpu), subscriber: rounded(recorded.used.cpu_s) },
        })
    }

    fn finish(self) -> CliResult {
        self.publishers.into_iter().try_for_each(Worker::finish)?;
        self.recorder.finish()
    }
}

fn show(report: &Report, json: bool) -> CliResult {
    let figures = &report.figures;
    let latency = figures
        .latency_us
        .map_or_else(|| "-".to_owned(), |l| format!("{:.0}, {:.0}, {:.0}", l.p50, l.p99, l.max));
    let rows = [
        ("components", report.components.to_string()),
        ("instances of them", report.instances.to_string()),
        ("messages a second", human_count(figures.messages_per_s as u64)),
        ("MB a second", format!("{:.2}", figures.mb_per_s)),
        ("of what was due, published", format!("{:.1} %", figures.kept_up * 100.0)),
        ("lost", human_count(figures.lost)),
        ("longest run of losses", human_count(figures.longest_loss)),
        ("late commands", format!("{} of {}", figures.late_commands, figures.commands)),
        ("latency, us (p50, p99, max)", latency),
        ("start, s", format!("{:.1}", report.start_s)),
        ("memory of an instance, MB", format!("{:.1}", report.rss_mb_per_component)),
        ("CPU of an instance, %", format!("{:.2}", report.cpu_percent_per_component)),
        ("largest scale", report.scale_limit.map_or_else(|| "-".to_owned(), |s| s.to_string())),
    ];
    print(report, json, &rows)
}

/// Runs a process of components.
pub(crate) fn components(task: &MockTask) -> CliResult {
    let mut mock = task.start()?;
    say(&mock.hz())?;
    let bus = Bus::connect(&task.url)?;
    while let Some(order) = hear::<Publish>()? {
        let (before, cpu) = (mock.counts(), cpu_s());
        let waited = |at: Tai| {
            at.nanos() < order.end_ns
                && wait_until(&bus, at, || bus.clock().now().nanos() >= order.end_ns)
        };
        let begin = Tai::from_nanos(order.begin_ns);
        mock.publish_until(begin, order.scale, waited).map_err(from_mock)?;
        let MockCounts { published, commands, late_commands, .. } = mock.counts();
        say(&Published {
            published: published - before.published,
            commands: commands - before.commands,
            late_commands: late_commands - before.late_commands,
            used: Used { cpu_s: cpu_s() - cpu, rss_mb: peak_rss_mb() },
        })?;
    }
    Ok(())
}

/// The counts of an interval.
struct IntervalCounts {
    received: u64,
    messages: u64,
    bytes: u64,
    longest_loss: u64,
    latencies: Histogram<u64>,
}

/// Subscribes to every topic.
fn everything(bus: &Bus) -> CliResult<Vec<(TopicName, Subscription)>> {
    let subscribe = |name: &TopicName| match bus.topic(TopicSpec::of(name.clone())) {
        // It was removed since the list was made.
        Err(TopicError::NoSuchTopic(_)) => Ok(None),
        topic => {
            let all = Subscribe::from(Start::Latest).as_written().lagging(Lagging::Lossless);
            Ok(Some((name.clone(), topic?.subscribe(all)?)))
        }
    };
    let all = helio_bus::parallel_map(&bus.topics()?, subscribe);
    all.into_iter().filter_map(Result::transpose).collect()
}

/// Runs the recorder's process.
pub(crate) fn recorder(task: &RecorderTask) -> CliResult {
    let bus = Bus::connect(&task.url)?;
    let mut set = bus.wait_set()?;
    let (mut members, mut ours) = (Vec::new(), HashSet::new());
    for (name, samples) in everything(&bus)? {
        members.push(set.add(samples));
        if helio_component::is_mocked(name.as_str()) {
            ours.insert(name);
        }
    }
    say(&())?;
    let orders = orders::<Recording>();
    let mut tally = IntervalCounts::new();
    let mut cpu = cpu_s();
    let lost = |set: &mut WaitSet| -> u64 {
        members.iter().filter_map(|m| set.get_mut(*m).map(|s| s.stats().lost)).sum()
    };
    let mut lost_before = 0;
    loop {
        match orders.try_recv() {
            Ok(Recording::Begin) => {
                while set.try_next()?.is_some() {}
                (tally, cpu, lost_before) = (IntervalCounts::new(), cpu_s(), lost(&mut set));
                say(&())?;
            }
            Ok(Recording::End) => {
                let until = Instant::now() + CATCH_UP;
                while let Some((_, event)) = set.try_next()?
                    && Instant::now() < until
                {
                    tally.take(&bus, &ours, &event);
                }
                let lost = lost(&mut set) - lost_before;
                say(&tally.report(lost, Used { cpu_s: cpu_s() - cpu, rss_mb: peak_rss_mb() }))?;
            }
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
        }
        // At most a second's samples between two polls for orders.
        let turn = Instant::now();
        while turn.elapsed() < STOP_POLL_INTERVAL {
            let Some((_, event)) = set.next_timeout(STOP_POLL_INTERVAL)? else { break };
            tally.take(&bus, &ours, &event);
        }
    }
}

impl IntervalCounts {
    fn new() -> Self {
        Self { received: 0, messages: 0, bytes: 0, longest_loss: 0, latencies: histogram() }
    }

    fn take(&mut self, bus: &Bus, ours: &HashSet<TopicName>, event: &Event) {
        let sample = match event {
            Event::Sample(sample) => sample,
            Event::Gap(gap) => {
                self.longest_loss = self.longest_loss.max(gap.lost);
                return;
            }
            _ => return,
        };
        self.messages += 1;
        self.bytes += (sample.payload.len() + sample.key.len()) as u64;
        if ours.contains(&sample.topic) {
            self.received += 1;
            let late = bus.clock().now().nanos().saturating_sub(sample.header.time.nanos());
            self.latencies.saturating_record(u64::try_from(late).unwrap_or(0).max(1));
        }
    }

    fn report(&self, lost: u64, used: Used) -> Recorded {
        let counts = self.latencies.iter_recorded();
        Recorded {
            received: self.received,
            messages: self.messages,
            bytes: self.bytes,
            lost,
            longest_loss: self.longest_loss,
            latencies: counts.map(|v| (v.value_iterated_to(), v.count_at_value())).collect(),
            used,
        }
    }
}
