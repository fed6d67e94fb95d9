//! `helio log demo`: twenty producers, a flood with one urgent record, a stalled consumer, and an
//! account of every record for each consumer.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

use helio_logging::Level;
use serde::Serialize;
use serde_json::json;

use super::workers::messages::{
    ClientReport, ClientTask, Content, Offered, ProducerTask, Urgent, Way,
};
use super::workers::{LogProcesses, sum};
use crate::args::batch::Batch;
use crate::args::log::DemoArgs;
use crate::bench::report::{Latency, histogram};
use crate::clock::monotonic_ns;
use crate::error::{CliError, CliResult};
use crate::out::{Out, table};
use crate::python;
use crate::run_bus::RunBus;
use crate::stop::{STOP_POLL_INTERVAL, Stop};
use crate::units::human_count;

/// The prefix of the demo's own topics, apart from the log of a given site.
const PREFIX: &str = "log-demo";
const PRODUCERS: u32 = 20;
/// The producers in Python, if an interpreter has the package.
const IN_PYTHON: u32 = 10;
/// The times of events, as fractions of the whole time.
const STOP_AT: f64 = 0.3;
const EMERGENCY_AT: f64 = 0.5;

/// The consumers: name, predicate, description.
const CONSUMERS: [(&str, &str, &str); 3] = [
    ("operator", "view Operator", "the operator's tail"),
    ("developer", "", "the developer's tail, of everything"),
    (STALLED, "", "a viewer of everything that hangs"),
];
const STALLED: &str = "viewer";

/// Runs `helio log demo`.
pub(crate) fn run(args: &DemoArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let site = RunBus::fresh("helio-log-demo", args.run.dir.as_deref(), url)?;
    site.refuse_memory(24)?;
    let python = python::with_package()?;
    #[cfg(feature = "dds")]
    let _durability = crate::demo::durability::where_wanted(site.url(), args.run.dir.as_deref())?;
    let mut story = Story { lines: Vec::new(), quiet: args.run.output.json, begun: Instant::now() };
    let report = play(args, site.url(), python.as_deref(), &mut story, stop)?;
    show(&report, args.run.output.json)?;
    report.verdict()
}

/// The events of the run, line by line.
struct Story {
    lines: Vec<String>,
    quiet: bool,
    begun: Instant,
}

impl Story {
    fn tell(&mut self, text: &str) -> CliResult {
        let line = format!("{:5.1} s  {text}", self.begun.elapsed().as_secs_f64());
        if !self.quiet {
            let mut out = Out::new();
            out.line(&line)?;
            out.flush()?;
        }
        self.lines.push(line);
        Ok(())
    }
}

fn play(
    args: &DemoArgs,
    url: &str,
    python: Option<&OsStr>,
    story: &mut Story,
    stop: &Stop,
) -> CliResult<Report> {
    let client = |(name, predicate, _): &(&str, &str, &str)| ClientTask {
        url: url.to_owned(),
        prefix: PREFIX.to_owned(),
        ordinary: None,
        name: (*name).to_owned(),
        predicate: (*predicate).to_owned(),
    };
    let mut processes = LogProcesses::of(&CONSUMERS.map(|consumer| client(&consumer)), stop)?;
    let in_python = if python.is_some() { IN_PYTHON } else { 0 };
    for number in 1..=PRODUCERS {
        let python = python.filter(|_| number <= in_python);
        let by = python.map(|python| python::command(python, python::LOG_PRODUCER));
        processes.add(&producer(args, url, number), by)?;
    }
    let begin_ns = processes.begin()?;
    let producers = match in_python {
        0 => format!("{PRODUCERS} in Rust: no Python with heliograph found"),
        some => format!("{} in Rust, {some} in Python", PRODUCERS - some),
    };
    story.tell(&format!("{PRODUCERS} producers log, {producers}"))?;
    for (name, _, what) in CONSUMERS {
        story.tell(&format!("{name}: {what}"))?;
    }
    let at = |part: f64| begin_ns + (args.seconds.as_nanos() as f64 * part) as u64;
    until(at(STOP_AT), stop)?;
    processes.pause(STALLED)?;
    story.tell(&format!("SIGSTOP for the {STALLED}"))?;
    until(at(EMERGENCY_AT), stop)?;
    story.tell("an EMERGENCY, in the middle of the flood")?;
    let produced = processes.produced()?;
    let offered = sum(&produced);
    let all = human_count(offered.values().sum());
    story.tell(&format!("the producers are done: {all} records"))?;
    processes.resume(STALLED)?;
    story.tell(&format!("SIGCONT for the {STALLED}"))?;
    let consumed = processes.consumed(|_| true, &offered)?;
    processes.finish()?;
    story.tell("all consumers have caught up")?;
    let seconds = args.seconds.as_secs_f64();
    Ok(Report::of(url, (producers, seconds), &offered, &consumed, &story.lines))
}

