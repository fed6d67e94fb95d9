//! The demo's report: a table for people, one object for programs.

use std::collections::BTreeSet;

use hdrhistogram::Histogram;
use helio_bus::transport::Reach;
use helio_component::protocol::AckCode;
use helio_console::requirement::Requirement;
use helio_core::qos::Guarantee;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Events;
use super::accounting::{Faults, Numbering};
use super::layout::{MOUNT, Scene, Scheduled};
use super::messages::{Called, ReaderReport, Step, Targets};
use super::processes::Notes;
use super::reader::missing;
use crate::bench::report::{Latency, histogram};
use crate::error::{CliError, CliResult};
use crate::log::workers::messages::ClientReport;
use crate::out::table;
use crate::units::{human_bytes, human_count};

/// The requirements of the observatory's bus (Rubin's).
const MEAN_US: f64 = 25_000.0;
const STDEV_US: f64 = 3_000.0;
const BURST_BYTES_PER_S: f64 = 3e6;
/// A schedule is kept if this share of it was published.
const MIN_PUBLISHED_SHARE: f64 = 0.98;
/// The limit for notifying a caller of a dead component, on engines that detect dead processes.
const NOBODY_MS: f64 = 100.0;
/// The same across machines: the lease's expiry and a caller's check.
const NOBODY_LEASE_MS: f64 = 7_000.0;

/// The results of a run.
pub(crate) struct Play {
    pub(crate) events: Events,
    pub(crate) recorder: ReaderReport,
    pub(crate) broker: ReaderReport,
    pub(crate) log: ClientReport,
    pub(crate) notes: Notes,
    pub(crate) story: Vec<String>,
    pub(crate) states: Vec<(String, String)>,
}

/// One topic.
#[derive(Debug, Serialize)]
struct TopicReport {
    published: u64,
    received: u64,
    lost: u64,
    rate_hz: f64,
    bytes_per_s: f64,
    /// From each sample's due time (commands: sending) to each of its readers.
    latency_us: Option<Latency>,
    #[serde(skip)]
    kept: Option<f64>,
}

/// The burst.
#[derive(Debug, Serialize)]
struct BurstReport {
    topic: String,
    samples: u64,
    write_per_s: f64,
    write_bytes_per_s: f64,
    read_per_s: f64,
    read_bytes_per_s: f64,
}

/// Commands, and the mount's targets among them.
#[derive(Debug, Serialize)]
struct CommandReport {
    sent: u64,
    completed: u64,
    refused: u64,
    /// Ended because the component was gone; most of them were not sent.
    nobody_there: u64,
    /// Of the mount's targets: from sending to acceptance.
    round_trip_us: Option<Latency>,
    #[serde(flatten)]
    faults: Faults,
}

/// The mount's targets.
#[derive(Debug, Serialize)]
struct TargetReport {
    sent: u64,
    followed: u64,
    /// In both incarnations of the mount: late targets, lost ones, and the most of these in a row.
    late: u64,
    lost: u64,
    longest_run: u64,
    /// Targets while the mount was gone or did not track yet.
    unanswered: u64,
}

/// The log records of the players.
#[derive(Debug, Serialize)]
struct LogReport {
    records: u64,
    /// Those that the killed player had published before.
    of_the_killed: u64,
    dropped: u64,
    unaccounted: u64,
}

impl LogReport {
    fn of(play: &Play) -> Self {
        let told: u64 = play.notes.logged.values().sum();
        let account = play.log.account;
        Self {
            records: account.offered,
            of_the_killed: account.offered.saturating_sub(told),
            dropped: account.dropped(),
            unaccounted: account.unaccounted(),
        }
    }
}

/// The whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    samples: u64,
    lost: u64,
    duplicated: u64,
    seconds: f64,
    topics: Map<String, Value>,
    others: Value,
    commands: CommandReport,
    targets: TargetReport,
    nobody_there_ms: Option<f64>,
    second_instance: Option<String>,
    burst: Option<BurstReport>,
    log: LogReport,
    late_joiner: Value,
    restarted: Value,
    states: Map<String, Value>,
    requirements: Vec<Requirement>,
    cpu_s: Value,
    rss_mb: f64,
    url: String,
    #[serde(skip)]
    reach: Reach,
    receipt: &'static str,
    version: &'static str,
    story: Vec<String>,
    #[serde(skip)]
    table: Vec<(String, TopicReport)>,
}

