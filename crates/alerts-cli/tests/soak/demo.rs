//! `helio-alerts demo`: nothing is lost, whatever is killed and stalled on the way.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{broker, python, ran, wait_for};

/// Programs find the requirements by these names.
const REQUIREMENTS: [&str; 17] = [
    "every alert is published",
    "every visit is complete, its count and hash are verified",
    "the stored packets equal the manifests",
    "every group has verified every payload",
    "nothing is lost, dropped or damaged",
    "killed producers publish again, counted as repeated",
    "a stalled member delays no other group",
    "a rewind begins with the visit's first alert, and verifies all again",
    "every filter sees every alert",
    "filters in Python run",
    "every user has all alerts that match, 20 at most a visit",
    "results are the packets with their stamps, each once",
    "from shutter close to the user in 60 s",
    "filters match 0 to 10 % of the alerts",
    "a producer has less than 200 MB",
    "a process of the filter service has less than 500 MB",
    "a rewind takes less than 1 s",
];

fn demo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_helio-alerts"));
    command.args(["demo", "--smoke"]).args(args).env_remove("HELIO_URL");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a small night; only requirements of this name may be missed.
fn report(args: &[&str], missed: &[&str]) -> Value {
    let ran = ran(demo(&[&["--json"], args].concat()).spawn().unwrap());
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    let requirements = report["requirements"].as_array().unwrap();
    let names: Vec<_> = requirements.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, REQUIREMENTS);
    for requirement in requirements.iter().filter(|one| one["must"] == true) {
        let may_miss = missed.contains(&requirement["name"].as_str().unwrap());
        assert_eq!(requirement["met"], !may_miss, "{requirement} of\n{report}");
    }
    let code = if missed.is_empty() { 0 } else { 5 };
    assert_eq!(ran.code, Some(code), "{}", ran.err);
    report
}

fn check(report: &Value) {
    let visits = report["visits"].as_array().unwrap();
    assert_eq!(visits.len(), 2, "{report}");
    assert!(visits.iter().all(|visit| visit["alerts"] == 500), "{report}");
    assert_eq!(visits[0]["killed"], json!([]), "{report}");
    assert_eq!(visits[1]["killed"].as_array().unwrap().len(), 3, "{report}");
    assert_eq!(report["processes"]["producers"]["processes"], 23, "{report}");
    assert_eq!(report["processes"]["groups"]["processes"], 7, "{report}");
    for kind in ["flat", "light_curve", "watch_list", "region", "python"] {
        let rates = &report["filters"][kind]["match_rates"];
        assert!(rates[1].as_f64().unwrap() > 0.0, "{kind} matches nothing: {report}");
    }
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().count() == 0
}

#[test]
fn a_small_night_loses_nothing() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    // Longer than a visit takes, except on a machine that is busy with other work.
    let report = report(&["--dir", dir, "--python", &python, "--cadence", "30s"], &[]);
    check(&report);
    let [first, second] = [0, 1].map(|n| report["visits"][n]["shutter_ns"].as_i64().unwrap());
    // The first is set after the clock was read, by which the second is due.
    assert!(second - first > 29_000_000_000, "shutters: {first} ns, {second} ns");
    assert!(is_empty(folder.path()), "nothing is left");
}

#[test]
fn without_python_its_filters_are_named_as_missed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let missed = ["filters in Python run", "every filter sees every alert"];
    let report = report(&["--dir", dir, "--python", "/nonexistent/python3"], &missed);
    let requirements = report["requirements"].as_array().unwrap();
    let python = requirements.iter().find(|one| one["name"] == missed[0]).unwrap();
    assert!(python["measured"].as_str().unwrap().contains("/nonexistent/python3"), "{python}");
}

#[test]
fn an_interrupted_night_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(&["--dir", folder.path().to_str().unwrap()]).spawn().unwrap();
    wait_for("the demo makes its folder", || (!is_empty(folder.path())).then_some(()));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(is_empty(folder.path()), "nothing is left");
}

#[test]
fn a_full_disk_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let ran = ran(demo(&["--dir", dir, "--visits", "1000", "--alerts", "100000"]).spawn().unwrap());
    assert_eq!((ran.code, ran.out.as_str()), (Some(4), ""), "{ran:?}");
    assert!(ran.err.contains("free, and the visits take"), "{}", ran.err);
    assert!(is_empty(folder.path()));
}

#[cfg(feature = "kafka")]
#[test]
fn kafka_has_the_same_night() {
    let (Some(python), Some(broker)) = (python(), broker()) else { return };
    check(&report(&["--url", &broker.url, "--python", &python], &[]));
}
