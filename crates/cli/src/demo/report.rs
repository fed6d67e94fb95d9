//! What the demo found: a table for people, one object for programs.

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::account::lost;
use super::cast::{LateJoin, Newest, Play};
use super::scene::Scene;
use crate::bench::report::{Latency, histogram};
use crate::error::{CliError, CliResult};
use crate::out::{table, text_table};
use crate::units::{human_bytes, human_count};

/// The requirements that the observatory's bus was held to (Rubin's).
const MEAN_US: f64 = 25_000.0;
const STDEV_US: f64 = 3_000.0;
const BURST_BYTES_PER_S: f64 = 3e6;
/// A schedule counts as kept where this part of it was published.
const KEPT: f64 = 0.98;

/// One topic.
#[derive(Debug, Serialize)]
pub(crate) struct TopicReport {
    published: u64,
    /// The fewest that any of its readers received.
    received: u64,
    lost: u64,
    readers: usize,
    rate_hz: f64,
    bytes_per_s: f64,
    /// From the time when each sample was due to each of its readers.
    latency_us: Option<Latency>,
    #[serde(skip)]
    scheduled_hz: f64,
    #[serde(skip)]
    interrupted: bool,
}

/// One requirement.
#[derive(Debug, Serialize)]
pub(crate) struct Requirement {
    name: &'static str,
    met: bool,
    measured: String,
}

/// The burst.
#[derive(Debug, Serialize)]
pub(crate) struct BurstReport {
    topic: String,
    samples: u64,
    bytes: u64,
    write_per_s: f64,
    write_bytes_per_s: f64,
    read_per_s: f64,
    read_bytes_per_s: f64,
}

/// The whole play.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    samples: u64,
    lost: u64,
    duplicated: u64,
    seconds: f64,
    topics: Map<String, Value>,
    burst: Option<BurstReport>,
    late_joiner: Value,
    restarted: Value,
    requirements: Vec<Requirement>,
    cpu_s: Value,
    rss_mb: f64,
    url: String,
    receipt: &'static str,
    version: &'static str,
    #[serde(skip)]
    table: Vec<(String, TopicReport)>,
    #[serde(skip)]
    late_missing: usize,
}

impl Report {
    /// Joins the books of writers and readers.
    pub(crate) fn of(scene: &Scene, play: &Play, url: &str) -> Self {
        let streams = scene
            .writers
            .iter()
            .flat_map(|(writer, streams)| streams.iter().map(move |stream| (writer, stream)));
        let table: Vec<(String, TopicReport)> = streams
            .map(|(writer, stream)| {
                let mut report = topic(play, &stream.topic);
                report.scheduled_hz = stream.rate_hz;
                report.interrupted = *writer == scene.victim;
                (stream.topic.clone(), report)
            })
            .collect();
        let seen = play.readers.iter().flat_map(|(_, report)| &report.seen);
        let burst = burst(play);
        let (late_joiner, late_missing) = late(play.late.as_ref());
        Self {
            samples: play.books.samples(),
            lost: table.iter().map(|(_, topic)| topic.lost).sum(),
            duplicated: seen.map(|(_, seen)| seen.repeats).sum(),
            seconds: round(play.seconds, 1e3),
            topics: table.iter().map(|(name, t)| (name.clone(), json!(t))).collect(),
            requirements: requirements(&table, burst.as_ref(), play, late_missing),
            burst,
            late_joiner,
            restarted: restarted(scene, play),
            cpu_s: json!({
                "writers": round(play.writers_cpu_s, 1e3),
                "readers": round(play.readers.iter().map(|(_, r)| r.cpu_s).sum(), 1e3),
            }),
            rss_mb: play.rss_mb.round(),
            url: url.to_owned(),
            receipt: match play.guarantee {
                helio_core::qos::Guarantee::Accepted => "accepted",
                helio_core::qos::Guarantee::Stored => "stored",
                helio_core::qos::Guarantee::Durable => "durable",
            },
            version: env!("CARGO_PKG_VERSION"),
            table,
            late_missing,
        }
    }

    /// An error where something is missing or came twice; a figure of time is none.
    pub(crate) fn verdict(&self) -> CliResult {
        if self.lost > 0 {
            let text = format!("{} acknowledged samples did not reach a reader", self.lost);
            return Err(CliError::Lost(text));
        }
        if self.late_missing > 0 {
            let text = format!("the late joiner misses the events of {} keys", self.late_missing);
            return Err(CliError::Lost(text));
        }
        if self.duplicated > 0 {
            let text = format!("{} samples came to a reader twice", self.duplicated);
            return Err(CliError::Lost(text));
        }
        Ok(())
    }

