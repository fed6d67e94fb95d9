//! `helio-alerts filter dry-run`: a filter over stored alerts, before it goes live.

use helio_alert_filters::dry_run::excesses;
use helio_alert_filters::records::Report;
use helio_alert_filters::{PythonOptions, Span};
use helio_bus::Tai;
use helio_console::error::CliResult;
use helio_console::out::Out;
use helio_console::units::{human_bytes, human_count};
use serde::Serialize;

use super::edit::{cost, store};
use super::text::{Text, stored};
use crate::args::DryRunArgs;
use crate::error;

#[derive(Debug, Serialize)]
struct DryRunLine<'a> {
    /// `null` of a text that is not stored.
    filter: Option<String>,
    #[serde(flatten)]
    report: &'a Report,
    selectivity: f64,
    cpu_of_visit_ns: u64,
    /// Why it may not go live without force.
    excesses: &'a [String],
}

/// Runs `helio-alerts filter dry-run`.
pub(super) fn run(args: &DryRunArgs, url: Option<&str>) -> CliResult {
    let mut store = store(&args.stream, url)?;
    let span = Span {
        from: args.night.map(|night| night.begin()),
        until: args.night.map(|night| night.end()),
        max_alerts: args.max_alerts,
    };
    let python = PythonOptions::of(&args.python.python);
    let (filter, report) = match (&args.filter, &args.text) {
        (Some(filter), _) => {
            let id = stored(&store, filter)?.id();
            let report = store.dry_run_version(&id, span, &python);
            (Some(id.to_string()), report)
        }
        (None, text) => {
            let text = Text::read(text.as_deref().unwrap_or_default(), &args.language)?;
            (None, store.dry_run(text.language, &text.text, span, &python))
        }
    };
    let report = report.map_err(error::filter_change)?;
    let excesses = excesses(&report);
    let mut out = Out::new();
    if args.output.json {
        out.json(&DryRunLine {
            filter,
            selectivity: report.selectivity(),
            cpu_of_visit_ns: u64::try_from(report.cpu_of_visit().as_nanos()).unwrap_or(u64::MAX),
            excesses: &excesses,
            report: &report,
        })?;
    } else {
        print(&report, &excesses, &mut out)?;
    }
    out.flush()
}

fn print(report: &Report, excesses: &[String], out: &mut Out) -> CliResult {
    let count = human_count;
    out.line(&format!(
        "{} of {} alerts match, {:.2} %; {} visits, {} matches at most in one",
        count(report.matches),
        count(report.alerts),
        report.selectivity() * 100.0,
        count(report.visits),
        count(report.most_matches)
    ))?;
    out.line(&format!(
        "a visit of 10,000 alerts: {:.2} ms of processor ({}), {} of columns",
        report.cpu_of_visit().as_secs_f64() * 1e3,
        cost(report.cost),
        human_bytes(report.bytes_of_visit() as f64)
    ))?;
    if report.errors + report.rejected > 0 {
        let (errors, rejected) = (count(report.errors), count(report.rejected));
        out.line(&format!("{errors} alerts with errors, {rejected} packets unreadable"))?;
    }
    if report.lost > 0 {
        let lost = count(report.lost);
        out.line(&format!("{lost} alerts are missing: retention or damage removed them"))?;
    }
    if let Some(before) = report.removed_before_ns {
        let before = Tai::from_nanos(before).to_utc_string();
        out.line(&format!("retention has removed alerts before {before}: not the whole night"))?;
    }
    match excesses {
        [] => out.line("within the limits"),
        excesses => excesses.iter().try_for_each(|e| out.line(&format!("beyond a limit: {e}"))),
    }
}
