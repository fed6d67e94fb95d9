//! `component`: looking at components, also at those that another system runs.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use common::{Site, run};
use serde_json::{Value, json};

const OWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/interfaces");

/// Publishes a value of a topic as a component of another system does: by its interface alone.
fn publish(site: &Site, topic: &str, value: &Value) {
    let exported = run(&["schema", "export", OWN, "--json"]).lines();
    let found = exported.iter().find(|line| line["topic"] == topic).unwrap();
    let schema = site.file("topic.avsc", found["schema"].to_string());
    let mut whole = json!({
        "private_sndStamp": 0.0, "private_rcvStamp": 0.0, "private_efdStamp": 0.0,
        "private_kafkaStamp": 0.0, "private_seqNum": 1, "private_revCode": "00000000",
        "private_identity": "x", "private_origin": 1,
    });
    whole.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
    let kind = if topic.contains("/event/") { "event" } else { "telemetry" };
    let key = if value.get("salIndex").is_some() { &["--key-field", "salIndex"][..] } else { &[] };
    let value = whole.to_string();
    let args = ["pub", topic, &value, "--schema", &schema, "--profile", kind];
    site.run(&[&args[..], key].concat()).ok();
}

/// Two weather stations of another system, one of them in trouble.
fn foreign() -> Site {
    let site = Site::new();
    for index in [1, 2] {
        publish(&site, "ESS/event/heartbeat", &json!({"salIndex": index, "heartbeat": false}));
    }
    publish(&site, "ESS/event/summaryState", &json!({"salIndex": 1, "summaryState": 2}));
    publish(&site, "ESS/event/summaryState", &json!({"salIndex": 2, "summaryState": 3}));
    let error = json!({
        "salIndex": 2, "errorCode": 7, "errorReport": "no wind", "traceback": "",
    });
    publish(&site, "ESS/event/errorCode", &error);
    site
}

#[test]
fn components_of_another_system_are_listed() {
    let site = foreign();
    let lines = site.run(&["component", "list", "--json"]).lines();
    let said: Vec<_> =
        lines.iter().map(|l| (&l["component"], &l["index"], &l["state"], &l["host"])).collect();
    let (ess, none) = (json!("ESS"), Value::Null);
    let expected = [(json!(1), json!("ENABLED")), (json!(2), json!("FAULT"))];
    assert_eq!(said, expected.each_ref().map(|(index, state)| (&ess, index, state, &none)));
    assert_eq!(
        (&lines[1]["error_code"], &lines[1]["error_report"]),
        (&json!(7), &json!("no wind"))
    );
    assert_ne!(lines[0]["presence"], "unknown", "its heartbeat came, lately or not");

    let states = site.run(&["component", "states", "ESS:2", "--json"]).lines();
    assert_eq!((states.len(), &states[0]["state"]), (1, &json!("FAULT")));
    let none = site.run(&["component", "states", "MTMount"]);
    assert_eq!((none.code, none.out.as_str()), (Some(3), ""));
    let text = site.run(&["component", "list"]).ok();
    assert!(text.lines().nth(2).unwrap().starts_with("ESS:2"), "{text}");
}

#[test]
fn changes_are_lines_in_a_pipe() {
    let site = foreign();
    let lines = site.run(&["component", "watch", "ESS:2", "--for", "10ms", "--json"]).lines();
    let of = |field: &str| lines.iter().find_map(|line| line.get(field)).cloned();
    assert_eq!(of("state"), Some(json!("FAULT")));
    assert_eq!(of("error_code"), Some(json!(7)));
    assert!(lines.iter().all(|line| line["index"] == 2));
    let text = site.run(&["component", "watch", "--for", "10ms"]).ok();
    assert!(text.contains("ESS:1 state ENABLED"), "{text}");
}

#[test]
fn interfaces_are_shown() {
    let lines = run(&["component", "list", OWN, "--json"]).lines();
    let mount = lines.iter().find(|line| line["component"] == "MTMount").unwrap();
    assert_eq!(
        (&mount["indexed"], mount["telemetry"].as_u64().unwrap() > 0),
        (&json!(false), true)
    );
    assert!(mount["messages_per_s"].as_f64().unwrap() > 20.0);

    let show =
        |rest: &[&str]| run(&[&["component", "show"], rest, &["--interfaces", OWN]].concat());
    let topic = show(&["MTMount", "trackTarget", "--json"]).json();
    assert_eq!((&topic["attribute"], &topic["rate_hz"]), (&json!("cmd_trackTarget"), &json!(20.0)));
    assert_eq!(topic["fields"][0]["units"], "deg");
    assert!(show(&["MTMount"]).ok().contains("evt_summaryState"));
    assert!(show(&["MTMount", "evt_summaryState"]).ok().contains("long"));
    for unknown in [&["Dome"][..], &["MTMount", "fly"]] {
        let refused = show(unknown);
        assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""), "{}", refused.err);
    }
}

#[test]
fn there_is_no_audit_before_the_first_component() {
    let site = foreign();
    let refused = site.run(&["component", "audit"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""));
    assert!(refused.err.contains("no audit"), "{}", refused.err);
}

/// The Python tests check with mypy what is in these files; so they must be what the program
/// writes: `helio component stubs examples/interfaces --component ESS -o …`.
#[test]
fn stubs_are_those_that_the_python_tests_check() {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/tests/data");
    for component in ["ESS", "MTMount"] {
        let written = run(&["component", "stubs", OWN, "--component", component]).ok();
        let file = format!("{tests}/{}.pyi.txt", component.to_ascii_lowercase());
        assert!(written == std::fs::read_to_string(&file).unwrap(), "{file} is another text");
    }
    let site = Site::new();
    let folder = site.path("stubs");
    run(&["component", "stubs", OWN, "--output", &folder]).ok();
    let files = std::fs::read_dir(&folder).unwrap();
    let mut names: Vec<_> = files.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["ess.pyi", "mtm1m3.pyi", "mtmount.pyi"]);
    assert_eq!(run(&["component", "stubs", OWN]).code, Some(2), "several, and no place for them");
}
