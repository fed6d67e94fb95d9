//! `play` and `record`: from files to the bus and back, as the reference library reads them.

use crate::support::{Ran, Site, interrupt, shared_data, steady};
use serde_json::{Value, json};

const SCHEMA: &str = r#"{"type": "record", "name": "Reading", "fields": [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"]},
    {"name": "counts", "type": {"type": "array", "items": "int"}}]}"#;

fn lines(count: usize) -> String {
    let line = |n: usize| {
        let name = if n.is_multiple_of(2) { json!(null) } else { json!(format!("number {n}")) };
        json!({"id": n, "name": name, "counts": [n, n + 1]}).to_string() + "\n"
    };
    (0..count).map(line).collect()
}

/// The datums of a container file as the reference library reads them.
fn reference(path: &str) -> Vec<apache_avro::types::Value> {
    let file = std::fs::File::open(path).unwrap();
    apache_avro::Reader::new(file).unwrap().collect::<Result<_, _>>().unwrap()
}

fn values(samples: &[Value]) -> Vec<Value> {
    samples.iter().map(|sample| sample["value"].clone()).collect()
}

#[test]
fn lines_become_a_container_and_come_back() {
    let site = Site::new();
    let (schema, text) = (site.file("a.avsc", SCHEMA), site.file("a.jsonl", lines(1_000)));
    let played = site.run(&["play", "one", &text, "--schema", &schema, "--json"]).json();
    assert_eq!(played["samples"], 1_000);
    for codec in ["null", "deflate", "snappy"] {
        let file = site.path(&format!("{codec}.avro"));
        let args = ["record", "one", &file, "--from", "earliest", "--count", "1000", "--codec"];
        let recorded = site.run(&[&args[..], &[codec, "--json"]].concat()).json();
        assert_eq!(recorded["samples"], 1_000);
        assert_eq!(recorded["bytes"], std::fs::metadata(&file).unwrap().len());
        assert_eq!(reference(&file).len(), 1_000, "{codec}");
        let topic = format!("again/{codec}");
        site.run(&["play", &topic, &file]).ok();
        let from = ["--from", "earliest", "--count", "1000", "--json"];
        let first = site.run(&[&["sub", "one"][..], &from].concat()).lines();
        let again = site.run(&[&["sub", &topic][..], &from].concat()).lines();
        assert_eq!(values(&first), values(&again), "{codec}");
        assert_eq!(first[0]["schema"], again[0]["schema"]);
    }
    // What is compressed is smaller.
    let size = |name: &str| std::fs::metadata(site.path(name)).unwrap().len();
    assert!(size("deflate.avro") < size("snappy.avro") && size("snappy.avro") < size("null.avro"));
}

#[test]
fn files_of_the_reference_library_are_played() {
    let site = Site::new();
    let schema = apache_avro::Schema::parse_str(SCHEMA).unwrap();
    let codecs = [
        apache_avro::Codec::Null,
        apache_avro::Codec::Deflate(apache_avro::DeflateSettings::default()),
    ];
    for (n, codec) in codecs.into_iter().enumerate() {
        let mut writer = apache_avro::Writer::with_codec(&schema, Vec::new(), codec);
        for line in lines(100).lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            let value = apache_avro::types::Value::from(value).resolve(&schema).unwrap();
            writer.append(value).unwrap();
        }
        let file = site.file(&format!("{n}.avro"), writer.into_inner().unwrap());
        let topic = format!("t{n}");
        site.run(&["play", &topic, &file]).ok();
        let back = site.path(&format!("{n}.back.avro"));
        site.run(&["record", &topic, &back, "--from", "earliest", "--count", "100"]).ok();
        assert_eq!(reference(&file), reference(&back));
    }
}

#[test]
fn an_interrupted_record_is_a_whole_file() {
    let site = Site::new();
    site.run(&["pub", "busy", "first"]).ok();
    let file = site.path("busy.avro");
    let mut record = site.start(&["record", "busy", &file, "--from", "earliest"]);
    let mut busy = site.start(&["pub", "busy", "more", "--rate", "1000", "--repeat", "1000000"]);
    // The first block reaches the partial file when there are some thousands of samples; what
    // counts is that the recorder is there, so that it can be interrupted.
    let partial = format!("{file}.partial");
    while !std::path::Path::new(&partial).exists() {
        std::thread::yield_now();
    }
    // A publisher that has published knows what to do when it is interrupted.
    site.run(&["sub", "busy", "--from", "offset:1", "--count", "1"]).ok();
    assert_eq!(interrupt(&mut record), Some(0));
    assert_eq!(interrupt(&mut busy), Some(130));
    let samples = reference(&file);
    assert!(!std::path::Path::new(&partial).exists());
    if let Some(first) = samples.first() {
        assert_eq!(*first, apache_avro::types::Value::Bytes(b"first".to_vec()));
    }
}