impl Report {
    /// Combines the counts of writers, callers and readers.
    pub(crate) fn of(scene: &Scene, play: Play, (url, reach): (&str, Reach)) -> Self {
        let scheduled = scene.scheduled.iter().map(|one| (one.topic.clone(), topic(&play, one)));
        let table: Vec<(String, TopicReport)> = scheduled.collect();
        let others = others(scene, &play);
        let listed = |figure: fn(&TopicReport) -> u64| table.iter().map(|(_, t)| figure(t)).sum();
        let (published, listed_lost): (u64, u64) = (listed(|t| t.published), listed(|t| t.lost));
        let told_lost = play.recorder.told_lost + play.broker.told_lost;
        let seen = play.recorder.seen.iter().chain(&play.broker.seen);
        let burst = burst(scene, &play);
        let nobody_there_ms = play.notes.steps.iter().find_map(|step| match step {
            Step::ToldGone { after_ns } => Some(round(*after_ns as f64 * 1e-6, 1e3)),
            _ => None,
        });
        let mut report = Self {
            samples: published + others.1,
            lost: (listed_lost + others.2).max(told_lost),
            duplicated: seen.map(|(_, seen)| seen.repeats).sum(),
            seconds: round(play.events.seconds, 1e3),
            topics: table.iter().map(|(name, t)| (name.clone(), json!(t))).collect(),
            others: json!({"topics": others.0, "samples": others.1, "lost": others.2}),
            commands: commands(&play),
            targets: targets(&play.notes),
            nobody_there_ms,
            second_instance: play.events.double.clone(),
            burst,
            log: LogReport::of(&play),
            late_joiner: late(&play),
            restarted: restarted(&play),
            states: play.states.iter().map(|(name, state)| (name.clone(), json!(state))).collect(),
            requirements: Vec::new(),
            cpu_s: json!({
                "writers": round(play.notes.cpu_s, 1e3),
                "readers": round(play.recorder.cpu_s + play.broker.cpu_s, 1e3),
            }),
            rss_mb: play.notes.rss_mb.max(play.recorder.rss_mb).max(play.broker.rss_mb).round(),
            url: url.to_owned(),
            reach,
            receipt: match scene.guarantee {
                Guarantee::Accepted => "accepted",
                Guarantee::Stored => "stored",
                Guarantee::Durable => "durable",
            },
            version: env!("CARGO_PKG_VERSION"),
            table,
            story: play.story,
        };
        report.requirements = report.must(scene);
        let lag = play.recorder.lag + play.broker.lag;
        report.requirements.extend(report.should(lag));
        report
    }

    /// The requirements that must hold.
    fn must(&self, scene: &Scene) -> Vec<Requirement> {
        let one = |name, met, measured| Requirement { name, must: true, met, measured };
        let Faults { unexpected, unrecorded, unacknowledged, unaudited } = self.commands.faults;
        let sent = human_count(self.commands.sent);
        let missing = self.late_joiner["missing"].as_u64();
        let goes_on = self.restarted["goes_on"] == json!(true);
        let home =
            scene.components.iter().all(|name| self.states.get(name) == Some(&"OFFLINE".into()));
        let second = match (&scene.double, &self.second_instance) {
            (None, _) => "there is no camera".to_owned(),
            (Some(_), None) => "it ran".to_owned(),
            (Some(double), Some(_)) => format!("{}, while the first runs", double.name),
        };
        let wrong = unexpected + unrecorded + unacknowledged;
        vec![
            one(
                "nothing is lost, nothing comes twice",
                self.lost == 0 && self.duplicated == 0,
                format!(
                    "{} lost and {} twice of {}",
                    self.lost,
                    self.duplicated,
                    human_count(self.samples)
                ),
            ),
            one(
                "a late joiner has the newest event of every key",
                missing == Some(0),
                sentence(&self.late_joiner),
            ),
            one(
                "every command ends as it should",
                wrong == 0,
                format!("{sent} sent, {wrong} did not"),
            ),
            one(
                "every command and its end is in the audit",
                unaudited == 0,
                format!("{unaudited} are not"),
            ),
            one(
                "a second instance is refused",
                scene.double.is_none() || self.second_instance.is_some(),
                second,
            ),
            one("after a kill the numbering goes on", goes_on, sentence(&self.restarted)),
            one(
                "components go home when told to",
                home,
                format!("{} are OFFLINE", if home { "all" } else { "not all" }),
            ),
        ]
    }

