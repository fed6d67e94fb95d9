//! `helio bench commands`: the round trip of a command between two processes.
//!
//! The caller sends a command at each intended time and waits for its acknowledgements. Times run
//! from the intended time to the first and to the final acknowledgement. The component's handler
//! does nothing. A round trip has three wake-ups of a process: the component's for the command, the
//! caller's for the acknowledgement, and the sender's at its time. The report therefore contains
//! the machine's wake-up time without an engine.

use std::path::PathBuf;
use std::time::Duration;

use hdrhistogram::Histogram;
use helio_bus::Bus;
use helio_component::protocol::SummaryState;
use helio_component::{Command, Component, Failed, Interface, Remote};
use serde::{Deserialize, Serialize};

use super::floor::{self, Percentiles};
use super::messages::{Go, Schedule, Used};
use super::report::{Latency, histogram, print};
use crate::args::{CommandsArgs, Language};
use crate::clock::{cpu_s, load, monotonic_ns, peak_rss_mb, wait_until};
use crate::error::{CliError, CliResult};
use crate::python;
use crate::run_bus::RunBus;
use crate::sal;
use crate::stop::Stop;
use crate::units::human_count;
use crate::worker::{Worker, hear, say};

/// The measured component and command of the built-in interfaces.
const COMPONENT: &str = "MTMount";
const COMMAND: &str = "moveToTarget";
/// The first command is due this long after the order to begin.
const LEAD_NS: u64 = 200_000_000;
/// The timeout of a command.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The task of either process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CommandsTask {
    url: String,
    interfaces: PathBuf,
    component: String,
    command: String,
    rate_hz: f64,
    count: u64,
}

/// The caller's report.
#[derive(Debug, Serialize, Deserialize)]
struct Called {
    /// Nanoseconds from the intended time to the first acknowledgement, of completed commands.
    ack_ns: Vec<u64>,
    /// The same to the last one.
    done_ns: Vec<u64>,
    failed: u64,
    used: Used,
}

#[derive(Serialize)]
struct Cpu {
    caller: f64,
    component: f64,
}

#[derive(Serialize)]
struct Report {
    workload: &'static str,
    language: Language,
    url: String,
    rate_hz: f64,
    count: u64,
    received: u64,
    lost: u64,
    latency_us: Option<Latency>,
    ack_us: Option<Latency>,
    floor_us: Percentiles,
    cpu_s: Cpu,
    rss_mb: f64,
    load: f64,
    version: &'static str,
}