#[test]
fn recording_rotates() {
    let site = Site::new();
    let payload = "x".repeat(50_000);
    site.run(&["pub", "big", &payload, "--repeat", "10"]).ok();
    let file = site.path("big.avro");
    let args = ["record", "big", &file, "--from", "earliest", "--count", "10", "--rotate", "100k"];
    let recorded = site.run(&[&args[..], &["--json"]].concat()).json();
    let files: Vec<_> = recorded["files"].as_array().unwrap().iter().collect();
    assert!(files.len() > 2, "{files:?}");
    let read: usize = files.iter().map(|f| reference(f.as_str().unwrap()).len()).sum();
    assert_eq!(read, 10);
}

#[test]
fn framed_packets_are_played_with_and_without_their_schema() {
    let site = Site::new();
    let schema = site.file("a.avsc", SCHEMA);
    let packet = b"\0\0\0\x03\x84\x0e\x00\x04\x02\x04\0";
    let file = site.file("packet.bin", packet);
    site.run(&["play", "typed", &file, "--schema", &schema]).ok();
    let sample =
        &site.run(&["sub", "typed", "--from", "earliest", "--count", "1", "--json"]).lines()[0];
    assert_eq!(sample["value"], json!({"id": 7, "name": null, "counts": [1, 2]}));
    site.run(&["play", "bytes", &file]).ok();
    let sample =
        &site.run(&["sub", "bytes", "--from", "earliest", "--count", "1", "--json"]).lines()[0];
    assert_eq!(steady(sample)["schema"], Value::Null);
    assert_eq!(sample["payload_base64"], "AAAAA4QOAAQCBAA=");
}

#[test]
fn play_has_a_rate_and_an_end() {
    let site = Site::new();
    let text = site.file("a.txt", "a\nb\nc\n");
    let args = ["play", "t", &text, "--rate", "2000", "--loop", "--count", "100", "--json"];
    let played = site.run(&args).json();
    assert_eq!(played["samples"], 100);
    assert!(played["rate_hz"].as_f64().unwrap() <= 2_100.0, "{played}");
    assert_eq!(site.run(&["play", "t", &text, "--repeat", "2", "--json"]).json()["samples"], 6);
    assert_eq!(site.run(&["play", "t", "/nowhere"]).code, Some(3));
    let broken = site.file("broken.avro", b"Obj\x01garbage");
    assert_eq!(site.run(&["play", "t2", &broken]).code, Some(1));
    let endless = site.run(&["play", "t", "/dev/zero"]);
    assert_eq!((endless.code, endless.err.contains("/dev/zero is no file")), (Some(4), true));
}

#[test]
fn a_limit_of_the_files_size_is_an_error_with_a_message() {
    let site = Site::new();
    let file = site.file("large.txt", vec![b'a'; 3_000_000]);
    let command = site.helio(&["pub", "t", "--file", &file]);
    let mut limited = std::process::Command::new("sh");
    // In units of 512 or 1,024 bytes: less than the file.
    limited.args(["-c", "ulimit -f 1000; exec \"$0\" \"$@\""]);
    limited.arg(command.get_program()).args(command.get_args());
    limited.env_remove("HELIO_URL").envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let ran = Ran::of(limited.output().unwrap());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("no room on the disk"), "{}", ran.err);
}

