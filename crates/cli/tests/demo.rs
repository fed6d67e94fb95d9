//! `helio demo`: every sample is accounted for, whatever is killed on the way.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Ran, interrupted_in, run, shared_data};
use serde_json::Value;

fn check(ran: Ran) -> Value {
    let report = ran.json();
    assert_eq!(report["lost"], 0, "{report}");
    assert_eq!(report["duplicated"], 0, "{report}");
    assert_eq!(report["late_joiner"]["missing"], 0, "{report}");
    assert!(report["late_joiner"]["keys"].as_u64().unwrap() >= 4, "{report}");
    assert_eq!(report["restarted"]["incarnations"], serde_json::json!([1, 2]), "{report}");
    let topics = report["topics"].as_object().unwrap();
    for (name, topic) in topics {
        assert!(topic["received"].as_u64().unwrap() > 0, "{name}: {topic}");
        assert!(topic["rate_hz"].as_f64().unwrap() > 0.0, "{name}: {topic}");
        assert!(topic["latency_us"]["p99"].as_f64().unwrap() > 0.0, "{name}: {topic}");
    }
    let published: u64 = topics.values().map(|t| t["published"].as_u64().unwrap()).sum();
    assert_eq!(report["samples"], published);
    assert_eq!(report["burst"]["samples"], 10_000);
    report
}

#[test]
fn the_small_observatory_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    check(run(&["demo", "--seconds", "3", "--json", "--dir", path]));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn the_real_interfaces_and_alerts_take_its_place() {
    let Some(interfaces) = shared_data("sal-interfaces/v27.1.1") else { return };
    let Some(alerts) = shared_data("alerts/ztf-3_3.avro") else { return };
    let args = ["demo", "--seconds", "3", "--json"];
    let real = ["--interfaces", &interfaces, "--alerts", &alerts];
    check(run(&[&args[..], &real].concat()));
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(interrupted_in(dir.path(), &["demo"]), Some(130));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_table_is_for_people() {
    let text = run(&["demo", "--seconds", "2"]).ok();
    for part in ["forceActuatorData", "lost 0", "latency, mean < 25 ms", "Late joiner"] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let missed = text.lines().filter(|line| line.contains("  MISSED")).count();
    let told = format!("{missed} of 6 requirements MISSED: nothing is lost");
    assert_eq!(missed > 0, text.contains(&told), "a missed time is told, and no failure:\n{text}");
}
