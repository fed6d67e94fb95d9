//! `log emit` and `log tail`: records from one process to another.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use crate::support::terminal::Terminal;
use crate::support::{Site, ended, interrupt, line_of};
use serde_json::{Value, json};

const KEPT: [&str; 3] = ["log", "tail", "--no-follow"];

fn tail(rest: &[&'static str]) -> Vec<&'static str> {
    [&KEPT[..], rest].concat()
}

fn messages(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["message"].as_str().unwrap()).collect()
}

#[test]
fn a_record_goes_from_a_shell_to_another_with_all_that_was_said_of_it() {
    let site = Site::new();
    let receipt = site.run(&[
        "log",
        "emit",
        "axis",
        "is off",
        "--level",
        "warning",
        "--logger",
        "CONTROL/DV11/Mount",
        "--audience",
        "Operator",
        "--audience",
        "SciLog",
        "--data",
        "axis=2",
        "--data",
        "state=TRACKING",
        "--antenna",
        "DV11",
        "--producer",
        "script",
        "--json",
    ]);
    assert_eq!(
        receipt.json(),
        json!({"topic": "log/WARNING", "partition": 0, "offset": 0, "records": 1,
            "guarantee": "stored"})
    );
    let mut record = site.run(&tail(&["--json"])).json();
    let fields = record.as_object_mut().unwrap();
    for changing in ["time", "host", "process"] {
        assert!(fields.remove(changing).is_some(), "{changing}");
    }
    let expected = json!({"level": "WARNING", "logger": "CONTROL/DV11/Mount",
        "message": "axis is off", "antenna": "DV11", "producer": "script", "sequence": 1,
        "audiences": ["Operator", "SciLog"], "data": {"axis": 2, "state": "TRACKING"}});
    assert_eq!(record, expected);
    let xml = site.run(&tail(&["--xml"])).ok();
    assert!(xml.starts_with("<?xml") && xml.ends_with("</Log>\n"), "{xml}");
    assert!(xml.contains("<Warning ") && xml.contains("<![CDATA[axis is off]]>"), "{xml}");
    let shown = site.run(&KEPT).ok();
    let (time, rest) = shown.split_at(28);
    assert!(time.ends_with("Z "), "{shown}");
    assert_eq!(rest, "WARNING   CONTROL/DV11/Mount: axis is off axis=2 state=TRACKING\n");
}

#[test]
fn lines_of_input_are_records_and_those_that_come_together_travel_together() {
    let site = Site::new();
    let lines = (1..=1_000).map(|n| format!("step {n}\n")).collect::<String>();
    let input = [lines.as_bytes(), b"\n\r\nno text: \xff\nlast"].concat();
    let receipts = site.run_with(&["log", "emit", "-", "--json"], &input).lines();
    let records: u64 = receipts.iter().map(|receipt| receipt["records"].as_u64().unwrap()).sum();
    assert_eq!(records, 1_002);
    assert!(receipts.len() < 100, "{} packets", receipts.len());
    let records = site.run(&tail(&["--json"])).lines();
    let messages = messages(&records);
    assert_eq!((messages[0], messages[999]), ("step 1", "step 1000"));
    assert_eq!(messages[1_000..], ["no text: \u{fffd}", "last"]);
    assert!(records.iter().zip(1..).all(|(record, n)| record["sequence"] == n));

    let long = "x".repeat(200_001);
    let ran = site.run_with(&["log", "emit", "-"], format!("short\n{long}\n").as_bytes());
    assert_eq!(ran.code, Some(4));
    assert!(ran.err.starts_with("helio: line 2 is longer than 200000 bytes"), "{}", ran.err);
    assert_eq!(site.run(&tail(&["--json"])).lines().len(), 1_003);
}

#[test]
fn levels_and_counts_choose_and_a_cursor_goes_on() {
    let site = Site::new();
    for (n, level) in ["DEBUG", "INFO", "ERROR", "7", "ALERT", "DEBUG"].into_iter().enumerate() {
        site.run(&["log", "emit", &n.to_string(), "--level", level]).ok();
    }
    let texts = |args: &[&'static str]| {
        let lines = site.run(&tail(&[&["--json"], args].concat())).lines();
        messages(&lines).join(" ")
    };
    assert_eq!(texts(&[]), "0 1 2 3 4 5");
    assert_eq!(texts(&["--level", "error"]), "2 4");
    assert_eq!(texts(&["-l", "7"]), "2 3 4");
    assert_eq!(texts(&["level = DEBUG or level > CRITICAL"]), "0 4 5");
    assert_eq!(texts(&["--level", "INFO", "not", "1"]), "2 3 4");
    assert_eq!(texts(&["--from", "-1h", "-n", "2"]), "0 1");
    assert_eq!(texts(&["--from", "2000-01-01T00:00:00Z"]), "0 1 2 3 4 5");
    assert_eq!(texts(&["--from", "latest"]), "");

    let mut cursor = "earliest".to_owned();
    let mut all = Vec::new();
    for count in ["1", "2", "9"] {
        let args = [&KEPT[..], &["--show-cursor", "--json", "-n", count, "--from", &cursor]];
        let ran = site.run(&args.concat());
        let lines: Vec<Value> =
            ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        all.extend(messages(&lines).into_iter().map(str::to_owned));
        let next = ran.err.strip_prefix("-- cursor: ").unwrap().trim_end();
        cursor = next.to_owned();
        assert_eq!(ran.code, Some(0));
    }
    assert_eq!(all, ["0", "1", "2", "3", "4", "5"]);
    let other = Site::new();
    other.run(&["log", "emit", "elsewhere"]).ok();
    let ran = other.run(&[&KEPT[..], &["--from", &cursor]].concat());
    assert_eq!(ran.code, Some(4));
    assert!(ran.err.starts_with("helio: the cursor is of another bus"), "{}", ran.err);
}

#[test]
fn who_follows_may_be_there_first_and_ends_in_order() {
    let site = Site::new();
    let mut child = site.start(&["log", "tail", "--from", "earliest", "--show-cursor"]);
    site.run(&["log", "emit", "first", "--level", "EMERGENCY"]).ok();
    assert!(line_of(&mut child).ends_with("Z EMERGENCY helio: first"));
    site.run(&["log", "emit", "second"]).ok();
    assert!(line_of(&mut child).ends_with("Z INFO      helio: second"));
    assert_eq!(interrupt(&mut child), Some(0));
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.starts_with("-- cursor: log1."), "{told}");

    let mut child = site.start(&["log", "tail", "--from", "earliest"]);
    assert!(line_of(&mut child).ends_with("first"));
    drop(child.stdout.take());
    assert_eq!(ended(&mut child), Some(0), "nobody reads it any more");
}

