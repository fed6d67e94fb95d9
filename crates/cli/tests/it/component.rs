//! `component`: looking at components, also at those that another system runs.

use crate::support::{OWN, Ran, Simulated, Site, run};
use helio_bus::Bus;
use helio_component::{Component, Interface};
use serde_json::{Value, json};

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
    let said: Vec<_> = lines
        .iter()
        .map(|l| (&l["component"], &l["index"], &l["last_state"], &l["host"]))
        .collect();
    let (ess, none) = (json!("ESS"), Value::Null);
    let expected = [(json!(1), json!("ENABLED")), (json!(2), json!("FAULT"))];
    assert_eq!(said, expected.each_ref().map(|(index, state)| (&ess, index, state, &none)));
    assert_eq!(
        (&lines[1]["error_code"], &lines[1]["error_report"]),
        (&json!(7), &json!("no wind"))
    );
    assert_ne!(lines[0]["presence"], "unknown", "its heartbeat came, lately or not");

    let states = site.run(&["component", "states", "ESS:2", "--json"]).lines();
    assert_eq!((states.len(), &states[0]["last_state"]), (1, &json!("FAULT")));
    let none = site.run(&["component", "states", "MTMount"]);
    assert_eq!((none.code, none.out.as_str()), (Some(3), ""));
    let text = site.run(&["component", "list"]).ok();
    assert!(text.lines().nth(2).unwrap().starts_with("ESS:2"), "{text}");
}

#[test]
fn an_edited_schema_hides_only_its_own_topic() {
    let site = foreign();
    let exported = run(&["schema", "export", OWN, "--json"]).lines();
    let heartbeat = exported.iter().find(|line| line["topic"] == "ESS/event/heartbeat").unwrap();
    let file = site.file("beat.avsc", heartbeat["schema"].to_string());
    let id = run(&["schema", "show", &file, "--json"]).json()["id"].clone();
    let stored = site.path(&format!("journal/schemas/{}.avsc", id.as_str().unwrap()));
    std::fs::write(&stored, "{").unwrap();
    for command in [&["list"][..], &["states"], &["watch", "--for", "10ms"]] {
        let ran = site.run(&[&["component"], command].concat());
        assert_eq!(ran.code, Some(0), "{command:?} {ran:?}");
        assert!(ran.out.contains("ENABLED") && ran.out.contains("FAULT"), "{command:?} {ran:?}");
        assert_eq!(ran.err.matches(&stored).count(), 1, "{command:?} {ran:?}");
    }
}

