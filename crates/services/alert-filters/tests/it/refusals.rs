//! Schemas of results that the bus refuses, as a registry does whose subject has another one: they
//! stop their own results, which are counted and named, and nobody else's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use helio_alert_filters::records::Summary;
use helio_alert_filters::{FilterTotals, summaries};
use helio_bus::transport::Record;
use helio_bus::{Bus, PublishError, SchemaText, SizeLimit, Tai, TestClock, TransportError};

use crate::support::faulty::Faulty;
use crate::support::{
    Alert, DETECTORS, Night, Process, RANKED, TOPIC, best, chosen, generated, header, results, sql,
    until_decided,
};

const PACKETS: &str = "SELECT * FROM alerts WHERE diaSource.snr > 6 ORDER BY diaSource.snr DESC";
const REASON: &str = "Schema being registered is incompatible with an earlier schema (409)";

fn with_clock(
    rule: impl Fn(&str, &Record<'_>) -> Option<PublishError> + Send + Sync + 'static,
    refuses: impl Fn(&str, &SchemaText) -> bool + Send + Sync + 'static,
) -> (TestClock, Bus) {
    let clock = TestClock::new(Tai::from_nanos(1_000_000_000_000_000));
    let builder = Bus::builder().clock(Arc::new(clock.clone()));
    let refused =
        move |topic: &str, schema: &SchemaText| refuses(topic, schema).then(|| REASON.to_owned());
    (clock, Faulty::over(builder, rule, refused).1)
}

/// Whether a schema is a record of the service's.
fn is_named(schema: &SchemaText, name: &str) -> bool {
    let schema: serde_json::Value = serde_json::from_str(&schema.text).unwrap();
    schema["name"] == name && schema["namespace"] == "helio.alerts"
        || schema["name"] == format!("helio.alerts.{name}")
}

fn summary(bus: &Bus, visit: usize) -> Summary {
    summaries(bus, TOPIC).unwrap().swap_remove(visit)
}

fn matching(alerts: &[Alert], is_match: impl Fn(f32) -> bool) -> BTreeSet<i64> {
    let found = alerts.iter().filter(|alert| alert.snr.is_some_and(&is_match));
    found.map(|alert| alert.id).collect()
}

#[test]
fn a_refused_schema_stops_its_users_results_only() {
    let refuses = Arc::new(AtomicBool::new(true));
    let is_refused = Arc::clone(&refuses);
    let (clock, bus) = with_clock(
        |_, _| None,
        move |topic, _| topic == "alerts/results/ada" && is_refused.load(Ordering::Relaxed),
    );
    let mut night = Night::new(&bus, generated(60));
    sql(&bus, "ada", "packets", PACKETS);
    sql(&bus, "bob", "columns", RANKED);
    sql(&bus, "cid", "any", "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 0");
    let mut totals = FilterTotals::new(&bus, TOPIC);
    totals.refresh().unwrap();
    let mut process = [Process::open(&bus)];
    let first = night.visit(0);
    until_decided(&mut process, 1);
    let wanted = best(&first, 6.0);
    assert_eq!(chosen(&bus, "bob")[&night.id(0)], wanted);
    let all: BTreeSet<i64> = chosen(&bus, "cid")[&night.id(0)].iter().copied().collect();
    let wanted_of_cid = matching(&first, |snr| snr > 0.0);
    assert!(all.is_subset(&wanted_of_cid) && all.len() == wanted_of_cid.len().min(20));
    // Nothing of it is lost in silence.
    assert!(results(&bus, "ada").is_empty());
    let Summary { filters, results: numbers, causes, .. } = summary(&bus, 0);
    let of = filters["ada"]["packets@1"];
    assert_eq!((of.refused, of.sent(), numbers["ada"]), (wanted.len() as u64, 0, 0));
    assert!(causes["ada"]["packets@1"].contains(REASON), "{causes:?}");
    assert!(causes["ada"]["packets@1"].contains("NONE"), "the remedy: {causes:?}");
    assert_eq!(filters["bob"]["columns@1"].sent(), wanted.len() as u64);
    assert_eq!((filters["bob"]["columns@1"].refused, causes.contains_key("bob")), (0, false));
    assert_eq!(process[0].count(|c| &c.results_refused), wanted.len() as u64);
    totals.refresh().unwrap();
    let sums = totals.filters[&("ada".to_owned(), "packets@1".to_owned())].sums;
    assert_eq!(sums.refused, wanted.len() as u64);
    // Another process finds the same, and sends nothing twice.
    drop(process);
    let mut process = [Process::open(&bus)];
    // The registry accepts it: so do the next visits, once its refusal is old.
    refuses.store(false, Ordering::Relaxed);
    clock.advance(Duration::from_secs(11));
    let second = night.visit(1);
    until_decided(&mut process, 1);
    assert_eq!(chosen(&bus, "ada")[&night.id(1)], best(&second, 6.0));
    assert_eq!(chosen(&bus, "ada").len(), 1);
    assert_eq!(chosen(&bus, "bob")[&night.id(1)], best(&second, 6.0));
    assert_eq!(chosen(&bus, "bob")[&night.id(0)], wanted);
    assert_eq!(summary(&bus, 1).filters["ada"]["packets@1"].refused, 0);
}

/// Of a user with two filters the one with an accepted schema sends its results.
#[test]
fn a_user_gets_what_has_an_accepted_schema() {
    let (_, bus) = with_clock(|_, _| None, |_, schema| is_named(schema, "Result"));
    let mut night = Night::new(&bus, generated(24));
    sql(&bus, "ada", "columns", "SELECT diaSourceId FROM alerts WHERE diaSource.snr > 8");
    sql(&bus, "ada", "packets", "SELECT * FROM alerts WHERE diaSource.snr <= 8");
    let mut process = [Process::open(&bus)];
    let alerts = night.visit(0);
    until_decided(&mut process, 1);
    let (sent, refused) = (matching(&alerts, |snr| snr <= 8.0), matching(&alerts, |snr| snr > 8.0));
    assert!(!sent.is_empty() && !refused.is_empty() && alerts.len() >= 20);
    let found: Vec<i64> = chosen(&bus, "ada")[&night.id(0)].clone();
    assert_eq!(found.len(), found.iter().collect::<BTreeSet<_>>().len());
    assert!(found.iter().all(|id| sent.contains(id)));
    let Summary { filters, results, causes, .. } = summary(&bus, 0);
    let [columns, packets] = ["columns@1", "packets@1"].map(|label| filters["ada"][label]);
    assert_eq!((packets.refused, packets.sent()), (0, found.len() as u64));
    assert_eq!(columns.sent(), 0);
    assert_eq!(columns.refused + columns.capped, refused.len() as u64);
    assert_eq!(columns.refused + packets.sent(), 20, "the cap counts what was chosen");
    assert_eq!(results["ada"], found.len() as u64);
    assert_eq!(causes["ada"].keys().collect::<Vec<_>>(), ["columns@1"]);
}

/// A packet is too large for the engine, and the schema of the reference in its place is refused.
#[test]
fn a_refused_reference_is_counted_and_nothing_comes_twice() {
    const MOST: usize = 300;
    let large = Arc::new(AtomicU64::new(0));
    let of = Arc::clone(&large);
    let too_large = move |topic: &str, record: &Record<'_>| {
        let alert: i64 = std::str::from_utf8(record.headers.get("alert")?).ok()?.parse().ok()?;
        let is_large = topic == "alerts/results/ada"
            && alert == of.load(Ordering::Relaxed) as i64
            && record.payload.len() > MOST;
        is_large.then(|| {
            PublishError::Transport(TransportError::TooLarge {
                what: "the payload",
                bytes: record.payload.len(),
                limit: SizeLimit::Bytes(MOST),
                transport: "faulty".to_owned(),
            })
        })
    };
    let (_, bus) = with_clock(too_large, |_, schema| is_named(schema, "Reference"));
    let mut night = Night::new(&bus, generated(60));
    sql(&bus, "ada", "packets", PACKETS);
    let mut process = [Process::open(&bus)];
    let mut expected = Vec::new();
    for visit in 0..2 {
        night.open(visit);
        let alerts = night.publish(visit, 0..DETECTORS);
        let mut of_visit = best(&alerts, 6.0);
        assert!(of_visit.len() > 3);
        large.store(of_visit[1] as u64, Ordering::Relaxed);
        night.close(visit);
        until_decided(&mut process, u64::from(visit) + 1);
        of_visit.remove(1);
        expected.push(of_visit);
    }
    let ids = [0, 1].map(|visit| night.id(visit));
    let found = || ids.map(|visit| chosen(&bus, "ada")[&visit].clone()).to_vec();
    assert_eq!(found(), expected);
    assert_eq!(process[0].count(|c| &c.results_refused), 2);
    assert_eq!(summary(&bus, 0).filters["ada"]["packets@1"].refused, 1);
    // A later process reads the topic from the checkpoint, which is not behind its end.
    drop(process);
    let mut other = [Process::open(&bus)];
    large.store(0, Ordering::Relaxed);
    let third = night.visit(2);
    until_decided(&mut other, 1);
    assert_eq!(chosen(&bus, "ada")[&night.id(2)], best(&third, 6.0));
    assert_eq!(found(), expected);
    let ranks: Vec<String> = results(&bus, "ada").iter().map(|r| header(r, "rank")).collect();
    assert_eq!(ranks[..2], ["1", "3"], "the place of the refused one stays empty");
}
