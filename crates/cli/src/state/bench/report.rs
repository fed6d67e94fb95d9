//! The report of a bench: tables of stores, and the goals of the store against its peers.

use helio_console::requirement::{NOT_MEASURED, Requirement};
use helio_state_load::speed::UPDATES;
use helio_state_load::summary::Summary;
use serde::Serialize;
use serde_json::{Value, json};

use self::Limit::{AtLeast, AtMost};
use super::Row;
use super::stores::Absent;
use crate::error::{CliError, CliResult};
use crate::out::table;

/// The row that is held against an etcd without fsync, and that against one with it.
const INTERVAL: &str = "helio-interval";
const DISK: &str = "helio-disk";
const ETCD: &str = "etcd";
const NO_FSYNC: &str = "etcd-nofsync";
/// What a figure is held against.
#[derive(Debug, Clone, Copy)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// Rows of equal durability: each of ours, and its peer.
const ON_DISK: [&str; 2] = [DISK, ETCD];
const BY_INTERVAL: [&str; 2] = [INTERVAL, NO_FSYNC];

/// A goal, the rows whose ratio is taken, and of which figure.
type Ratio = (&'static str, [&'static str; 2], &'static str, Limit);
const RATIOS: [Ratio; 13] = [
    ("put mean, interval / etcd without fsync", BY_INTERVAL, "put_us.mean", AtMost(0.6)),
    ("put p99, interval / etcd without fsync", BY_INTERVAL, "put_us.p99", AtMost(0.6)),
    ("put mean, disk / etcd", ON_DISK, "put_us.mean", AtMost(0.8)),
    ("put p99, disk / etcd", ON_DISK, "put_us.p99", AtMost(0.8)),
    ("range mean, disk / etcd", ON_DISK, "range_us.mean", AtMost(0.8)),
    ("range mean, interval / etcd without fsync", BY_INTERVAL, "range_us.mean", AtMost(0.8)),
    ("puts/s, interval / etcd without fsync", BY_INTERVAL, "put.per_s", AtLeast(2.5)),
    ("ranges/s, disk / etcd", ON_DISK, "range.per_s", AtLeast(1.2)),
    ("ranges/s, interval / etcd without fsync", BY_INTERVAL, "range.per_s", AtLeast(1.2)),
    ("updates/s, disk / etcd", ON_DISK, "update.per_s", AtLeast(1.5)),
    ("updates/s, interval / etcd without fsync", BY_INTERVAL, "update.per_s", AtLeast(1.5)),
    ("lists of 500/s, disk / etcd", ON_DISK, "list.per_s", AtLeast(2.0)),
    ("lists of 500/s, interval / etcd without fsync", BY_INTERVAL, "list.per_s", AtLeast(2.0)),
];
/// The bytes of a measured key.
const KEY_BYTES: f64 = 32.0;
/// The bytes of a measured value.
const VALUE_BYTES: f64 = 953.0;

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    latencies: Vec<Value>,
    rates: Vec<Value>,
    memory: Vec<Value>,
    in_process: Value,
    not_run: Vec<String>,
    /// Whether it was run in miniature.
    smoke: bool,
    goals: Vec<Requirement>,
}

