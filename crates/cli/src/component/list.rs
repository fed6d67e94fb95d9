//! `helio component list`: the components of a bus or a folder.

use std::path::Path;

use helio_component::{MockValues, Rates};
use helio_core::Tai;
use helio_core::sal::{Component, Indexing, TopicKind};
use serde::Serialize;

use super::instances::indices;
use super::observe::{InstanceStatus, Name, Observer, Presence, TopicRole, shown};
use crate::args::component::ListArgs;
use crate::error::CliResult;
use crate::open::look;
use crate::out::{Out, table, text_table};
use crate::sal;

/// Runs `helio component list`.
pub(crate) fn run(args: &ListArgs, url: Option<&str>) -> CliResult {
    match &args.folder {
        Some(folder) => of_folder(folder, args),
        None => of_bus(args, url),
    }
}

/// The topics that the list needs.
const LISTED_TOPICS: [TopicRole; 6] = [
    TopicRole::Lease,
    TopicRole::State,
    TopicRole::Heartbeat,
    TopicRole::Error,
    TopicRole::Versions,
    TopicRole::Simulation,
];

#[derive(Serialize)]
struct Line<'a> {
    component: &'a str,
    index: i32,
    presence: Presence,
    state: Option<String>,
    last_state: Option<String>,
    state_since: Option<String>,
    heartbeat_age_s: Option<f64>,
    error_code: Option<i64>,
    error_report: Option<&'a str>,
    simulation_mode: Option<i64>,
    version: &'a str,
    interface: Option<&'a str>,
    host: Option<&'a str>,
    pid: Option<i64>,
}

impl<'a> Line<'a> {
    fn of(name: &'a Name, seen: &'a InstanceStatus, now: Tai) -> Self {
        let lease = seen.lease.as_ref();
        Self {
            component: &name.0,
            index: name.1,
            presence: seen.presence(),
            state: seen.present_state(),
            last_state: seen.state_name(),
            state_since: seen.state.map(|(_, since)| since.to_utc_string()),
            heartbeat_age_s: seen.heartbeat_age_s(now).map(|age| (age * 1e3).round() / 1e3),
            error_code: seen.error.as_ref().map(|(code, _)| *code),
            error_report: seen.error.as_ref().map(|(_, report)| report.as_str()),
            simulation_mode: seen.simulation,
            version: seen.version(),
            interface: lease.map(|lease| lease.interface.as_str()),
            host: lease.map(|lease| lease.host.as_str()),
            pid: lease.map(|lease| lease.pid),
        }
    }
}

fn of_bus(args: &ListArgs, url: Option<&str>) -> CliResult {
    let mut observer = Observer::new(&look(url)?, &[], &LISTED_TOPICS)?;
    observer.catch_up()?;
    let (mut out, now) = (Out::new(), observer.now());
    if args.output.json {
        observer.known.iter().try_for_each(|(name, seen)| out.json(&Line::of(name, seen, now)))?;
        return out.flush();
    }
    let head = ["component", "presence", "state", "heartbeat", "version", "process", "error"];
    let rows: Vec<Vec<String>> = observer.known.iter().map(|(n, s)| row(n, s, now)).collect();
    if rows.is_empty() {
        eprintln!("helio: no component was ever on {}", observer.url());
    } else {
        text_table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}

fn row(name: &Name, seen: &InstanceStatus, now: Tai) -> Vec<String> {
    let process = seen.lease.as_ref().map(|lease| format!("{} on {}", lease.pid, lease.host));
    vec![
        shown(name),
        presence_word(seen.presence()).to_owned(),
        seen.state_text(),
        seen.heartbeat_age_s(now).map_or_else(|| "-".to_owned(), age),
        if seen.version().is_empty() { "-" } else { seen.version() }.to_owned(),
        process.unwrap_or_else(|| "-".to_owned()),
        seen.error.as_ref().map_or_else(String::new, |(code, report)| format!("{code} {report}")),
    ]
}

/// The presence as a word.
pub(crate) fn presence_word(presence: Presence) -> &'static str {
    match presence {
        Presence::Here => "here",
        Presence::Gone => "gone",
        Presence::Unknown => "unknown",
    }
}

/// An age as text.
pub(crate) fn age(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{:.1} s", s.max(0.0)),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

#[derive(Serialize)]
struct FolderLine<'a> {
    component: &'a str,
    indexed: bool,
    /// The named indices; 1 without names, 0 if it is not indexed.
    instances: Vec<i32>,
    #[serde(skip)]
    indexing: String,
    commands: usize,
    events: usize,
    telemetry: usize,
    messages_per_s: f64,
    public_bytes_per_s: f64,
    description: &'a str,
}

/// The components of a folder, with their rates by the table.
fn of_folder(folder: &Path, args: &ListArgs) -> CliResult {
    let interfaces = sal::folder(folder)?;
    let (rates, mut out, mut rows) = (Rates::standard(), Out::new(), Vec::new());
    for component in interfaces.components() {
        let (messages_per_s, bytes_per_s) = load(component, &rates);
        let count = |kind| component.topics_of(kind).count();
        let line = FolderLine {
            component: component.name(),
            indexed: component.indexed(),
            instances: indices(component, &[]),
            indexing: indexing(component),
            commands: count(TopicKind::Command),
            events: count(TopicKind::Event),
            telemetry: count(TopicKind::Telemetry),
            messages_per_s: (messages_per_s * 1e3).round() / 1e3,
            public_bytes_per_s: bytes_per_s.round(),
            description: component.description(),
        };
        if args.output.json {
            out.json(&line)?;
        }
        rows.push(folder_row(&line));
    }
    if !args.output.json {
        let head = ["component", "indexed", "commands", "events", "telemetry", "per s", "bytes/s"];
        table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}

/// The indices as text.
fn indexing(component: &Component) -> String {
    match component.indexing() {
        Indexing::Single => "no".to_owned(),
        Indexing::Any => "any".to_owned(),
        Indexing::Named(names) => {
            let index = |(_, index): &(String, i64)| index.to_string();
            names.iter().map(index).collect::<Vec<_>>().join(" ")
        }
    }
}

fn folder_row(line: &FolderLine<'_>) -> Vec<String> {
    vec![
        line.component.to_owned(),
        line.indexing.clone(),
        line.commands.to_string(),
        line.events.to_string(),
        line.telemetry.to_string(),
        format!("{:.1}", line.messages_per_s),
        crate::units::human_bytes(line.public_bytes_per_s),
    ]
}

/// Messages per second of an instance by the table of rates, and the bytes of their public fields.
fn load(component: &Component, rates: &Rates) -> (f64, f64) {
    let (mut messages_per_s, mut bytes_per_s, mut bytes) = (0.0, 0.0, Vec::new());
    for topic in component.topics() {
        let hz = rates.of(topic);
        bytes.clear();
        if let Ok(mut values) = MockValues::new(topic) {
            values.write(1, Tai::from_nanos(0), &mut bytes);
        }
        messages_per_s += hz;
        bytes_per_s += hz * bytes.len() as f64;
    }
    (messages_per_s, bytes_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_for_people() {
        assert_eq!(age(0.52), "0.5 s");
        assert_eq!(age(75.0), "75 s");
        assert_eq!(age(600.0), "10 min");
        assert_eq!(age(86_400.0), "24 h");
        assert_eq!(age(864_000.0), "10 days");
    }
}
