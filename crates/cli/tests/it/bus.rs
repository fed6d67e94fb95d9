//! `pub`, `sub`, `topics` and `hz`: samples from one process to another.

use crate::support::{Site, interrupt, line_of, steady};
use helio_bus::{Bus, Start, Subscribe, TopicSpec};
use serde_json::json;

const WIND: &str = r#"{"type": "record", "name": "Wind", "fields": [
    {"name": "mast", "type": "string"},
    {"name": "speed", "type": "double", "units": "m/s"},
    {"name": "gusts", "type": {"type": "array", "items": "float"}, "length": 3}]}"#;

#[test]
fn text_goes_from_one_process_to_another() {
    let site = Site::new();
    let receipts = site.run(&["pub", "notes", "one", "two", "--key", "k", "--json"]).lines();
    assert_eq!(
        receipts[1],
        json!({"partition": 0, "offset": 1, "sequence": 2, "guarantee": "stored"})
    );
    let samples =
        site.run(&["sub", "notes", "--from", "earliest", "--count", "2", "--json"]).lines();
    let expected = |offset: u64, payload: &str| {
        json!({"topic": "notes", "partition": 0, "offset": offset, "incarnation": 1,
            "sequence": offset + 1, "key": "k", "payload": payload})
    };
    assert_eq!(steady(&samples[0]), expected(0, "one"));
    assert_eq!(steady(&samples[1]), expected(1, "two"));
    let raw = site.run(&["sub", "notes", "--from", "earliest", "--count", "2", "--raw"]).ok();
    assert_eq!(raw, "onetwo");
}

#[test]
fn a_recovery_that_found_samples_missing_is_reported_once() {
    let site = Site::new();
    site.run(&["pub", "notes", "one", "two", "three", "--guarantee", "durable"]).ok();
    let segment = site.path("journal/topics/notes/0/0000000000000001.seg");
    std::fs::remove_file(segment).unwrap();
    let publish = || site.run(&["pub", "notes", "four"]);
    let ran = publish();
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let notice = "3 samples from offset 0 on cannot be read";
    assert!(ran.err.contains(notice) && ran.err.contains("topics/notes/0"), "{}", ran.err);
    let ran = publish();
    assert_eq!((ran.code, ran.err.contains("recovered")), (Some(0), false), "{}", ran.err);
}

