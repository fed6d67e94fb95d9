//! `helio-alerts export`: the alerts of a night in files.

use std::path::Path;

use helio_alert_export::{
    Ended, Export, ExportError, ExportOptions, FilterQuery, Finding, Job, Observer, Outcome,
    Progress as Report, Selection, Stage, VisitReport,
};
use helio_alert_filters::{Contents, FilterStore, Language};
use helio_bus::Bus;
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::out::{Out, Progress};
use helio_console::stop::Stop;
use helio_console::units::human_count;
use serde::Serialize;

use crate::args::{ExportArgs, FilterName};
use crate::error;
use crate::filter::stored;

/// Shows progress on a terminal, and stops at a signal.
struct Shown<'s> {
    progress: Progress,
    stop: &'s Stop,
}

impl Observer for Shown<'_> {
    fn progress(&mut self, report: &Report) {
        self.progress.show(|| line(report));
    }

    fn stops(&self) -> bool {
        self.stop.asked()
    }
}

fn line(report: &Report) -> String {
    let Report { visits, visits_total, alerts, alerts_total, rows, files, .. } = *report;
    match report.stage {
        Stage::Exporting => format!(
            "{visits} of {visits_total} visits, {} of {} alerts read, {} exported, {files} files",
            human_count(alerts),
            human_count(alerts_total),
            human_count(rows)
        ),
        Stage::Verifying => {
            let of = report.bytes.max(1);
            format!("verifying: {} % of {files} files", report.verified_bytes * 100 / of)
        }
    }
}

/// Runs `helio-alerts export`.
pub(crate) fn run(args: &ExportArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = open::look(url)?;
    let visits = match args.night {
        Some(night) => Selection::Night(night),
        None => Selection::Visits(args.visit.iter().copied().collect()),
    };
    let stream = &args.stream.topic;
    let filter = args.filter.as_deref().map(|given| filter(given, stream, &bus)).transpose()?;
    let options = ExportOptions {
        format: args.format,
        compression: args.compression,
        columns: args.columns.clone(),
        stamps: args.stamps,
        filter,
        ..ExportOptions::default()
    };
    let job = Job { topic: args.stream.topic.clone(), visits, folder: args.to.clone() };
    let mut export = Export::open(&bus, job, options).map_err(failed)?;
    let mut shown = Shown { progress: Progress::new(), stop };
    let outcome = export.run(&mut shown).map_err(failed)?;
    drop(shown);
    let mut out = Out::new();
    if args.output.json {
        out.json(&Reported::new(&outcome))?
    } else {
        print(&outcome, &mut out)?
    }
    out.flush()?;
    result(&outcome)
}

/// A stored filter, a text, or that of a file.
fn filter(given: &str, stream: &str, bus: &Bus) -> CliResult<FilterQuery> {
    if let Some(path) = given.strip_prefix('@') {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| CliError::file(Path::new(path), &error))?;
        return Ok(FilterQuery { name: path.to_owned(), text, ..FilterQuery::default() });
    }
    let Ok(name) = given.parse::<FilterName>() else {
        return Ok(FilterQuery { text: given.to_owned(), ..FilterQuery::default() });
    };
    let store = FilterStore::open(bus, stream).map_err(error::filter_service)?;
    let version = stored(&store, &name)?;
    if version.language != Language::Sql {
        let text = format!("{} is in Python; an export takes queries", version.id());
        return Err(CliError::Refused(text));
    }
    let Contents { watch_lists, regions } = store.contents();
    let name = version.id().to_string();
    Ok(FilterQuery { name, text: version.text, regions, watch_lists })
}

/// A visit and what its export proves.
#[derive(Debug, Serialize)]
struct ReportedVisit<'a> {
    #[serde(flatten)]
    visit: &'a VisitReport,
    finding: Finding,
}

#[derive(Debug, Serialize)]
struct Reported<'a> {
    ended: &'a Ended,
    equal: bool,
    visits: Vec<ReportedVisit<'a>>,
    /// Visits without closing record.
    open: &'a [i64],
    lost: u64,
    totals: Report,
}

impl<'a> Reported<'a> {
    fn new(outcome: &'a Outcome) -> Self {
        let visit = |visit: &'a VisitReport| ReportedVisit { finding: visit.finding(), visit };
        Self {
            ended: &outcome.ended,
            equal: outcome.is_equal(),
            visits: outcome.visits.iter().map(visit).collect(),
            open: &outcome.open,
            lost: outcome.lost,
            totals: outcome.totals,
        }
    }
}

fn print(outcome: &Outcome, out: &mut Out) -> CliResult {
    outcome.visits.iter().try_for_each(|visit| out.line(&visit.to_string()))?;
    for visit in &outcome.open {
        out.line(&format!("visit {visit}: not closed, not exported; a later run adds it"))?;
    }
    let totals = &outcome.totals;
    let ended = match outcome.ended {
        Ended::Finished => "finished",
        Ended::Verified => "finished before; all files are as they were written",
        Ended::Stopped => "stopped; run it again to continue",
    };
    let alerts = human_count(totals.alerts);
    let rows = human_count(totals.rows);
    let (visits, files) = (totals.visits, totals.files);
    out.line(&format!(
        "{visits} visits, {alerts} alerts, {rows} exported in {files} files; {ended}"
    ))
}

/// An export that is stopped, or does not equal what was announced, is no success.
fn result(outcome: &Outcome) -> CliResult {
    if outcome.ended == Ended::Stopped {
        return Err(CliError::Left("run it again to continue".to_owned()));
    }
    if outcome.is_equal() {
        return Ok(());
    }
    let differ = outcome.visits.iter().filter(|visit| visit.finding() != Finding::Equal).count();
    let open = outcome.open.len();
    Err(CliError::Lost(format!(
        "{differ} visits are not equal to their manifests, {open} are not closed; see above"
    )))
}

fn failed(error: ExportError) -> CliError {
    let text = error.to_string();
    match error {
        ExportError::Topic(error) => error.into(),
        ExportError::Bus(error) => error.into(),
        ExportError::Options(_) | ExportError::Filter(_) | ExportError::Columns(_) => {
            CliError::Usage(text)
        }
        ExportError::NoVisits { .. } => CliError::NotFound(text),
        ExportError::Foreign(_)
        | ExportError::Other { .. }
        | ExportError::Locked(_)
        | ExportError::TooManyVisits { .. } => CliError::Refused(text),
        _ => CliError::Failure(text),
    }
}
