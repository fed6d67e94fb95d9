//! The report of a demo: what was audited, and what must hold.

use std::time::Duration;

use helio_console::requirement::Requirement;
use helio_state_load::audit::{Audit, Findings};
use helio_state_load::history::Listing;
use helio_state_load::load::Counters;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{CliError, CliResult};
use crate::out::table;
use crate::units::human_count;

/// How soon a killed store serves again, seconds.
const SERVED_S: f64 = 1.0;

/// A kill.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Kill {
    /// The last revision that was answered before it.
    pub(super) revision: i64,
    /// The writes that were acknowledged before it.
    pub(super) acknowledged: u64,
    /// The time until the store served again.
    pub(super) served_s: f64,
    /// The time until each client had a write acknowledged, on average.
    pub(super) written_s: f64,
}

/// An import.
pub(super) struct Copied {
    pub(super) version: String,
    pub(super) source: Listing,
    pub(super) revision: i64,
    pub(super) differences: Findings,
}

/// A restored snapshot.
pub(super) struct Restored {
    pub(super) from: i64,
    pub(super) to: i64,
    /// The last revision of the store that it was saved from.
    pub(super) used: i64,
    pub(super) keys: usize,
    pub(super) wrong: Findings,
    pub(super) compacted: bool,
}

/// All that a run gave.
pub(super) struct Outcome {
    pub(super) kills: Vec<Kill>,
    pub(super) counters: Counters,
    pub(super) audit: Audit,
    pub(super) restored: Restored,
    pub(super) imported: Option<Copied>,
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    seconds: f64,
    load: [f64; 2],
    kills: Vec<Kill>,
    audit: Value,
    restored: Value,
    imported: Value,
    requirements: Vec<Requirement>,
    notes: Vec<String>,
    story: Vec<String>,
    #[serde(skip)]
    words: Vec<String>,
}

impl Report {
    pub(super) fn of(outcome: Outcome, story: Vec<String>, time: Duration, load: [f64; 2]) -> Self {
        let Outcome { restored, imported, audit, counters, .. } = &outcome;
        let mut notes = Vec::new();
        if imported.is_none() {
            notes.push(
                "note: not shown is the import from an etcd, as none was found in PATH nor built \
                 by tests/engines/kube; --etcd FILE names one"
                    .to_owned(),
            );
        }
        let restored = json!({
            "from_revision": restored.from, "revision": restored.to, "keys": restored.keys,
            "differences": restored.wrong.count,
        });
        let imported = imported.as_ref().map(|copied| {
            json!({
                "etcd": copied.version, "from_revision": copied.source.revision,
                "revision": copied.revision, "keys": copied.source.keys.len(),
                "differences": copied.differences.count,
            })
        });
        Self {
            seconds: time.as_secs_f64(),
            load,
            audit: audited(audit, counters),
            restored,
            imported: imported.unwrap_or(Value::Null),
            requirements: requirements(&outcome),
            notes,
            story,
            words: words(&outcome),
            kills: outcome.kills,
        }
    }

    /// An error if a requirement that must hold is missed.
    pub(super) fn verdict(&self) -> CliResult {
        let wrong = Requirement::wrong(&self.requirements);
        if wrong.is_empty() { Ok(()) } else { Err(CliError::Failure(wrong.join("; "))) }
    }

    /// The tables for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let number = |name: &str| human_count(self.audit[name].as_u64().unwrap_or_default());
        let mut lines = vec![String::new()];
        let head = ["kill", "revision", "acknowledged before", "served after s", "writes after s"];
        let row = |(at, kill): (usize, &Kill)| {
            vec![
                (at + 1).to_string(),
                kill.revision.to_string(),
                human_count(kill.acknowledged),
                format!("{:.2}", kill.served_s),
                format!("{:.2}", kill.written_s),
            ]
        };
        let rows: Vec<_> = self.kills.iter().enumerate().map(row).collect();
        lines.extend(table(&head, &rows));
        lines.push(String::new());
        lines.push(format!(
            "audit: {} writes acknowledged, {} without an answer ({} had happened, {} had not)",
            number("acknowledged"),
            number("unknown"),
            number("unknown_applied"),
            number("unknown_absent"),
        ));
        lines.push(format!(
            "{} refused by their compare; {} events of five watches, resumed {} times; {} reads",
            number("conflicts"),
            number("events"),
            number("resumed"),
            number("reads"),
        ));
        lines.extend(self.words.iter().map(|word| format!("  {word}")));
        lines.push(String::new());
        lines.extend(Requirement::table(&self.requirements));
        lines.extend(self.notes.iter().cloned());
        let [before, after] = self.load;
        lines.push(format!("{:.1} s, load {before:.1} before and {after:.1} after.", self.seconds));
        lines
    }
}

