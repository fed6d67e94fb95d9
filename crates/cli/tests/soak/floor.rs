//! `helio bench floor`: the keys that the benchmarks' page names, and nothing left behind.

#[test]
fn the_floor_has_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let args = ["bench", "floor", "--dir", path, "--rate", "500", "--count", "20"];
    let small = ["--appends", "1000", "--json"];
    let report = crate::support::run(&[&args[..], &small].concat()).json();
    for payload in ["64", "256", "6144"] {
        for figure in ["p50", "p99"] {
            assert!(report["latency_us"][payload][figure].as_f64().unwrap() > 0.0);
        }
        for rate in ["append_per_s", "append_warm_per_s"] {
            assert!(report[rate][payload].as_u64().unwrap() > 0, "{rate} {payload}");
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the folder is clean");
}