/// Runs `helio bench commands`.
pub(crate) fn run(args: &CommandsArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let site = RunBus::fresh("helio-bench", args.run.dir.as_deref(), url)?;
    site.refuse_memory(2)?;
    let load_before = load();
    let parent = args.run.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = RunBus::fresh("helio-bench-interfaces", Some(&parent), None)?;
    let interfaces = folder.scratch().map(PathBuf::from).unwrap_or_default();
    sal::write_own(&interfaces)?;
    let floor_us = floor::wake_up(&parent, args.rate, stop)?;
    let task = CommandsTask {
        url: site.url().to_owned(),
        interfaces,
        component: COMPONENT.to_owned(),
        command: COMMAND.to_owned(),
        rate_hz: args.rate,
        count: args.count,
    };
    let (called, component) = measure(&task, args.language, stop)?;
    let received = called.done_ns.len() as u64;
    let report = Report {
        workload: "commands",
        language: args.language,
        url: site.url().to_owned(),
        rate_hz: args.rate,
        count: args.count,
        received,
        lost: args.count.saturating_sub(received),
        latency_us: Latency::of(&of_times(&called.done_ns)),
        ack_us: Latency::of(&of_times(&called.ack_ns)),
        floor_us,
        cpu_s: Cpu { caller: rounded(called.used.cpu_s), component: rounded(component.cpu_s) },
        rss_mb: called.used.rss_mb.max(component.rss_mb).round(),
        load: load_before,
        version: env!("CARGO_PKG_VERSION"),
    };
    show(&report, args.run.output.json)?;
    match report.lost {
        0 => Ok(()),
        lost => Err(CliError::Lost(format!("{lost} of {} commands were not done", args.count))),
    }
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

fn of_times(times_ns: &[u64]) -> Histogram<u64> {
    let mut all = histogram();
    times_ns.iter().for_each(|ns| all.saturating_record((*ns).max(1)));
    all
}

fn measure(task: &CommandsTask, language: Language, stop: &Stop) -> CliResult<(Called, Used)> {
    let start = |kind: &str, name: &str| match language {
        Language::Rust => Worker::start(kind, name, task, stop),
        Language::Python => {
            let command = python::command(&python::interpreter(), python::BENCH_COMMANDS);
            Worker::start_by(command, kind, name, task, stop)
        }
    };
    let mut component = start("bench-commanded", "commanded component")?;
    component.reply::<()>()?;
    let mut caller = start("bench-caller", "caller")?;
    caller.reply::<()>()?;
    let go = Go { start_ns: monotonic_ns() + LEAD_NS };
    component.order(&go)?;
    caller.order(&go)?;
    let called = caller.reply()?;
    caller.finish()?;
    component.order(&go)?;
    let used = component.reply()?;
    component.finish()?;
    Ok((called, used))
}

fn show(report: &Report, json: bool) -> CliResult {
    let figures = |of: Option<Latency>| {
        of.map_or_else(|| "-".to_owned(), |l| format!("{:.1}, {:.1}, {:.1}", l.p50, l.p99, l.max))
    };
    let rows = [
        ("commands", human_count(report.count)),
        ("done", human_count(report.received)),
        ("acknowledged, us (p50, p99, max)", figures(report.ack_us)),
        ("done, us (p50, p99, max)", figures(report.latency_us)),
        ("one wake-up here, us (p50, p99)", report.floor_us.text()),
        ("CPU caller, s", format!("{:.3}", report.cpu_s.caller)),
        ("CPU component, s", format!("{:.3}", report.cpu_s.component)),
    ];
    print(report, json, &rows)
}

/// Runs the component's process.
pub(crate) fn component(task: &CommandsTask) -> CliResult {
    let failed = |e: &dyn std::fmt::Display| CliError::Failure(e.to_string());
    let bus = Bus::connect(&task.url)?;
    let interfaces = sal::folder(&task.interfaces)?;
    let interface = Interface::of(&interfaces, &task.component).map_err(|e| failed(&e))?;
    let running = Component::builder(&bus, &interface, 0)
        .initial_state(SummaryState::Enabled)
        .inline(&task.command, |_: &Command| Ok::<_, Failed>(()))
        .start()
        .map_err(|e| failed(&e))?;
    say(&())?;
    let Some(Go { .. }) = hear()? else { return Ok(()) };
    let cpu = cpu_s();
    hear::<Go>()?;
    say(&Used { cpu_s: cpu_s() - cpu, rss_mb: peak_rss_mb() })?;
    running.stop().map_err(|e| failed(&e))
}

/// Runs the caller's process.
pub(crate) fn caller(task: &CommandsTask) -> CliResult {
    let failed = |e: &dyn std::fmt::Display| CliError::Failure(e.to_string());
    let bus = Bus::connect(&task.url)?;
    let interfaces = sal::folder(&task.interfaces)?;
    let interface = Interface::of(&interfaces, &task.component).map_err(|e| failed(&e))?;
    let remote = Remote::open(&bus, &interface, 0).map_err(|e| failed(&e))?;
    // The first command opens the topics and is not measured.
    let call = |azimuth: f64| {
        let call = remote.command(&task.command).timeout(TIMEOUT);
        call.set("azimuth", azimuth).set("elevation", 45.0).send()
    };
    call(0.0).wait().map_err(|e| failed(&e))?;
    say(&())?;
    let Some(go) = hear::<Go>()? else { return Ok(()) };
    let cpu = cpu_s();
    let mut called =
        Called { ack_ns: Vec::new(), done_ns: Vec::new(), failed: 0, used: Used::default() };
    let schedule = Schedule::new(task.rate_hz, 1);
    for number in 0..task.count {
        let due = schedule.due(go.start_ns, number);
        wait_until(due);
        let mut call = call(number as f64 * 0.001);
        let mut first = None;
        loop {
            match call.next() {
                Ok(Some(ack)) => {
                    let ns = monotonic_ns().saturating_sub(due);
                    let first = *first.get_or_insert(ns);
                    if ack.code.is_final() {
                        called.ack_ns.push(first);
                        called.done_ns.push(ns);
                        break;
                    }
                }
                Ok(None) | Err(_) => {
                    called.failed += 1;
                    break;
                }
            }
        }
    }
    called.used = Used { cpu_s: cpu_s() - cpu, rss_mb: peak_rss_mb() };
    say(&called)
}