    /// What to make of requirements that are missed; nothing where all are met.
    fn missed(&self) -> Option<String> {
        let missed = self.requirements.iter().filter(|r| !r.met).count();
        let text = match (missed, self.verdict()) {
            (0, _) => return None,
            (_, Err(_)) => "samples are missing or came twice, which is an error of ours",
            (_, Ok(())) => "nothing is lost; figures of time are this machine's and its load's",
        };
        let all = self.requirements.len();
        Some(format!("{missed} of {all} requirements MISSED: {text}"))
    }

    /// The table for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let head = [
            "topic",
            "published",
            "lost",
            "Hz",
            "per second",
            "mean ms",
            "stdev",
            "p50",
            "p99",
            "max",
        ];
        let rows: Vec<Vec<String>> = self.table.iter().map(|(name, t)| row(name, t)).collect();
        let mut lines = table(&head, &rows);
        lines.push(String::new());
        if let Some(burst) = &self.burst {
            lines.push(format!(
                "Burst: {} samples of {}: written at {}/s, read at {}/s.",
                human_count(burst.samples),
                burst.topic,
                human_bytes(burst.write_bytes_per_s),
                human_bytes(burst.read_bytes_per_s)
            ));
        }
        lines.push(format!("Late joiner: {}.", sentence(&self.late_joiner)));
        lines.push(format!("Killed and restarted: {}.", sentence(&self.restarted)));
        lines.push(format!(
            "{} samples on {}, receipts {}, lost {}.",
            human_count(self.samples),
            self.url,
            self.receipt,
            self.lost
        ));
        lines.push(String::new());
        let rows = self.requirements.iter().map(|r| {
            vec![
                r.name.to_owned(),
                if r.met { "met" } else { "MISSED" }.to_owned(),
                r.measured.clone(),
            ]
        });
        let rows: Vec<Vec<String>> = rows.collect();
        lines.extend(text_table(&["requirement", "", "measured"], &rows));
        lines.extend(self.missed());
        lines
    }
}

/// The text that a part of the report has for people.
fn sentence(part: &Value) -> &str {
    part.get("text").and_then(Value::as_str).unwrap_or("nothing")
}

fn round(value: f64, scale: f64) -> f64 {
    (value * scale).round() / scale
}

