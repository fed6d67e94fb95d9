//! `log archive`, `log search` and `log export`, with processes that are killed.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Site, interrupt};
use serde_json::Value;

/// A record that has not come by then is lost.
const PATIENCE: Duration = Duration::from_secs(60);

fn archiver(site: &Site) -> Child {
    let mut command = site.helio(&["log", "archive", &site.path("kept")]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Runs the archiver until so many records are found, and ends it in order.
fn archive(site: &Site, records: u64) {
    let mut child = archiver(site);
    let begun = Instant::now();
    loop {
        let found = site.run(&["log", "search", &site.path("kept"), "--count"]);
        if found.out.trim() == records.to_string() {
            break;
        }
        assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
        assert!(begun.elapsed() < PATIENCE, "{records} were published, found {}", found.out);
        std::thread::yield_now();
    }
    assert_eq!(interrupt(&mut child), Some(0));
}

fn messages(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["message"].as_str().unwrap()).collect()
}

#[test]
fn an_archiver_that_is_killed_again_and_again_has_every_record_once() {
    let site = Site::new();
    let mut expected = Vec::new();
    for round in 0..8 {
        let mut child = archiver(&site);
        for part in 0..3 {
            let texts = (0..200).map(|n| format!("r{round}p{part}n{n}"));
            let lines = texts.clone().map(|text| text + "\n").collect::<String>();
            expected.extend(texts);
            let level = ["DEBUG", "ERROR", "ALERT"][part];
            let emitted = site.run_with(&["log", "emit", "-", "--level", level], lines.as_bytes());
            assert_eq!(emitted.code, Some(0), "{}", emitted.err);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    archive(&site, expected.len() as u64);
    let found = site.run(&["log", "search", &site.path("kept"), "--json"]).lines();
    let mut found = messages(&found);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn what_is_found_is_printed_and_exported() {
    let site = Site::new();
    let kept = site.path("kept");
    for (text, level) in [("axis 2 is off", "WARNING"), ("<done>", "INFO"), ("axis, ok", "DEBUG")] {
        let emit = ["log", "emit", text, "--level", level, "--logger", "CONTROL/DV11"];
        site.run(&[&emit[..], &["--data", "axis=2"]].concat()).ok();
    }
    archive(&site, 3);
    let search = |rest: &[&str]| site.run(&[&["log", "search", &kept], rest].concat());
    let texts = |rest: &[&str]| {
        let lines = search(&[rest, &["--json"]].concat()).lines();
        messages(&lines).join("; ")
    };
    assert_eq!(texts(&[]), "axis 2 is off; <done>; axis, ok");
    assert_eq!(texts(&["axis", "level >= INFO"]), "axis 2 is off");
    assert_eq!(texts(&["--level", "INFO", "not axis"]), "<done>");
    assert_eq!(texts(&["-n", "1", "axis"]), "axis 2 is off");
    assert_eq!(
        texts(&["--from", "-1h", "--to", "-0s", "data.axis = 2", "-l", "WARNING"]),
        "axis 2 is off"
    );
    assert_eq!(texts(&["--to", "-1h"]), "");
    assert_eq!(search(&["--count", "axis"]).ok(), "2\n");
    let counted = search(&["--count", "--json"]).json();
    assert_eq!(counted, serde_json::json!({"records": 3, "gaps": 0, "damaged_blocks": 0}));
    let shown = search(&["-l", "WARNING"]).ok();
    assert!(shown.ends_with("Z WARNING   CONTROL/DV11: axis 2 is off axis=2\n"), "{shown}");
    let xml = search(&["--xml", "off"]).ok();
    assert!(xml.contains("<![CDATA[axis 2 is off]]>") && xml.ends_with("</Log>\n"), "{xml}");

    let export = |format: &str| {
        let file = site.path(format);
        let args = ["log", "export", &kept, "axis", "--format", format, "-o", &file, "--json"];
        assert_eq!(site.run(&args).json()["records"], 2);
        assert!(!std::path::Path::new(&format!("{file}.part")).exists());
        std::fs::read(file).unwrap()
    };
    let table = export("parquet");
    assert!(table.starts_with(b"PAR1") && table.ends_with(b"PAR1"));
    let export = |format: &str| String::from_utf8(export(format)).unwrap();
    let lines = export("jsonl");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(messages(&lines), ["axis 2 is off", "axis, ok"]);
    let csv = export("csv");
    assert!(csv.starts_with("time,level,logger,message,"), "{csv}");
    assert!(csv.contains(",DEBUG,CONTROL/DV11,\"axis, ok\","), "{csv}");
    assert_eq!(export("xml").matches("<![CDATA[axis").count(), 2);
}

#[test]
fn what_is_wrong_is_told() {
    let site = Site::new();
    let kept = site.path("kept");
    let nothing = site.run(&["log", "search", &kept]);
    assert_eq!(nothing.code, Some(3));
    assert!(nothing.err.contains("there is no archive of log records"), "{}", nothing.err);
    assert!(!std::path::Path::new(&kept).exists());
    site.run(&["log", "emit", "first"]).ok();
    archive(&site, 1);
    for (args, code) in [
        (&["search", &kept, "level >= LOUD"][..], 2),
        (&["search", &kept, "--from", "noon"], 2),
        (&["archive", &kept, "--keep", "DEBUG=soon"], 2),
        (&["export", &kept, "--format", "jsonl", "-o", "/nowhere/at/all"], 3),
    ] {
        let ran = site.run(&[&["log"], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{args:?} {}", ran.err);
    }
    let mut first = archiver(&site);
    // It is there when it holds the lock.
    let refused = loop {
        let second = site.run(&["log", "archive", &kept, "--for", "0s"]);
        if second.code != Some(0) {
            break second;
        }
        // The second one may have been there first.
        if let Some(ended) = first.try_wait().unwrap() {
            assert_eq!(ended.code(), Some(4));
            first = archiver(&site);
        }
    };
    assert_eq!(refused.code, Some(4));
    assert!(refused.err.contains("another process fills this archive"), "{}", refused.err);
    assert_eq!(interrupt(&mut first), Some(0));
    let other = Site::new();
    other.run(&["log", "emit", "elsewhere"]).ok();
    let refused = other.run(&["log", "archive", &kept, "--for", "0s"]);
    assert_eq!(refused.code, Some(4), "{}", refused.err);
}