#[test]
fn who_follows_may_come_before_the_log_on_a_bus_of_others() {
    let site = Site::new();
    site.run(&["pub", "wind", "3 m/s"]).ok();
    let mut child = site.start(&["log", "tail", "--from", "earliest"]);
    site.run(&["log", "emit", "first"]).ok();
    assert!(line_of(&mut child).ends_with("first"));
    assert_eq!(interrupt(&mut child), Some(0));
}

#[test]
fn what_is_no_record_is_told_and_missed() {
    let site = Site::new();
    site.run(&["log", "emit", "before"]).ok();
    site.run(&["pub", "log/INFO", "no packet", "--producer", "stranger"]).ok();
    site.run(&["log", "emit", "after"]).ok();
    let ran = site.run(&tail(&["--json"]));
    assert_eq!((ran.code, ran.out.lines().count()), (Some(5), 2));
    let told = "helio: INFO: a sample of stranger (incarnation 1), offset 1 of partition 0: no log \
                packet: it does not begin with \"HLOG\"\n";
    assert!(ran.err.starts_with(told), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 2);
}

#[test]
fn a_wrong_command_line_is_told_and_looking_makes_nothing() {
    let site = Site::new();
    let wrong: [&[&str]; 8] = [
        &["log", "tail", "level >= LOUD"],
        &["log", "tail", "view Nobody"],
        &["log", "emit"],
        &["log", "emit", "a", "--level", "LOUD"],
        &["log", "emit", "a", "--data", "b"],
        &["log", "emit", "a", "--prefix", "b//c"],
        &["log", "tail", "--from", "noon"],
        &["log", "tail", "--from", "log1.AAAA"],
    ];
    for args in wrong {
        let ran = site.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{args:?} {}", ran.err);
    }
    let fresh = Site::new();
    assert_eq!(fresh.run(&KEPT).code, Some(3));
    assert_eq!(std::fs::read_dir(fresh.folder.path()).unwrap().count(), 0);
}

#[test]
fn levels_have_colours_on_a_terminal() {
    let site = Site::new();
    let mut child = site.helio(&["log", "emit", "-", "--level", "ERROR"]);
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"lost lock\n").unwrap();
    assert_eq!(ended(&mut child), Some(0));
    let shown = |colour: &str| {
        let mut command = site.helio(&KEPT);
        command.env("NO_COLOR", colour);
        let (code, screen) = Terminal::start(command, 10, 100).end();
        assert_eq!(code, Some(0));
        let contents = screen.contents();
        let place = contents.find("ERROR").unwrap();
        screen.cell(0, u16::try_from(place).unwrap()).unwrap().fgcolor()
    };
    assert_eq!(shown(""), vt100::Color::Idx(1));
    assert_eq!(shown("1"), vt100::Color::Default);
}

