//! `log watch`: alarms out of declared sequences, live and over what is kept.

use crate::support::{Site, interrupt, line_of, told_by};
use serde_json::Value;

const MACHINES: &str = "
machines:
  - name: mount
    each: antenna
    states:
      start:
        - {when: '\"slew started\"', to: slewing}
      slewing:
        - when: '\"slew done\"'
        - when: level >= ERROR
          raise: {message: 'a slew of {antenna} failed', level: CRITICAL}
        - {after: 1h, raise: {message: 'a slew of {antenna} has not ended'}}
";

fn emit(site: &Site, level: &str, antenna: &str, text: &str) {
    let args = ["log", "emit", text, "--level", level, "--antenna", antenna];
    site.run(&[&args[..], &["--logger", "CONTROL/Mount"]].concat()).ok();
}

fn alarms(site: &Site) -> Vec<(String, String)> {
    let lines = site.run(&["log", "tail", "--no-follow", "--json", "logger = watch/*"]).lines();
    let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    lines.iter().map(|line| (text(line, "level"), text(line, "message"))).collect()
}

#[test]
fn an_alarm_comes_out_of_a_sequence_and_outlives_a_killed_watcher() {
    let site = Site::new();
    let machines = site.file("machines.yaml", MACHINES);
    let kept = site.path("kept.json");
    let watch = ["log", "watch", &machines, "--keep", &kept, "--json"];
    // Both begin with what comes: what tells that they are there is the first alarm.
    let mut child = site.start(&["log", "watch", &machines, "--from", "earliest", "--hold", "0"]);
    emit(&site, "INFO", "DV11", "slew started");
    emit(&site, "ERROR", "DV11", "motor hot");
    assert!(line_of(&mut child).contains("CRITICAL  watch/mount: a slew of DV11 failed"));
    assert_eq!(interrupt(&mut child), Some(0));
    assert_eq!(alarms(&site), [("CRITICAL".to_owned(), "a slew of DV11 failed".to_owned())]);

    // A cursor is kept from the first run on, and one that ends keeps where it stands.
    site.run(&[&watch[..], &["--for", "1ms"]].concat()).ok();
    emit(&site, "INFO", "DV12", "slew started");
    emit(&site, "INFO", "DV13", "slew started");
    let mut child = site.start(&watch);
    emit(&site, "ERROR", "DV12", "motor hot");
    let alarm: Value = serde_json::from_str(&line_of(&mut child)).unwrap();
    assert_eq!(alarm["message"], "a slew of DV12 failed");
    assert_eq!(alarm["antenna"], "DV12");
    assert_eq!(alarm["audiences"], serde_json::json!(["Operator"]));
    assert_eq!(alarm["data"]["watch.records"].as_array().unwrap().len(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    emit(&site, "ERROR", "DV13", "motor hot");
    let mut child = site.start(&watch);
    let mut told = Vec::new();
    while !told.contains(&"a slew of DV13 failed".to_owned()) {
        let alarm: Value = serde_json::from_str(&line_of(&mut child)).unwrap();
        told.push(alarm["message"].as_str().unwrap().to_owned());
    }
    assert_eq!(interrupt(&mut child), Some(0));
    // The one of DV12 may have come again: it was killed before that was kept.
    let messages: Vec<_> = alarms(&site).into_iter().map(|(_, message)| message).collect();
    for antenna in ["DV11", "DV12", "DV13"] {
        assert!(messages.contains(&format!("a slew of {antenna} failed")), "{messages:?}");
    }
}

#[test]
fn a_file_that_cannot_be_written_ends_no_watch() {
    let site = Site::new();
    let machines = site.file("machines.yaml", MACHINES);
    let (kept, draft) = (site.path("kept.json"), site.path("kept.new"));
    let watch = ["log", "watch", &machines, "--keep", &kept];
    let mut child = site.start(&watch);
    // In the place of what it writes, as soon as it is not writing.
    while !std::fs::exists(&kept).unwrap() || std::fs::create_dir(&draft).is_err() {
        assert_eq!(child.try_wait().unwrap(), None);
    }
    let told = told_by(&mut child);
    assert!(told.contains("kept.json") && told.contains("it is tried again"), "{told}");
    emit(&site, "INFO", "DV11", "slew started");
    emit(&site, "ERROR", "DV11", "motor hot");
    assert!(line_of(&mut child).contains("a slew of DV11 failed"));
    std::fs::remove_dir(&draft).unwrap();
    assert_eq!(told_by(&mut child), "helio: the state is saved again");
    assert_eq!(interrupt(&mut child), Some(0));
}

#[test]
fn what_is_kept_can_be_watched_without_publishing() {
    let site = Site::new();
    let machines = site.file("machines.yaml", MACHINES);
    for antenna in ["DV11", "DV12"] {
        emit(&site, "INFO", antenna, "slew started");
    }
    emit(&site, "INFO", "DV11", "slew done");
    emit(&site, "ERROR", "DV11", "motor hot");
    emit(&site, "ERROR", "DV12", "motor hot");
    let over = ["log", "watch", &machines, "--no-follow", "--dry-run"];
    let found = site.run(&over).ok();
    assert_eq!(found.lines().count(), 1, "{found}");
    assert!(found.contains("a slew of DV12 failed"), "{found}");
    assert_eq!(alarms(&site), []);
}

#[test]
fn a_wrong_file_is_told_with_its_line() {
    let site = Site::new();
    let machines = site.file("machines.yaml", MACHINES);
    assert_eq!(site.run(&["log", "watch", &machines, "--check"]).ok(), "mount\n");
    let wrong = site.file("wrong.yaml", MACHINES.replace("to: slewing", "to: slew"));
    let ran = site.run(&["log", "watch", &wrong, "--check"]);
    assert_eq!(ran.code, Some(4));
    let cause = "line 7: there is no state \"slew\"; the states are start, slewing";
    assert!(ran.err.contains(cause), "{}", ran.err);
    let damaged = site.file("kept.json", "{}");
    let ran = site.run(&["log", "watch", &machines, "--keep", &damaged]);
    assert_eq!(ran.code, Some(4));
    assert!(ran.err.contains("it is not what helio log watch keeps"), "{}", ran.err);
}