    /// The requirements on times.
    fn should(&self, lag: u64) -> Vec<Requirement> {
        let one = |name, met, measured| Requirement { name, must: false, met, measured };
        let worst = |figure: fn(&Latency) -> f64| {
            let figures = self.table.iter().filter_map(|(_, t)| t.latency_us.as_ref().map(figure));
            figures.fold(0.0, f64::max)
        };
        let (mean, stdev) = (worst(|l| l.mean), worst(|l| l.stdev));
        let slowest =
            self.burst.as_ref().map_or(0.0, |b| b.write_bytes_per_s.min(b.read_bytes_per_s));
        let kept = self.table.iter().filter_map(|(_, topic)| topic.kept).fold(1.0, f64::min);
        let total: f64 = self.table.iter().map(|(_, topic)| topic.bytes_per_s).sum();
        let nobody = self.nobody_there_ms.unwrap_or(f64::INFINITY);
        let (told_in, limit) = match self.reach {
            Reach::Network => {
                ("nobody there: told when the lease is over, in 7 s", NOBODY_LEASE_MS)
            }
            _ => ("nobody there: told within 100 ms", NOBODY_MS),
        };
        let ms = |us: f64| format!("{:.3} ms at most", us / 1e3);
        vec![
            one("latency, mean < 25 ms", mean < MEAN_US, ms(mean)),
            one("latency, standard deviation < 3 ms", stdev < STDEV_US, ms(stdev)),
            one(told_in, nobody < limit, format!("{nobody:.1} ms")),
            one(
                "more than 3 MB/s a topic",
                slowest > BURST_BYTES_PER_S,
                format!("{}/s written and read", human_bytes(slowest)),
            ),
            one("consumers keep up", lag == 0, format!("{lag} samples behind at the end")),
            one(
                "the whole system's schedule is kept",
                kept >= MIN_PUBLISHED_SHARE,
                format!("{:.1} % of it, {}/s", kept * 100.0, human_bytes(total)),
            ),
        ]
    }

    /// An error if a requirement that must hold is missed.
    pub(crate) fn verdict(&self) -> CliResult {
        let wrong = Requirement::wrong(&self.requirements);
        let text = wrong.join("; ");
        match (wrong.is_empty(), self.lost + self.duplicated) {
            (true, _) if self.log.unaccounted > 0 => Err(CliError::Lost(format!(
                "{} log records are unaccounted for",
                self.log.unaccounted
            ))),
            (true, _) => Ok(()),
            (false, 0) => Err(CliError::Failure(format!("this must not be: {text}"))),
            (false, _) => Err(CliError::Lost(text)),
        }
    }

    /// Advice on missed requirements, if any.
    fn missed(&self) -> Option<String> {
        let missed = self.requirements.iter().filter(|r| !r.met).count();
        let text = match (missed, self.verdict()) {
            (0, _) => return None,
            (_, Err(_)) => "some of them must be met, so this is an error of ours",
            (_, Ok(())) => "nothing is wrong; figures of time are this machine's and its load's",
        };
        let all = self.requirements.len();
        Some(format!("{missed} of {all} requirements MISSED: {text}"))
    }

    /// The table for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let head =
            ["topic", "published", "lost", "Hz", "per second", "mean ms", "p50", "p99", "max"];
        let rows: Vec<Vec<String>> = self.table.iter().map(|(name, t)| row(name, t)).collect();
        let mut lines = vec![String::new()];
        lines.extend(table(&head, &rows));
        let count = |value: &Value| human_count(value.as_u64().unwrap_or(0));
        lines.push(format!(
            "and {} samples on {} other topics: states, events, commands, acknowledgements, audit.",
            count(&self.others["samples"]),
            count(&self.others["topics"])
        ));
        lines.push(String::new());
        lines.extend(self.sentences());
        lines.push(String::new());
        lines.extend(Requirement::table(&self.requirements));
        lines.extend(self.missed());
        lines
    }

    fn sentences(&self) -> Vec<String> {
        let TargetReport { sent, followed, late, lost, longest_run, unanswered } = &self.targets;
        let mut lines = vec![format!(
            "Targets: {sent} sent, {followed} followed, {late} late, {lost} lost (at most \
             {longest_run} in a row); {unanswered} while the mount was away."
        )];
        if let Some(l) = &self.commands.round_trip_us {
            lines.push(format!(
                "A command there and back: p50 {:.3} ms, p99 {:.3} ms.",
                l.p50 / 1e3,
                l.p99 / 1e3
            ));
        }
        if let Some(burst) = &self.burst {
            lines.push(format!(
                "Burst: {} samples of {}: written at {}/s, read at {}/s.",
                human_count(burst.samples),
                burst.topic,
                human_bytes(burst.write_bytes_per_s),
                human_bytes(burst.read_bytes_per_s)
            ));
        }
        let LogReport { records, of_the_killed, dropped, unaccounted } = self.log;
        lines.push(format!(
            "Log records: {records} (of {MOUNT}'s first life {of_the_killed}), {dropped} dropped, \
             {unaccounted} unaccounted for."
        ));
        lines.push(format!(
            "{} samples on {}, receipts {}, lost {}.",
            human_count(self.samples),
            self.url,
            self.receipt,
            self.lost
        ));
        lines
    }
}

