//! `helio-alerts produce`: publishes visits as the processes of a camera do.

mod replay;
mod source;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use helio_alerts::layout::Ccd;
use helio_alerts::producer::{CcdOutcome, CcdProducer, ProducerOptions, TopicLayout};
use helio_alerts::stamps::Packing;
use helio_alerts::topics::Keep;
use helio_alerts::visit::Opening;
use helio_bus::Bus;
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::out::{Out, Progress};
use helio_console::stop::{STOP_POLL_INTERVAL, Stop};
use helio_console::units::{human_bytes, human_count};
use serde::Serialize;

use crate::args::{LayoutArg, ProduceArgs};
use crate::error;
use source::{PlannedVisit, Source};

/// A published visit.
#[derive(Debug, Default, Serialize)]
struct VisitLine {
    visit: i64,
    /// Detectors of this process.
    detectors: usize,
    alerts: u64,
    bytes: u64,
    seconds: f64,
    /// Alerts that the bus did not accept, or of which it does not say so.
    failed: Vec<i64>,
    /// Detectors without manifest.
    unannounced: Vec<i32>,
    cause: Option<String>,
    /// Files with the packets of detectors of which anything failed.
    spilled: Vec<PathBuf>,
}

/// All visits.
#[derive(Debug, Default, Serialize)]
struct Total {
    visits: u64,
    alerts: u64,
    bytes: u64,
    seconds: f64,
    failed: u64,
    unannounced: u64,
}

/// Runs `helio-alerts produce`.
pub(crate) fn run(args: &ProduceArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    if args.replay {
        return replay::run(args, url, stop);
    }
    let mut source = Source::new(args)?;
    let visits = planned(args, &source)?;
    let bus = open::connect(url, producer_name(args).as_deref())?;
    let open = |schema| CcdProducer::open(&bus, &args.stream.topic, schema, options(args));
    let producers = source.schemas().iter().map(open).collect::<Result<Vec<_>, _>>();
    let producers = producers.map_err(error::producer)?;
    let mut run = Run {
        args,
        bus: &bus,
        producers,
        stop,
        out: Out::new(),
        progress: Progress::new(),
        total: Total::default(),
    };
    let begun = Instant::now();
    let all_visits = visits.len();
    for (number, visit) in (0..).zip(visits) {
        if !run.wait_until(begun.checked_add(args.cadence.saturating_mul(number))) {
            break;
        }
        run.visit(&visit, all_visits, &mut source)?;
    }
    run.end(all_visits, begun.elapsed())
}

/// The visits, with the detectors of this process.
fn planned(args: &ProduceArgs, source: &Source) -> CliResult<Vec<PlannedVisit>> {
    let visits = source.visits();
    let exists = |detector: &i32| visits.iter().any(|visit| visit.detectors.contains(detector));
    match args.detector.iter().find(|detector| !exists(detector)) {
        Some(wrong) => Err(CliError::Usage(format!("no visit has a detector {wrong}"))),
        None => Ok(visits),
    }
}

fn producer_name(args: &ProduceArgs) -> Option<String> {
    let one = match &args.detector[..] {
        [detector] => Some(format!("ccd-{detector}")),
        _ => None,
    };
    args.producer.clone().or(one)
}

fn options(args: &ProduceArgs) -> ProducerOptions {
    ProducerOptions {
        layout: match args.layout {
            LayoutArg::Inline => TopicLayout::Inline,
            LayoutArg::Split => TopicLayout::Split(Packing::Plain),
            LayoutArg::SplitPacked => TopicLayout::Split(Packing::ShuffleZstd),
        },
        partitions: args.partitions,
        retry_for: args.retry_for,
        spill: args.spill.clone(),
        keep: Keep {
            days: args.keep_days,
            partition_bytes: args.keep_bytes.map(|bytes| bytes as u64),
        },
    }
}

struct Run<'a> {
    args: &'a ProduceArgs,
    bus: &'a Bus,
    producers: Vec<CcdProducer>,
    stop: &'a Stop,
    out: Out,
    progress: Progress,
    total: Total,
}

