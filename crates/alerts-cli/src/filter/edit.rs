//! Versions of filters, and what is active.

use helio_alert_filters::records::{Cost, Report};
use helio_alert_filters::{Checked, Delivery, FilterId, FilterStore, Force, Language, Version};
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::out::{Out, table};
use helio_core::Tai;
use serde::Serialize;

use super::text::{Text, stored};
use crate::args::{
    ActivateArgs, AddArgs, CheckArgs, DeactivateArgs, DeliverArgs, StreamArg, VersionsArgs,
};
use crate::error;

/// The filters of a stream.
pub(super) fn store(stream: &StreamArg, url: Option<&str>) -> CliResult<FilterStore> {
    FilterStore::open(&open::look(url)?, &stream.topic).map_err(error::filter_service)
}

/// A text that fits the stream.
#[derive(Debug, Serialize)]
struct CheckedLine<'a> {
    language: Language,
    cost: Cost,
    /// `null` for first come, first served.
    ranking: Option<&'a str>,
    packet: bool,
    columns: &'a [String],
}

/// Runs `helio-alerts filter check`.
pub(super) fn check(args: &CheckArgs, url: Option<&str>) -> CliResult {
    let Text { language, text } = Text::read(&args.text, &args.language)?;
    let mut store = store(&args.stream, url)?;
    let checked = store.check(language, &text);
    let checked = checked.map_err(|error| CliError::Refused(error.to_string()))?;
    let mut out = Out::new();
    if args.output.json {
        out.json(&CheckedLine {
            language,
            cost: checked.cost,
            ranking: checked.ranking(),
            packet: checked.is_packet(),
            columns: &checked.columns,
        })?;
    } else {
        describe(&checked, &mut out)?;
    }
    out.flush()
}

fn describe(checked: &Checked, out: &mut Out) -> CliResult {
    let ranking = checked.ranking().map_or_else(
        || "the first 20 of a visit, each at once".to_owned(),
        |ranking| format!("the best 20 of a visit by {ranking}"),
    );
    let result = if checked.is_packet() { "packets" } else { "columns" };
    out.line(&format!("valid: {} columns, {}", checked.columns.len(), cost(checked.cost)))?;
    out.line(&format!("reads    {}", checked.columns.join(", ")))?;
    out.line(&format!("returns  {result}: {ranking}"))
}

/// The cost class in words.
pub(super) fn cost(cost: Cost) -> &'static str {
    match cost {
        Cost::Flat => "flat columns",
        Cost::History => "light curves",
        Cost::Python => "Python",
    }
}

/// Runs `helio-alerts filter add`.
pub(super) fn add(args: &AddArgs, url: Option<&str>) -> CliResult {
    let filter = &args.filter;
    if filter.version.is_some() {
        let text = "the version is the next one; write USER/NAME".to_owned();
        return Err(CliError::Usage(text));
    }
    let Text { language, text } = Text::read(&args.text, &args.language)?;
    let added = store(&args.stream, url)?.add(&filter.user, &filter.name, language, &text);
    let version = added.map_err(error::filter_change)?;
    let mut out = Out::new();
    if args.output.json {
        out.json(&version)?;
    } else {
        out.line(&version.id().to_string())?;
    }
    out.flush()
}

/// A version that is active.
#[derive(Debug, Serialize)]
struct ActiveLine<'a> {
    active: &'a str,
    user: &'a str,
    name: &'a str,
    version: u32,
    forced: bool,
}

/// Runs `helio-alerts filter activate`.
pub(super) fn activate(args: &ActivateArgs, url: Option<&str>) -> CliResult {
    let mut store = store(&args.stream, url)?;
    let id = stored(&store, &args.filter)?.id();
    let force = if args.force { Force::Yes } else { Force::No };
    store.activate(&id, force).map_err(error::filter_change)?;
    let mut out = Out::new();
    if args.output.json {
        out.json(&ActiveLine {
            active: "next_visit",
            user: &id.user,
            name: &id.name,
            version: id.version,
            forced: args.force,
        })?;
    } else {
        out.line(&format!("{id} is active from the next visit on"))?;
    }
    out.flush()
}

/// Runs `helio-alerts filter deactivate`.
pub(super) fn deactivate(args: &DeactivateArgs, url: Option<&str>) -> CliResult {
    let (user, name) = (&args.filter.user, &args.filter.name);
    store(&args.stream, url)?.deactivate(user, name).map_err(error::filter_change)
}

/// Runs `helio-alerts filter deliver`.
pub(super) fn deliver(args: &DeliverArgs, url: Option<&str>) -> CliResult {
    let delivery = Delivery { format: args.format.into(), content: args.content.into() };
    store(&args.stream, url)?.set_delivery(&args.user, delivery).map_err(error::filter_change)
}

/// A version with its state.
#[derive(Debug, Serialize)]
struct VersionLine<'a> {
    #[serde(flatten)]
    version: &'a Version,
    active: bool,
    report: Option<&'a Report>,
}

/// Runs `helio-alerts filter versions`.
pub(super) fn versions(args: &VersionsArgs, url: Option<&str>) -> CliResult {
    let store = store(&args.stream, url)?;
    let definitions = store.definitions();
    let is_active = |id: &FilterId| {
        let active = definitions.active(&id.user);
        active.is_some_and(|active| active.filters.get(&id.name) == Some(&id.version))
    };
    let (mut out, mut rows) = (Out::new(), Vec::new());
    for (id, version) in definitions.versions(args.user.as_deref()) {
        let report = definitions.report(id);
        if args.output.json {
            out.json(&VersionLine { version, active: is_active(id), report })?;
            continue;
        }
        rows.push(row(version, is_active(id), report));
        if args.texts {
            out.line(&format!("-- {id}"))?;
            out.line(version.text.trim_end())?;
        }
    }
    if !args.output.json {
        let head = ["filter", "language", "added", "state", "matches", "ms a visit"];
        table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}

fn row(version: &Version, is_active: bool, report: Option<&Report>) -> Vec<String> {
    let language = match version.language {
        Language::Sql => "sql",
        Language::Python => "python",
    };
    let none = || "-".to_owned();
    let added = Tai::from_nanos(version.added_ns).to_utc_string();
    vec![
        version.id().to_string(),
        language.to_owned(),
        added.split('.').next().unwrap_or_default().to_owned(),
        if is_active { "active".to_owned() } else { none() },
        report.map_or_else(none, |report| format!("{:.2} %", report.selectivity() * 100.0)),
        report.map_or_else(none, |report| {
            format!("{:.2}", report.cpu_of_visit().as_secs_f64() * 1e3)
        }),
    ]
}
