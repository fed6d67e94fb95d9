//! `helio bench latency` and `throughput`: the keys of the benchmarks' page, and nothing lost.

use crate::support::{Site, interrupted_in, run, shared_data};
use serde_json::Value;

const KEYS: [&str; 16] = [
    "workload",
    "url",
    "payload_bytes",
    "rate_hz",
    "count",
    "received",
    "lost",
    "duplicated",
    "latency_us",
    "write_per_s",
    "read_per_s",
    "cpu_s",
    "rss_mb",
    "load",
    "version",
    "receipt",
];

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn latency_has_its_keys() {
    let args =
        ["bench", "latency", "--rate", "1000", "--count", "100", "--payload", "64", "--json"];
    let report = Site::new().run(&args).json();
    assert_eq!(keys(&report), KEYS);
    assert_eq!(keys(&report["latency_us"]), ["mean", "stdev", "min", "p50", "p99", "p999", "max"]);
    assert_eq!(keys(&report["cpu_s"]), ["publisher", "subscriber"]);
    let number = |key: &str| report[key].as_u64().unwrap();
    assert_eq!((number("count"), number("received")), (100, 100));
    assert_eq!((number("lost"), number("duplicated"), number("payload_bytes")), (0, 0, 64));
    assert_eq!(
        (report["workload"].as_str(), report["receipt"].as_str()),
        (Some("latency"), Some("stored"))
    );
}

#[test]
fn throughput_has_its_keys() {
    let args = ["bench", "throughput", "--count", "20000", "--payload", "256", "--json"];
    let report = Site::new().run(&args).json();
    assert_eq!(keys(&report), KEYS);
    assert_eq!((report["received"].as_u64(), report["lost"].as_u64()), (Some(20_000), Some(0)));
    assert!(report["write_per_s"].as_f64().unwrap() > 0.0);
    assert!(report["latency_us"]["max"].as_f64().unwrap() > 0.0);
}

#[test]
fn writers_readers_batches_and_guarantees_can_be_chosen() {
    let site = Site::new();
    let args = ["bench", "throughput", "--count", "2000", "--writers", "2", "--readers", "2"];
    let more = ["--stalled", "1", "--batch", "50", "--json"];
    let report = site.run(&[&args[..], &more].concat()).json();
    assert_eq!((report["count"].as_u64(), report["received"].as_u64()), (Some(4_000), Some(4_000)));
    assert_eq!((report["writers"].as_u64(), report["stalled"].as_u64()), (Some(2), Some(1)));
    let args = ["bench", "throughput", "--count", "50", "--guarantee", "durable", "--window", "1"];
    let report = site.run(&[&args[..], &["--json"]].concat()).json();
    assert_eq!(
        (report["received"].as_u64(), report["receipt"].as_str()),
        (Some(50), Some("durable"))
    );
}

#[test]
fn without_a_bus_a_fresh_journal_is_made_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "throughput", "--count", "100", "--json", "--dir"];
    run(&[&args[..], &[dir.path().to_str().unwrap()]].concat()).json();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_interrupted_bench_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for bench in [&["latency", "--count", "100000"][..], &["floor", "--count", "100000"]] {
        let args = [&["bench"][..], bench].concat();
        assert_eq!(interrupted_in(dir.path(), &args), Some(130), "{args:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{args:?}");
    }
}

#[test]
fn real_messages_are_encoded_and_decoded() {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/interfaces");
    let real = shared_data("sal-interfaces/v27.1.1");
    for folder in [Some(own.to_owned()), real].into_iter().flatten() {
        for topic in ["MTM1M3_forceActuatorData", "MTMount/command/trackTarget"] {
            let args = ["bench", "latency", "--rate", "500", "--count", "50", "--json"];
            let typed = ["--interfaces", &folder, "--topic", topic];
            let report = Site::new().run(&[&args[..], &typed].concat()).json();
            assert_eq!((report["received"].as_u64(), report["lost"].as_u64()), (Some(50), Some(0)));
            assert_eq!(report["topic"], topic);
        }
    }
}