#[test]
fn a_bus_without_components_says_so() {
    let site = Site::new();
    site.run(&["pub", "notes", "first light"]).ok();
    let listed = site.run(&["component", "list"]);
    assert_eq!((listed.code, listed.out.as_str()), (Some(0), ""));
    assert!(listed.err.contains("no component was ever on journal:"), "{}", listed.err);
    assert_eq!(site.run(&["component", "list", "--json"]).ok(), "");
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

/// A component that names no version publishes an empty one.
#[test]
fn a_change_to_nothing_is_no_line() {
    let site = Site::new();
    let bus = Bus::connect(&site.url).unwrap();
    let interface = Interface::of(&helio_bus::read_interfaces(OWN).unwrap(), "MTMount").unwrap();
    let component = Component::builder(&bus, &interface, 0).start().unwrap();
    let text = site.run(&["component", "watch", "--for", "10ms"]).ok();
    assert!(text.contains("MTMount state STANDBY"), "{text}");
    for line in text.lines() {
        assert!(line.split_whitespace().count() > 2, "a time and a name alone: {line:?}");
    }
    component.stop().unwrap();
}

#[test]
fn interfaces_are_shown() {
    let lines = run(&["component", "list", OWN, "--json"]).lines();
    let mount = lines.iter().find(|line| line["component"] == "MTMount").unwrap();
    assert_eq!(
        (&mount["indexed"], mount["telemetry"].as_u64().unwrap() > 0),
        (&json!(false), true)
    );
    let mast = lines.iter().find(|line| line["component"] == "ESS").unwrap();
    assert_eq!((&mast["indexed"], &mast["instances"]), (&json!(true), &json!([1, 2])));
    let text = run(&["component", "list", OWN]).ok();
    let mast = text.lines().find(|line| line.starts_with("ESS")).unwrap();
    assert!(mast.contains(" 1 2 "), "{text}");
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
    assert_eq!(names, ["camera.pyi", "ess.pyi", "mtm1m3.pyi", "mtmount.pyi"]);
    assert_eq!(run(&["component", "stubs", OWN]).code, Some(2), "several, and no place for them");
}

#[test]
fn a_simulated_component_is_led_and_commanded() {
    let site = Site::new();
    let running = Simulated::start(&site, &["MTMount", "ESS:2", "--state", "STANDBY"]);
    let component = |args: &[&str]| site.run(&[&["component"], args].concat());
    let presence = component(&["list", "--json"]).lines();
    assert!(presence.iter().all(|line| line["presence"] == "here"), "{presence:?}");

    let led = component(&["set-state", "MTMount", "ESS:2", "ENABLED", "--json"]).lines();
    let said: Vec<_> = led.iter().map(|l| (&l["from"], &l["state"], &l["error"])).collect();
    let expected = (&json!("STANDBY"), &json!("ENABLED"), &Value::Null);
    assert_eq!(said, [expected, expected]);
    assert_eq!(component(&["states", "MTMount", "--json"]).lines()[0]["state"], "ENABLED");

    let moves = ["command", "MTMount", "moveToTarget", "azimuth=1.5", "elevation=0", "--json"];
    let done = component(&moves).json();
    assert_eq!((&done["ack"], &done["final"]), (&json!(303), &json!(true)));
    let text = component(&["command", "MTMount", "stop", "--validate"]).ok();
    assert!(text.starts_with("CMD_COMPLETE"), "{text}");
    for (args, code, said) in [
        (&["MTMount", "fly"][..], 3, "no command fly"),
        (&["MTMount", "moveToTarget", "azimuth=east"], 4, "azimuth"),
        (&["MTMount", "moveToTarget", "azimuth=1.5"], 4, "no value for elevation"),
        (&["MTMount", "moveToTarget", "--validate"], 4, "no value for azimuth, elevation"),
        (&["MTMount", "moveToTarget", "azimuth"], 2, "NAME=VALUE"),
        (&["MTMount", "start"], 4, "no value for configurationOverride"),
        (&["MTMount", "start", "configurationOverride="], 1, "not allowed"),
        (&["MTMount:1", "stop"], 2, "not indexed"),
    ] {
        let refused = component(&[&["command"], args].concat());
        assert_eq!((refused.code, refused.out.as_str()), (Some(code), ""), "{args:?}");
        assert!(refused.err.contains(said), "{args:?}: {}", refused.err);
    }

    let records = component(&["audit", "MTMount", "--command", "moveToTarget", "--json"]).lines();
    assert_eq!((&records[0]["phase"], &records[1]["ack"]), (&json!("received"), &json!(303)));
    let mut failed = component(&["audit", "--failed", "--json"]).lines();
    // Targets of the simulated pointing are late on a busy machine.
    failed.retain(|record| record["command"] != "trackTarget");
    assert_eq!((failed.len(), &failed[0]["command"]), (1, &json!("start")));
    running.interrupt();
    let gone = component(&["command", "MTMount", "stop"]);
    assert_eq!(gone.code, Some(3), "{}", gone.err);
    assert_eq!(component(&["states", "MTMount", "--json"]).lines()[0]["state"], "OFFLINE");
}

/// Its last state is no longer one.
#[test]
fn a_killed_component_is_in_no_state() {
    let site = Site::new();
    let running = Simulated::start(&site, &["MTMount", "--state", "ENABLED"]);
    let states = site.run(&["component", "states", "--json"]).lines();
    assert_eq!(
        (&states[0]["state"], &states[0]["last_state"]),
        (&json!("ENABLED"), &json!("ENABLED"))
    );
    drop(running);
    for list in ["states", "list"] {
        let lines = site.run(&["component", list, "--json"]).lines();
        assert_eq!((&lines[0]["state"], &lines[0]["presence"]), (&Value::Null, &json!("gone")));
        assert_eq!(lines[0]["last_state"], "ENABLED");
        let text = site.run(&["component", list]).ok();
        assert!(text.contains("(ENABLED)"), "{text}");
    }
}

/// What an operator gets wrong at night is answered with what to do about it, and nothing happens.
#[test]
fn mistakes_are_told_with_their_remedies() {
    let site = Site::new();
    let running = Simulated::start(&site, &["MTMount"]);
    for (args, code, said) in [
        (&["command", "mtmount", "stop"][..], 3, "did you mean MTMount?"),
        (&["command", "Dome", "stop"], 3, "they have MTM1M3, MTMount, ESS, Camera"),
        (&["command", "ESS", "enable"], 2, "say which, such as ESS:1 (Summit), ESS:2 (Valley)"),
        (&["command", "MTMount:1", "stop"], 2, "write MTMount alone"),
        (&["command", "MTMount:0", "stop"], 2, "write MTMount or ESS:2"),
        (&["command", "ESS:7", "enable"], 3, "nobody"),
        (&["set-state", "MTMount", "ESS", "STANDBY"], 2, "say which"),
        (&["set-state", "MTMount", "ENABLD"], 2, "STANDBY, DISABLED, ENABLED, OFFLINE"),
        (&["command", "MTMount", "stop", "--evolution", "strict"], 2, "backward"),
        (&["shell", "ESS"], 2, "say which"),
        (&["audit", "Dome"], 3, "no audit of Dome"),
        (&["states", "MTMuont"], 3, "fits MTMuont was ever on journal:"),
        (&["run", "MTMount:2"], 2, "write MTMount alone"),
        (&["run", "MTMount"], 4, "MTMount"),
        (&["run", "ESS", "--instances", "ESS=0"], 2, "leaves nobody"),
        (&["run", "--all", "--instances", "Dome=2"], 2, "no component that runs fits"),
    ] {
        let ran = site.run(&[&["component"], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{args:?}: {}", ran.err);
    }
    let states = site.run(&["component", "states", "--json"]).lines();
    assert_eq!((states.len(), &states[0]["state"]), (1, &json!("ENABLED")), "nothing was changed");
    running.interrupt();
}

#[test]
fn instances_are_those_that_have_names_or_as_many_as_are_asked_for() {
    let names = |rest: &[&str]| {
        let site = Site::new();
        let running = Simulated::start(&site, rest);
        let lines = site.run(&["component", "states", "--json"]).lines();
        running.interrupt();
        let name =
            |line: &Value| format!("{}:{}", line["component"].as_str().unwrap(), line["index"]);
        lines.iter().map(name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&["ESS", "MTMount"]), "ESS:1 ESS:2 MTMount:0");
    assert_eq!(names(&["ESS", "--instances", "one"]), "ESS:1");
    assert_eq!(names(&["ESS", "--instances", "E*=3"]), "ESS:1 ESS:2 ESS:3");
    let all = ["--all", "--instances", "one", "--instances", "Camera=2"];
    assert_eq!(names(&all), "Camera:1 Camera:2 ESS:1 MTM1M3:0 MTMount:0");
}

/// Components of two releases that do not fit: what becomes of them is a matter of the policy.
#[test]
fn a_policy_says_how_far_releases_may_part() {
    let site = Site::new();
    let folder = site.path("newer");
    let copied = std::process::Command::new("cp").args(["-r", OWN, &folder]).status().unwrap();
    assert!(copied.success());
    let file = format!("{folder}/MTMount/MTMount_Commands.xml");
    let text = std::fs::read_to_string(&file).unwrap();
    let newer = text.replacen("<Units>deg</Units>", "<Units>rad</Units>", 1);
    assert_ne!(text, newer);
    std::fs::write(&file, newer).unwrap();

    let _running = Simulated::start(&site, &["MTMount"]);
    let track = |policy: &[&str]| {
        let args = ["component", "command", "MTMount", "trackTarget", "--interfaces", &folder];
        let mut helio = site.helio(&[&args, policy].concat());
        Ran::of(helio.env("HELIO_MISSING_FIELDS", "default").output().unwrap())
    };
    let refused = track(&[]);
    assert!(refused.err.contains("not sent") && refused.err.contains("deg"), "{}", refused.err);
    assert_eq!(refused.code, Some(3));
    let told = track(&["--evolution", "none"]);
    assert!(told.err.contains("CMD_FAILED") && told.err.contains("deg"), "{}", told.err);
    assert_eq!(told.code, Some(1), "it was sent, and answered");
}

#[test]
fn a_locked_component_takes_its_holder_s_commands_only() {
    let site = Site::new();
    let _running = Simulated::start(&site, &["MTMount"]);
    let by = |caller: &str, args: &[&str]| {
        site.run(&[&["component"], args, &["--caller", caller]].concat())
    };
    by("alice", &["lock", "MTMount", "--for", "10m"]).ok();
    let refused = by("bob", &["command", "MTMount", "stop"]);
    assert_eq!(refused.code, Some(4));
    assert!(refused.err.contains("alice"), "{}", refused.err);
    by("alice", &["command", "MTMount", "stop"]).ok();
    by("alice", &["unlock", "MTMount"]).ok();
    by("bob", &["command", "MTMount", "stop"]).ok();
}

/// The example of docs/security.md.
#[test]
fn a_signed_command_passes_where_declared_names_do_not() {
    let site = Site::new();
    let key = site.path("alice.pem");
    let line = run(&["component", "key", &key, "--new", "--caller", "alice"]).ok();
    assert!(line.starts_with("\"alice\": MCowBQYDK2VwAyEA"), "{line}");
    assert_eq!(run(&["component", "key", &key, "--caller", "alice"]).ok(), line);
    let json = run(&["component", "key", &key, "--caller", "alice", "--json"]).json();
    assert!(line.ends_with(&format!("{}\n", json["key"].as_str().unwrap())), "{json}");
    assert_eq!(run(&["component", "key", &key, "--new"]).code, Some(3), "there is one");

    let rest = "roles: {all: ['*']}\nidentities: {alice: [all]}\n";
    let policy = site.file("who.yaml", format!("default: deny\nkeys:\n  {line}{rest}"));
    let interfaces = helio_bus::read_interfaces(OWN).unwrap();
    let mount = helio_component::Interface::of(&interfaces, "MTMount").unwrap();
    let bus = helio_bus::Bus::connect(&site.url).unwrap();
    let built = helio_component::Component::builder(&bus, &mount, 0).policy(policy);
    let running = built.inline("stop", |_: &helio_component::Command| Ok(())).start().unwrap();
    let stop = ["component", "command", "MTMount", "stop", "--caller", "alice"];
    let refused = site.run(&stop);
    assert_eq!(refused.code, Some(4));
    assert!(refused.err.contains("no signature of this command"), "{}", refused.err);
    site.run(&[&stop[..], &["--caller-key", &key]].concat()).ok();
    let audit = |args: &[&str]| site.run(&[&["component", "audit"], args].concat()).ok();
    let all = audit(&["--caller", "alice"]);
    let callers = ["(from declared:alice)", "from alice", "(from alice)"];
    for (line, caller) in all.lines().zip(callers) {
        assert!(line.ends_with(caller), "{line}");
    }
    assert_eq!((all.lines().count(), audit(&["--caller", "declared:*"]).lines().count()), (3, 1));

    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let open = site.run(&[&stop[..], &["--caller-key", &key]].concat());
    assert_eq!(open.code, Some(4));
    assert!(open.err.contains("chmod 600"), "{}", open.err);
    running.stop().unwrap();
}

#[test]
fn a_whole_observatory_is_simulated_in_several_processes() {
    let site = Site::new();
    let running = Simulated::start(&site, &["--all", "--processes", "2", "--scale", "2"]);
    let lines = site.run(&["component", "list", "--json"]).lines();
    let names: Vec<_> = lines.iter().map(|line| line["component"].as_str().unwrap()).collect();
    assert_eq!(names, ["Camera", "Camera", "ESS", "ESS", "MTM1M3", "MTMount"]);
    let args = ["sub", "MTM1M3/telemetry/forceActuatorData", "--count", "3", "--json"];
    let samples = site.run(&args).lines();
    assert_eq!(samples[2]["value"]["private_identity"], "MTM1M3");
    assert_eq!(samples[0]["value"]["primaryCylinderForce"].as_array().unwrap().len(), 156);
    let targets = ["sub", "MTMount/command/trackTarget", "--count", "1", "--json"];
    assert_eq!(site.run(&targets).lines()[0]["value"]["private_identity"], "MTPtg");
    running.interrupt();
}

#[test]
fn the_commander_takes_lines_from_a_pipe() {
    let site = Site::new();
    let _running = Simulated::start(&site, &["MTMount", "--state", "STANDBY"]);
    let shell = |lines: &[u8]| site.run_with(&["component", "shell", "MTMount"], lines);
    let said = shell(
        b"# a script\n.state\n.set-state ENABLED\nmoveToTarget azimuth=1 elevation=2\n\
          .validate stop\n.show evt_summaryState\n.quit\nstop\n",
    );
    let said = said.ok();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..3], ["STANDBY", "ENABLED", "CMD_COMPLETE: Done"], "{said}");
    assert_eq!((lines.len(), lines[4]), (5, r#"evt_summaryState {"summaryState":2}"#));
    let failed = shell(b"moveToTarget azimuth=east\nstop\n");
    assert_eq!((failed.code, failed.out.as_str()), (Some(4), ""), "a script ends at its error");
}
