//! `helio topic`: topics are created, altered, purged, deleted and granted, also under running
//! programs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::{Ran, Site, line_of};

const SCHEMA: &str = r#"{"type": "record", "name": "Wind", "fields": [
    {"name": "speed", "type": "double"}]}"#;

/// The line of `helio topics` for a topic.
fn listed(site: &Site, topic: &str) -> Value {
    site.run(&["topics", topic, "--json"]).lines().remove(0)
}

fn is_refused(ran: &Ran, code: i32, names: &str) {
    assert_eq!(ran.code, Some(code), "{}", ran.err);
    assert!(ran.err.contains(names) && ran.err.lines().count() == 1, "{}", ran.err);
}

#[test]
fn a_topic_is_created_as_described() {
    let site = Site::new();
    let schema = site.file("wind.avsc", SCHEMA);
    let create =
        ["topic", "create", "wind", "--profile", "telemetry", "--partitions", "2", "--schema"];
    let create = [&create[..], &[&schema, "--qos", "retention.age=30d"]].concat();
    site.run(&create).ok();
    site.run(&create).ok();
    let made = listed(&site, "wind");
    let retention = json!({"bytes": null, "age": {"secs": 2_592_000, "nanos": 0},
        "last_value": true});
    assert_eq!(made["qos"]["retention"], retention, "a chosen limit is no default");
    assert_eq!((&made["qos"]["partitions"], &made["samples"]), (&json!(2), &json!(0)));
    assert_eq!(made["schemas"].as_array().unwrap().len(), 1);
    let other = ["topic", "create", "wind", "--profile", "telemetry", "--partitions", "3"];
    is_refused(&site.run(&other), 4, "partitions");
}

#[test]
fn retention_is_altered_and_is_no_part_of_a_topic_s_identity() {
    let site = Site::new();
    // As the profile was in earlier releases.
    let old = ["--qos", "retention.bytes=67108864", "--qos", "retention.age=1h"];
    let create = ["topic", "create", "wind", "--profile", "telemetry"];
    site.run(&[&create[..], &old].concat()).ok();
    site.run(&["pub", "wind", "1", "--profile", "telemetry"]).ok();
    let bytes = |topic: &Value| topic["qos"]["retention"]["bytes"].clone();
    assert_eq!(bytes(&listed(&site, "wind")), 67_108_864);
    site.run(&["topic", "alter", "wind", "--qos", "retention.bytes=1000000"]).ok();
    assert_eq!(bytes(&listed(&site, "wind")), 1_000_000);
    site.run(&["topic", "alter", "wind", "--profile", "telemetry"]).ok();
    let telemetry = listed(&site, "wind")["qos"]["retention"].clone();
    let week = json!({"secs": 604_800, "nanos": 0});
    let expected = json!({"bytes": null, "age": week, "last_value": true, "default": true});
    assert_eq!(telemetry, expected);
    assert_eq!(listed(&site, "wind")["samples"], 1);
    let alter = |qos: &str| site.run(&["topic", "alter", "wind", "--qos", qos]);
    is_refused(&alter("history=keep_all"), 2, "retention.age");
    is_refused(&site.run(&["topic", "alter", "no", "--qos", "retention.age=1d"]), 3, "no topic");
    is_refused(&alter("retention.bytes=9000000000000000000"), 4, "budget");
    let small = format!("{}?budget=1000000", site.url);
    let wide = ["topic", "create", "wide", "--partitions", "2", "--url", &small, "--qos"];
    let create = |qos| crate::support::run(&[&wide[..], &[qos]].concat());
    is_refused(&create("retention.bytes=600000"), 4, "1200000 bytes");
    create("retention.bytes=500000").ok();
}

