//! The report: measurements beside the figures of LSST's testbed, and requirements.

use std::collections::{BTreeMap, BTreeSet};

use helio_console::error::{CliError, CliResult};
use helio_console::out::{table, text_table};
use helio_console::requirement::Requirement;
use helio_console::units::{human_bytes, human_count};
use serde::Serialize;

use super::args::Sizes;
use super::cast::Notes;
use super::messages::{Survey, UserResults};
use super::night::VisitFigures;
use super::texts::{Kind, Text};
use super::usage::Usage;

/// The most results of a user and visit.
const CAP: u64 = 20;
/// How soon after shutter close users have their alerts.
const RESULT_S: f64 = 60.0;
/// How soon a rewind gives the first alert.
const REWIND_S: f64 = 1.0;
/// Anonymous memory of a producer, and of a process of the filter service, megabytes.
const PRODUCER_MB: f64 = 200.0;
const FILTERS_MB: f64 = 500.0;
/// The most matches of a filter, as a part of the alerts.
const MOST_MATCHES: f64 = 0.11;

/// A figure of the testbed (DMTN-028) and its counterpart.
#[derive(Debug, Serialize)]
struct BesideSeed {
    figure: &'static str,
    seed: &'static str,
    here: String,
}

/// Statistics of the filters of a kind, of all visits.
#[derive(Debug, Default, Serialize)]
struct KindReport {
    filters: u64,
    /// The least and the greatest part of the alerts that a filter matched.
    match_rates: [f64; 2],
    /// Processor milliseconds of all of them for 10,000 alerts.
    cpu_ms: f64,
}

/// All that a run gave.
pub(super) struct Outcome<'a> {
    pub(super) sizes: Sizes,
    pub(super) url: &'a str,
    pub(super) visits: Vec<VisitFigures>,
    pub(super) notes: Notes,
    pub(super) used: BTreeMap<&'static str, Usage>,
    pub(super) texts: &'a [Text],
    pub(super) python: Result<(), String>,
    pub(super) audits: Vec<AuditLine>,
    pub(super) beside_stall: Option<u16>,
    pub(super) story: Vec<String>,
    pub(super) load: [f64; 2],
    pub(super) seconds: f64,
}

/// An audit of a visit.
#[derive(Debug, Serialize)]
pub(super) struct AuditLine {
    pub(super) visit: i64,
    /// The stored packets against manifests and closing record.
    pub(super) stored_equal: bool,
    pub(super) alerts: u64,
    /// Count and hash.
    pub(super) digest: String,
    /// Groups whose committed digests are equal.
    pub(super) groups_equal: u16,
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    url: String,
    seconds: f64,
    load: [f64; 2],
    visits: Vec<VisitFigures>,
    processes: BTreeMap<&'static str, Usage>,
    filters: BTreeMap<Kind, KindReport>,
    counters: BTreeMap<String, u64>,
    audits: Vec<AuditLine>,
    beside_seed: Vec<BesideSeed>,
    requirements: Vec<Requirement>,
    story: Vec<String>,
}

impl Report {
    pub(super) fn of(outcome: Outcome<'_>) -> Self {
        let filters = outcome.kinds();
        let requirements = outcome.requirements(&filters);
        let beside_seed = outcome.beside_seed();
        Self {
            url: outcome.url.to_owned(),
            seconds: outcome.seconds,
            load: outcome.load,
            visits: outcome.visits,
            processes: outcome.used,
            filters,
            counters: outcome.notes.counters,
            audits: outcome.audits,
            beside_seed,
            requirements,
            story: outcome.story,
        }
    }

    /// An error if a requirement that must hold is missed.
    pub(super) fn verdict(&self) -> CliResult {
        let wrong = Requirement::wrong(&self.requirements);
        if wrong.is_empty() { Ok(()) } else { Err(CliError::Lost(wrong.join("; "))) }
    }

