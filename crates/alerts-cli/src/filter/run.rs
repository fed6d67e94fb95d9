//! `helio-alerts filter run`: a process of the filter service.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_alert_filters::records::Summary;
use helio_alert_filters::{Counters, FilterTotals, Options, PythonOptions, Service};
use helio_alert_serve::{Counter, counters_router};
use helio_bus::notify;
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::out::Out;
use helio_console::outage::wait_out;
use helio_console::stop::{Stop, Until};
use helio_console::units::human_count;
use helio_http::Limits;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::args::RunArgs;
use crate::{error, serve};

/// The time between two polls of decided visits.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// An event, as JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum RunLine<'a> {
    /// It runs.
    Started { stream: &'a str, group: &'a str, metrics: Option<String> },
    /// A visit was decided, by this process or by another one of the group.
    Visit {
        visit: i64,
        filters: usize,
        matches: u64,
        capped: u64,
        refused: u64,
        errors: u64,
        failures: u64,
        results: u64,
        late: u64,
    },
    /// Statistics of this process since its start.
    Counters(Map<String, Value>),
    /// The same, at its end.
    End(Map<String, Value>),
}

/// Runs `helio-alerts filter run`.
pub(crate) fn run(args: &RunArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let stream = &args.stream.topic[..];
    let options = Options {
        group: args.group.clone(),
        start: bus_start(args)?,
        python: PythonOptions::of(&args.python.python),
        ..Options::of(stream)
    };
    let listening = args.listen.as_ref().map(|address| {
        let failed = |error: std::io::Error| {
            CliError::Failure(format!("cannot listen at {address}: {error}"))
        };
        helio_http::listen(address, "filters-http", Limits::default()).map_err(failed)
    });
    let listening = listening.transpose()?;
    let waits = Until::new(args.end.duration, stop);
    let opened = wait_out(&waits, || {
        let bus = open::connect(url, args.producer.as_deref())?;
        let mut totals = FilterTotals::new(&bus, stream);
        totals.refresh().map_err(error::filter_service)?;
        let service = Service::start(&bus, &options).map_err(error::filter_service)?;
        Ok((bus, totals, service))
    })?;
    let Some((_bus, mut totals, service)) = opened else { return waits.result() };
    let metrics = listening.as_ref().map(|at| format!("http://{}/metrics", at.address()));
    let counters = service.counters();
    let _server = listening.map(|listening| {
        let (counters, limits) = (Arc::clone(&counters), listening.refusals());
        let numbers = move || [metered(&counters), serve::refusals(&limits)].concat();
        listening.serve(counters_router(Box::new(numbers)))
    });
    let mut out = Lines { out: Out::new(), is_json: args.output.json };
    out.line(&RunLine::Started { stream, group: &args.group, metrics })?;
    let until = Until::new(args.end.duration, stop);
    let (mut shown, mut trouble) = (Instant::now(), None);
    while !until.is_over() {
        match totals.refresh() {
            Ok(decided) => {
                trouble = None;
                decided.iter().try_for_each(|visit| out.line(&RunLine::of(visit)))?;
            }
            Err(error) => {
                let text = format!("decided visits cannot be read: {error}");
                // An outage is reported once.
                if trouble.as_ref() != Some(&text) {
                    notify(&text);
                }
                trouble = Some(text);
            }
        }
        if shown.elapsed() >= args.every {
            shown = Instant::now();
            out.line(&RunLine::Counters(numbers(&counters)))?;
        }
        std::thread::sleep(until.left().min(REFRESH_INTERVAL));
    }
    drop(service);
    out.line(&RunLine::End(numbers(&counters)))?;
    until.result()
}

/// The start of the group, of those that a bus has.
fn bus_start(args: &RunArgs) -> CliResult<helio_bus::Start> {
    use helio_alerts::reader::Start;
    match args.from {
        Start::Latest => Ok(helio_bus::Start::Latest),
        Start::Earliest => Ok(helio_bus::Start::Earliest),
        Start::Time(time) => Ok(helio_bus::Start::Time(time)),
        Start::Night(night) => Ok(helio_bus::Start::Time(night.begin())),
        _ => Err(CliError::Usage(
            "the service starts at latest, earliest, night:… or time:…".to_owned(),
        )),
    }
}

impl RunLine<'_> {
    fn of(summary: &Summary) -> Self {
        let all = || summary.filters.values().flat_map(|filters| filters.values());
        Self::Visit {
            visit: summary.visit,
            filters: all().count(),
            matches: all().map(|of| of.matches).sum(),
            capped: all().map(|of| of.capped).sum(),
            refused: all().map(|of| of.refused).sum(),
            errors: all().map(|of| of.errors).sum(),
            failures: all().map(|of| of.failures).sum(),
            results: summary.results.values().sum(),
            late: summary.late.values().sum(),
        }
    }

    fn text(&self) -> String {
        let count = |map: &Map<String, Value>, name: &str| {
            human_count(map.get(name).and_then(Value::as_u64).unwrap_or(0))
        };
        let numbers = |map| {
            let [alerts, matches, results] =
                ["alerts", "matches", "results"].map(|name| count(map, name));
            let role = if count(map, "is_publisher") == "1" { ", the publisher" } else { "" };
            format!("{alerts} alerts filtered, {matches} matches, {results} results{role}")
        };
        match self {
            Self::Started { stream, group, metrics } => {
                let metrics = metrics.as_ref().map(|at| format!("; metrics: {at}"));
                format!("filters {stream} as {group}{}", metrics.unwrap_or_default())
            }
            Self::Visit { visit, filters, matches, results, refused, failures, .. } => {
                let mut failed = String::new();
                failed.push_str(if *refused > 0 { ", REFUSED RESULTS" } else { "" });
                failed.push_str(if *failures > 0 { ", FAILURES" } else { "" });
                format!(
                    "visit {visit}: {filters} filters, {matches} matches, {results} results{failed}"
                )
            }
            Self::Counters(map) | Self::End(map) => numbers(map),
        }
    }
}

/// Standard output, written line by line.
struct Lines {
    out: Out,
    is_json: bool,
}

impl Lines {
    fn line(&mut self, line: &RunLine<'_>) -> CliResult {
        if self.is_json {
            self.out.json(line)?;
        } else {
            self.out.line(&line.text())?;
        }
        self.out.flush()
    }
}

fn numbers(counters: &Counters) -> Map<String, Value> {
    let values = counters.values().into_iter();
    values.map(|(name, _, value)| (name.to_owned(), value.into())).collect()
}

/// The counters as metrics.
fn metered(counters: &Counters) -> Vec<Counter> {
    let counter = |(name, help, value): (&'static str, &'static str, u64)| {
        let end = if name == "is_publisher" { "" } else { "_total" };
        Counter {
            name: format!("helio_alerts_filter_process_{name}{end}"),
            help: help.to_owned(),
            labels: Vec::new(),
            value: value as f64,
        }
    };
    counters.values().into_iter().map(counter).collect()
}