fn row(name: &str, topic: &TopicReport) -> Vec<String> {
    let ms = |us: f64| format!("{:.3}", us / 1e3);
    let figures = topic.latency_us.map_or_else(
        || vec!["-".to_owned(); 5],
        |l| vec![ms(l.mean), ms(l.stdev), ms(l.p50), ms(l.p99), ms(l.max)],
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

fn topic(play: &Play, topic: &str) -> TopicReport {
    let acknowledged = play.books.of_topic(topic);
    let readers = play.readers.iter().filter(|(task, _)| task.topics.iter().any(|t| t == topic));
    let mut latencies: Histogram<u64> = histogram();
    let (mut worst, mut received, mut count) = (0, u64::MAX, 0);
    for (_, report) in readers.clone() {
        worst = worst.max(lost(&play.books, &report.seen, topic));
        let seen = report.seen.iter().filter(|(source, _)| source.topic == topic);
        received = received.min(seen.map(|(_, seen)| seen.count).sum());
        count += 1;
        let ours = report.latencies.iter().filter(|(name, _)| name == topic);
        for (value, times) in ours.flat_map(|(_, counts)| counts) {
            latencies.saturating_record_n(*value, *times);
        }
    }
    // The burst is no part of the schedule.
    let burst = play.burst.filter(|_| play.burst_topic.as_deref() == Some(topic));
    let (samples, bytes) = burst.map_or((0, 0), |burst| (burst.samples, burst.bytes));
    let per_s = |n: u64| round(n as f64 / play.seconds.max(1e-9), 1e3);
    TopicReport {
        published: acknowledged.last,
        received: if count == 0 { 0 } else { received },
        lost: worst,
        readers: count,
        rate_hz: per_s(acknowledged.last.saturating_sub(samples)),
        bytes_per_s: per_s(acknowledged.bytes.saturating_sub(bytes)),
        latency_us: Latency::of(&latencies),
        scheduled_hz: 0.0,
        interrupted: false,
    }
}

fn burst(play: &Play) -> Option<BurstReport> {
    let burst = play.burst?;
    let topic = play.burst_topic.clone()?;
    let bytes_each = burst.bytes as f64 / burst.samples.max(1) as f64;
    let per_s = |samples: u64, end_ns: u64| {
        samples as f64 * 1e9 / end_ns.saturating_sub(burst.begin_ns).max(1) as f64
    };
    let write = per_s(burst.samples, burst.end_ns);
    let reads = play.readers.iter().filter_map(|(_, report)| report.burst);
    let read = reads.map(|(samples, end_ns)| per_s(samples, end_ns)).fold(f64::INFINITY, f64::min);
    let read = if read.is_finite() { read } else { 0.0 };
    Some(BurstReport {
        topic,
        samples: burst.samples,
        bytes: burst.bytes,
        write_per_s: write.round(),
        write_bytes_per_s: (write * bytes_each).round(),
        read_per_s: read.round(),
        read_bytes_per_s: (read * bytes_each).round(),
    })
}

/// What the late joiner got, and how many keys it misses.
fn late(late: Option<&LateJoin>) -> (Value, usize) {
    let Some(late) = late else { return (json!({"keys": 0, "text": "nobody"}), 0) };
    let has = |event: &&Newest| {
        late.got.newest.iter().any(|(source, key, sequence)| {
            let newer = (source.incarnation, *sequence) >= (event.incarnation, event.sequence);
            source.topic == event.topic && *key == event.key && newer
        })
    };
    let missing = late.expected.iter().filter(|event| !has(event));
    let (keys, missing) = (late.expected.len(), missing.count());
    let text = format!("the newest event of {} of {keys} keys, at once", keys - missing);
    (
        json!({"keys": keys, "received": late.got.newest.len(), "missing": missing, "text": text}),
        missing,
    )
}

fn restarted(scene: &Scene, play: &Play) -> Value {
    let ours = play.books.0.iter().filter(|(source, _)| source.producer == scene.victim);
    let mut incarnations: Vec<u64> = ours.map(|(source, _)| source.incarnation).collect();
    incarnations.sort_unstable();
    incarnations.dedup();
    let text = format!("{}, in {} incarnations", scene.victim, incarnations.len());
    json!({"producer": scene.victim, "incarnations": incarnations, "text": text})
}

fn requirements(
    table: &[(String, TopicReport)],
    burst: Option<&BurstReport>,
    play: &Play,
    late_missing: usize,
) -> Vec<Requirement> {
    let worst = |figure: fn(&Latency) -> f64| {
        let figures = table.iter().filter_map(|(_, topic)| topic.latency_us.as_ref().map(figure));
        figures.fold(0.0, f64::max)
    };
    let (mean, stdev) = (worst(|l| l.mean), worst(|l| l.stdev));
    let slowest = burst.map_or(0.0, |b| b.write_bytes_per_s.min(b.read_bytes_per_s));
    let lag: u64 = play.readers.iter().map(|(_, report)| report.lag).sum();
    let lost: u64 = table.iter().map(|(_, topic)| topic.lost).sum();
    let kept = table.iter().filter(|(_, topic)| !topic.interrupted);
    let kept = kept.map(|(_, topic)| topic.rate_hz / topic.scheduled_hz).fold(1.0, f64::min);
    let total: f64 = table.iter().map(|(_, topic)| topic.bytes_per_s).sum();
    let ms = |us: f64| format!("{:.3} ms at most", us / 1e3);
    let one = |name, met, measured| Requirement { name, met, measured };
    vec![
        one("latency, mean < 25 ms", mean < MEAN_US, ms(mean)),
        one("latency, standard deviation < 3 ms", stdev < STDEV_US, ms(stdev)),
        one(
            "more than 3 MB/s a topic",
            slowest > BURST_BYTES_PER_S,
            format!("{}/s written and read", human_bytes(slowest)),
        ),
        one("consumers keep up", lag == 0, format!("{lag} samples behind at the end")),
        one(
            "the whole system's schedule is kept",
            kept >= KEPT,
            format!("{:.1} % of it, {}/s", kept * 100.0, human_bytes(total)),
        ),
        one("nothing is lost", lost == 0 && late_missing == 0, format!("{lost} samples")),
    ]
}
