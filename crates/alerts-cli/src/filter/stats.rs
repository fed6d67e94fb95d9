//! `helio-alerts filter stats`: statistics of filters in decided visits.

use std::collections::{BTreeMap, BTreeSet};

use helio_alert_filters::records::Summary;
use helio_alert_filters::{VisitStatistics, summaries};
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::out::{Out, table};
use helio_console::units::human_count;
use serde::Serialize;

use super::edit::store;
use crate::args::StatsArgs;
use crate::error;

/// A filter in a visit. One that ran and found nothing has alerts, and no matches.
#[derive(Debug, Serialize)]
struct StatsLine<'a> {
    visit: i64,
    user: &'a str,
    filter: &'a str,
    #[serde(flatten)]
    of: &'a VisitStatistics,
    /// The matches that were sent.
    sent: u64,
    /// Why it failed, or why its results were refused.
    cause: Option<&'a str>,
}

/// A user in a visit.
#[derive(Debug, Serialize)]
struct UserLine<'a> {
    visit: i64,
    user: &'a str,
    results: u64,
    late: u64,
}

/// An active filter of which no visit is decided.
#[derive(Debug, Serialize)]
struct WaitingLine<'a> {
    user: &'a str,
    filter: &'a str,
    state: &'static str,
}

/// Runs `helio-alerts filter stats`.
pub(super) fn run(args: &StatsArgs, url: Option<&str>) -> CliResult {
    let decided = summaries(&open::look(url)?, &args.stream.topic);
    let mut decided = decided.map_err(error::filter_service)?;
    let waiting = waiting(args, url, &decided)?;
    match args.visit {
        Some(visit) => decided.retain(|summary| summary.visit == visit),
        None => _ = decided.drain(..decided.len().saturating_sub(args.visits)),
    }
    if let Some(visit) = args.visit.filter(|_| decided.is_empty()) {
        let text = format!("the visit {visit} is not decided by the filter service");
        return Err(CliError::NotFound(text));
    }
    let mut out = Out::new();
    if args.output.json {
        json(args, &decided, &waiting, &mut out)?;
    } else {
        print(args, &decided, &waiting, &mut out)?;
    }
    out.flush()
}

/// The active filters without statistics, by user and label.
fn waiting(
    args: &StatsArgs,
    url: Option<&str>,
    decided: &[Summary],
) -> CliResult<BTreeSet<(String, String)>> {
    let active = store(&args.stream, url)?.definitions().active_set();
    let mut waiting = BTreeSet::new();
    for (user, filters) in active.into_iter().filter(|(user, _)| is_wanted(args, user)) {
        for (name, version) in filters {
            let label = format!("{name}@{version}");
            let ran = |summary: &Summary| {
                summary.filters.get(&user).is_some_and(|filters| filters.contains_key(&label))
            };
            if !decided.iter().any(ran) {
                waiting.insert((user.clone(), label));
            }
        }
    }
    Ok(waiting)
}

fn is_wanted(args: &StatsArgs, user: &str) -> bool {
    args.user.as_deref().is_none_or(|wanted| wanted == user)
}

/// The filters of a visit.
fn lines<'a>(
    args: &'a StatsArgs,
    summary: &'a Summary,
) -> impl Iterator<Item = StatsLine<'a>> + 'a {
    let wanted = summary.filters.iter().filter(|(user, _)| is_wanted(args, user));
    wanted.flat_map(move |(user, filters)| {
        filters.iter().map(move |(filter, of)| {
            let cause = summary.causes.get(user).and_then(|of_user| of_user.get(filter));
            let (visit, sent) = (summary.visit, of.sent());
            StatsLine { visit, user, filter, of, sent, cause: cause.map(String::as_str) }
        })
    })
}

fn json(
    args: &StatsArgs,
    decided: &[Summary],
    waiting: &BTreeSet<(String, String)>,
    out: &mut Out,
) -> CliResult {
    for summary in decided {
        lines(args, summary).try_for_each(|line| out.json(&line))?;
        for user in summary.filters.keys().filter(|user| is_wanted(args, user)) {
            let of = |counts: &BTreeMap<String, u64>| counts.get(user).copied().unwrap_or(0);
            let (results, late) = (of(&summary.results), of(&summary.late));
            out.json(&UserLine { visit: summary.visit, user, results, late })?;
        }
    }
    waiting.iter().try_for_each(|(user, filter)| {
        out.json(&WaitingLine { user, filter, state: "no_visit_decided" })
    })
}

fn print(
    args: &StatsArgs,
    decided: &[Summary],
    waiting: &BTreeSet<(String, String)>,
    out: &mut Out,
) -> CliResult {
    let mut rows = Vec::new();
    let mut causes = BTreeMap::new();
    for line in decided.iter().flat_map(|summary| lines(args, summary)) {
        rows.push(row(&line));
        causes.extend(line.cause.map(|cause| ((line.user, line.filter), (line.visit, cause))));
    }
    let head = [
        "visit", "filter", "alerts", "matches", "sent", "capped", "refused", "errors", "failures",
        "ms",
    ];
    if !rows.is_empty() {
        table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
    }
    causes.into_iter().try_for_each(|((user, filter), (visit, cause))| {
        out.line(&format!("{user}/{filter} in visit {visit}: {cause}"))
    })?;
    waiting.iter().try_for_each(|(user, filter)| {
        out.line(&format!("{user}/{filter} is active; no visit with it is decided yet"))
    })
}

fn row(line: &StatsLine<'_>) -> Vec<String> {
    let StatsLine { visit, user, filter, of, sent, cause: _ } = line;
    let mut row = vec![visit.to_string(), format!("{user}/{filter}")];
    let counts = [of.alerts, of.matches, *sent, of.capped, of.refused, of.errors, of.failures];
    row.extend(counts.map(human_count));
    row.push(format!("{:.2}", of.cpu_ns as f64 * 1e-6));
    row
}