#[test]
fn a_null_deletes_the_last_value_of_a_key() {
    let site = Site::new();
    site.run(&["pub", "notes", "one", "--key", "a", "--profile", "event"]).ok();
    site.run(&["pub", "notes", "two", "--key", "b"]).ok();
    site.run(&["pub", "notes", "--null", "--key", "a"]).ok();
    let last = site.run(&["sub", "notes", "--from", "last", "--for", "0s", "--json"]).lines();
    let keys: Vec<_> = last.iter().map(|sample| &sample["key"]).collect();
    assert_eq!(keys, ["b"]);
    let all = site.run(&["sub", "notes", "--from", "earliest", "--count", "3", "--json"]).lines();
    assert_eq!((&all[2]["key"], all[2].get("value")), (&json!("a"), Some(&json!(null))));
    assert_eq!(all[2]["headers"], json!({"helio-null": ""}));
    let lines = site.run(&["sub", "notes", "--from", "earliest", "--count", "3"]).ok();
    assert!(lines.lines().last().unwrap().ends_with("[a] null"), "{lines}");
    let ran = site.run(&["pub", "notes", "value", "--null"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);

    let file = site.path("notes.avro");
    let ran = site.run(&["record", "notes", &file, "--from", "earliest", "--count", "2"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let file = site.path("all.avro");
    let ran = site.run(&["record", "notes", &file, "--from", "earliest", "--for", "0s"]);
    assert_eq!(ran.code, Some(5), "{}", ran.err);
    assert!(ran.err.contains("1 nulls are not in the file"), "{}", ran.err);
    let file = site.path("whole.avro");
    let args = ["record", "notes", &file, "--from", "earliest", "--for", "0s", "--envelope"];
    site.run(&args).ok();
    site.run(&["play", "copy", &file, "--profile", "event"]).ok();
    let last = site.run(&["sub", "copy", "--from", "last", "--for", "0s", "--json"]).lines();
    assert_eq!(last.len(), 1, "{last:?}");
}

#[test]
fn values_are_encoded_by_their_schema_and_decoded_by_anybody() {
    let site = Site::new();
    let schema = site.file("wind.avsc", WIND);
    let lines = b"{\"mast\": \"a\", \"speed\": 7.5, \"gusts\": [1, 2, 3]}\n\
        {\"mast\": \"b\", \"speed\": 8, \"gusts\": [4, 5, 6]}\n";
    let args =
        ["pub", "wind", "--schema", &schema, "--key-field", "mast", "--profile", "telemetry"];
    site.run_with(&args, lines).ok();
    // The topic has its schema now.
    let again = r#"{"mast": "a", "speed": 9.25, "gusts": [7, 8, 9]}"#;
    site.run(&["pub", "wind", again, "--key-field", "mast"]).ok();

    let args = ["sub", "wind", "--from", "earliest", "--count", "3", "--json"];
    let samples = site.run(&args).lines();
    assert_eq!(samples[0]["value"], json!({"mast": "a", "speed": 7.5, "gusts": [1.0, 2.0, 3.0]}));
    assert_eq!(samples[2]["value"]["speed"], 9.25);
    let from = ["sub", "wind", "--from", "earliest", "--count", "1", "--json"];
    let keyed = [&from[..], &["--key-field", "mast=b"]].concat();
    assert_eq!(samples[0]["key_base64"], "AmE=", "the field's Avro encoding");
    assert_eq!(site.run(&keyed).lines()[0]["value"]["mast"], "b");

    let newest = site.run(&["sub", "wind", "--from", "last", "--count", "2", "--json"]).lines();
    let mut speeds: Vec<_> = newest.iter().map(|s| s["value"]["speed"].as_f64().unwrap()).collect();
    speeds.sort_by(f64::total_cmp);
    assert_eq!(speeds, [8.0, 9.25], "a late joiner gets the newest of every key");

    let shown = site.run(&["schema", "show", "--topic", "wind", "--json"]).json();
    assert_eq!((&shown["name"], &shown["id"]), (&json!("Wind"), &samples[0]["schema"]));
}

#[test]
fn a_value_that_does_not_fit_is_refused_with_its_field() {
    let site = Site::new();
    let schema = site.file("wind.avsc", WIND);
    let wrong = r#"{"mast": "a", "speed": "fast", "gusts": [1, 2, 3]}"#;
    let ran = site.run(&["pub", "wind", wrong, "--schema", &schema]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(4), ""));
    assert!(ran.err.contains("speed"), "{}", ran.err);
    let short = r#"{"mast": "a", "speed": 1, "gusts": [1]}"#;
    let ran = site.run(&["pub", "wind", short]);
    assert_eq!(ran.code, Some(4));
    assert!(ran.err.contains("gusts"), "{}", ran.err);
    let ran = site.run(&["pub", "wind", "{"]);
    assert_eq!(ran.code, Some(4));
}

#[test]
fn what_is_missing_or_wrong_has_its_own_code() {
    let site = Site::new();
    let code = |args: &[&str]| {
        let ran = site.run(args);
        assert!(ran.err.starts_with("helio: ") && ran.err.lines().count() == 1, "{}", ran.err);
        ran.code
    };
    assert_eq!(code(&["sub", "nothing"]), Some(3));
    assert_eq!(code(&["topics", "nothing*"]), Some(3));
    assert_eq!(code(&["schema", "show", "--topic", "nothing"]), Some(3));
    assert_eq!(code(&["hz", "nothing"]), Some(3));
    assert_eq!(code(&["pub", "a//b", "x"]), Some(2));
    let ran = crate::support::run(&["topics", "--url", "carrier-pigeon:home"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("journal"), "it says what there is: {}", ran.err);
}

#[test]
fn looking_makes_no_journal() {
    let site = Site::new();
    let file = site.path("out.avro");
    let looks: [&[&str]; 6] = [
        &["topics"],
        &["sub", "notes"],
        &["hz"],
        &["hz", "notes"],
        &["record", "notes", &file],
        &["schema", "show", "--topic", "notes"],
    ];
    for args in looks {
        let ran = site.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(3), ""), "{args:?}");
        assert!(ran.err.contains("no journal in") && ran.err.lines().count() == 1, "{}", ran.err);
        assert_eq!(std::fs::read_dir(site.folder.path()).unwrap().count(), 0, "{args:?}");
    }
    site.run(&["pub", "notes", "one"]).ok();
    assert_eq!(site.run(&["topics", "--json"]).lines().len(), 1);
}

#[test]
fn topics_are_listed() {
    let site = Site::new();
    site.run(&["pub", "a/one", "x", "--partitions", "2"]).ok();
    site.run(&["pub", "b/two", "y", "z", "--profile", "event"]).ok();
    let all = site.run(&["topics", "--json"]).lines();
    let names: Vec<_> = all.iter().map(|line| line["topic"].as_str().unwrap()).collect();
    assert_eq!(names, ["a/one", "b/two"]);
    assert_eq!((&all[0]["samples"], &all[1]["samples"]), (&json!(1), &json!(2)));
    assert_eq!(all[0]["partitions"].as_array().unwrap().len(), 2);
    assert_eq!(site.run(&["topics", "b*", "--json"]).lines().len(), 1);
    assert!(site.run(&["topics"]).ok().lines().count() == 3, "a head and two topics");
}

#[test]
fn groups_are_listed_with_their_lag() {
    let site = Site::new();
    site.run(&["pub", "notes", "one", "two", "three"]).ok();
    let bus = Bus::builder().producer("Reader").connect(&site.url).unwrap();
    let topic = bus.topic(TopicSpec::new("notes").unwrap()).unwrap();
    let mut samples = topic.subscribe(Subscribe::from(Start::Earliest).group("filters")).unwrap();
    samples.next_sample().unwrap();
    samples.commit().unwrap();
    let process = std::process::id();
    let member = json!({"name": "Reader", "process": process, "host": null, "partitions": [0]});
    let partition = json!({"partition": 0, "first": 0, "end": 3, "committed": 1, "lag": 2});
    let listed = json!({"topic": "notes", "group": "filters", "lag": 2, "members": [member],
        "partitions": [partition]});
    assert_eq!(site.run(&["groups", "--json"]).json(), listed);
    let table = site.run(&["groups", "not*", "--group", "filters"]).ok();
    assert!(table.contains(&format!("Reader (process {process})")), "{table}");
    assert_eq!(table.lines().count(), 2, "a head and a partition");
    assert_eq!(site.run(&["groups", "--group", "nobody"]).code, Some(3));
}

#[test]
fn a_reader_that_goes_away_ends_a_subscriber_quietly() {
    let site = Site::new();
    site.run(&["pub", "notes", "one"]).ok();
    let mut sub = site.start(&["sub", "notes", "--from", "earliest", "--json"]);
    assert!(line_of(&mut sub).contains("one"));
    drop(sub.stdout.take());
    // It notices when it has something to say.
    site.run(&["pub", "notes", "two"]).ok();
    let ended = sub.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn interruption_is_an_end_or_a_failure() {
    let site = Site::new();
    site.run(&["pub", "notes", "one"]).ok();
    let mut endless = site.start(&["sub", "notes", "--from", "earliest", "--json"]);
    line_of(&mut endless);
    assert_eq!(interrupt(&mut endless), Some(0), "nothing else would have ended it");
    let ten = ["sub", "notes", "--from", "earliest", "--count", "10", "--json"];
    let mut ten = site.start(&ten);
    line_of(&mut ten);
    assert_eq!(interrupt(&mut ten), Some(130), "nine are missing");
}

#[test]
fn a_subscriber_can_wait_for_its_topic() {
    let site = Site::new();
    let args = ["sub", "later", "--wait", "--from", "earliest", "--count", "1", "--raw"];
    let sub = site.start(&args);
    site.run(&["pub", "later", "here"]).ok();
    let ended = sub.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(0), &b"here"[..]));
}

#[test]
fn a_group_s_members_go_on_where_the_last_one_stopped() {
    let site = Site::new();
    site.run(&["pub", "work", "a", "b", "c"]).ok();
    let args = ["sub", "work", "--group", "g", "--from", "earliest", "--raw", "--count"];
    assert_eq!(site.run(&[&args[..], &["2"]].concat()).ok(), "ab");
    assert_eq!(site.run(&[&args[..], &["1"]].concat()).ok(), "c");
}

#[test]
fn rates_are_counted() {
    let site = Site::new();
    site.run(&["pub", "busy", "first"]).ok();
    let mut busy = site.start(&["pub", "busy", "xxxx", "--rate", "500", "--repeat", "1000000"]);
    let lines = site.run(&["hz", "busy", "--every", "200ms", "--for", "600ms", "--json"]).lines();
    assert_eq!(interrupt(&mut busy), Some(130));
    let sum = |field: &str| -> u64 { lines.iter().map(|l| l[field].as_u64().unwrap()).sum() };
    assert!(sum("samples") > 0 && sum("bytes") == 4 * sum("samples"), "{lines:?}");
    assert_eq!(sum("lost"), 0);
}
