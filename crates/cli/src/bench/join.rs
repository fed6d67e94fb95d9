//! `helio bench join`: the time until a late joiner has the newest value of every key.
//!
//! Every key is published several times, so that the newest values lie among older ones. Each
//! joiner is a process; its time runs from before it connects until it has all of them.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use helio_bus::{Bus, EventRef, Message, Publisher, Start, Subscribe, TopicSpec};
use helio_core::Qos;
use serde::{Deserialize, Serialize};

use super::report::{Spread, print};
use crate::args::JoinArgs;
use crate::clock::{cpu_s, load, peak_rss_mb};
use crate::error::{CliError, CliResult};
use crate::open::profile;
use crate::out::Progress;
use crate::receipts::Receipts;
use crate::run_bus::RunBus;
use crate::stop::Stop;
use crate::units::human_count;
use crate::worker::{Worker, say};

const TOPIC: &str = "bench/join";
/// The silence after which missing samples count as lost.
const SILENCE: Duration = Duration::from_secs(5);
/// Samples per read.
const TAKE: usize = 1024;
/// The largest number of messages in flight.
const WINDOW: usize = 1_000;

/// A joiner process's task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JoinTask {
    url: String,
    qos: Qos,
    keys: u32,
    /// The first bytes of the newest value of each key.
    newest: u32,
}

/// A joiner's report.
#[derive(Debug, Serialize, Deserialize)]
struct Joined {
    received: u32,
    ms: f64,
    cpu_ms: f64,
    rss_mb: f64,
}

#[derive(Serialize)]
struct Report {
    workload: &'static str,
    url: String,
    payload_bytes: usize,
    count: u32,
    received: u32,
    lost: u32,
    join_ms: Option<Spread>,
    cpu_ms: Option<Spread>,
    rss_mb: f64,
    load: f64,
    version: &'static str,
    receipt: &'static str,
    updates: u32,
    joins: u32,
}

/// Runs `helio bench join`.
pub(crate) fn run(args: &JoinArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let site = RunBus::fresh("helio-bench", args.run.dir.as_deref(), url)?;
    let mut progress = Progress::new();
    let load_before = load();
    let task = JoinTask {
        url: site.url().to_owned(),
        qos: profile(&args.profile)?,
        keys: args.keys,
        newest: args.updates - 1,
    };
    let bus = Bus::connect(site.url())?;
    let publisher = bus.topic(TopicSpec::new(TOPIC)?.qos(task.qos.clone()))?.publisher()?;
    publish(args, &publisher, stop)?;
    let mut joined = Vec::new();
    for number in 1..=args.joins {
        progress.show(|| format!("late joiner {number}"));
        let mut worker = Worker::start("bench-joiner", "late joiner", &task, stop)?;
        joined.push(worker.reply::<Joined>()?);
        worker.finish()?;
    }
    drop(progress);
    told(args, &site, &joined, load_before)
}

fn publish(args: &JoinArgs, publisher: &Publisher, stop: &Stop) -> CliResult {
    let mut receipts = Receipts::new(WINDOW);
    let mut body = vec![7; args.payload.max(4)];
    for update in 0..args.updates {
        stop.check()?;
        body[..4].copy_from_slice(&update.to_le_bytes());
        for key in 0..args.keys {
            let key = key.to_le_bytes();
            receipts.take(publisher.publish(Message::new(&body).key(&key)))?;
        }
    }
    receipts.finish().map(drop)
}

fn told(args: &JoinArgs, site: &RunBus, joined: &[Joined], load: f64) -> CliResult {
    let received = joined.iter().map(|j| j.received).min().unwrap_or(0);
    let report = Report {
        workload: "join",
        url: site.url().to_owned(),
        payload_bytes: args.payload.max(4),
        count: args.keys,
        received,
        lost: args.keys - received,
        join_ms: Spread::of(joined.iter().map(|j| j.ms).collect()),
        cpu_ms: Spread::of(joined.iter().map(|j| j.cpu_ms).collect()),
        rss_mb: joined.iter().map(|j| j.rss_mb).fold(0.0, f64::max).round(),
        load,
        version: env!("CARGO_PKG_VERSION"),
        receipt: "stored",
        updates: args.updates,
        joins: args.joins,
    };
    let rows = [
        ("keys", human_count(args.keys.into())),
        ("received by each joiner", human_count(received.into())),
        ("joined after, ms", report.join_ms.map_or_else(String::new, |s| s.text())),
        ("CPU, ms", report.cpu_ms.map_or_else(String::new, |s| s.text())),
    ];
    print(&report, args.run.output.json, &rows)?;
    match report.lost {
        0 => Ok(()),
        lost => Err(CliError::Lost(format!("a late joiner misses {lost} of {} keys", args.keys))),
    }
}

/// Runs a joiner process.
pub(crate) fn joiner(task: &JoinTask) -> CliResult {
    let (begin, cpu) = (Instant::now(), cpu_s());
    let bus = Bus::connect(&task.url)?;
    let topic = bus.topic(TopicSpec::new(TOPIC)?.qos(task.qos.clone()))?;
    let mut samples = topic.subscribe(Subscribe::from(Start::Last(1)))?;
    let newest = task.newest.to_le_bytes();
    let mut received = 0;
    let mut heard = Instant::now();
    while received < task.keys {
        let count = |event: EventRef<'_>| {
            if let EventRef::Sample(sample) = event {
                received += u32::from(sample.payload.starts_with(&newest));
            }
            ControlFlow::Continue(())
        };
        if samples.visit(TAKE, count)? > 0 {
            heard = Instant::now();
        } else if !samples.wait_until(Some(heard + SILENCE))? {
            break;
        }
    }
    let ms = begin.elapsed().as_secs_f64() * 1e3;
    say(&Joined { received, ms, cpu_ms: (cpu_s() - cpu) * 1e3, rss_mb: peak_rss_mb() })
}
