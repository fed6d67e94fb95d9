//! `helio log demo` and `helio bench logging`: every record is accounted for, by every consumer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::support::{Site, interrupted_in, run};
use serde_json::{Value, json};

/// One demo or bench at a time: each has up to two dozen processes, and clients that wait ten
/// seconds for what is late.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const DEMO: [&str; 6] = ["log", "demo", "--seconds", "2", "--rate", "4000"];

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn check_demo(report: &Value) {
    assert_eq!(report["unaccounted"], 0, "{report}");
    let offered = report["offered"].as_object().unwrap();
    let all: u64 = offered.values().map(|records| records.as_u64().unwrap()).sum();
    assert_eq!((all, &report["offered"]["EMERGENCY"]), (8_001, &json!(1)), "{report}");
    let consumers = report["consumers"].as_array().unwrap();
    let names: Vec<_> = consumers.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["operator", "developer", "viewer"]);
    for row in consumers {
        let count = |key: &str| row[key].as_u64().unwrap();
        let sum = count("delivered") + count("filtered") + count("shed") + count("lost");
        assert_eq!((sum + count("malformed"), count("offered")), (all, all), "{row}");
        assert!(row["urgent"] == true && row["urgent_ms"].as_f64().unwrap() > 0.0, "{row}");
        assert!(count("delivered") > 0, "{row}");
    }
    assert!(consumers[0]["filtered"].as_u64() > consumers[0]["delivered"].as_u64(), "{report}");
    assert_eq!(consumers[1]["filtered"], 0, "{report}");
}

#[test]
fn the_demo_accounts_for_every_record() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    check_demo(&run(&[&DEMO[..], &["--json", "--dir", path]].concat()).json());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn the_demo_s_story_and_its_table_are_for_people() {
    let _turn = turn();
    let text = run(&DEMO).ok();
    let parts = [
        "20 producers log, ",
        "SIGSTOP for the viewer",
        "an EMERGENCY, in the middle of the flood",
        "the producers are done: 8,001 records",
        "SIGCONT for the viewer",
        "consumer   offered  delivered  filtered",
        " ms, it hung",
    ];
    for part in parts {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn without_python_all_producers_are_in_rust_and_it_is_said() {
    let _turn = turn();
    let nothing = tempfile::tempdir().unwrap();
    let mut command = crate::support::helio();
    command.args(DEMO).arg("--json").env_remove("PYTHON").env("PATH", nothing.path());
    let report = crate::support::Ran::of(command.output().unwrap()).json();
    assert_eq!(report["producers"], "20 in Rust: no Python with heliograph found");
    check_demo(&report);
}

#[test]
fn a_python_that_was_asked_for_and_lacks_the_package_is_an_error() {
    let _turn = turn();
    let mut command = crate::support::helio();
    let output = command.args(DEMO).env("PYTHON", "/no/such/python").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("/no/such/python") && told.contains("unset PYTHON"), "{told}");
}

#[test]
fn an_interrupted_demo_or_bench_leaves_nothing() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    for args in [&["log", "demo"][..], &["bench", "logging", "--stalled", "1"]] {
        assert_eq!(interrupted_in(dir.path(), args), Some(130), "{args:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{args:?}");
    }
}

const BENCH: [&str; 5] = ["bench", "logging", "--json", "--seconds", "500ms"];

fn check_bench(report: &Value) {
    let count = |key: &str| report[key].as_u64().unwrap();
    assert_eq!(count("unaccounted"), 0, "{report}");
    assert_eq!(count("offered"), count("delivered") + count("dropped"), "{report}");
    assert!(report["records_per_s"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["bytes_per_record"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(keys(&report["cpu_us_per_record"]), ["producer", "path", "client"]);
    assert_eq!(keys(&report["cpu_s"]), keys(&report["rss_mb"]));
}

#[test]
fn the_bench_has_its_keys_and_its_books_close() {
    let _turn = turn();
    let args = ["--producers", "2", "--clients", "2", "--stalled", "1", "--rate", "6000"];
    let args = [&args[..], &["--urgent-every", "20ms"]].concat();
    let report = Site::new().run(&[&BENCH[..], &args].concat()).json();
    check_bench(&report);
    let all = [
        "workload",
        "url",
        "path",
        "producers",
        "clients",
        "stalled",
        "size_bytes",
        "batch",
        "rate_hz",
        "urgent_every_s",
        "seconds",
        "records_per_s",
        "cpu_s",
        "cpu_us_per_record",
        "pacing_us_per_record",
        "rss_mb",
        "bytes_per_record",
        "offered",
        "delivered",
        "dropped",
        "unaccounted",
        "urgent_us",
        "tail_us",
        "load",
        "version",
    ];
    assert_eq!(keys(&report), all);
    let processes = ["client-1", "client-2", "producer-1", "producer-2", "stalled-1"];
    assert_eq!(keys(&report["cpu_s"]), processes);
    // 25 urgent records are due in half a second, and half of 6,000 others.
    assert_eq!(report["offered"], 3_025, "{report}");
    assert!(report["pacing_us_per_record"].as_f64().unwrap() > 0.0, "{report}");
    let latency = ["mean", "stdev", "min", "p50", "p99", "p999", "max"];
    assert_eq!(
        (keys(&report["urgent_us"]), keys(&report["tail_us"])),
        (latency.into(), latency.into())
    );
    let bytes = report["bytes_per_record"].as_f64().unwrap();
    assert!(bytes > 300.0, "packets have something besides: {report}");
}

#[test]
fn the_bench_runs_without_a_client_and_as_fast_as_it_goes() {
    let _turn = turn();
    let args = ["--clients", "0", "--rate", "max", "--size", "64", "--batch", "500,5ms"];
    let report = Site::new().run(&[&BENCH[..], &args].concat()).json();
    check_bench(&report);
    assert_eq!((&report["tail_us"], &report["rate_hz"]), (&Value::Null, &Value::Null));
    assert_eq!((&report["batch"], &report["dropped"]), (&json!("500,5ms"), &json!(0)), "{report}");
    let report = Site::new().run(&[&BENCH[..], &["--rate", "max", "--batch", "1,1ms"]].concat());
    check_bench(&report.json());
}

#[test]
fn a_service_between_them_keeps_the_same_books() {
    let _turn = turn();
    let args = ["--path", "central", "--producers", "2", "--rate", "2000"];
    let report = Site::new().run(&[&BENCH[..], &args].concat()).json();
    check_bench(&report);
    assert_eq!(report["offered"], 1_005, "{report}");
    assert!(report["cpu_us_per_record"]["path"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(keys(&report["cpu_s"]), ["client-1", "path", "producer-1", "producer-2"]);
    assert!(!report["urgent_us"].is_null() && !report["tail_us"].is_null(), "{report}");
}

#[cfg(feature = "kafka")]
#[test]
fn kafka_has_the_same_books() {
    let _turn = turn();
    let Some(url) = crate::support::broker() else { return };
    check_demo(&run(&[&DEMO[..], &["--json", "--url", &url]].concat()).json());
    check_bench(&run(&[&BENCH[..], &["--rate", "2000", "--url", &url]].concat()).json());
}

#[cfg(feature = "dds")]
#[test]
fn dds_has_the_same_books() {
    let _turn = turn();
    let domain = crate::dds::domain();
    let url = format!("dds://{domain}?interface=lo&multicast=false");
    check_demo(&run(&[&DEMO[..], &["--json", "--url", &url]].concat()).json());
    let volatile = ["--qos", "durability=volatile", "--rate", "2000", "--url", &url];
    check_bench(&run(&[&BENCH[..], &volatile].concat()).json());
}