/// A part of the report as text.
fn sentence(part: &Value) -> String {
    part.get("text").and_then(Value::as_str).unwrap_or("nothing").to_owned()
}

fn round(value: f64, scale: f64) -> f64 {
    (value * scale).round() / scale
}

fn row(name: &str, topic: &TopicReport) -> Vec<String> {
    let ms = |us: f64| format!("{:.3}", us / 1e3);
    let figures = topic.latency_us.map_or_else(
        || vec!["-".to_owned(); 4],
        |l| vec![ms(l.mean), ms(l.p50), ms(l.p99), ms(l.max)],
    );
    let head = [
        name.to_owned(),
        human_count(topic.published),
        human_count(topic.lost),
        format!("{:.1}", topic.rate_hz),
        human_bytes(topic.bytes_per_s),
    ];
    head.into_iter().chain(figures).collect()
}

fn topic(play: &Play, scheduled: &Scheduled) -> TopicReport {
    let topic = scheduled.topic.as_str();
    let books = &play.notes.books;
    let receipts = books.0.iter().filter(|(source, _)| source.topic == topic);
    let receipts: u64 = receipts.map(|(_, last)| last).sum();
    let mut latencies: Histogram<u64> = histogram();
    let (mut lost, mut received, mut bytes) = (0, u64::MAX, 0);
    for report in [&play.recorder, &play.broker] {
        let seen = || report.seen.iter().filter(|(source, _)| source.topic == topic);
        if seen().next().is_none() && !std::ptr::eq(report, &play.recorder) {
            continue;
        }
        lost = lost.max(books.lost(&report.seen, topic));
        received = received.min(seen().map(|(_, seen)| seen.count).sum());
        bytes = bytes.max(seen().map(|(_, seen)| seen.bytes).sum());
        let ours = report.latencies.iter().filter(|(name, _)| name == topic);
        for (value, times) in ours.flat_map(|(_, counts)| counts) {
            latencies.saturating_record_n(*value, *times);
        }
    }
    let published = if receipts == 0 { received } else { receipts };
    // The burst is not part of the schedule.
    let burst = play.notes.burst.filter(|_| scheduled.bursts).map_or(0, |burst| burst.samples);
    let per_s = |n: f64| round(n / play.events.seconds.max(1e-9), 1e3);
    let paced = published.saturating_sub(burst) as f64;
    let rate_hz = per_s(paced);
    TopicReport {
        published,
        received,
        lost,
        rate_hz,
        bytes_per_s: per_s(bytes as f64 * paced / published.max(1) as f64),
        latency_us: Latency::of(&latencies),
        kept: (!scheduled.interrupted).then_some(rate_hz / scheduled.rate_hz),
    }
}

/// Topics without a schedule: their number, samples and losses.
fn others(scene: &Scene, play: &Play) -> (usize, u64, u64) {
    let listed: BTreeSet<&str> = scene.scheduled.iter().map(|one| one.topic.as_str()).collect();
    let seen = &play.recorder.seen;
    let known = seen.iter().map(|(source, _)| source.topic.as_str());
    let told = play.notes.books.0.iter().map(|(source, _)| source.topic.as_str());
    let topics: BTreeSet<&str> = known.chain(told).filter(|t| !listed.contains(t)).collect();
    let ours = seen.iter().filter(|(source, _)| topics.contains(source.topic.as_str()));
    let samples = ours.map(|(_, seen)| seen.count).sum();
    let lost = topics.iter().map(|topic| play.notes.books.lost(seen, topic)).sum();
    (topics.len(), samples, lost)
}