fn audited(audit: &Audit, counters: &Counters) -> Value {
    json!({
        "acknowledged": audit.acknowledged,
        "unknown": audit.unknown_applied + audit.unknown_absent,
        "unknown_applied": audit.unknown_applied,
        "unknown_absent": audit.unknown_absent,
        "conflicts": counters.conflicts,
        "events": audit.events,
        "resumed": audit.resumed,
        "reads": audit.reads,
        "lost": audit.lost.count,
        "regressions": audit.regressions.count,
        "holes": audit.holes.count,
        "duplicates": audit.duplicates.count,
        "reordered": audit.reordered.count,
        "phantoms": audit.phantoms.count,
        "stale": audit.stale.count,
    })
}

/// The first findings of each kind.
fn words(outcome: &Outcome) -> Vec<String> {
    let Audit { lost, regressions, holes, duplicates, reordered, phantoms, stale, .. } =
        &outcome.audit;
    let copied = outcome.imported.as_ref().map(|copied| ("import", &copied.differences));
    let all = [
        ("lost", lost),
        ("revision", regressions),
        ("hole", holes),
        ("duplicate", duplicates),
        ("order", reordered),
        ("phantom", phantoms),
        ("stale", stale),
        ("restored", &outcome.restored.wrong),
    ];
    let all = all.into_iter().chain(copied);
    all.flat_map(|(kind, found)| found.words.iter().map(move |word| format!("{kind}: {word}")))
        .collect()
}

fn requirements(outcome: &Outcome) -> Vec<Requirement> {
    let mut all = vec![killed(&outcome.kills)];
    all.extend(of_audit(&outcome.audit));
    all.extend(of_restore(&outcome.restored));
    all.extend(outcome.imported.as_ref().map(of_import));
    let worst = outcome.kills.iter().map(|kill| kill.served_s).fold(0.0, f64::max);
    all.push(Requirement {
        name: "a killed store serves again within 1 s",
        must: false,
        met: worst <= SERVED_S,
        measured: format!("{worst:.2} s"),
    });
    all
}

/// A requirement that nothing of a kind was found.
fn none(name: &'static str, found: &[&Findings], of: String) -> Requirement {
    let count: u64 = found.iter().map(|one| one.count).sum();
    Requirement { name, must: true, met: count == 0, measured: format!("{count} of {of}") }
}

fn killed(kills: &[Kill]) -> Requirement {
    let first = kills.first().is_some_and(|kill| kill.acknowledged > 0);
    let later = kills.windows(2).filter(|pair| pair[1].acknowledged > pair[0].acknowledged);
    let under_load = usize::from(first) + later.count();
    Requirement {
        name: "it is killed under load and serves again, three times or more",
        must: true,
        met: under_load == kills.len() && under_load >= 3,
        measured: format!("{under_load} kills"),
    }
}

fn of_audit(audit: &Audit) -> [Requirement; 5] {
    let acknowledged = format!("{} acknowledged writes", human_count(audit.acknowledged));
    let events = format!("{} events", human_count(audit.events));
    [
        none("no acknowledged write is lost", &[&audit.lost], acknowledged.clone()),
        none(
            "revisions never go back",
            &[&audit.regressions],
            format!("{} answers", human_count(audit.acknowledged + audit.reads)),
        ),
        none(
            "watches have no hole, no event twice, none out of order",
            &[&audit.holes, &audit.duplicates, &audit.reordered],
            events.clone(),
        ),
        none("nothing is there that nobody wrote", &[&audit.phantoms], events),
        none(
            "reads and compares have the state of their revision",
            &[&audit.stale],
            format!("{} reads, {acknowledged}", human_count(audit.reads)),
        ),
    ]
}

fn of_restore(restored: &Restored) -> [Requirement; 2] {
    let Restored { from, to, used, keys, wrong, compacted } = restored;
    let answered = if *compacted { "compacted" } else { "served" };
    [
        none(
            "a snapshot under load restores to the state of its revision",
            &[wrong],
            format!("{} keys of revision {from}", human_count(*keys as u64)),
        ),
        Requirement {
            name: "a restore jumps above all used revisions; older ones are compacted",
            must: true,
            met: to > used && *compacted,
            measured: format!("{to} after {used}; old ones: {answered}"),
        },
    ]
}

fn of_import(copied: &Copied) -> Requirement {
    let Copied { version, source, revision, differences } = copied;
    Requirement {
        name: "an import equals its etcd, and begins above its revision",
        must: true,
        met: differences.count == 0 && *revision > source.revision && !source.keys.is_empty(),
        measured: format!(
            "{} of {} keys of etcd {version} differ; {revision} after {}",
            differences.count,
            human_count(source.keys.len() as u64),
            source.revision
        ),
    }
}