/// A publisher of lines, which waits for *durable*, and its pipe.
fn publisher(site: &Site) -> Child {
    let args = ["pub", "wind", "--guarantee", "durable", "--json"];
    let mut command = site.helio(&args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn say(child: &mut Child) -> bool {
    child.stdin.as_mut().unwrap().write_all(b"sample\n").is_ok()
}

#[test]
fn running_programs_hear_that_their_topic_is_deleted_or_purged() {
    for deletes in [&["delete"][..], &["purge"]] {
        let site = Site::new();
        site.run(&["pub", "wind", "before"]).ok();
        let mut sub = site.start(&["sub", "wind", "--from", "earliest", "--json"]);
        assert!(line_of(&mut sub).contains("before"));
        let mut writer = publisher(&site);
        let mut receipts = BufReader::new(writer.stdout.take().unwrap()).lines();
        say(&mut writer);
        assert!(receipts.next().unwrap().unwrap().contains("durable"));
        site.run(&[&["topic"], deletes, &["wind"]].concat()).ok();
        say(&mut writer);
        assert!(receipts.next().is_none(), "a receipt for a sample that is gone");
        for child in [writer, sub] {
            let ended = Ran::of(child.wait_with_output().unwrap());
            assert_eq!(ended.code, Some(3), "{deletes:?}");
            assert!(ended.err.contains("wind was deleted, purged or recreated"), "{}", ended.err);
        }
        match deletes[0] {
            "purge" => assert_eq!(listed(&site, "wind")["samples"], 0),
            _ => assert_eq!(site.run(&["topics", "wind"]).code, Some(3)),
        }
        site.run(&["pub", "wind", "after"]).ok();
        assert_eq!(listed(&site, "wind")["samples"], 1);
        is_refused(&site.run(&["topic", deletes[0], "no"]), 3, "no topic no");
    }
}

#[test]
fn a_purged_topic_keeps_its_schema_and_an_edited_description_its_samples() {
    let site = Site::new();
    let schema = site.file("wind.avsc", SCHEMA);
    let publish = ["pub", "wind", "--schema", &schema, r#"{"speed": 1}"#, "--repeat", "60"];
    site.run(&publish).ok();
    site.run(&["topic", "purge", "wind"]).ok();
    site.run(&["pub", "wind", r#"{"speed": 2}"#, "--repeat", "60"]).ok();
    assert_eq!(listed(&site, "wind")["samples"], 60);
    let path = site.folder.path().join("journal/topics/wind/topic.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let edited = text.replace("\"retention_bytes\": 4294967296", "\"retention_bytes\": 4096");
    assert_ne!(edited, text);
    std::fs::write(&path, edited).unwrap();
    let sub = ["sub", "wind", "--from", "earliest", "--count", "60", "--json"];
    is_refused(&site.run(&sub), 1, "was edited or damaged");
    std::fs::write(&path, text).unwrap();
    assert_eq!(site.run(&sub).lines().len(), 60);
}

#[test]
fn a_topic_is_granted_to_a_user_of_the_machine_and_revoked() {
    let site = Site::new();
    site.run(&["pub", "results/a", "1"]).ok();
    let grant = ["topic", "grant", "nobody", "results/a"];
    assert_eq!(site.run(&grant).ok(), "");
    let line = site.run(&[&grant[..], &["--json"]].concat()).json();
    assert_eq!(line, json!({"user": "nobody", "topic": "results/a", "password": null}));
    let secret = site.file("secret", "p\n");
    let given = [&grant[..], &["--password-file", &secret]].concat();
    is_refused(&site.run(&given), 4, "no password");
    let empty = site.file("empty", "\n");
    let given = [&grant[..], &["--password-file", &empty]].concat();
    is_refused(&site.run(&given), 2, "no password");
    let unknown = ["topic", "grant", "no-such-user", "results/a"];
    is_refused(&site.run(&unknown), 1, "no user \"no-such-user\"");
    is_refused(&site.run(&["topic", "grant", "nobody", "no"]), 3, "no topic no");
    let revoke = ["topic", "revoke", "nobody", "results/a"];
    site.run(&revoke).ok();
    is_refused(&site.run(&revoke), 3, "nobody has no grant of results/a");
    let memory = ["topic", "revoke", "nobody", "results/a", "--url", "memory:x"];
    assert_eq!(crate::support::run(&memory).code, Some(3), "its topics are another process's");
}
