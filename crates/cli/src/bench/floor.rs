//! `helio bench floor`: the machine's limits for a shared-memory log in a folder, without engine
//! code.
//!
//! One writer process and one reader process over [`super::mapped`]. Latency: a record at each
//! intended time, woken by futex. Append rate: as fast as possible, on pages touched for the first
//! time and on warm ones, from the first record's stamp until the reader has the last one; median
//! of five. Every file stays mapped until the end: the kernel would reuse freed memory, which is
//! warm and not new.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::mapped::{Mapped, Wake};
use crate::args::FloorArgs;
use crate::clock::{monotonic_ns, wait_until};
use crate::error::{CliError, CliResult};
use crate::out::{Out, Progress, table};
use crate::stop::Stop;
use crate::worker::{Worker, say};

const PAYLOADS: [usize; 3] = [64, 256, 6144];
const ROUNDS: usize = 5;
/// Polls of a reader before it sleeps, while the writer does not pause.
const SPINS: u32 = 5_000;
/// The first record is due this long after the reader is ready.
const LEAD_NS: u64 = 50_000_000;

/// The task of the reader process.
#[derive(Serialize, Deserialize)]
pub(crate) struct ReaderTask {
    path: PathBuf,
    payload_bytes: usize,
    count: usize,
    measure: Measure,
}

#[derive(Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
enum Measure {
    /// Nanoseconds from each record's stamp to its reader.
    Latency,
    /// The first record's stamp and the time when the last one was read.
    Span,
}

/// The time to wake a process, in microseconds.
#[derive(Serialize)]
pub(super) struct Percentiles {
    p50: f64,
    p99: f64,
}

impl Percentiles {
    /// For people.
    pub(super) fn text(&self) -> String {
        format!("{:.1}, {:.1}", self.p50, self.p99)
    }
}

/// The shortest record, and the number of them that measure the wake-up of a process.
const WAKE_UP: (usize, usize) = (PAYLOADS[0], 200);

/// Measures the wake-up of a process at a rate, with files in a folder.
pub(super) fn wake_up(dir: &std::path::Path, rate: f64, stop: &Stop) -> CliResult<Percentiles> {
    let path = dir.join(format!("helio-floor.{}", std::process::id()));
    let mut scratch = Scratch { path, held: Vec::new(), stop: stop.clone() };
    latency(&mut scratch, WAKE_UP.0, rate, WAKE_UP.1)
}

/// Figures by payload in bytes.
#[derive(Serialize)]
struct Report {
    latency_us: BTreeMap<usize, Percentiles>,
    append_per_s: BTreeMap<usize, u64>,
    append_warm_per_s: BTreeMap<usize, u64>,
}

/// The files of one run. Each is removed after its measurement; its pages are held until the end.
struct Scratch {
    path: PathBuf,
    held: Vec<Mapped>,
    stop: Stop,
}

impl Scratch {
    fn make(&self, payload: usize, count: usize, pages: Pages) -> CliResult<Mapped> {
        let made = Mapped::create(&self.path, Mapped::bytes_for(payload, count));
        let log = made.map_err(|e| CliError::file(&self.path, &e))?;
        if pages == Pages::Warm {
            log.touch();
        }
        Ok(log)
    }

    fn hold(&mut self, log: Mapped) {
        self.remove();
        self.held.push(log);
    }