/// Rows of a kind, by store and pods, in the order of their first run.
fn groups<'a>(rows: &'a [Row], what: &str) -> Vec<Vec<&'a Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows.iter().filter(|row| row.what == what) {
        let same = |group: &&mut Vec<&Row>| {
            group.iter().any(|one| one.store == row.store && one.pods == row.pods)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// A figure of a dotted path.
fn figure(of: &Value, path: &str) -> f64 {
    path.split('.').fold(of, |of, name| &of[name]).as_f64().unwrap_or(f64::NAN)
}

fn mean(group: &[&Row], path: &str) -> f64 {
    let sum: f64 = group.iter().map(|row| figure(&row.figures, path)).sum();
    sum / group.len() as f64
}

fn pooled(group: &[&Row], path: &str) -> Value {
    let of = |row: &&Row| {
        let at = |name: &str| figure(&row.figures[path], name);
        Summary {
            count: at("count") as u64,
            mean_us: at("mean"),
            median_us: at("median"),
            sd_us: at("sd"),
            p99_us: at("p99"),
        }
    };
    super::summary(&Summary::pooled(&group.iter().map(of).collect::<Vec<_>>()))
}

impl Report {
    pub(super) fn of(rows: &[Row], in_process: Value, absent: &[Absent]) -> Self {
        let latency = |group: Vec<&Row>| {
            json!({
                "store": group[0].store, "pods": group[0].pods, "runs": group.len(),
                "put_us": pooled(&group, "put_us"), "event_us": pooled(&group, "event_us"),
                "range_us": pooled(&group, "range_us"), "errors": mean(&group, "errors"),
                "events_missing": mean(&group, "events_missing"),
            })
        };
        let rate = |group: Vec<&Row>| {
            let mut of = json!({ "store": group[0].store, "runs": group.len() });
            for name in ["put", "range", "update", "get", "list"] {
                of[name] = json!({
                    "per_s": mean(&group, &format!("{name}.per_s")),
                    "cpu_us": mean(&group, &format!("{name}.cpu_us")),
                    "errors": mean(&group, &format!("{name}.errors")),
                });
            }
            of["events"] = mean(&group, "update.events").into();
            of["anonymous_mb"] = (mean(&group, "anonymous_bytes") * 1e-6).into();
            of
        };
        let memory = |group: Vec<&Row>| json!({ "store": group[0].store, "of": group[0].figures });
        let latencies: Vec<_> = groups(rows, "latency").into_iter().map(latency).collect();
        let rates: Vec<_> = groups(rows, "full").into_iter().map(rate).collect();
        let memory: Vec<_> = groups(rows, "memory").into_iter().map(memory).collect();
        let not_run = absent.iter().map(|one| format!("{}: {}", one.name, one.why)).collect();
        let smoke = rows.iter().any(|row| row.smoke);
        let goals = Vec::new();
        let mut report = Self { latencies, rates, memory, in_process, not_run, smoke, goals };
        report.goals = report.goals();
        report
    }

    /// An error if an answer or an event is missing: times depend on the machine.
    pub(super) fn verdict(&self) -> CliResult {
        let wrong = Requirement::wrong(&self.goals);
        if wrong.is_empty() { Ok(()) } else { Err(CliError::Failure(wrong.join("; "))) }
    }

    /// The tables for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let us = |of: &Value, path: &str| format!("{:.0}", figure(of, path));
        let row = |of: &Value| {
            let mut cells = vec![text(of, "store"), of["pods"].to_string()];
            for what in ["put_us", "range_us", "event_us"] {
                for name in ["mean", "sd", "median", "p99"] {
                    cells.push(us(of, &format!("{what}.{name}")));
                }
            }
            cells
        };
        let head = ["store", "pods", "put us", "sd", "median", "p99", "range us", "sd", "median"];
        let head = [&head[..], &["p99", "event us", "sd", "median", "p99"]].concat();
        let mut lines = table(&head, &self.latencies.iter().map(row).collect::<Vec<_>>());
        lines.push(String::new());
        let row = |of: &Value| {
            let mut cells = vec![text(of, "store")];
            for name in ["put", "range", "update", "get", "list"] {
                cells.push(us(of, &format!("{name}.per_s")));
                cells.push(format!("{:.1}", figure(of, &format!("{name}.cpu_us"))));
            }
            cells.extend([us(of, "events"), us(of, "anonymous_mb")]);
            cells
        };
        let head = ["store", "puts/s", "CPU us", "ranges/s", "CPU us", "updates/s", "CPU us"];
        let more = ["gets/s", "CPU us", "lists/s", "CPU us", "events", "RssAnon MB"];
        let head = [&head[..], &more].concat();
        lines.extend(table(&head, &self.rates.iter().map(row).collect::<Vec<_>>()));
        lines.push(String::new());
        let names = ["key_bytes", "old_revision_bytes", "disk_key_bytes", "disk_revision_bytes"];
        let row = |of: &Value| {
            let figures = names.map(|name| us(&of["of"], name));
            std::iter::once(text(of, "store")).chain(figures).collect()
        };
        let head =
            ["store", "memory B a key", "an old revision", "disk B a key", "an old revision"];
        lines.extend(table(&head, &self.memory.iter().map(row).collect::<Vec<_>>()));
        lines.push(String::new());
        let at = |path: &str| figure(&self.in_process, path);
        lines.push(format!(
            "in process, interval: put p50 {:.1} us, p99 {:.1}; get p50 {:.2} us, p99 {:.2}",
            at("put_us.median"),
            at("put_us.p99"),
            at("get_us.median"),
            at("get_us.p99"),
        ));
        lines.extend(self.not_run.iter().map(|one| format!("not run: {one}")));
        lines.push(String::new());
        lines.extend(Requirement::table(&self.goals));
        lines
    }

    /// A figure of a store, of the latencies without pods or with the fewest; not a number where
    /// it was not run.
    fn at(&self, store: &str, path: &str) -> f64 {
        let rows = if path.contains("_us.") { &self.latencies } else { &self.rates };
        let found = rows.iter().find(|row| row["store"] == store);
        // A store that answered nothing has times and rates of 0.
        found.map(|row| figure(row, path)).filter(|figure| *figure > 0.0).unwrap_or(f64::NAN)
    }

    fn goals(&self) -> Vec<Requirement> {
        let mut goals = Vec::from(self.complete());
        goals.extend(RATIOS.iter().map(|(name, [own, peer], path, limit)| {
            self.goal(name, self.at(own, path) / self.at(peer, path), *limit)
        }));
        goals.extend(self.costs());
        goals
    }

    /// A figure held against its limit; a run in miniature has none.
    fn goal(&self, name: &'static str, value: f64, limit: Limit) -> Requirement {
        let (met, sense, limit) = match limit {
            AtMost(limit) => (value <= limit, "most", limit),
            AtLeast(limit) => (value >= limit, "least", limit),
        };
        let is_measured = !self.smoke && value.is_finite();
        let measured = match is_measured {
            true => format!("{value:.2}, at {sense} {limit}"),
            false => NOT_MEASURED.to_owned(),
        };
        Requirement { name, must: false, met: met && is_measured, measured }
    }

    /// Processor time, memory, disk, and times without gRPC.
    fn costs(&self) -> [Requirement; 7] {
        let most = |name, value: f64, most: f64| self.goal(name, value, AtMost(most));
        let memory = |name: &str| {
            let of = self.memory.iter().find(|of| of["store"] == DISK);
            of.map_or(f64::NAN, |of| figure(&of["of"], name))
        };
        let cpu = |name: &str| self.at(DISK, &format!("{name}.cpu_us"));
        [
            most("server CPU us a put, disk", cpu("put"), 25.0),
            most("server CPU us a range, disk", cpu("range"), 25.0),
            most("memory of a live key, B", memory("key_bytes"), KEY_BYTES + 160.0),
            most("memory of an old revision, B", memory("old_revision_bytes"), 64.0),
            most(
                "disk of a revision, B",
                memory("disk_revision_bytes"),
                KEY_BYTES + VALUE_BYTES + 192.0,
            ),
            most("in process: put p50 us", figure(&self.in_process, "put_us.median"), 30.0),
            most("in process: get p50 us", figure(&self.in_process, "get_us.median"), 2.0),
        ]
    }

    /// What holds on any machine: our rows have all answers and events.
    fn complete(&self) -> [Requirement; 2] {
        let is_own = |row: &&Value| [DISK, INTERVAL].iter().any(|own| row["store"] == *own);
        let errors: f64 = self.latencies.iter().filter(is_own).map(|of| figure(of, "errors")).sum();
        let rates = || self.rates.iter().filter(is_own);
        let names = ["put", "range", "update", "get", "list"];
        let of_rates = rates().flat_map(|of| names.map(|name| figure(&of[name], "errors")));
        let errors = errors + of_rates.sum::<f64>();
        let answered = self.latencies.iter().filter(is_own);
        let answered = answered
            .flat_map(|of| ["put_us", "range_us"].map(|name| figure(of, &format!("{name}.count"))));
        let least = answered.fold(f64::INFINITY, f64::min);
        let missing = self.latencies.iter().filter(is_own);
        let missing: f64 = missing.map(|of| figure(of, "events_missing")).sum();
        let events = rates().map(|of| figure(of, "events")).fold(f64::INFINITY, f64::min);
        [
            Requirement {
                name: "every request of ours is answered",
                must: true,
                met: errors == 0.0 && least > 0.0,
                measured: format!("{errors} errors, at least {least} answers a row"),
            },
            Requirement {
                name: "every event of ours is delivered",
                must: true,
                met: missing == 0.0 && events == UPDATES as f64,
                measured: format!(
                    "{events} of {UPDATES} at full speed, {missing} missing at a pace"
                ),
            },
        ]
    }
}

fn text(of: &Value, name: &str) -> String {
    of[name].as_str().unwrap_or_default().to_owned()
}
