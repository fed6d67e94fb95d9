//! `helio demo`: every sample and every command is accounted for, whatever is killed on the way.

use crate::support::{Ran, interrupted_in, run, shared_data};
use serde_json::json;

fn check(ran: Ran, camera: &str) {
    let report = ran.json();
    for requirement in report["requirements"].as_array().unwrap() {
        let fulfilled = requirement["met"] == true || requirement["must"] == false;
        assert!(fulfilled, "{requirement} of\n{report}");
    }
    assert_eq!((&report["lost"], &report["duplicated"]), (&json!(0), &json!(0)), "{report}");
    assert_eq!(report["log"]["unaccounted"], 0, "{report}");
    assert!(report["log"]["records"].as_u64().unwrap() > 20, "{report}");
    assert_eq!(report["late_joiner"]["missing"], 0, "{report}");
    assert!(report["late_joiner"]["keys"].as_u64().unwrap() >= 20, "{report}");
    assert_eq!(report["restarted"]["incarnations"], json!([1, 2]), "{report}");
    assert!(report["restarted"]["topics"].as_u64().unwrap() >= 5, "{report}");
    let refused = report["second_instance"].as_str().unwrap();
    assert!(refused.starts_with(&format!("{camera}:1 runs already: process")), "{refused}");
    assert!(report["nobody_there_ms"].as_f64().is_some(), "{report}");
    let topics = report["topics"].as_object().unwrap();
    for (name, topic) in topics {
        assert!(topic["received"].as_u64().unwrap() > 0, "{name}: {topic}");
        assert!(topic["latency_us"]["p99"].as_f64().unwrap() > 0.0, "{name}: {topic}");
    }
    let published: u64 = topics.values().map(|t| t["published"].as_u64().unwrap()).sum();
    let others = report["others"]["samples"].as_u64().unwrap();
    assert_eq!(report["samples"], published + others);
    assert_eq!(report["burst"]["samples"], 10_000);
    let commands = &report["commands"];
    for fault in ["unexpected", "unrecorded", "unacknowledged", "unaudited"] {
        assert_eq!(commands[fault], 0, "{fault} of {commands}");
    }
    assert!(report["targets"]["followed"].as_u64().unwrap() >= 2, "{report}");
    assert_eq!(report["states"].as_object().unwrap().len(), 5, "{report}");
    let requirements = report["requirements"].as_array().unwrap();
    let names: Vec<_> = requirements.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, REQUIREMENTS);
}

/// Programs find the requirements by these names.
const REQUIREMENTS: [&str; 13] = [
    "nothing is lost, nothing comes twice",
    "a late joiner has the newest event of every key",
    "every command ends as it should",
    "every command and its end is in the audit",
    "a second instance is refused",
    "after a kill the numbering goes on",
    "components go home when told to",
    "latency, mean < 25 ms",
    "latency, standard deviation < 3 ms",
    "nobody there: told within 100 ms",
    "more than 3 MB/s a topic",
    "consumers keep up",
    "the whole system's schedule is kept",
];

#[test]
fn the_small_observatory_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    check(run(&["demo", "--seconds", "3", "--json", "--dir", path]), "Camera");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn the_real_interfaces_and_alerts_take_its_place() {
    let Some(interfaces) = shared_data("sal-interfaces/v27.1.1") else { return };
    let Some(alerts) = shared_data("alerts/ztf-3_3.avro") else { return };
    let args = ["demo", "--seconds", "3", "--json"];
    let real = ["--interfaces", &interfaces, "--alerts", &alerts];
    check(run(&[&args[..], &real].concat()), "GenericCamera");
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(interrupted_in(dir.path(), &["demo"]), Some(130));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_story_and_the_table_are_for_people() {
    let text = run(&["demo", "--seconds", "2"]).ok();
    let parts = [
        "5 components from STANDBY to ENABLED",
        "Camera:1 refuses takeImages of 0 images: numImages is 0",
        "a second Camera:1 is started: Camera:1 runs already",
        "nobody there: MTMount is not running",
        "MTMount    (ENABLED)  gone",
        "MTMount is ENABLED and tracks again",
        "MTM1M3/telemetry/forceActuatorData",
        "0 lost and 0 twice",
    ];
    for part in parts {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let missed = text.lines().filter(|line| line.contains("  MISSED")).count();
    let told = format!("{missed} of 13 requirements MISSED: nothing is wrong");
    assert_eq!(missed > 0, text.contains(&told), "a missed time is told, and no failure:\n{text}");
}

/// What an earlier run has left on a bus is not counted, and numbers go on from there.
#[test]
fn it_plays_twice_on_one_bus() {
    let site = crate::support::Site::new();
    site.run(&["demo", "--seconds", "2"]).ok();
    let report = site.run(&["demo", "--seconds", "2", "--json"]).json();
    assert_eq!(report["restarted"]["incarnations"], json!([3, 4]), "{report}");
    assert_eq!(report["lost"], 0, "{report}");
}

/// The same night with the same table.
#[cfg(feature = "kafka")]
#[test]
fn kafka_has_the_same_night() {
    let Some(url) = crate::support::broker() else { return };
    same_night(&run(&["demo", "--url", &url, "--seconds", "3", "--json"]).json());
}

/// The same on DDS, with a durability service of the demo's own.
#[cfg(feature = "dds")]
#[test]
fn dds_has_the_same_night() {
    let domain = crate::dds::domain();
    let url = format!("dds://{domain}?interface=lo&multicast=false");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let args = ["demo", "--url", &url, "--seconds", "3", "--json", "--dir", path];
    let Ran { code, out, err } = run(&args);
    // On a loaded machine a writer may wait for the component that the demo has killed.
    let other = err.lines().find(|line| !line.contains("waits for the DDS session"));
    assert_eq!((code, other), (Some(0), None), "{out}");
    let report = serde_json::from_str(&out).unwrap();
    same_night(&report);
    let told = "no durability service is there: one of this demo's own, which ends with it";
    let story = report["story"].as_array().unwrap();
    assert!(story.iter().any(|line| line.as_str().unwrap().contains(told)), "{report}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

/// The same table, but for figures of time and for incarnations, which are places or times here.
#[cfg(any(feature = "dds", feature = "kafka"))]
fn same_night(report: &serde_json::Value) {
    for requirement in report["requirements"].as_array().unwrap() {
        let fulfilled = requirement["met"] == true || requirement["must"] == false;
        assert!(fulfilled, "{requirement} of\n{report}");
    }
    assert_eq!((&report["lost"], &report["duplicated"]), (&json!(0), &json!(0)), "{report}");
    assert_eq!(report["late_joiner"]["missing"], 0, "{report}");
    let lives = report["restarted"]["incarnations"].as_array().unwrap();
    assert!(lives.len() == 2 && lives[0].as_u64() < lives[1].as_u64(), "{report}");
    for fault in ["unexpected", "unrecorded", "unacknowledged", "unaudited"] {
        assert_eq!(report["commands"][fault], 0, "{fault} of {report}");
    }
    assert_eq!(report["states"].as_object().unwrap().len(), 5, "{report}");
}
