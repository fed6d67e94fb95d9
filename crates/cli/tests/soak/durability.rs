//! `helio dds durability`: what is acknowledged outlives the program that published it and the
//! service, whichever way that ends.

use std::io::Write as _;
use std::process::{Child, Stdio};

use crate::dds::domain;
use crate::support::{Ran, ended, helio, interrupt, line_of, run, run_with};
use serde_json::{Value, json};

/// A domain of its own on the loopback.
fn url() -> String {
    format!("dds://{}?interface=lo&multicast=false&lease_s=1", domain())
}

fn service(url: &str, dir: &str, rest: &[&str]) -> Child {
    let mut command = helio();
    command.args(["dds", "durability", "--json", "--url", url, "--dir", dir]).args(rest);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

/// Lines up to one that is wanted.
fn until(child: &mut Child, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let line: Value = serde_json::from_str(&line_of(child)).unwrap();
        if wanted(&line) {
            return line;
        }
    }
}

fn keeps(line: &Value) -> bool {
    line["notice"] == "keeps"
}

#[test]
fn what_is_acknowledged_outlives_publisher_and_service() {
    let (url, dir) = (url(), tempfile::tempdir().unwrap());
    let dir = dir.path().to_str().unwrap();
    let refused = run_with(&["pub", "site/log", "--profile", "log", "--url", &url], b"{}\n");
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("helio dds durability --dir DIR --url dds://"), "{refused:?}");
    let mut first = service(&url, dir, &[]);
    until(&mut first, |line| line["keeps"] == json!(url));
    let publish = ["pub", "site/log", "--profile", "log", "--guarantee", "durable", "--url", &url];
    let Ran { code, err, .. } = run_with(&publish, b"{\"seq\": 1}\n{\"seq\": 2}\n");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(until(&mut first, keeps)["topic"], "site/log");
    first.kill().unwrap();
    first.wait().unwrap();
    let mut second = service(&url, dir, &[]);
    let told = until(&mut second, keeps);
    assert_eq!(told["text"], "kept from now on, 2 samples are here");
    let read = ["sub", "site/log", "--from", "earliest", "--count", "2", "--json", "--url", &url];
    let values: Vec<_> = run(&read).lines().iter().map(|line| line["value"].clone()).collect();
    assert_eq!(values.len(), 2, "{values:?}");
    assert_eq!(interrupt(&mut second), Some(0));
    let mut third = service(&url, dir, &["--forget", "site/log"]);
    until(&mut third, |line| line["notice"] == "forgotten" && line["topic"] == "site/log");
    until(&mut third, |line| line["keeps"] == json!(url));
    assert_eq!(run(&["topics", "--json", "--url", &url]).ok(), "");
    assert_eq!(interrupt(&mut third), Some(0));
}

#[test]
fn what_it_cannot_keep_is_told_and_a_signal_ends_it() {
    let ([url, elsewhere], dir) = ([url(), url()], tempfile::tempdir().unwrap());
    let dir = dir.path().to_str().unwrap();
    // Somebody has made a topic differently before.
    let mut command = helio();
    command.args(["pub", "site/log", "--profile", "telemetry", "--url", &elsewhere]);
    let mut other = command.stdin(Stdio::piped()).spawn().unwrap();
    other.stdin.as_mut().unwrap().write_all(b"{\"seq\": 2}\n").unwrap();
    while run(&["topics", "--json", "--url", &elsewhere]).ok().is_empty() {}
    let mut first = service(&url, dir, &[]);
    until(&mut first, |line| line["keeps"] == json!(url));
    let publish = ["pub", "site/log", "--profile", "log", "--guarantee", "durable", "--url", &url];
    let Ran { code, err, .. } = run_with(&publish, b"{\"seq\": 1}\n");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    until(&mut first, |line| line["notice"] == "ready" && line["topic"] == "site/log");
    let second = run(&["dds", "durability", "--url", &url, "--dir", dir]);
    assert!(!matches!(second.code, Some(0) | None), "the folder is in use: {second:?}");
    assert!(second.err.contains("_helio/kept"), "{second:?}");
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(ended(&mut first), Some(0));
    let mut third = service(&elsewhere, dir, &[]);
    let told = until(&mut third, |line| line["notice"] == "trouble");
    assert_eq!(told["topic"], "site/log");
    let text = told["text"].as_str().unwrap();
    assert!(text.contains("the durability service cannot store site/log"), "{text}");
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(interrupt(&mut third), Some(0));
}