    fn remove(&self) {
        // The file may be missing.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Runs `helio bench floor`.
pub(crate) fn run(args: &FloorArgs, stop: &Stop) -> CliResult {
    let path = args.dir.join(format!("helio-floor.{}", std::process::id()));
    let mut scratch = Scratch { path, held: Vec::new(), stop: stop.clone() };
    let mut progress = Progress::new();
    let mut report = Report {
        latency_us: BTreeMap::new(),
        append_per_s: BTreeMap::new(),
        append_warm_per_s: BTreeMap::new(),
    };
    for payload in PAYLOADS {
        progress.show(|| format!("latency, {payload} bytes"));
        stop.check()?;
        let figures = latency(&mut scratch, payload, args.rate, args.count as usize)?;
        report.latency_us.insert(payload, figures);
    }
    for payload in PAYLOADS {
        progress.show(|| format!("append rate, {payload} bytes"));
        for (warm, rates) in
            [(Pages::New, &mut report.append_per_s), (Pages::Warm, &mut report.append_warm_per_s)]
        {
            stop.check()?;
            rates.insert(payload, append_rate(&mut scratch, payload, args.appends, warm)?);
        }
    }
    drop(progress);
    print(&report, args.output.json)
}

fn print(report: &Report, json: bool) -> CliResult {
    let mut out = Out::new();
    if json {
        out.json(report)?;
        return out.flush();
    }
    let rows = PAYLOADS.map(|payload| {
        let key = &payload;
        let latency = &report.latency_us[key];
        vec![
            payload.to_string(),
            format!("{:.1}", latency.p50),
            format!("{:.1}", latency.p99),
            report.append_per_s[key].to_string(),
            report.append_warm_per_s[key].to_string(),
        ]
    });
    for line in table(&["bytes", "p50 us", "p99 us", "append/s", "append/s warm"], &rows) {
        out.line(&line)?;
    }
    out.flush()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    New,
    Warm,
}

/// Starts the reader, runs `write` once the reader is ready, and returns the reader's figures.
fn with_reader(
    task: &ReaderTask,
    stop: &Stop,
    write: impl FnOnce() -> CliResult,
) -> CliResult<Vec<u64>> {
    let mut reader = Worker::start("floor-reader", "floor reader", task, stop)?;
    reader.reply::<()>()?;
    write()?;
    let figures = reader.reply()?;
    reader.finish()?;
    Ok(figures)
}

fn latency(
    scratch: &mut Scratch,
    payload: usize,
    rate: f64,
    count: usize,
) -> CliResult<Percentiles> {
    let log = scratch.make(payload, count, Pages::Warm)?;
    let task = ReaderTask {
        path: scratch.path.clone(),
        payload_bytes: payload,
        count,
        measure: Measure::Latency,
    };
    let mut latencies = with_reader(&task, &scratch.stop, || {
        let (body, step, mut at) = (vec![7; payload], (1e9 / rate) as u64, 0);
        let start = monotonic_ns() + LEAD_NS;
        for i in 0..count as u64 {
            scratch.stop.check()?;
            let due = start + i * step;
            wait_until(due);
            at = log.append(at, due, &body, Wake::Always);
        }
        Ok(())
    })?;
    scratch.hold(log);
    latencies.sort_unstable();
    let us = |i: usize| (latencies[i] as f64 / 100.0).round() / 10.0;
    Ok(Percentiles { p50: us(count / 2), p99: us(count * 99 / 100) })
}

fn append_rate(
    scratch: &mut Scratch,
    payload: usize,
    count: Option<u32>,
    pages: Pages,
) -> CliResult<u64> {
    let count = count.unwrap_or(if payload > 1000 { 50_000 } else { 1_000_000 }) as usize;
    let mut rates = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        rates.push(append_once(scratch, payload, count, pages)?);
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[ROUNDS / 2].round() as u64)
}

fn append_once(
    scratch: &mut Scratch,
    payload: usize,
    count: usize,
    pages: Pages,
) -> CliResult<f64> {
    let log = scratch.make(payload, count, pages)?;
    let task = ReaderTask {
        path: scratch.path.clone(),
        payload_bytes: payload,
        count,
        measure: Measure::Span,
    };
    let span = with_reader(&task, &scratch.stop, || {
        wait_until(monotonic_ns() + LEAD_NS);
        let (body, stamp, mut at) = (vec![7; payload], monotonic_ns(), 0);
        for _ in 0..count {
            at = log.append(at, stamp, &body, Wake::Sleepers);
        }
        Ok(())
    })?;
    scratch.hold(log);
    Ok(count as f64 * 1e9 / (span[1] - span[0]) as f64)
}

/// The reader process.
pub(crate) fn reader(task: &ReaderTask) -> CliResult {
    let log = Mapped::open(&task.path).map_err(|e| CliError::file(&task.path, &e))?;
    say(&())?;
    let mut out = vec![0; task.payload_bytes];
    let mut at = 0;
    let figures = if task.measure == Measure::Latency {
        let mut latencies = Vec::with_capacity(task.count);
        for _ in 0..task.count {
            let (stamp, next) = log.take(at, &mut out, 0);
            latencies.push(monotonic_ns() - stamp);
            at = next;
        }
        latencies
    } else {
        let mut first = 0;
        for i in 0..task.count {
            let (stamp, next) = log.take(at, &mut out, SPINS);
            at = next;
            first = if i == 0 { stamp } else { first };
        }
        vec![first, monotonic_ns()]
    };
    say(&figures)
}
