//! `helio state demo`: kills under load, a restore and an import, and an audit without a finding;
//! `helio state bench`: every row is measured, and an absent peer is named.

use serde_json::Value;

use crate::support::{Ran, helio, interrupted_in, run};

fn check(report: &Value) {
    let audit = &report["audit"];
    let count = |name: &str| audit[name].as_u64().unwrap();
    for finding in ["lost", "regressions", "holes", "duplicates", "reordered", "phantoms", "stale"]
    {
        assert_eq!(count(finding), 0, "{finding}: {report}");
    }
    assert_eq!(count("unknown"), count("unknown_applied") + count("unknown_absent"), "{report}");
    assert!(count("acknowledged") > 100 && count("reads") > 0, "{report}");
    // Each write is seen by the watch of all keys and that of its kind.
    assert!(count("events") >= 2 * count("acknowledged"), "{report}");
    // Five watches outlive four kills; one that is killed before it is open again is not broken.
    assert!(count("resumed") > 0, "{report}");
    assert_eq!(report["kills"].as_array().unwrap().len(), 4, "{report}");
    assert_eq!(report["restored"]["differences"], 0, "{report}");
    let requirements = report["requirements"].as_array().unwrap();
    assert!(requirements.iter().all(|one| one["met"] == true || one["must"] == false), "{report}");
}

#[test]
fn the_demo_audits_a_store_that_is_killed_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let report = run(&["state", "demo", "--seconds", "2", "--json", "--dir", path]).json();
    check(&report);
    // Where an etcd is built, it is imported.
    if report["imported"].is_null() {
        crate::support::skipped("no etcd to import from: tests/engines/kube build");
    } else {
        assert_eq!(report["imported"]["differences"], 0, "{report}");
        assert!(report["imported"]["keys"].as_u64().unwrap() > 10, "{report}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn without_an_etcd_the_import_is_said_not_to_be_shown() {
    let nothing = tempfile::tempdir().unwrap();
    let mut command = helio();
    command.args(["state", "demo", "--seconds", "1"]);
    command.env("PATH", nothing.path()).env("XDG_CACHE_HOME", nothing.path());
    let text = Ran::of(command.output().unwrap()).ok();
    let parts = [
        "SIGKILL at revision ",
        "helio state restore: ",
        "no acknowledged write is lost",
        "note: not shown is the import from an etcd",
    ];
    for part in parts {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    assert!(!text.contains("an import equals") && !text.contains("MISSED"), "{text}");
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(interrupted_in(dir.path(), &["state", "demo"]), Some(130));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_etcd_that_is_not_there_is_an_error() {
    let ran = run(&["state", "demo", "--etcd", "/no/such/etcd"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("/no/such/etcd"), "{ran:?}");
}

#[test]
fn the_bench_measures_every_row_and_names_an_absent_peer() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = tempfile::tempdir().unwrap();
    let mut command = helio();
    command.args(["state", "bench", "--smoke", "--pods", "0,5", "--json", "--dir"]);
    command.arg(dir.path()).env("PATH", nothing.path()).env("XDG_CACHE_HOME", nothing.path());
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("helio: etcd is not run: "), "{ran:?}");
    let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let lines: Vec<_> = ran.out.lines().map(parse).collect();
    let (report, rows) = lines.split_last().unwrap();
    // Both of ours: a latency for each number of pods, full speed, memory.
    assert_eq!(rows.len(), 8, "{lines:?}");
    for row in report["latencies"].as_array().unwrap() {
        for what in ["put_us", "range_us", "event_us"] {
            assert!(row[what]["count"].as_u64().unwrap() > 0, "{what}: {row}");
        }
    }
    for row in report["rates"].as_array().unwrap() {
        assert_eq!(row["events"], 6_000.0, "{row}");
    }
    assert!(report["in_process"]["get_us"]["median"].as_f64().unwrap() > 0.0, "{report}");
    let absent = report["not_run"].to_string();
    assert!(absent.contains("etcd: ") && absent.contains("etcd-nofsync: "), "{absent}");
    let goals = report["goals"].as_array().unwrap();
    let beside_etcd = goals.iter().filter(|goal| goal["measured"] == "not measured");
    assert!(beside_etcd.count() >= 9, "{goals:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}
