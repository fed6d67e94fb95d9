//! Metrics of the filter service, read from its topics, whatever process runs it.

use std::sync::{Mutex, PoisonError};

use helio_alert_filters::FilterTotals;
use helio_alert_filters::totals::FilterTotal;
use helio_alert_serve::{Counter, CounterSource};
use helio_bus::{Bus, notify};

type Labels = Vec<(&'static str, String)>;

/// A number of a filter: name, description, and where it is.
type OfFilter = (&'static str, &'static str, fn(&FilterTotal) -> f64);

const OF_FILTERS: [OfFilter; 9] = [
    ("visits_total", "Decided visits in which a filter was active.", |of| of.visits as f64),
    ("capped_visits_total", "Those of them in which the cap left matches out.", |of| {
        of.capped_visits as f64
    }),
    ("alerts_total", "Alerts that a filter saw.", |of| of.sums.alerts as f64),
    ("matches_total", "Alerts that matched a filter.", |of| of.sums.matches as f64),
    ("capped_total", "Matches that the cap left out.", |of| of.sums.capped as f64),
    ("refused_total", "Chosen matches that the bus refused: not sent.", |of| {
        of.sums.refused as f64
    }),
    ("errors_total", "Alerts in which an operation of a filter failed.", |of| {
        of.sums.errors as f64
    }),
    ("failures_total", "Batches in which a filter failed, or did not run.", |of| {
        of.sums.failures as f64
    }),
    ("cpu_seconds_total", "Processor time of a filter, seconds.", |of| {
        of.sums.cpu_ns as f64 * 1e-9
    }),
];

/// The sums over the visits that are decided from now on, read at each call.
pub(crate) fn source(bus: &Bus, stream: &str) -> CounterSource {
    let mut totals = FilterTotals::new(bus, stream);
    refresh(&mut totals);
    let totals = Mutex::new(totals);
    Box::new(move || {
        // Each number is whole, whatever a thread that panicked has left.
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        refresh(&mut totals);
        counters(&totals)
    })
}

fn refresh(totals: &mut FilterTotals) {
    if let Err(error) = totals.refresh() {
        notify(&format!("the filter service's topics cannot be read: {error}"));
    }
}

fn counters(totals: &FilterTotals) -> Vec<Counter> {
    let counter = |name: &str, help: &str, labels: Labels, value: f64| Counter {
        name: format!("helio_alerts_filter_{name}"),
        help: help.to_owned(),
        labels,
        value,
    };
    let help = "Visits that the filter service decided.";
    let mut counters = vec![
        counter("decided_total", help, Vec::new(), totals.visits as f64),
        counter("active", "Filters that are active.", Vec::new(), totals.active as f64),
    ];
    for (name, help, value) in OF_FILTERS {
        counters.extend(totals.filters.iter().map(|((user, filter), of)| {
            let labels = vec![("user", user.clone()), ("filter", filter.clone())];
            counter(name, help, labels, value(of))
        }));
    }
    let labels = |user: &String| vec![("user", user.clone())];
    let help = "Results of a user.";
    let users = || totals.users.iter();
    counters.extend(
        users().map(|(user, of)| counter("results_total", help, labels(user), of.results as f64)),
    );
    let help = "Matches of a user that came after their visit's end.";
    counters.extend(
        users().map(|(user, of)| counter("late_total", help, labels(user), of.late as f64)),
    );
    counters
}
