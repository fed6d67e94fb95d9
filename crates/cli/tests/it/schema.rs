//! `helio schema`: files, folders of interfaces, and what changed between them.

use crate::support::{Site, run, shared_data};
use serde_json::{Value, json};

const OLD: &str = r#"{"type": "record", "name": "Wind", "fields": [
    {"name": "speed", "type": "double", "units": "m/s"}]}"#;
const NEW: &str = r#"{"type": "record", "name": "Wind", "fields": [
    {"name": "speed", "type": "double", "units": "km/h"},
    {"name": "gust", "type": "double", "default": 0}]}"#;
const OURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/interfaces");

#[test]
fn a_schema_file_is_shown_and_checked() {
    let site = Site::new();
    let old = site.file("old.avsc", OLD);
    let shown = run(&["schema", "show", &old, "--json"]).json();
    assert_eq!(shown["name"], "Wind");
    assert_eq!(shown["schema"]["fields"][0]["units"], "m/s");
    assert_ne!(shown["id"], shown["fingerprint"], "units count for the identity");
    let text = run(&["schema", "show", &old]).ok();
    assert!(text.lines().any(|l| l.contains("speed") && l.contains("double")), "{text}");
    run(&["schema", "check", &old]).ok();
    let broken = site.file("broken.avsc", "{\"type\": \"recrod\"}");
    let ran = run(&["schema", "check", &broken]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(4), ""));
    assert!(ran.err.contains("recrod"), "{}", ran.err);
    assert_eq!(run(&["schema", "check", "/nowhere.avsc"]).code, Some(3));
}