#[test]
fn late_joiners_have_every_key() {
    let args = ["bench", "join", "--keys", "500", "--updates", "3", "--joins", "2", "--json"];
    let report = Site::new().run(&args).json();
    assert_eq!((report["received"].as_u64(), report["lost"].as_u64()), (Some(500), Some(0)));
    assert_eq!(keys(&report["join_ms"]), ["min", "p50", "max"]);
    assert!(report["join_ms"]["min"].as_f64().unwrap() > 0.0);
}

#[test]
fn idle_subscriptions_have_their_price() {
    let args = ["bench", "idle", "--subscriptions", "20", "--for", "100ms", "--json"];
    let report = Site::new().run(&args).json();
    assert_eq!(report["count"], 20);
    assert_eq!(keys(&report["cpu_percent"]), ["publisher", "subscriber"]);
    assert!(report["seconds"].as_f64().unwrap() >= 0.1);
}

#[test]
fn a_journal_opens_after_every_kind_of_crash() {
    let new_namespace = ["--map-root-user", "--mount", "mount", "--bind", "/dev/null", "/dev/null"];
    let allowed = std::process::Command::new("unshare").args(new_namespace).output();
    if !allowed.is_ok_and(|tried| tried.status.success()) {
        println!("skipped: no leave to mount in a namespace of its own");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "open", "--bytes", "4M", "--payload", "64k", "--opens", "1", "--json"];
    let report = run(&[&args[..], &["--dir", dir.path().to_str().unwrap()]].concat()).json();
    assert_eq!(keys(&report["open_ms"]), ["killed", "power", "cold"]);
    for crash in ["killed", "power", "cold"] {
        assert!(report["open_ms"][crash]["p50"].as_f64().unwrap() > 0.0, "{crash}");
    }
    assert!(report["bytes"].as_u64().unwrap() >= 16 << 20);
    assert_eq!(report["lost"], 0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    assert_eq!(Site::new().run(&args).code, Some(4), "a journal of its own, no other");
    let huge = ["bench", "open", "--bytes", "1000000G"];
    assert_eq!(run(&huge).code, Some(4), "no file system has that much room");
}

/// What a bench prints, whatever its components had to say on a machine that is busy.
fn report(args: &[&str]) -> Value {
    let ran = Site::new().run(args);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn commands_go_there_and_back() {
    let args = ["bench", "commands", "--rate", "500", "--count", "50", "--json"];
    let report = report(&args);
    let expected = [
        "workload",
        "language",
        "url",
        "rate_hz",
        "count",
        "received",
        "lost",
        "latency_us",
        "ack_us",
        "floor_us",
        "cpu_s",
        "rss_mb",
        "load",
        "version",
    ];
    assert_eq!(keys(&report), expected);
    assert_eq!((report["received"].as_u64(), report["lost"].as_u64()), (Some(50), Some(0)));
    assert_eq!(keys(&report["floor_us"]), ["p50", "p99"]);
    assert!(report["latency_us"]["min"].as_f64().unwrap() > 0.0);
}

#[test]
fn an_observatory_loses_nothing() {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/interfaces");
    let args = ["bench", "observatory", "--interfaces", own, "--seconds", "500ms", "--json"];
    let report = report(&[&args[..], &["--processes", "2"]].concat());
    let number = |key: &str| report[key].as_u64().unwrap();
    assert_eq!((number("components"), number("instances"), number("lost")), (4, 4, 0));
    assert!(number("count") > 10 && number("received") == number("count"));
    for key in ["mb_per_s", "messages_per_s", "start_s", "rss_mb_per_component", "kept_up"] {
        assert!(report[key].as_f64().unwrap() > 0.0, "{key}: {report}");
    }
    assert!(report.get("scale_limit").is_none() && report["late_commands"].is_u64());
}
