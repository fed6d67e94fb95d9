//! `helio-alerts consume`: reads alerts, and reports what becomes of visits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use helio_alerts::reader::{Alert, AlertReader, Drops, Read, ReaderOptions, Start, VisitEvent};
use helio_alerts::visit::Closing;
use helio_bus::{Bus, ReadError, TransportError};
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::out::{Out, Progress};
use helio_console::stop::{Stop, Until};
use helio_console::units::{human_bytes, human_count};
use serde::Serialize;

use crate::args::ConsumeArgs;
use crate::error;
use crate::produce::seconds;

/// The most alerts of one read.
const MAX_ALERTS: usize = 1_024;
/// The most bytes of one read: two batches of a producer.
const MAX_BYTES: usize = 32 << 20;
/// How often a group commits its position while alerts come.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// A line of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Opened {
        visit: i64,
        detectors: usize,
    },
    Alert {
        alert: i64,
        visit: i64,
        detector: i32,
        partition: u32,
        offset: u64,
        bytes: usize,
        /// From shutter close to the read.
        age_s: Option<f64>,
    },
    Decided(Decided<'a>),
    Rejected {
        visit: i64,
        cause: String,
    },
    Gap {
        topic: &'a str,
        partition: u32,
        lost: u64,
        cause: String,
    },
    Dropped {
        alert: Option<i64>,
        partition: u32,
        offset: u64,
        cause: &'static str,
        reason: &'a str,
    },
    Assigned {
        partitions: &'a [u32],
    },
    Outage {
        text: String,
    },
    End(&'a Total),
}

/// A visit's end.
#[derive(Debug, Serialize)]
struct Decided<'a> {
    visit: i64,
    complete: bool,
    alerts: u64,
    missing: &'a [i32],
    short: &'a [i32],
    repeated: &'a [i32],
    /// Alerts that this reader had returned, and that do not count.
    late: usize,
    /// Whether count and hash of what was read are those of the closing record; `null` where
    /// they are not compared.
    verified: Option<bool>,
}

/// The totals of a run.
#[derive(Debug, Default, Serialize)]
struct Total {
    alerts: u64,
    bytes: u64,
    seconds: f64,
    visits: u64,
    incomplete: u64,
    verified: u64,
    differing: u64,
    lost: u64,
    dropped: BTreeMap<&'static str, u64>,
    without_stamps: u64,
}

/// Runs `helio-alerts consume`.
pub(crate) fn run(args: &ConsumeArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let url = open::url(url)?;
    // A reader writes, too: positions, digests and closing records.
    if let Some(folder) = open::empty_folder(&url)? {
        let text =
            format!("no journal in {}; start a producer, or check the path", folder.display());
        return Err(CliError::NotFound(text));
    }
    let bus = open::connect(Some(&url), args.producer.as_deref())?;
    let mut reader = open_reader(args, &bus)?;
    let mut consumer = Consumer {
        args,
        out: Out::new(),
        progress: Progress::new(),
        total: Total::default(),
        begun: Instant::now(),
        committed: Instant::now(),
    };
    let ended = consumer.pump(&mut reader, &Until::new(args.end.duration, stop));
    consumer.out.flush()?;
    ended?;
    consumer.end(stop)
}

fn open_reader(args: &ConsumeArgs, bus: &Bus) -> CliResult<AlertReader> {
    let start = match (&args.start.from, &args.group) {
        (Some(start), _) => start.clone(),
        (None, Some(_)) => Start::Committed,
        (None, None) => Start::Latest,
    };
    let options = ReaderOptions {
        group: args.group.clone(),
        stamps: args.stamps.into(),
        start,
        verify: args.verify,
        ..ReaderOptions::default()
    };
    AlertReader::open(bus, &args.stream.topic, options).map_err(error::reader)
}

struct Consumer<'a> {
    args: &'a ConsumeArgs,
    out: Out,
    progress: Progress,
    total: Total,
    begun: Instant,
    committed: Instant,
}

