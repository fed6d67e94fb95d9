//! `helio-alerts top`: rates, lag of groups and visits, as they change.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use helio_alert_serve::observation::{Stage, VisitState};
use helio_alert_serve::{Observation, Observer};
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::out::{Out, is_screen, table};
use helio_console::screen::{Screen, UserAction};
use helio_console::stop::{Stop, Until};
use helio_console::units::{human_bytes, human_count};
use serde::Serialize;

use crate::args::TopArgs;

/// How long the state of the log is waited for at first.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);
/// The visits that are shown.
const SHOWN_VISITS: usize = 12;

/// The state of a stream, and rates since the state before.
#[derive(Debug, Serialize)]
struct Line {
    up: bool,
    trouble: Option<String>,
    alerts: u64,
    alerts_per_s: f64,
    bytes_per_s: f64,
    dropped: BTreeMap<&'static str, u64>,
    lost: u64,
    topics: Vec<TopicLine>,
    groups: Vec<GroupLine>,
    visits: Vec<VisitLine>,
    /// Upper bounds of the 99th percentile of the time since shutter close, by stage; `null` where
    /// it is above all bounds.
    p99_s: BTreeMap<&'static str, Option<f64>>,
}

#[derive(Debug, Serialize)]
struct TopicLine {
    topic: String,
    samples_per_s: f64,
    stored_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct GroupLine {
    group: String,
    members: usize,
    lag: u64,
}

#[derive(Debug, Serialize)]
struct VisitLine {
    visit: i64,
    state: &'static str,
    announced: usize,
    expected: usize,
    alerts: u64,
    missing: Vec<i32>,
    short: Vec<i32>,
}

/// Runs `helio-alerts top`.
pub(crate) fn run(args: &TopArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = open::look(url)?;
    let observer = Observer::start(&bus, &args.stream.topic)
        .map_err(|error| CliError::Failure(format!("cannot start threads: {error}")))?;
    // Without it, the first state would be empty.
    let _ = observer.wait_until_known(FIRST_TIMEOUT);
    let until = Until::new(args.end.duration, stop);
    if is_screen() && !args.output.json {
        screen(args, &observer, &until)?;
    } else {
        lines(args, &observer, &until)?;
    }
    until.result()
}

/// A state and the time at which it was taken.
struct Last(Instant, Observation);

impl Last {
    fn new(observer: &Observer) -> Self {
        Self(Instant::now(), observer.observation())
    }

    /// The state now, with rates since the last one, which it replaces.
    fn next(&mut self, observer: &Observer) -> Line {
        let before = std::mem::replace(self, Self::new(observer));
        Line::new(&before.1, &self.1, self.0.duration_since(before.0))
    }
}

/// Shows the live table until the user quits.
fn screen(args: &TopArgs, observer: &Observer, until: &Until) -> CliResult {
    let (mut screen, mut last) = (Screen::begin()?.with_keys(), Last::new(observer));
    let mut line = last.next(observer);
    while !until.is_over() {
        screen.show(&line.head(&args.stream.topic), &line.rows())?;
        let drawn = Instant::now();
        while !until.is_over() && drawn.elapsed() < args.every {
            std::thread::sleep(until.left().min(args.every.saturating_sub(drawn.elapsed())));
            match screen.wish()? {
                UserAction::Quit => return Ok(()),
                UserAction::Draw => break,
                UserAction::None => {}
            }
        }
        if drawn.elapsed() >= args.every {
            line = last.next(observer);
        }
    }
    Ok(())
}

/// Prints the state of the log, and then a state an interval.
fn lines(args: &TopArgs, observer: &Observer, until: &Until) -> CliResult {
    let (mut out, mut last) = (Out::new(), Last::new(observer));
    loop {
        let begun = Instant::now();
        let line = last.next(observer);
        if args.output.json {
            out.json(&line)?;
        } else {
            let rows = line.rows();
            line.head(&args.stream.topic).iter().chain(&rows).try_for_each(|row| out.line(row))?;
        }
        out.flush()?;
        out.check()?;
        while !until.is_over() && begun.elapsed() < args.every {
            std::thread::sleep(until.left().min(args.every.saturating_sub(begun.elapsed())));
        }
        if until.is_over() {
            return Ok(());
        }
    }
}

impl Line {
    fn new(before: &Observation, now: &Observation, elapsed: Duration) -> Self {
        let per_s = |before: u64, now: u64| {
            let rate = now.saturating_sub(before) as f64 / elapsed.as_secs_f64().max(1e-9);
            (rate * 10.0).round() / 10.0
        };
        let topic = |(topic, state): (&String, &helio_alert_serve::observation::TopicState)| {
            let known = before.topics.get(topic);
            let samples = known.map_or(state.samples, |known| known.samples);
            TopicLine {
                topic: topic.clone(),
                samples_per_s: per_s(samples, state.samples),
                stored_bytes: state.bytes,
            }
        };
        let groups = now.groups.iter().map(|(group, state)| GroupLine {
            group: group.clone(),
            members: state.members,
            lag: state.lag,
        });
        let p99 = |stage: Stage| {
            let bound = now.ages.get(&stage)?.quantile(0.99)?;
            Some((stage.name(), Some(bound).filter(|bound| bound.is_finite())))
        };
        let hidden = now.visits.len().saturating_sub(SHOWN_VISITS);
        Self {
            up: now.is_up,
            trouble: now.trouble.clone(),
            alerts: now.alerts,
            alerts_per_s: per_s(before.alerts, now.alerts),
            bytes_per_s: per_s(before.bytes, now.bytes),
            dropped: now.dropped.iter().map(|(cause, count)| (cause.name(), *count)).collect(),
            lost: now.lost.values().sum(),
            topics: now.topics.iter().map(topic).collect(),
            groups: groups.collect(),
            visits: now.visits[hidden..].iter().map(VisitLine::new).collect(),
            p99_s: Stage::ALL.into_iter().filter_map(p99).collect(),
        }
    }