fn producer(args: &DemoArgs, url: &str, number: u32) -> ProducerTask {
    let time_ns = u64::try_from(args.seconds.as_nanos()).unwrap_or(u64::MAX);
    let first_ns = (time_ns as f64 * EMERGENCY_AT) as u64;
    let level = Level::EMERGENCY.number();
    ProducerTask {
        url: url.to_owned(),
        prefix: PREFIX.to_owned(),
        ordinary: None,
        name: format!("demo-{number}"),
        way: Way::Bus { batch: Batch::default() },
        rate_hz: Some(args.rate / f64::from(PRODUCERS)),
        time_ns,
        content: Content::Night,
        urgent: (number == PRODUCERS).then_some(Urgent { level, first_ns, every_ns: None }),
    }
}

fn until(at_ns: u64, stop: &Stop) -> CliResult {
    loop {
        stop.check()?;
        match at_ns.saturating_sub(monotonic_ns()) {
            0 => return Ok(()),
            left => std::thread::sleep(Duration::from_nanos(left).min(STOP_POLL_INTERVAL)),
        }
    }
}

/// One consumer's row.
#[derive(Serialize)]
struct Row {
    name: String,
    predicate: String,
    offered: u64,
    delivered: u64,
    filtered: u64,
    shed: u64,
    lost: u64,
    malformed: u64,
    unaccounted: u64,
    /// Whether it received the urgent record.
    urgent: bool,
    urgent_ms: Option<f64>,
    tail_us: Option<Latency>,
}

impl Row {
    fn of(name: &str, predicate: &str, report: &ClientReport) -> Self {
        let (mut tail, mut urgent) = (histogram(), histogram());
        report.tail_ns.iter().for_each(|(ns, count)| tail.saturating_record_n(*ns, *count));
        report.urgent_ns.iter().for_each(|(ns, count)| urgent.saturating_record_n(*ns, *count));
        let account = report.account;
        Self {
            name: name.to_owned(),
            predicate: predicate.to_owned(),
            offered: account.offered,
            delivered: account.delivered,
            filtered: account.filtered,
            shed: account.shed,
            lost: account.lost,
            malformed: account.malformed,
            unaccounted: account.unaccounted(),
            urgent: report.urgent > 0,
            urgent_ms: Latency::of(&urgent).map(|latency| (latency.max / 10.0).round() / 100.0),
            tail_us: Latency::of(&tail),
        }
    }

    fn cells(&self) -> Vec<String> {
        let urgent = match (self.urgent_ms, self.name.as_str()) {
            (None, _) => "never came".to_owned(),
            (Some(ms), STALLED) => format!("{ms:.2} ms, it hung"),
            (Some(ms), _) => format!("{ms:.2} ms"),
        };
        let count = |count| human_count(count);
        vec![
            self.name.clone(),
            count(self.offered),
            count(self.delivered),
            count(self.filtered),
            count(self.shed),
            count(self.lost + self.malformed),
            count(self.unaccounted),
            urgent,
        ]
    }
}

#[derive(Serialize)]
struct Report {
    url: String,
    producers: String,
    seconds: f64,
    offered: BTreeMap<String, u64>,
    consumers: Vec<Row>,
    unaccounted: u64,
    story: Vec<String>,
}

impl Report {
    fn of(
        url: &str,
        (producers, seconds): (String, f64),
        offered: &Offered,
        consumed: &BTreeMap<String, ClientReport>,
        story: &[String],
    ) -> Self {
        let row = |(name, predicate, _): &(&str, &str, &str)| {
            consumed.get(*name).map(|report| Row::of(name, predicate, report))
        };
        let consumers: Vec<Row> = CONSUMERS.iter().filter_map(row).collect();
        let level = |number: u8| Level::new(number).unwrap_or_default().to_string();
        Self {
            url: url.to_owned(),
            producers,
            seconds,
            offered: offered.iter().map(|(lane, records)| (level(*lane), *records)).collect(),
            unaccounted: consumers.iter().map(|row| row.unaccounted).sum(),
            consumers,
            story: story.to_vec(),
        }
    }

    fn verdict(&self) -> CliResult {
        let deaf: Vec<&str> =
            self.consumers.iter().filter(|row| !row.urgent).map(|row| row.name.as_str()).collect();
        match (self.unaccounted, deaf.is_empty()) {
            (0, true) => Ok(()),
            (0, false) => {
                Err(CliError::Lost(format!("the EMERGENCY did not reach {}", deaf.join(", "))))
            }
            (some, _) => Err(CliError::Lost(format!("{some} records are unaccounted for"))),
        }
    }
}

fn show(report: &Report, as_json: bool) -> CliResult {
    let mut out = Out::new();
    if as_json {
        out.json(&json!(report))?;
        return out.flush();
    }
    let head = [
        "consumer",
        "offered",
        "delivered",
        "filtered",
        "shed",
        "lost",
        "unaccounted",
        "EMERGENCY",
    ];
    let rows: Vec<Vec<String>> = report.consumers.iter().map(Row::cells).collect();
    out.line("")?;
    table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
    let levels = report.offered.iter().map(|(level, n)| format!("{} {level}", human_count(*n)));
    out.line(&format!("offered: {}", levels.collect::<Vec<_>>().join(", ")))?;
    out.flush()
}