#[test]
fn samples_of_an_edited_or_missing_schema_are_not_printed() {
    let site = Site::new();
    let file = site.file("wind.avsc", OLD);
    let id = run(&["schema", "show", &file, "--json"]).json()["id"].as_str().unwrap().to_owned();
    site.run(&["pub", "wind", r#"{"speed": 7.5}"#, "--schema", &file]).ok();
    let stored = site.path(&format!("journal/schemas/{id}.avsc"));
    let text = std::fs::read_to_string(&stored).unwrap();
    let sub = || site.run(&["sub", "wind", "--from", "earliest", "--count", "1"]);
    std::fs::write(&stored, text.replace("m/s", "km/h")).unwrap();
    let ran = sub();
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.contains(&stored) && ran.err.contains("was edited"), "{}", ran.err);
    std::fs::remove_file(&stored).unwrap();
    let ran = sub();
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), ""));
    assert!(ran.err.contains(&id) && ran.err.contains("publisher"), "{}", ran.err);
    // These decode nothing.
    site.run(&["pub", "notes", "first light"]).ok();
    let counted = site.run(&["hz", "--every", "50ms", "--for", "10ms", "--json"]).lines();
    let counted: Vec<_> = counted.iter().map(|line| &line["topic"]).collect();
    assert!(counted.contains(&&json!("wind")) && counted.contains(&&json!("notes")), "{counted:?}");
    // The remedy that both name.
    site.run(&["pub", "wind", r#"{"speed": 8.5}"#, "--schema", &file]).ok();
    assert_eq!(std::fs::read_to_string(&stored).unwrap(), text);
    assert!(sub().ok().contains("7.5"));
    std::fs::write(&stored, text.replace("m/s", "km/h")).unwrap();
    let values = site.file("values.jsonl", "{\"speed\": 8.5}\n");
    site.run(&["play", "wind", &values, "--schema", &file]).ok();
    assert_eq!(std::fs::read_to_string(&stored).unwrap(), text);
}

#[test]
fn files_that_name_each_other_are_one_schema() {
    let site = Site::new();
    site.file("inner.avsc", r#"{"type": "record", "name": "inner", "fields": []}"#);
    site.file(
        "outer.avsc",
        r#"{"type": "record", "name": "outer", "fields": [{"name": "i", "type": "inner"}]}"#,
    );
    let folder = site.folder.path().to_str().unwrap();
    assert_eq!(run(&["schema", "show", folder, "--json"]).json()["name"], "outer");
}

#[test]
fn a_change_is_told_with_who_can_still_read_whom() {
    let site = Site::new();
    let (old, new) = (site.file("old.avsc", OLD), site.file("new.avsc", NEW));
    let diff = run(&["schema", "diff", &old, &new, "--json"]).json();
    assert_eq!(diff["level"], "breaking");
    let changes: Vec<_> = diff["differences"].as_array().unwrap().iter().collect();
    assert!(changes.iter().any(|c| c["at"] == "speed" && c["change"] == "units"), "{diff}");
    let text = run(&["schema", "diff", &old, &new]).ok();
    assert!(text.contains("speed: units m/s -> km/h (breaking)"), "{text}");
    let ran = run(&["schema", "diff", &old, &new, "--require", "backward"]);
    assert_eq!(ran.code, Some(4));
    run(&["schema", "diff", &old, &old, "--require", "full"]).ok();
    assert_eq!(run(&["schema", "diff", &old, OURS]).code, Some(2));
}

#[test]
fn a_folder_of_interfaces_is_counted_and_exported() {
    let counts = run(&["schema", "show", OURS, "--json"]).json();
    assert_eq!(counts["components"], 4);
    let topics: u64 = ["command", "event", "telemetry", "ack"]
        .iter()
        .map(|kind| counts["topics"][kind].as_u64().unwrap())
        .sum();
    let lines = run(&["schema", "export", OURS, "--naming", "sal", "--json"]).lines();
    assert_eq!(lines.len() as u64, topics);
    let keys: Vec<&String> = lines[0].as_object().unwrap().keys().collect();
    let golden = [
        "component",
        "indexed",
        "topic",
        "kafka_name",
        "partitions",
        "revcode",
        "array_fields",
        "schema",
    ];
    assert_eq!(keys, golden);
    let ours = run(&["schema", "export", OURS, "--json"]).lines();
    assert_eq!(ours.len(), lines.len());
    assert!(ours.iter().any(|l| l["topic"] == "MTMount/command/trackTarget"));
}

#[test]
fn the_real_interfaces_have_what_they_have() {
    let Some(old) = shared_data("sal-interfaces/v26.0.0") else { return };
    let Some(new) = shared_data("sal-interfaces/v27.1.1") else { return };
    let counts = |folder: &str| run(&["schema", "show", folder, "--json"]).json();
    let sum = |counts: &Value| -> u64 {
        counts["topics"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum()
    };
    let (before, after) = (counts(&old), counts(&new));
    assert_eq!((&before["components"], sum(&before)), (&json!(62), 3_131));
    assert_eq!((&after["components"], sum(&after)), (&json!(63), 3_166));
    let diff = run(&["schema", "diff", &old, &new, "--json"]).json();
    assert!(diff["topics"]["added"].as_array().unwrap().len() > 100, "{}", diff["topics"]);
}

#[test]
fn types_are_printed_as_idl() {
    let site = Site::new();
    let wind = site.file("wind.avsc", NEW);
    let idl = run(&["schema", "idl", &wind]).ok();
    assert!(idl.contains("@key ::helio::Header helio;"), "{idl}");
    let foreign = run(&["schema", "idl", &wind, "--foreign"]).ok();
    assert!(!foreign.contains("helio::Header"), "{foreign}");
    // Each topic of a component once, and what they share once.
    let idl = run(&["schema", "idl", OURS, "--component", "ESS"]).ok();
    assert_eq!(idl.matches("struct Header {").count(), 1);
    assert!(idl.contains("@key int32 salIndex;"), "{idl}");
    let lines = run(&["schema", "idl", OURS, "--json"]).lines();
    assert_eq!(lines.len(), run(&["schema", "export", OURS, "--json"]).lines().len());
    assert!(lines.iter().all(|l| l["form"] == "typed" && l["unsayable"].is_null()), "{lines:?}");
    // What IDL cannot say travels in the envelope, and that is told.
    let map = r#"{"type": "record", "name": "M", "fields": [
        {"name": "m", "type": {"type": "map", "values": "int"}}]}"#;
    let map = site.file("map.avsc", map);
    let idl = run(&["schema", "idl", &map]).ok();
    assert!(
        idl.ends_with("// M: m: IDL cannot say a map; its type is helio::Envelope.\n"),
        "{idl}"
    );
    assert_eq!(run(&["schema", "idl", &map, "--foreign"]).code, Some(4));
    assert_eq!(run(&["schema", "idl", OURS, "--component", "Nobody"]).code, Some(3));
    assert_eq!(run(&["schema", "idl"]).code, Some(2));
}

#[test]
fn every_topic_of_the_real_interfaces_has_a_type() {
    let Some(folder) = shared_data("sal-interfaces/v27.1.1") else { return };
    let lines = run(&["schema", "idl", &folder, "--json"]).lines();
    assert_eq!(lines.len(), 3_166);
    assert!(lines.iter().all(|line| line["form"] == "typed"));
}

#[test]
fn a_type_may_use_itself() {
    let site = Site::new();
    let text = r#"{"type": "record", "name": "A", "fields": [
        {"name": "next", "type": ["null", "A"]}]}"#;
    let file = site.file("a.avsc", text);
    assert_eq!(run(&["schema", "show", &file, "--json"]).json()["name"], "A");
    site.run(&["pub", "chain", r#"{"next": {"A": {"next": null}}}"#, "--schema", &file]).ok();
    let sample = site.run(&["sub", "chain", "--from", "earliest", "--count", "1", "--json"]);
    assert!(sample.json()["value"]["next"].is_object());
}