    /// The tables for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![String::new()];
        let head = [
            "visit",
            "alerts",
            "bytes",
            "published s",
            "per second",
            "groups s",
            "results",
            "p50 s",
            "last s",
            "killed",
        ];
        let rows: Vec<_> = self.visits.iter().map(visit_row).collect();
        lines.extend(table(&head, &rows));
        lines.push(String::new());
        let head = ["processes", "started", "CPU s", "most MB", "all MB"];
        let row = |(role, used): (&&str, &Usage)| {
            let Usage { processes, cpu_s, most_anon_mb, most_total_mb } = used;
            let figures = [cpu_s, most_anon_mb, most_total_mb].map(|one| format!("{one:.1}"));
            [(*role).to_owned(), processes.to_string()].into_iter().chain(figures).collect()
        };
        lines.extend(table(&head, &self.processes.iter().map(row).collect::<Vec<_>>()));
        lines.push(String::new());
        let head =
            ["filters", "number", "least matches", "most matches", "CPU ms per 10,000 alerts"];
        let row = |(kind, of): (&Kind, &KindReport)| {
            let rates = of.match_rates.map(|rate| format!("{:.2} %", rate * 100.0));
            let head = [format!("{kind:?}"), of.filters.to_string()];
            head.into_iter().chain(rates).chain([format!("{:.2}", of.cpu_ms)]).collect()
        };
        lines.extend(table(&head, &self.filters.iter().map(row).collect::<Vec<_>>()));
        lines.push(String::new());
        let row =
            |one: &BesideSeed| vec![one.figure.to_owned(), one.seed.to_owned(), one.here.clone()];
        let rows: Vec<_> = self.beside_seed.iter().map(row).collect();
        lines.extend(text_table(&["figure", "DMTN-028", "here"], &rows));
        lines.push(String::new());
        for AuditLine { visit, stored_equal, alerts, digest, groups_equal } in &self.audits {
            let end = if *stored_equal { "equal to the manifests" } else { "DIFFERENT" };
            let alerts = human_count(*alerts);
            lines.push(format!(
                "audit of visit {visit}: {alerts} alerts, {digest}, {end}; {groups_equal} groups \
                 equal"
            ));
        }
        lines.push(String::new());
        lines.extend(Requirement::table(&self.requirements));
        let [before, after] = self.load;
        lines.push(format!(
            "{:.1} s, load {before:.1} before and {after:.1} after, on {}.",
            self.seconds, self.url
        ));
        lines
    }
}

fn visit_row(visit: &VisitFigures) -> Vec<String> {
    let per_s = visit.bytes as f64 / visit.published_s.max(1e-9);
    let killed: Vec<_> = visit.killed.iter().map(u16::to_string).collect();
    vec![
        visit.visit.to_string(),
        human_count(visit.alerts),
        human_bytes(visit.bytes as f64),
        format!("{:.2}", visit.published_s),
        human_bytes(per_s),
        format!("{:.2}", visit.read_s),
        human_count(visit.results),
        format!("{:.2}", visit.result_s[0]),
        format!("{:.2}", visit.result_s[2]),
        if killed.is_empty() { "-".to_owned() } else { killed.join(", ") },
    ]
}

