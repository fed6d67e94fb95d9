//! `helio bench idle`: the cost of a process that waits on many subscriptions.
//!
//! Each subscription has its own topic, with a writer in the other process that has published one
//! sample. One thread waits on all of them. The CPU time of both processes is measured while
//! nothing is published.

use std::time::{Duration, Instant};

use helio_bus::{Bus, Message, Publisher, Start, Subscribe, TopicSpec};
use helio_core::Qos;
use serde::{Deserialize, Serialize};

use super::report::print;
use crate::args::IdleArgs;
use crate::clock::{cpu_s, load, peak_rss_mb};
use crate::error::{CliError, CliResult};
use crate::open::profile;
use crate::run_bus::RunBus;
use crate::stop::{STOP_POLL_INTERVAL, Stop};
use crate::units::human_count;
use crate::worker::{Worker, hear, say};

/// The time for earlier work to end before the measurement, such as the first background syncs.
const SETTLE: Duration = Duration::from_secs(1);

/// The waiting process's task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IdleTask {
    url: String,
    qos: Qos,
    subscriptions: u32,
    duration: Duration,
}

/// The waiting process's report.
#[derive(Debug, Serialize, Deserialize)]
struct Waited {
    cpu_s: f64,
    seconds: f64,
    rss_mb: f64,
    events: u64,
}

/// Shares of one core, in percent.
#[derive(Serialize)]
struct Shares {
    publisher: f64,
    subscriber: f64,
}

#[derive(Serialize)]
struct Report {
    workload: &'static str,
    url: String,
    count: u32,
    seconds: f64,
    cpu_percent: Shares,
    rss_mb: f64,
    load: f64,
    version: &'static str,
}

/// Runs `helio bench idle`.
pub(crate) fn run(args: &IdleArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let site = RunBus::fresh("helio-bench", args.run.dir.as_deref(), url)?;
    let load_before = load();
    let task = IdleTask {
        url: site.url().to_owned(),
        qos: profile(&args.profile)?,
        subscriptions: args.subscriptions,
        duration: args.duration,
    };
    let bus = Bus::connect(site.url())?;
    let _writers = writers(&bus, &task, stop)?;
    let mut worker = Worker::start("bench-idler", "idle subscriber", &task, stop)?;
    worker.reply::<()>()?;
    pause(SETTLE, stop)?;
    let (begin, cpu) = (Instant::now(), cpu_s());
    worker.order(&())?;
    let waited: Waited = worker.reply()?;
    let (own_cpu, own_s) = (cpu_s() - cpu, begin.elapsed().as_secs_f64());
    worker.finish()?;
    if waited.events > 0 {
        let text = format!("{} events came while nothing was published", waited.events);
        return Err(CliError::Failure(text));
    }
    let percent = |cpu_s: f64, seconds: f64| (cpu_s / seconds.max(1e-9) * 1e5).round() / 1e3;
    let report = Report {
        workload: "idle",
        url: site.url().to_owned(),
        count: args.subscriptions,
        seconds: (waited.seconds * 1e3).round() / 1e3,
        cpu_percent: Shares {
            publisher: percent(own_cpu, own_s),
            subscriber: percent(waited.cpu_s, waited.seconds),
        },
        rss_mb: waited.rss_mb.round(),
        load: load_before,
        version: env!("CARGO_PKG_VERSION"),
    };
    let rows = [
        ("subscriptions", human_count(args.subscriptions.into())),
        ("their process, % of a core", format!("{:.3}", report.cpu_percent.subscriber)),
        ("their writers' process, %", format!("{:.3}", report.cpu_percent.publisher)),
        ("memory, MB", format!("{:.0}", report.rss_mb)),
    ];
    print(&report, args.run.output.json, &rows)
}

fn spec(task: &IdleTask, number: u32) -> CliResult<TopicSpec> {
    Ok(TopicSpec::new(&format!("bench/idle/{number}"))?.qos(task.qos.clone()))
}

fn writers(bus: &Bus, task: &IdleTask, stop: &Stop) -> CliResult<Vec<Publisher>> {
    let one = |number| {
        stop.check()?;
        let publisher = bus.topic(spec(task, number)?)?.publisher()?;
        publisher.publish(Message::new(b"here")).wait()?;
        Ok(publisher)
    };
    (0..task.subscriptions).map(one).collect()
}

fn pause(time: Duration, stop: &Stop) -> CliResult {
    let until = Instant::now() + time;
    while Instant::now() < until {
        stop.check()?;
        std::thread::sleep(STOP_POLL_INTERVAL);
    }
    Ok(())
}

/// Runs the waiting process.
pub(crate) fn idler(task: &IdleTask) -> CliResult {
    let bus = Bus::connect(&task.url)?;
    let mut set = bus.wait_set()?;
    for number in 0..task.subscriptions {
        let topic = bus.topic(spec(task, number)?)?;
        set.add(topic.subscribe(Subscribe::from(Start::Latest))?);
    }
    // Each is polled once before the wait.
    let mut events = u64::from(set.next_timeout(STOP_POLL_INTERVAL)?.is_some());
    say(&())?;
    if hear::<()>()?.is_none() {
        return Ok(());
    }
    let (begin, cpu) = (Instant::now(), cpu_s());
    while let Some(left) = task.duration.checked_sub(begin.elapsed()) {
        events += u64::from(set.next_timeout(left)?.is_some());
    }
    let (cpu_s, seconds) = (cpu_s() - cpu, begin.elapsed().as_secs_f64());
    say(&Waited { cpu_s, seconds, rss_mb: peak_rss_mb(), events })
}
