//! `component audit --follow`: what comes, for as long as somebody reads it.

use std::process::{Child, Command, Stdio};

use crate::support::{Simulated, Site, ended, line_of, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The records of commands that are no stream's.
const COMMANDS: [&str; 2] = ["--command", "stop"];

fn follow(site: &Site, rest: &[&str]) -> Child {
    site.start(&[&["component", "audit", "--follow", "--json"], &COMMANDS[..], rest].concat())
}

fn stop(site: &Site, component: &str) {
    site.run(&["component", "command", component, "stop"]).ok();
}

/// The next record's component, phase and acknowledgement.
fn record(child: &mut Child) -> (Value, Value, Value) {
    let line: Value = serde_json::from_str(&line_of(child)).unwrap();
    assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    (line["component"].clone(), line["phase"].clone(), line["ack"].clone())
}

fn expect_stop(child: &mut Child, component: &str) {
    let (name, received, _) = record(child);
    assert_eq!((name, received), (json!(component), json!("received")));
    let (name, finished, ack) = record(child);
    assert_eq!((name, finished, ack), (json!(component), json!("finished"), json!(303)));
}

#[test]
fn it_goes_on_over_restarts_and_takes_in_who_is_new() {
    let site = Site::new();
    let first = Simulated::start(&site, &["MTMount"]);
    stop(&site, "MTMount");
    let mut following = follow(&site, &[]);
    expect_stop(&mut following, "MTMount");
    stop(&site, "MTMount");
    expect_stop(&mut following, "MTMount");

    first.interrupt();
    let _second = Simulated::start(&site, &["MTMount"]);
    stop(&site, "MTMount");
    expect_stop(&mut following, "MTMount");

    // A component that nobody had ever run when the following began.
    let enabled = ["component", "audit", "--follow", "--json", "--command", "enable"];
    let mut enabling = site.start(&enabled);
    let _mast = Simulated::start(&site, &["ESS:1", "--state", "DISABLED"]);
    site.run(&["component", "set-state", "ESS:1", "ENABLED"]).ok();
    let (name, phase, _) = record(&mut enabling);
    assert_eq!((name, phase), (json!("ESS"), json!("received")));

    for (child, signal) in [(&mut following, Signal::INT), (&mut enabling, Signal::TERM)] {
        kill_process(Pid::from_child(child), signal).unwrap();
        assert_eq!(ended(child), Some(0), "{signal:?}");
    }
    let mut timed = follow(&site, &["--for", "1h"]);
    expect_stop(&mut timed, "MTMount");
    assert_eq!(crate::support::interrupt(&mut timed), Some(130), "its time was to come");
}

/// Whoever has seen enough leaves; nothing that is yet to come must be waited for.
#[test]
fn it_ends_with_its_reader() {
    let site = Site::new();
    let _mount = Simulated::start(&site, &["MTMount"]);
    stop(&site, "MTMount");
    for command in [
        &["component", "audit", "--follow", "--command", "stop"][..],
        &["component", "watch"],
        &["sub", "MTMount/event/summaryState", "--from", "last"],
    ] {
        let mut child = site.start(command);
        assert!(!line_of(&mut child).is_empty());
        drop(child.stdout.take());
        assert_eq!(ended(&mut child), Some(0), "{command:?}");
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!(said, "", "{command:?}");
    }
}

#[test]
fn a_pipe_to_head_ends_too() {
    let site = Site::new();
    let _mount = Simulated::start(&site, &["MTMount"]);
    stop(&site, "MTMount");
    let line = r#""$HELIO" component audit --follow --json | head -1"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).env("HELIO", env!("CARGO_BIN_EXE_helio")).env("HELIO_URL", &site.url);
    let ran = shell.stdin(Stdio::null()).output().unwrap();
    let said: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((said["component"].as_str(), ran.status.code()), (Some("MTMount"), Some(0)));
    assert!(ran.stderr.is_empty());
}

#[test]
fn records_that_were_not_fetched_yet_are_printed() {
    let site = Site::new();
    let mount = Simulated::start(&site, &["MTMount"]);
    stop(&site, "MTMount");
    mount.interrupt();
    // Its readers receive nothing at the first polls of a sample, as on a broker.
    let url = format!("fault:{}?delay=1&seed=1", site.url);
    let audit = ["component", "audit", "--json", "--command", "stop", "--url", &url];
    let phases: Vec<_> = run(&audit).lines().iter().map(|record| record["phase"].clone()).collect();
    assert_eq!(phases, [json!("received"), json!("finished")]);
    // The same for the components themselves.
    let listed = run(&["component", "list", "--json", "--url", &url]).lines();
    assert_eq!(listed[0]["component"], json!("MTMount"));
    assert_eq!(listed[0]["presence"], json!("gone"));
}