impl Consumer<'_> {
    fn pump(&mut self, reader: &mut AlertReader, until: &Until) -> CliResult {
        while !until.is_over() && self.wants_more() {
            let left = self.args.count.map_or(u64::MAX, |count| count - self.total.alerts);
            let most = usize::try_from(left).unwrap_or(MAX_ALERTS).min(MAX_ALERTS);
            let read = reader.read(most, MAX_BYTES, until.left()).map_err(error::reader)?;
            self.take(reader, &read)?;
            let decided = read.events.iter().any(|e| matches!(e, VisitEvent::Decided { .. }));
            if decided || self.committed.elapsed() >= COMMIT_INTERVAL {
                self.commit(reader)?;
            }
        }
        self.commit(reader)
    }

    fn wants_more(&self) -> bool {
        self.args.count.is_none_or(|count| self.total.alerts < count)
            && self.args.visits.is_none_or(|visits| self.total.visits < visits)
    }

    /// Commits what is printed, in a group.
    fn commit(&mut self, reader: &mut AlertReader) -> CliResult {
        self.out.flush()?;
        self.out.check()?;
        self.committed = Instant::now();
        if self.args.group.is_none() {
            return Ok(());
        }
        match reader.commit() {
            // It is reported as an event. The next commit includes these positions.
            Err(helio_alerts::reader::ReaderError::Read(ReadError::Transport(
                TransportError::Outage { .. },
            ))) => Ok(()),
            committed => committed.map_err(error::reader),
        }
    }

    fn take(&mut self, reader: &AlertReader, read: &Read) -> CliResult {
        for alert in &read.alerts {
            let bytes = alert_bytes(alert);
            self.total.alerts += 1;
            self.total.bytes += bytes as u64;
            if self.args.list {
                self.alert(alert, bytes)?;
            }
        }
        self.dropped(&read.dropped)?;
        for event in &read.events {
            self.event(reader, event)?;
        }
        let Total { alerts, bytes, visits, .. } = self.total;
        self.progress.show(|| {
            let (alerts, bytes) = (human_count(alerts), human_bytes(bytes as f64));
            format!("{alerts} alerts, {bytes}, {visits} visits decided")
        });
        Ok(())
    }

    fn alert(&mut self, alert: &Alert, bytes: usize) -> CliResult {
        let age = alert
            .stages
            .shutter_close
            .map(|shutter| alert.stages.read.nanos().saturating_sub(shutter.nanos()) as f64 * 1e-9);
        if self.args.output.json {
            return self.out.json(&Line::Alert {
                alert: alert.id,
                visit: alert.visit,
                detector: alert.detector,
                partition: alert.at.partition,
                offset: alert.at.offset,
                bytes,
                age_s: age.map(|age| (age * 1e3).round() / 1e3),
            });
        }
        let Alert { id, visit, detector, .. } = alert;
        let age = age.map_or_else(String::new, |age| format!(", {age:.3} s after shutter close"));
        self.out
            .line(&format!("alert {id}: visit {visit}, detector {detector}, {bytes} bytes{age}"))
    }

    fn dropped(&mut self, drops: &Drops) -> CliResult {
        for (cause, count) in drops.counts().filter(|(_, count)| *count > 0) {
            *self.total.dropped.entry(cause.name()).or_default() += count;
        }
        self.total.without_stamps += drops.without_stamps;
        for one in &drops.named {
            let line = Line::Dropped {
                alert: one.id,
                partition: one.at.partition,
                offset: one.at.offset,
                cause: one.cause.name(),
                reason: &one.reason,
            };
            let (partition, offset) = (one.at.partition, one.at.offset);
            let text =
                format!("dropped at offset {offset} of partition {partition}: {}", one.reason);
            self.report(&line, &text)?;
        }
        Ok(())
    }

    fn event(&mut self, reader: &AlertReader, event: &VisitEvent) -> CliResult {
        match event {
            VisitEvent::Opened(opening) => {
                let (visit, detectors) = (opening.visit, opening.detectors.len());
                let text = format!("visit {visit} is open, {detectors} detectors are expected");
                self.print(&Line::Opened { visit, detectors }, &text)
            }
            VisitEvent::Decided { closing, late } => self.decided(reader, closing, late.len()),
            VisitEvent::Rejected { visit, cause } => {
                let cause = format!("{cause:?}");
                let text = format!("a record of visit {visit} has no effect: {cause}");
                self.report(&Line::Rejected { visit: *visit, cause }, &text)
            }
            VisitEvent::Gap { topic, gap } => {
                self.total.lost += gap.lost;
                let (partition, lost, cause) =
                    (gap.partition, gap.lost, format!("{:?}", gap.cause));
                let text = format!("{lost} samples of {topic} are lost: {cause}");
                self.report(&Line::Gap { topic, partition, lost, cause }, &text)
            }
            VisitEvent::Assigned(partitions) => {
                let text = format!("reads the partitions {partitions:?}");
                self.print(&Line::Assigned { partitions }, &text)
            }
            VisitEvent::Outage(outage) => {
                let text = format!("{outage:?}");
                self.report(&Line::Outage { text: text.clone() }, &text)
            }
            _ => Ok(()),
        }
    }

    fn decided(&mut self, reader: &AlertReader, closing: &Closing, late: usize) -> CliResult {
        // A member of a group has a part of the visit: `audit --group` compares all parts.
        let is_compared = self.args.verify && self.args.group.is_none();
        let audit = reader.audit(closing.visit).ok().filter(|_| is_compared);
        let verified = audit.map(|audit| audit.found == closing.totals);
        let complete = closing.is_complete();
        self.total.visits += 1;
        self.total.incomplete += u64::from(!complete);
        self.total.verified += u64::from(verified == Some(true));
        self.total.differing += u64::from(verified == Some(false));
        let line = Decided {
            visit: closing.visit,
            complete,
            alerts: closing.totals.count(),
            missing: &closing.missing,
            short: &closing.short,
            repeated: &closing.repeated,
            late,
            verified,
        };
        let text = line.text();
        self.print(&Line::Decided(line), &text)
    }

    /// Prints a line of data.
    fn print(&mut self, line: &Line<'_>, text: &str) -> CliResult {
        if self.args.output.json { self.out.json(line) } else { self.out.line(text) }
    }

    /// Prints a trouble: for people on standard error.
    fn report(&mut self, line: &Line<'_>, text: &str) -> CliResult {
        if self.args.output.json {
            return self.out.json(line);
        }
        eprintln!("helio-alerts: {text}");
        Ok(())
    }

    fn end(mut self, stop: &Stop) -> CliResult {
        drop(self.progress);
        self.total.seconds = seconds(self.begun.elapsed());
        let Total { alerts, bytes, lost, differing, .. } = self.total;
        let dropped: u64 = self.total.dropped.values().sum();
        if self.args.output.json {
            self.out.json(&Line::End(&self.total))?;
        } else {
            let (alerts, bytes) = (human_count(alerts), human_bytes(bytes as f64));
            let text = format!("{alerts} alerts, {bytes}, {dropped} dropped, {lost} lost");
            self.out.line(&text)?;
        }
        self.out.flush()?;
        if lost + differing > 0 {
            return Err(CliError::Lost(format!(
                "{lost} samples are lost, {differing} visits differ from their closing record; see \
                 the lines above"
            )));
        }
        let is_bounded = self.args.count.is_some()
            || self.args.visits.is_some()
            || self.args.end.duration.is_some();
        if is_bounded { stop.check() } else { Ok(()) }
    }
}

impl Decided<'_> {
    fn text(&self) -> String {
        let Self { visit, late, .. } = *self;
        let alerts = human_count(self.alerts);
        let mut text = match self.complete {
            true => format!("visit {visit} is complete: {alerts} alerts"),
            false => format!("visit {visit} is incomplete: {alerts} alerts"),
        };
        let lists = [("missing", self.missing), ("short", self.short), ("repeated", self.repeated)];
        for (word, detectors) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            text += &format!(", {word} detectors {detectors:?}");
        }
        if late > 0 {
            text += &format!(", {late} late");
        }
        match self.verified {
            Some(true) => text + ", verified",
            Some(false) => text + ", and what was read DIFFERS",
            None => text,
        }
    }
}

fn alert_bytes(alert: &Alert) -> usize {
    let files = alert.stamps.iter().flatten().flatten();
    alert.datum.len() + files.map(|file| file.len()).sum::<usize>()
}