#[test]
fn a_producer_s_lines_stay_in_order_also_where_a_lane_has_partitions() {
    use helio_bus::{Bus, TopicSpec};
    use helio_logging::{Lanes, Level};
    let site = Site::new();
    let lanes = Lanes::default();
    let qos = helio_bus::Qos { partitions: 4, ..lanes.qos(Level::INFO) };
    let spec = TopicSpec::new(&lanes.topic_name(Level::INFO)).unwrap().qos(qos);
    Bus::connect(&site.url).unwrap().topic(spec).unwrap();
    // More than is read at once, so that there are several packets.
    let input = (1..=60_000).map(|n| format!("step {n}\n")).collect::<String>();
    let receipts = site.run_with(&["log", "emit", "-", "--json"], input.as_bytes()).lines();
    assert!(receipts.len() > 1);
    let lines = site.run(&tail(&["--json"])).lines();
    let expected: Vec<_> = (1..=60_000).map(|n| format!("step {n}")).collect();
    assert_eq!(messages(&lines), expected);
}

#[test]
fn levels_are_set_listed_and_taken_back_and_each_change_leaves_a_record() {
    let site = Site::new();
    let level = |rest: &[&'static str]| site.run(&[&["log", "level"], rest].concat());
    assert_eq!(level(&["list"]).code, Some(3), "looking makes no journal");
    level(&["set", "CONTROL/DV11/*", "debug", "--local", "off", "--for", "10m"]).ok();
    level(&["set", "**/Mount", "TRACE", "--reason", "lost lock"]).ok();
    let lines = level(&["list", "--json"]).lines();
    let (mount, below) = (&lines[0], &lines[1]);
    assert_eq!(lines.len(), 2);
    assert_eq!((&mount["pattern"], &mount["level"]), (&json!("**/Mount"), &json!("TRACE")));
    assert_eq!((&mount["local"], &mount["until"]), (&Value::Null, &Value::Null));
    assert_eq!((&mount["why"], &below["why"]), (&json!("lost lock"), &json!("")));
    assert_eq!((&below["level"], &below["local"]), (&json!("DEBUG"), &json!("OFF")));
    assert!(mount["who"].as_str().unwrap().contains('@'));
    let time = |value: &Value| value.as_str().unwrap().parse::<helio_bus::Tai>().unwrap().nanos();
    assert_eq!(time(&below["until"]) - time(&below["when"]), 600 * 1_000_000_000);
    let shown = level(&["list"]).ok();
    assert!(shown.starts_with("pattern         level  local  until"), "{shown}");
    assert!(shown.contains("\n**/Mount        TRACE  -      cleared "), "{shown}");

    level(&["clear", "**/Mount", "--reason", "found"]).ok();
    let ran = level(&["clear", "**/Mount"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.err.starts_with("helio: no levels of **/Mount are set"), "{}", ran.err);
    assert_eq!(level(&["list", "--json"]).lines().len(), 1);

    let records = site.run(&tail(&["--json", "logger = log/levels"])).lines();
    let expected = [
        "the level of CONTROL/DV11/* is DEBUG",
        "the level of **/Mount is TRACE",
        "the level of **/Mount is no longer TRACE",
    ];
    assert_eq!(messages(&records), expected);
    assert!(records.iter().all(|record| record["level"] == "NOTICE"));
    let data = &records[2]["data"];
    assert_eq!((&data["action"], &data["why"]), (&json!("cleared"), &json!("found")));
    assert_eq!((&data["pattern"], &data["who"]), (&json!("**/Mount"), &mount["who"]));
}

#[test]
fn what_is_no_level_is_told_by_who_sets_and_passed_over_by_who_lists() {
    let site = Site::new();
    let wrong: [(&[&str], &str); 5] = [
        (&["", "DEBUG"], "an empty pattern"),
        (&["a", "LOUD"], "\"LOUD\" is no level"),
        (&["a", "DEBUG", "--local", "NONE"], "or OFF"),
        (&["a", "DEBUG", "--for", "soon"], "invalid duration"),
        (&["a", "DEBUG", "--for", "0"], "invalid time"),
    ];
    for (args, told) in wrong {
        let ran = site.run(&[&["log", "level", "set"], args].concat());
        assert_eq!((ran.code, ran.err.contains(told)), (Some(2), true), "{args:?} {}", ran.err);
    }
    let long = "x".repeat(257);
    let ran = site.run(&["log", "level", "set", &long, "DEBUG"]);
    assert_eq!(ran.code, Some(4));
    assert!(ran.err.contains("the pattern's length is 257"), "{}", ran.err);
    site.run(&["log", "level", "set", "a", "DEBUG"]).ok();
    let other = r#"{"pattern": "c", "remote": 3, "local": -1, "until": 0, "who": "", "why": "",
        "when": 0}"#
        .replace('\n', " ");
    site.run(&["pub", "log/levels", &other, "--key", "b", "--producer", "stranger"]).ok();
    let ran = site.run(&["log", "level", "list", "--json"]);
    assert_eq!((ran.code, ran.out.lines().count()), (Some(0), 1));
    let told = "helio: 1 samples of log/levels were skipped; the last: a sample of stranger, \
                offset 1: its key is not its pattern \"c\"\n";
    assert_eq!(ran.err, told);
}