impl Run<'_> {
    /// Whether the time has come; false if a signal came before.
    fn wait_until(&self, time: Option<Instant>) -> bool {
        loop {
            let left = time.map(|time| time.saturating_duration_since(Instant::now()));
            let left = left.unwrap_or_default();
            if self.stop.asked() || left.is_zero() {
                return !self.stop.asked();
            }
            std::thread::sleep(left.min(STOP_POLL_INTERVAL));
        }
    }

    fn visit(&mut self, visit: &PlannedVisit, of: usize, source: &mut Source) -> CliResult {
        let begun = Instant::now();
        let shutter_close = self.bus.clock().now();
        let mut line = VisitLine { visit: visit.id, ..VisitLine::default() };
        if self.args.detector.is_empty() || self.args.open {
            let opening = Opening {
                visit: visit.id,
                detectors: visit.detectors.clone(),
                shutter_close_ns: shutter_close.nanos(),
                window_ns: i64::try_from(self.args.window.as_nanos()).unwrap_or(i64::MAX),
                ..Opening::default()
            };
            self.producers[0].open_visit(opening).map_err(error::producer)?;
        }
        let own = |detector: &&i32| {
            self.args.detector.is_empty() || self.args.detector.contains(detector)
        };
        let detectors: Vec<i32> = visit.detectors.iter().filter(own).copied().collect();
        for detector in &detectors {
            if self.stop.asked() {
                break;
            }
            let packets = source.packets(visit, *detector);
            let producer = &self.producers[packets.schema];
            if self.args.open || self.args.detector.is_empty() {
                producer.set_shutter_close(visit.id, shutter_close);
            }
            let ccd = Ccd { visit: visit.id, detector: *detector };
            let outcome = producer.publish(ccd, &packets.datums).map_err(error::producer)?;
            line.bytes += packets.datums.iter().map(|datum| datum.len() as u64).sum::<u64>();
            line.add(*detector, outcome);
            let (number, count) = (self.total.visits + 1, line.detectors);
            self.progress.show(|| {
                let (all, alerts) = (detectors.len(), human_count(line.alerts));
                format!("visit {number} of {of}: {alerts} alerts, {count} of {all} detectors")
            });
        }
        line.seconds = seconds(begun.elapsed());
        self.total.add(&line);
        self.print(&line)
    }

    fn print(&mut self, line: &VisitLine) -> CliResult {
        if self.args.output.json {
            self.out.json(line)?;
            return self.out.flush();
        }
        let mut text = format!(
            "visit {}: {} alerts of {} detectors, {} in {:.3} s",
            line.visit,
            human_count(line.alerts),
            line.detectors,
            human_bytes(line.bytes as f64),
            line.seconds
        );
        if let Some(cause) = &line.cause {
            let (failed, unannounced) = (line.failed.len(), line.unannounced.len());
            text += &format!(
                "; {failed} alerts and {unannounced} manifests were not accepted: {cause}"
            );
        }
        for file in &line.spilled {
            text += &format!("\n  spilled to {}", file.display());
        }
        self.out.line(&text)?;
        self.out.flush()
    }

    fn end(mut self, visits: usize, elapsed: Duration) -> CliResult {
        self.total.seconds = seconds(elapsed);
        if self.args.output.json {
            self.out.json(&self.total)?;
            self.out.flush()?;
        }
        let Total { failed, unannounced, .. } = self.total;
        if failed + unannounced > 0 {
            return Err(CliError::Lost(format!(
                "{failed} alerts and {unannounced} manifests were not accepted; publish the \
                 spilled files again by --replay --from, or have them spilled by --spill"
            )));
        }
        if self.stop.asked() {
            return Err(CliError::Left(format!(
                "of {visits} visits {} were begun; the last may lack detectors, and is closed as \
                 incomplete then",
                self.total.visits
            )));
        }
        Ok(())
    }
}

impl VisitLine {
    fn add(&mut self, detector: i32, outcome: CcdOutcome) {
        self.detectors += 1;
        self.alerts += outcome.manifest.alerts.count();
        self.failed.extend(outcome.failed);
        if !outcome.is_announced {
            self.unannounced.push(detector);
        }
        self.cause = outcome.cause.or(self.cause.take());
        self.spilled.extend(outcome.spilled);
    }
}

impl Total {
    fn add(&mut self, line: &VisitLine) {
        self.visits += 1;
        self.alerts += line.alerts;
        self.bytes += line.bytes;
        self.failed += line.failed.len() as u64;
        self.unannounced += line.unannounced.len() as u64;
    }
}

/// Seconds, to the millisecond.
pub(crate) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}