#[test]
fn an_envelope_brings_key_and_time_back() {
    let site = Site::new();
    let schema = site.file("a.avsc", SCHEMA);
    site.run_with(
        &["pub", "typed", "--schema", &schema, "--key-field", "id", "--level", "7"],
        lines(20).as_bytes(),
    )
    .ok();
    site.run(&["pub", "bytes", "one", "two", "--key", "k"]).ok();
    for (topic, count) in [("typed", "20"), ("bytes", "2")] {
        let (file, again) = (site.path(&format!("{topic}.avro")), format!("again/{topic}"));
        let from = ["--from", "earliest", "--count", count];
        site.run(&[&["record", topic, &file, "--envelope"][..], &from].concat()).ok();
        assert_eq!(reference(&file).len().to_string(), count, "any reader of Avro reads it");
        site.run(&["play", &again, &file]).ok();
        let samples = |topic: &str| {
            let read = site.run(&[&["sub", topic, "--json"][..], &from].concat()).lines();
            let same = ["key", "key_base64", "tai_ns", "level", "schema", "value", "payload"];
            let pick = |s: Value| same.map(|field| s.get(field).cloned());
            read.into_iter().map(pick).collect::<Vec<_>>()
        };
        assert_eq!(samples(topic), samples(&again), "{topic}");
    }
    // Without it a file has the values only; fields can be named for the key.
    let file = site.path("plain.avro");
    site.run(&["record", "typed", &file, "--from", "earliest", "--count", "20"]).ok();
    site.run(&["play", "plain", &file]).ok();
    let first = ["sub", "plain", "--from", "earliest", "--count", "1", "--json"];
    assert_eq!(site.run(&first).lines()[0].get("key_base64"), None);
}

#[test]
fn a_real_alert_of_ztf_comes_out_as_the_reference_library_reads_it() {
    let Some(file) = shared_data("alerts/ztf-3_3.avro") else { return };
    let site = Site::new();
    site.run(&["play", "alerts", &file]).ok();
    let back = site.path("back.avro");
    site.run(&["record", "alerts", &back, "--from", "earliest", "--count", "1"]).ok();
    assert_eq!(reference(&file), reference(&back));
}

#[test]
fn a_real_alert_of_lsst_comes_out_byte_for_byte() {
    let Some(file) = shared_data("alerts/lsst-v9_0-confluent-framed.bin") else { return };
    let site = Site::new();
    site.run(&["play", "alerts", &file]).ok();
    let mut command = site.helio(&["sub", "alerts", "--from", "earliest", "--count", "1", "--raw"]);
    assert_eq!(command.output().unwrap().stdout, std::fs::read(&file).unwrap());
}

/// The published schema of LSST's alerts, version 9.0: from the package lsst-alert-packet, where
/// the repository's Python environment has it. Where it is absent the test says that it is skipped.
fn lsst_schema() -> Option<Vec<String>> {
    let venv = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.venv/lib");
    let pythons = std::fs::read_dir(venv).into_iter().flatten().flatten();
    let folders = pythons.map(|p| p.path().join("site-packages/lsst/alert/packet/schema/9/0"));
    let Some(folder) = folders.into_iter().find(|folder| folder.is_dir()) else {
        println!("skipped: {venv} has no lsst-alert-packet; `make python` installs it");
        return None;
    };
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let schemas = files.filter(|file| file.extension().is_some_and(|e| e == "avsc"));
    Some(schemas.map(|file| file.to_str().unwrap().to_owned()).collect())
}

#[test]
fn a_real_alert_of_lsst_is_played_and_recorded_by_its_schema() {
    let Some(file) = shared_data("alerts/lsst-v9_0-confluent-framed.bin") else { return };
    let Some(schemas) = lsst_schema() else { return };
    let site = Site::new();
    let schemas: Vec<&str> = schemas.iter().map(String::as_str).collect();
    site.run(&[&["play", "alerts", &file, "--schema"], &schemas[..]].concat()).ok();
    let once = ["--from", "earliest", "--count", "1"];
    let mut raw = site.helio(&[&["sub", "alerts", "--raw"], &once[..]].concat());
    let packet = std::fs::read(&file).unwrap();
    assert!(raw.output().unwrap().stdout == packet[5..], "the datum without its frame");

    let value = site.run(&[&["sub", "alerts", "--json"], &once[..]].concat()).lines().remove(0);
    assert!(value["value"]["diaSource"]["diaSourceId"].as_i64().unwrap() > 0);
    for envelope in [&[][..], &["--envelope"]] {
        let back = site.path("back.avro");
        site.run(&[&["record", "alerts", &back], &once[..], envelope].concat()).ok();
        let read = reference(&back);
        let apache_avro::types::Value::Record(fields) = &read[0] else { panic!("{read:?}") };
        assert!(!fields.is_empty(), "the reference library reads what was recorded");
        let again = format!("again{}", envelope.len());
        site.run(&["play", &again, &back]).ok();
        let mut raw = site.helio(&[&["sub", again.as_str(), "--raw"], &once[..]].concat());
        assert!(raw.output().unwrap().stdout == packet[5..], "the same bytes again");
    }
}