    /// The summary.
    fn head(&self, stream: &str) -> Vec<String> {
        let dropped: u64 = self.dropped.values().sum();
        let mut head = vec![format!(
            "{stream}: {} alerts/s, {}/s, {} alerts, {} dropped, {} lost",
            human_count(self.alerts_per_s as u64),
            human_bytes(self.bytes_per_s),
            human_count(self.alerts),
            human_count(dropped),
            human_count(self.lost)
        )];
        if let Some(trouble) = &self.trouble {
            head.push(format!("the stream cannot be read: {trouble}"));
        }
        let text = |(stage, bound): (&&str, &Option<f64>)| match bound {
            Some(bound) => format!("{stage} {bound} s"),
            None => format!("{stage} longer than all bounds"),
        };
        let ages: Vec<_> = self.p99_s.iter().map(text).collect();
        if !ages.is_empty() {
            head.push(format!("99 % since shutter close within: {}", ages.join(", ")));
        }
        head
    }

    /// The tables of visits, groups and topics.
    fn rows(&self) -> Vec<String> {
        let visits: Vec<_> = self.visits.iter().rev().map(VisitLine::row).collect();
        let groups: Vec<_> = self.groups.iter().map(GroupLine::row).collect();
        let topics: Vec<_> = self.topics.iter().map(TopicLine::row).collect();
        let tables = [
            (&["visit", "state", "detectors", "alerts", "missing", "short"][..], visits),
            (&["group", "members", "lag"], groups),
            (&["topic", "per second", "stored"], topics),
        ];
        let mut lines = Vec::new();
        for (head, rows) in tables.into_iter().filter(|(_, rows)| !rows.is_empty()) {
            lines.push(String::new());
            lines.extend(table(head, &rows));
        }
        lines
    }
}

impl TopicLine {
    fn row(&self) -> Vec<String> {
        let stored = self.stored_bytes.map_or_else(|| "-".into(), |b| human_bytes(b as f64));
        vec![self.topic.clone(), format!("{:.1}", self.samples_per_s), stored]
    }
}

impl GroupLine {
    fn row(&self) -> Vec<String> {
        vec![self.group.clone(), self.members.to_string(), human_count(self.lag)]
    }
}

impl VisitLine {
    fn new(of: &VisitState) -> Self {
        let closing = of.closing.as_ref();
        let state = match closing {
            None => "open",
            Some(closing) if closing.is_complete() => "complete",
            Some(_) => "incomplete",
        };
        Self {
            visit: of.visit,
            state,
            announced: of.announced,
            expected: of.expected,
            alerts: closing.map_or(of.alerts, |closing| closing.totals.count()),
            missing: closing.map(|closing| closing.missing.clone()).unwrap_or_default(),
            short: closing.map(|closing| closing.short.clone()).unwrap_or_default(),
        }
    }

    fn row(&self) -> Vec<String> {
        let count = |of: &[i32]| if of.is_empty() { "-".into() } else { of.len().to_string() };
        vec![
            self.visit.to_string(),
            self.state.to_owned(),
            format!("{}/{}", self.announced, self.expected),
            human_count(self.alerts),
            count(&self.missing),
            count(&self.short),
        ]
    }
}