fn commands(play: &Play) -> CommandReport {
    let calls = &play.notes.calls;
    let count = |fits: fn(&&Called) -> bool| calls.iter().filter(fits).count() as u64;
    let mut times: Histogram<u64> = histogram();
    let completed = |call: &Called| call.acknowledged && call.code == AckCode::Complete.number();
    for call in calls.iter().filter(|call| completed(call) && call.command == "trackTarget") {
        times.saturating_record(call.took_ns.max(1));
    }
    CommandReport {
        sent: count(|call| call.id.is_some()),
        completed: calls.iter().filter(|call| completed(call)).count() as u64,
        refused: count(|call| call.acknowledged && call.code != AckCode::Complete.number()),
        nobody_there: count(|call| !call.acknowledged),
        round_trip_us: Latency::of(&times),
        faults: Faults::of(calls, &play.recorder.commands),
    }
}

fn targets(notes: &Notes) -> TargetReport {
    let Targets { late, lost, longest_run, .. } = notes.targets_before.and(notes.targets);
    let ours = || notes.calls.iter().filter(|call| call.command == "trackTarget");
    let (all, followed) = (ours().count() as u64, notes.followed() as u64);
    let answered = ours().filter(|call| {
        let late = call.code == AckCode::Timeout.number();
        call.acknowledged && late
    });
    let unanswered = all - followed - answered.count() as u64;
    TargetReport { sent: all, followed, late, lost, longest_run, unanswered }
}

fn burst(scene: &Scene, play: &Play) -> Option<BurstReport> {
    let (burst, (read, end_ns)) = (play.notes.burst?, play.recorder.burst?);
    let topic = scene.scheduled.iter().find(|one| one.bursts)?.topic.clone();
    let ours = play.recorder.seen.iter().filter(|(source, _)| source.topic == topic);
    let (count, bytes) =
        ours.fold((0, 0), |(count, bytes), (_, s)| (count + s.count, bytes + s.bytes));
    let bytes_each = bytes as f64 / count.max(1) as f64;
    let per_s = |samples: u64, end_ns: u64| {
        samples as f64 * 1e9 / end_ns.saturating_sub(burst.begin_ns).max(1) as f64
    };
    let (write, read) = (per_s(burst.samples, burst.end_ns), per_s(read, end_ns));
    Some(BurstReport {
        topic,
        samples: burst.samples,
        write_per_s: write.round(),
        write_bytes_per_s: (write * bytes_each).round(),
        read_per_s: read.round(),
        read_bytes_per_s: (read * bytes_each).round(),
    })
}

/// The events that the late joiner received, and the number of missing keys.
fn late(play: &Play) -> Value {
    let (expected, got) = &play.events.late;
    let (keys, missing) = (expected.len(), missing(&got.newest, expected));
    let ms = round(got.joined_ns as f64 * 1e-6, 1e3);
    let text = format!("{} of {keys} keys, in {ms:.0} ms", keys - missing);
    json!({"keys": keys, "received": got.newest.len(), "missing": missing, "ms": ms, "text": text})
}

/// Whether the numbers of the killed component continue.
fn restarted(play: &Play) -> Value {
    let ours: Vec<&(String, String, Numbering)> =
        play.recorder.numbering.iter().filter(|(_, producer, _)| producer == MOUNT).collect();
    let twice = || ours.iter().filter(|(_, _, numbering)| numbering.incarnations.len() > 1);
    let breaks = ours.iter().filter(|(_, _, numbering)| numbering.breaks > 0).count();
    let goes_on = breaks == 0 && twice().count() > 0 && twice().all(|(_, _, n)| n.goes_on());
    let example = twice().find(|(topic, _, _)| topic.ends_with("/azimuth"));
    let lives = example.map(|(_, _, n)| n.incarnations.as_slice()).unwrap_or_default();
    let incarnations: Vec<u64> = lives.iter().map(|(incarnation, _, _)| *incarnation).collect();
    let last = lives.first().map_or(0, |(_, _, last)| *last);
    let next = lives.last().map_or(0, |(_, first, _)| *first);
    let text = match goes_on {
        true => format!("{MOUNT}: azimuth {last}, then {next}; {} topics", twice().count()),
        false => format!("{MOUNT}: azimuth {last}, then {next}; {breaks} topics broke"),
    };
    json!({
        "producer": MOUNT, "incarnations": incarnations, "topics": twice().count(),
        "breaks": breaks, "goes_on": goes_on, "text": text,
    })
}
