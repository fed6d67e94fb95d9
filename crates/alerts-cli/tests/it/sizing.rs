//! Sizing: the page is what the command prints, and its figures follow from the measured bytes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{Ran, Site, ran};

/// `helio alerts sizing --markdown >docs/alerts-sizing.md` makes it.
const PAGE: &str = include_str!("../../../../docs/alerts-sizing.md");

fn sizing(args: &[&str]) -> Ran {
    // No bus is opened.
    ran(Site::new().command(&[&["sizing"], args].concat()).spawn().unwrap())
}

#[test]
fn the_page_is_what_the_command_prints() {
    let printed = sizing(&["--markdown"]).ok();
    let differs = |(page, printed): &(&str, &str)| page != printed;
    let first = PAGE.lines().zip(printed.lines()).find(differs);
    assert!(PAGE == printed, "docs/alerts-sizing.md is stale, first in {first:?}");
}

#[test]
fn needs_follow_from_the_bytes_of_packets_and_the_workload() {
    let options = ["--alerts", "2000", "--cadence", "20s", "--visits", "10", "--burst", "2s"];
    let more = ["--groups", "3", "--brokers", "5", "--replication", "2", "--days", "2"];
    let rest = ["--member-rate", "1M", "--network-rate", "10M", "--detectors", "1", "--json"];
    let report: Value =
        serde_json::from_str(&sizing(&[&options[..], &more, &rest].concat()).ok()).unwrap();
    let list = |name: &str| report[name].as_array().unwrap().clone();
    let number = |value: &Value| value.as_f64().unwrap();
    let packets: BTreeMap<String, Value> =
        list("packets").into_iter().map(|one| (one["content"].to_string(), one)).collect();
    let whole = &packets["\"whole\""];
    let bytes = number(&whole["bytes"]);
    // 138,240 bytes of stamps, and what is measured; a codec makes them smaller.
    assert!((139_000.0..200_000.0).contains(&bytes), "{bytes}");
    for codec in ["snappy", "gzip", "zstd"] {
        assert!(number(&whole[codec]) < bytes, "{codec}");
    }
    let packed = number(&packets["\"packed_stamps\""]["bytes"]);
    assert!(packed < bytes / 5.0, "{packed}");
    let close = |found: &Value, expected: f64| {
        assert!((number(found) / expected - 1.0).abs() < 1e-9, "{found} is not {expected}");
    };
    let inline = &list("streams")[0];
    close(&inline["visit_bytes"], bytes * 2_000.0);
    close(&inline["mean_bytes_per_s"], bytes * 100.0);
    close(&inline["burst_bytes_per_s"], bytes * 1_000.0);
    let night = bytes * 20_000.0;
    close(&inline["night_bytes"], night);
    let of = |name: &str, key: &str, value: u64| {
        list(name).into_iter().find(|row| row[key] == value).unwrap()
    };
    close(&of("egress", "groups", 3)["inline_mean_bytes_per_s"], bytes * 300.0);
    close(&of("disk", "days", 2)["bytes"][0], night * 4.0);
    let rewind = of("rewind", "days", 2);
    // A mebibyte a second by one member, ten by many.
    close(&rewind["seconds"][0], night * 2.0 / 1_048_576.0);
    close(&rewind["seconds"][5], night * 2.0 / 10_485_760.0);
    let broker = of("brokers", "brokers", 5);
    close(&broker["partitions"], 189.0 * 2.0 / 5.0);
    assert_eq!(broker["most_partitions"], 1_000);
    close(&broker["disk_bytes"], night * 4.0 / 5.0);
    close(&broker["out_burst_bytes_per_s"], bytes * 1_000.0 * 4.0 / 5.0);
}