impl Outcome<'_> {
    /// Each user's filter in each visit.
    fn ran(&self) -> impl Iterator<Item = (&Text, &UserResults)> {
        let visits = self.notes.results.values();
        visits.flat_map(|visit| {
            self.texts.iter().filter_map(|text| Some((text, visit.users.get(&text.user)?)))
        })
    }

    fn kinds(&self) -> BTreeMap<Kind, KindReport> {
        let mut kinds: BTreeMap<Kind, KindReport> = BTreeMap::new();
        for text in self.texts {
            let of = self.ran().filter(|(one, _)| one.user == text.user).map(|(_, ran)| ran);
            let (mut alerts, mut matches, mut cpu_ns) = (0, 0, 0);
            for ran in of {
                alerts += ran.filter.alerts;
                matches += ran.filter.matches;
                cpu_ns += ran.filter.cpu_ns;
            }
            let rate = matches as f64 / alerts.max(1) as f64;
            let kind = kinds.entry(text.kind).or_insert_with(|| KindReport {
                match_rates: [f64::INFINITY, 0.0],
                ..KindReport::default()
            });
            kind.filters += 1;
            kind.match_rates = [kind.match_rates[0].min(rate), kind.match_rates[1].max(rate)];
            kind.cpu_ms += cpu_ns as f64 * 1e-6 * 1e4 / alerts.max(1) as f64;
        }
        kinds
    }

    /// Visits without a kill and a stall: their figures are compared.
    fn undisturbed(&self) -> impl Iterator<Item = &VisitFigures> {
        let any = self.visits.iter().any(|visit| visit.killed.is_empty());
        self.visits.iter().filter(move |visit| visit.killed.is_empty() || !any)
    }

    fn mean(&self, of: impl Fn(&VisitFigures) -> f64) -> f64 {
        let count = self.undisturbed().count().max(1) as f64;
        self.undisturbed().map(of).sum::<f64>() / count
    }

    fn beside_seed(&self) -> Vec<BesideSeed> {
        let Sizes { producers, groups, members, .. } = self.sizes;
        let (alerts, bytes) = (self.mean(|v| v.alerts as f64), self.mean(|v| v.bytes as f64));
        let published = self.mean(|visit| visit.published_s);
        let read = self.mean(|visit| visit.read_s);
        let rate = |bytes: f64, s: f64| format!("{}/s", human_bytes(bytes / s.max(1e-9)));
        let of = format!("{} alerts, {}", human_count(alerts as u64), human_bytes(bytes));
        let one = |figure, seed, here| BesideSeed { figure, seed, here };
        vec![
            one(
                "a visit is published (here packets are made before)",
                "10,000 alerts: 33 s by 1 producer, 3.75 s by 100",
                format!("{of}: {published:.2} s by {producers}, {}", rate(bytes, published)),
            ),
            one(
                "all groups have read it",
                "10.8 s, 11 groups of 10 members, 10 partitions, 3 brokers",
                format!(
                    "{read:.2} s, {groups} groups of {members} members and the witness, {}",
                    rate(bytes * f64::from(groups + 1), read)
                ),
            ),
            one(
                "from the last publish to the last read",
                "0.16 to 0.30 s, 2 groups, 1,000 alerts",
                format!("{:.2} s", (read - published).max(0.0)),
            ),
            one(
                "a stalled reader",
                "11 groups on 1 partition: 2,068 s, and growing",
                self.beside_stall.map_or_else(
                    || "not shown".to_owned(),
                    |others| format!("{others} groups continue beside it"),
                ),
            ),
            one(
                "users' alerts",
                "100 filters of one cut, 20 at most by process (alert_stream: 5.28 s to the 20th)",
                format!(
                    "{} filters; {:.2} s median, {:.2} s last; 20 at most by user",
                    self.texts.len(),
                    self.mean(|visit| visit.result_s[0]),
                    self.mean(|visit| visit.result_s[2])
                ),
            ),
            one("loss", "none in 1,000,000 alerts", self.loss()),
        ]
    }

    /// Losses of readers, and the number of audits that found equal copies.
    fn loss(&self) -> String {
        let lost: u64 = self.notes.read.values().flatten().map(|one| one.lost).sum();
        let published: u64 = self.visits.iter().map(|visit| visit.alerts).sum();
        let equal = self.audits.iter().filter(|audit| audit.stored_equal).count();
        let groups: u16 = self.audits.iter().map(|audit| audit.groups_equal).sum();
        format!(
            "{lost} lost of {}; equal are {equal} of {} visits as stored, {groups} of {} of groups",
            human_count(published),
            self.audits.len(),
            self.audits.len() * usize::from(self.sizes.groups)
        )
    }

    fn requirements(&self, filters: &BTreeMap<Kind, KindReport>) -> Vec<Requirement> {
        let mut requirements = self.of_the_log();
        requirements.extend(self.of_disturbances());
        requirements.extend(self.of_the_users(filters));
        requirements.extend(self.of_resources());
        requirements
    }

    fn of_the_log(&self) -> Vec<Requirement> {
        let Sizes { visits, alerts, groups, .. } = self.sizes;
        let expected = u64::from(visits) * u64::from(alerts);
        let failed: u64 = self.visits.iter().map(|visit| visit.failed).sum();
        let published: u64 = self.visits.iter().map(|visit| visit.alerts).sum();
        let decided = || self.notes.decided.values();
        let verified = decided().filter(|one| one.complete && one.verified).count();
        let late: u64 = decided().map(|one| one.late).sum();
        let stored = self.audits.iter().filter(|audit| audit.stored_equal).count();
        let equal: u16 = self.audits.iter().map(|audit| audit.groups_equal).sum();
        let read = || self.notes.read.values().flatten();
        let lost: u64 = read().map(|one| one.lost).sum();
        // Copies of a killed producer are duplicates, or late behind a complete visit's end; that
        // all visits are complete is a requirement of its own.
        let is_copy = |cause: &str| matches!(cause, "duplicate" | "late");
        let bad = read().flat_map(|one| &one.dropped).filter(|(cause, _)| !is_copy(cause));
        let causes: Vec<String> = bad.clone().map(|(cause, n)| format!("{n} {cause}")).collect();
        let bad: u64 = bad.map(|(_, n)| n).sum();
        let all = usize::from(visits);
        vec![
            must(
                "every alert is published",
                (published, failed) == (expected, 0),
                format!("{} of {expected}, {failed} not accepted", human_count(published)),
            ),
            must(
                "every visit is complete, its count and hash are verified",
                verified == all && late == 0,
                format!("{verified} of {all} visits, {late} late alerts"),
            ),
            must(
                "the stored packets equal the manifests",
                stored == all,
                format!("{stored} of {all} visits"),
            ),
            must(
                "every group has verified every payload",
                equal == visits * groups,
                format!("{equal} of {} audits are equal", visits * groups),
            ),
            must(
                "nothing is lost, dropped or damaged",
                lost + bad == 0,
                format!("{lost} lost, {bad} dropped beside copies {}", causes.join(", ")),
            ),
        ]
    }

    /// Requirements beside kills, a stall and a rewind.
    fn of_disturbances(&self) -> Vec<Requirement> {
        let Sizes { visits, alerts, groups, .. } = self.sizes;
        let killed = self.visits.iter().flat_map(|visit| {
            visit.killed.iter().map(|detector| (visit.visit, i32::from(*detector)))
        });
        let killed: Vec<(i64, i32)> = killed.collect();
        let is_named = |(visit, detector): &&(i64, i32)| {
            let decided = self.notes.decided.get(visit);
            decided.is_some_and(|decided| decided.repeated.contains(detector))
        };
        let repeated = killed.iter().filter(is_named).count();
        let visits_again = u64::from(visits.saturating_sub(1).max(1));
        let rewound = self.notes.rewound.as_ref();
        let is_whole = rewound.is_some_and(|one| {
            let found = (one.is_first, one.alerts, one.verified);
            found == (true, visits_again * u64::from(alerts), visits_again)
        });
        let measured = rewound.map(|one| {
            let first = if one.is_first { "the first" } else { "NOT the first" };
            format!("{first} of visit {}; {} alerts again", one.visit, human_count(one.alerts))
        });
        vec![
            must(
                "killed producers publish again, counted as repeated",
                repeated == killed.len() && killed.len() == 3,
                format!("{repeated} of {} are named by the closing records", killed.len()),
            ),
            must(
                "a stalled member delays no other group",
                self.beside_stall == Some(groups - 1),
                format!("{} groups read on", self.beside_stall.unwrap_or_default()),
            ),
            must(
                "a rewind begins with the visit's first alert, and verifies all again",
                is_whole,
                measured.unwrap_or_else(|| "there was none".to_owned()),
            ),
        ]
    }

    fn of_the_users(&self, filters: &BTreeMap<Kind, KindReport>) -> Vec<Requirement> {
        let (users, visits) = (self.texts.len(), usize::from(self.sizes.visits));
        let distinct: BTreeSet<&str> = self.texts.iter().map(|one| one.text.as_str()).collect();
        let alerts = u64::from(self.sizes.alerts);
        let is_whole = |ran: &UserResults| ran.filter.alerts == alerts && ran.filter.failures == 0;
        let whole = self.ran().filter(|(_, ran)| is_whole(ran)).count();
        let python = self.ran().filter(|(text, _)| text.kind == Kind::Python);
        let python = python.filter(|(_, ran)| !is_whole(ran)).count();
        let exact = self.ran().filter(|(_, ran)| ran.received == ran.filter.matches.min(CAP));
        let exact = exact.count();
        let results = self.notes.results.values();
        let (differing, repeated) = results.clone().fold((0, 0), |(differing, repeated), visit| {
            (differing + visit.differing, repeated + visit.repeated)
        });
        let repeated = repeated + self.notes.excess_results;
        let total: u64 = self.ran().map(|(_, ran)| ran.received).sum();
        let oldest = results.map(|visit| visit.age_s[2]).fold(0.0, f64::max);
        let most = filters.values().map(|kind| kind.match_rates[1]).fold(0.0, f64::max);
        let all = users * visits;
        vec![
            must(
                "every filter sees every alert",
                whole == all && distinct.len() == users,
                format!("{whole} of {all} runs of {} distinct texts", distinct.len()),
            ),
            must(
                "filters in Python run",
                self.python.is_ok() && python == 0,
                match &self.python {
                    Ok(()) => format!("{python} runs failed"),
                    Err(reason) => reason.clone(),
                },
            ),
            must(
                "every user has all alerts that match, 20 at most a visit",
                exact == all && self.ran().count() == all,
                format!("{exact} of {all}, {} results", human_count(total)),
            ),
            must(
                "results are the packets with their stamps, each once",
                differing + repeated == 0 && total > 0,
                format!("{differing} differ, {repeated} came again"),
            ),
            must(
                "from shutter close to the user in 60 s",
                oldest < RESULT_S && total > 0,
                format!("{oldest:.2} s at most"),
            ),
            should(
                "filters match 0 to 10 % of the alerts",
                most <= MOST_MATCHES,
                format!("{:.2} % at most", most * 100.0),
            ),
        ]
    }

    fn of_resources(&self) -> Vec<Requirement> {
        let most = |role| self.used.get(role).map_or(f64::INFINITY, |used| used.most_anon_mb);
        let (producer, filters) = (most("producers"), most("filter service"));
        let rewound = self.notes.rewound.as_ref().map_or(f64::INFINITY, |one| one.seconds);
        vec![
            must(
                "a producer has less than 200 MB",
                producer < PRODUCER_MB,
                format!("{producer:.1} MB of anonymous memory at most"),
            ),
            must(
                "a process of the filter service has less than 500 MB",
                filters < FILTERS_MB,
                format!("{filters:.1} MB of anonymous memory at most"),
            ),
            should(
                "a rewind takes less than 1 s",
                rewound < REWIND_S,
                format!(
                    "{rewound:.3} s over {}",
                    human_bytes(self.visits.iter().map(|visit| visit.bytes as f64).sum())
                ),
            ),
        ]
    }
}

/// A requirement whose miss is an error.
fn must(name: &'static str, met: bool, measured: String) -> Requirement {
    Requirement { name, must: true, met, measured }
}

/// One whose miss is none: it depends on the machine and its load.
fn should(name: &'static str, met: bool, measured: String) -> Requirement {
    Requirement { name, must: false, met, measured }
}

/// The identifiers of all visits.
pub(super) fn visits(sizes: &Sizes) -> impl Iterator<Item = i64> {
    (0..sizes.visits).map(Survey::visit)
}
