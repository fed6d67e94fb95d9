//! Bad packets, filters that fail, and filters that match everything.

use helio_alert_filters::{FilterStore, Language, PythonOptions, Span, summaries};
use helio_alerts::generator::{GeneratorOptions, History};
use helio_bus::{Bus, Message, TopicSpec};

use crate::support::{
    DETECTORS, Night, Process, RANKED, TOPIC, best, chosen, generated, sql, until_decided,
};

#[test]
fn bad_packets_are_counted_and_the_others_stand() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    sql(&bus, "ada", "bright", RANKED);
    sql(&bus, "bob", "curve", "SELECT * FROM alerts WHERE last(prvDiaSources.snr) > -1e9");
    let mut process = [Process::open(&bus)];
    night.open(0);
    let alerts = night.publish(0, 0..DETECTORS);
    let topic = bus.topic(TopicSpec::new(TOPIC).unwrap()).unwrap();
    let publisher = topic.publisher().unwrap();
    let schema = helio_alerts::rubin::Version::LATEST.schema().id();
    let packet = &alerts[0].packet;
    // Not a packet, an unknown schema, and one cut at every fiftieth byte.
    let unknown = helio_bus::SchemaId(7);
    publisher.publish(Message::new(b"none").partition(0)).wait().unwrap();
    publisher.publish(Message::new(packet).schema(unknown).partition(0)).wait().unwrap();
    let cuts: Vec<usize> = (0..packet.len()).step_by(50).collect();
    for cut in &cuts {
        let message = Message::new(&packet[..*cut]).schema(schema).partition(0);
        publisher.publish(message).wait().unwrap();
    }
    night.close(0);
    until_decided(&mut process, 1);
    assert_eq!(chosen(&bus, "ada")[&night.id(0)], best(&alerts, 6.0));
    assert_eq!(chosen(&bus, "bob")[&night.id(0)].len(), 20);
    let rejected = process[0].count(|c| &c.alerts_rejected);
    assert!(rejected >= 10, "{rejected} of {}", cuts.len() + 2);
}

#[test]
fn a_filter_that_divides_by_zero_fails_for_its_alerts_only() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    let text = "SELECT * FROM alerts WHERE 10 / (diaSourceId - diaSourceId) > 1";
    sql(&bus, "ada", "zero", text);
    sql(&bus, "bob", "bright", RANKED);
    let mut process = [Process::open(&bus)];
    let alerts = night.visit(0);
    until_decided(&mut process, 1);
    let summary = &summaries(&bus, TOPIC).unwrap()[0];
    let of = summary.filters["ada"]["zero@1"];
    assert_eq!((of.alerts, of.errors, of.matches), (60, 60, 0));
    assert_eq!(chosen(&bus, "bob")[&night.id(0)], best(&alerts, 6.0));
}

#[test]
fn a_filter_that_matches_everything_costs_twenty_results() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(300));
    sql(&bus, "ada", "all", "SELECT * FROM alerts WHERE TRUE");
    sql(&bus, "bob", "all", "SELECT * FROM alerts WHERE TRUE ORDER BY diaSource.ra");
    let mut process = [Process::open(&bus)];
    let mut alerts = night.visit(0);
    until_decided(&mut process, 1);
    assert_eq!(chosen(&bus, "ada")[&night.id(0)].len(), 20);
    alerts.sort_by(|a, b| a.ra.total_cmp(&b.ra).then(a.id.cmp(&b.id)));
    let expected: Vec<i64> = alerts.iter().take(20).map(|alert| alert.id).collect();
    assert_eq!(chosen(&bus, "bob")[&night.id(0)], expected);
    let summary = &summaries(&bus, TOPIC).unwrap()[0];
    assert_eq!(summary.filters["ada"]["all@1"].capped, 280);
    assert_eq!(summary.filters["bob"]["all@1"].capped, 280);
}

/// Filters on a list that is gone do not run; the others do.
#[test]
fn a_filter_whose_list_is_removed_is_reported() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(60));
    let mut store = FilterStore::open(&bus, TOPIC).unwrap();
    store.put_region("r", vec![0..1 << 60, 1 << 60..helio_filter::MOC_CELLS]).unwrap();
    sql(&bus, "ada", "in", "SELECT * FROM alerts WHERE in_moc('r')");
    sql(&bus, "bob", "bright", RANKED);
    store.remove_list("r").unwrap();
    let mut process = [Process::open(&bus)];
    let alerts = night.visit(0);
    until_decided(&mut process, 1);
    let summary = &summaries(&bus, TOPIC).unwrap()[0];
    let of = summary.filters["ada"]["in@1"];
    assert!(of.failures > 0 && of.matches == 0, "{of:?}");
    assert!(summary.causes["ada"]["in@1"].contains('r'), "{:?}", summary.causes);
    assert!(!summary.causes.contains_key("bob"));
    assert_eq!(chosen(&bus, "bob")[&night.id(0)], best(&alerts, 6.0));
}

#[test]
fn a_history_of_a_hundred_thousand_points_is_read() {
    let bus = Bus::connect("memory:").unwrap();
    let long = GeneratorOptions { history: History::Points(100_000), ..generated(6) };
    let mut night = Night::new(&bus, long);
    night.visit(0);
    let mut store = FilterStore::open(&bus, TOPIC).unwrap();
    let text = "SELECT * FROM alerts WHERE count_if(prvDiaSources.midpointMjdTai > 0) >= 50000";
    let report = store.dry_run(Language::Sql, text, Span::default(), &PythonOptions::default());
    let report = report.unwrap();
    assert_eq!((report.alerts, report.rejected), (6, 0));
    assert!(report.column_bytes > 6 * 100_000 * 8, "{report:?}");
}
