//! Components as YAML: the same model as from XML, the same limits, errors with file, line and
//! remedy, and hostile text.

use crate::common::{files_under, shared_data};
use helio_core::sal::{
    Indexing, Interfaces, SalCause, SalError, SalType, TopicKind, is_interface_file, yaml_component,
};
use proptest::prelude::*;

const WIND: &str = "\u{feff}# A mast.
name: Wind
description: Measures the wind.
indexed: {Summit: 1, Valley: 2}
generics: [csc, logevent_clockOffset]
enumerations:
  Mode: [Slow, Fast, No]
  Side: {LEFT: 1, RIGHT: 0x7}
commands:
  turn:
    description: Turns & stays.
    fields:
      - name: target
        type: unsigned  short
        units: deg
        count: 3
        description: Where to.
      - {name: mode, type: byte}
      - {name: names, type: string, units: ''}
      - {name: edge, type: int, enumeration: Side}
  stop:
events:
  gust:
    fields: [{name: level, type: long, enumeration: [Low, High]}]
telemetry:
  speed:
    fields: [{name: speed, type: double, units: m/s}]
";

fn load(text: &str) -> Result<Interfaces, SalError> {
    Interfaces::load([("Wind.yaml", text)])
}

fn refusal_of(part: &str, by: &str) -> String {
    assert!(WIND.contains(part), "{part}");
    load(&WIND.replacen(part, by, 1)).expect_err(by).to_string()
}

#[test]
fn a_component_is_whole_in_a_file() {
    let interfaces = load(WIND).unwrap();
    let wind = interfaces.component("Wind").unwrap();
    assert_eq!(wind.description(), "Measures the wind.");
    let named = [("Summit".to_owned(), 1), ("Valley".to_owned(), 2)];
    assert_eq!(wind.indexing(), &Indexing::Named(named.to_vec()));
    let names = |kind| wind.topics_of(kind).map(|topic| topic.name()).collect::<Vec<_>>();
    let commands =
        ["disable", "enable", "exitControl", "setLogLevel", "standby", "start", "stop", "turn"];
    assert_eq!(names(TopicKind::Command), commands);
    let events = [
        "clockOffset",
        "errorCode",
        "gust",
        "heartbeat",
        "logLevel",
        "logMessage",
        "simulationMode",
        "softwareVersions",
        "summaryState",
    ];
    assert_eq!(names(TopicKind::Event), events);
    assert_eq!(
        (names(TopicKind::Telemetry), names(TopicKind::Ack)),
        (vec!["speed"], vec!["ackcmd"])
    );
    let turn = wind.topic(TopicKind::Command, "turn").unwrap();
    let [target, mode, names, edge] = turn.fields() else { panic!("{:?}", turn.fields()) };
    assert_eq!((target.sal_type(), target.count), (Some(SalType::UnsignedShort), 3));
    assert_eq!((&*target.units, &*mode.units, &*names.units), ("deg", "unitless", ""));
    let labels = |labels: &[(&str, i64)]| -> Vec<_> {
        labels.iter().map(|(label, value)| ((*label).to_owned(), *value)).collect()
    };
    let mode = &mode.enumeration.as_ref().unwrap().labels;
    assert_eq!(*mode, labels(&[("Slow", 1), ("Fast", 2), ("No", 3)]));
    let edge = &edge.enumeration.as_ref().unwrap().labels;
    assert_eq!(*edge, labels(&[("LEFT", 1), ("RIGHT", 7)]));
    let state = interfaces.topic("Wind/event/summaryState").unwrap().helio_schema_json();
    assert_eq!(state["fields"][9]["enumeration"]["StandbyState"], 5);
    for (text, indexing) in [
        ("name: Wind", Indexing::Single),
        ("name: Wind\nindexed: no\n", Indexing::Single),
        ("name: Wind\nindexed: 'no'\ntelemetry:\n", Indexing::Single),
        ("{name: Wind, indexed: any}", Indexing::Any),
    ] {
        let interfaces = load(text).unwrap();
        assert_eq!(interfaces.component("Wind").unwrap().indexing(), &indexing);
        assert_eq!(interfaces.counts().topics.event, 4);
    }
}

#[test]
fn errors_name_file_line_and_remedy() {
    let told = refusal_of("type: byte", "type: uint8");
    assert!(told.starts_with("Wind.yaml:18: unknown SAL type \"uint8\"; use boolean"), "{told}");
    for (part, by, expected) in [
        ("name: Wind", "name: Rain", "Wind.yaml:2: the name is \"Rain\" in the file of \"Wind\""),
        ("type: byte", "typ: byte", "Wind.yaml:18: the YAML cannot be read: unknown field `typ`"),
        ("type: byte", "units: m", "missing field `type`"),
        ("count: 3", "count: 0", "Wind.yaml:16: the count is \"0\"; it must be a whole number"),
        ("count: 3", "count: 99999999999", "from 1 to 65536"),
        ("count: 3", "count: many", "Wind.yaml:16: the YAML cannot be read"),
        ("units: ''", "count: 5", "Wind.yaml:19: strings are never arrays"),
        ("name: names", "name: mode", "Wind.yaml:19: the field \"mode\" is declared twice"),
        ("name: names", "name: private_origin", "\"private_origin\" is declared twice"),
        ("name: names", "name: my names", "Wind.yaml:19: invalid name \"my names\""),
        ("  stop:", "  st op:", "Wind.yaml:21: invalid name \"st op\""),
        ("  stop:", "  turn:", "Wind.yaml:21: the YAML cannot be read: duplicate mapping key"),
        ("  stop:", "  enable:", "\"Wind/command/enable\" twice, perhaps once by its generics"),
        ("  speed:", "  command_speed:", "Wind.yaml:26: the topic's name \"command_speed\""),
        ("  stop:", "  stop: {category: csc}", "the category \"csc\" is for generics only"),
        ("enumeration: Side", "enumeration: Site", "Wind.yaml:20: the file's enumerations have no"),
        ("units: m/s", "enumeration: [A]", "Wind.yaml:27: only integers have labels"),
        ("[Low, High]", "[Low, Low]", "Wind.yaml:24: the enumeration's \"Low\""),
        ("[Low, High]", "[]", "Wind.yaml:24: the enumeration's"),
        ("[Low, High]", "5", "Wind.yaml:24: the YAML cannot be read"),
        ("  Mode:", "  My_Mode:", "Wind.yaml:7: invalid enumeration name \"My_Mode\""),
        ("0x7", "many", "Wind.yaml:8: the YAML cannot be read"),
        ("csc, ", "cscs, ", "Wind.yaml:5: \"cscs\" is neither a category nor a topic"),
        ("{Summit: 1, Valley: 2}", "yes", "expected no, any, or a mapping"),
        ("{Summit: 1, Valley: 2}", "{Summit: 1, Su mmit: 2}", "Wind.yaml:4: the enumeration's"),
        ("[Slow, Fast, No]", "&a [Slow]", "the YAML cannot be read: budget breached"),
        ("telemetry:", "---\ntelemetry:", "the YAML cannot be read"),
        ("name: Wind", "name: [Wind", "the YAML cannot be read"),
        ("name: Wind\n", "", "missing field `name`"),
    ] {
        let message = refusal_of(part, by);
        assert!(message.contains(expected), "{message}\nnot {expected}");
    }
}

const SUBSYSTEMS: &str = "<SALSubsystemSet><SALSubsystem><Name>Mount</Name>
  <IndexEnumeration>no</IndexEnumeration><AddedGenerics>csc</AddedGenerics></SALSubsystem>
  </SALSubsystemSet>";
const GENERICS: &str = "<SALObjects><SALEventSet><SALEvent>
  <EFDB_Topic>SALGeneric_logevent_beat</EFDB_Topic><Category>csc</Category></SALEvent>
  </SALEventSet></SALObjects>";

#[test]
fn a_folder_may_have_both_kinds() {
    let wind = "name: Wind\ngenerics: [csc]\n";
    let xml = [("SALSubsystems.xml", SUBSYSTEMS), ("SALGenerics.xml", GENERICS)];
    let with = |more: &[(&'static str, &'static str)]| {
        Interfaces::load(xml.iter().copied().chain(more.iter().copied()))
    };
    let record = r#"{"type": "record", "name": "speed", "fields": []}"#;
    let both = with(&[("Wind/Wind.yaml", wind), ("Wind/speed.avsc", record), ("a/b/c.yaml", "")]);
    let both = both.unwrap();
    let names: Vec<_> = both.topics().map(|topic| topic.to_string()).collect();
    let expected = [
        "Mount/ackcmd",
        "Mount/event/beat",
        "Wind/ackcmd",
        "Wind/event/beat",
        "Wind/telemetry/speed",
    ];
    assert_eq!(names, expected, "the folder's own generics are for both");
    for (files, told) in [
        (
            vec![("Mount.yaml", "name: Mount")],
            "Mount.yaml:1: the component \"Mount\" is declared twice",
        ),
        (vec![("Wind.yaml", wind), ("Wind/Wind.yaml", wind)], "Wind/Wind.yaml:1: the component"),
        (
            vec![("Wind.yaml", wind), ("Wind/Wind_Events.xml", "<SALEventSet/>")],
            "Wind/Wind_Events.xml:1: the component \"Wind\" is whole in its YAML file",
        ),
        (vec![("Wind/more.yaml", wind)], "Wind/more.yaml:1: a YAML file in an interface folder is"),
        (vec![("my_notes.yaml", wind)], "my_notes.yaml:1: a YAML file"),
        (vec![("Wind.yml", wind)], "Wind.yml:1: a YAML file"),
        (vec![("Wind/speed.avsc", record)], "no component \"Wind\""),
    ] {
        let message = with(&files).unwrap_err().to_string();
        assert!(message.contains(told), "{message}");
    }
    let only = Interfaces::load([("SALGenerics.xml", GENERICS), ("Wind.yaml", wind)]).unwrap();
    assert!(only.topic("Wind/event/beat").is_some());
    let missing = Interfaces::load([("SALSubsystems.xml", SUBSYSTEMS), ("Wind.yaml", wind)]);
    assert_eq!(missing.unwrap_err().cause, SalCause::Missing);
}

#[test]
fn one_rule_says_which_files_are_read() {
    let read = ["SALGenerics.xml", "X/X_Events.xml", "X/t.avsc", "X.yaml", "X/X.yaml", "X.yml"];
    let passed = ["README.md", "t.avsc", "a/b/c.xml", ".x.yaml", ".git/x.yaml", "yaml", "X/a.b/c"];
    assert!(read.into_iter().all(is_interface_file));
    assert!(!passed.into_iter().any(is_interface_file));
    assert_eq!((yaml_component("X.yaml"), yaml_component("X/X.yaml")), (Some("X"), Some("X")));
    for path in ["X/Y.yaml", "x_y.yaml", "X.yml", "X/X/X.yaml", ".yaml", "X/X.xml"] {
        assert_eq!(yaml_component(path), None, "{path}");
    }
}

/// A component as YAML, made from its XML.
fn twin(interfaces: &Interfaces, name: &str) -> String {
    let component = interfaces.component(name).unwrap();
    let topics = |kind: TopicKind| -> serde_json::Value {
        let topic = |topic: &helio_core::sal::Topic| {
            let fields: Vec<_> = topic
                .fields()
                .iter()
                .map(|f| {
                    let mut field = serde_json::json!({
                        "name": &*f.name, "type": f.sal_type().unwrap().name(), "units": &*f.units,
                        "description": &*f.description, "count": f.count,
                    });
                    if let Some(of) = f.enumeration.as_ref()
                        && f.sal_type().unwrap().is_integer()
                    {
                        let labels = of.labels.iter().map(|(l, n)| (l.clone(), (*n).into()));
                        field["enumeration"] = serde_json::Value::Object(labels.collect());
                    }
                    field
                })
                .collect();
            let entry = serde_json::json!({"description": topic.description(), "fields": fields});
            (topic.name().to_owned(), entry)
        };
        serde_json::Value::Object(component.topics_of(kind).map(topic).collect())
    };
    let heartbeat = |mut events: serde_json::Value| {
        // Every component has these by itself.
        for mandatory in ["heartbeat", "logLevel", "logMessage", "softwareVersions"] {
            events.as_object_mut().unwrap().shift_remove(mandatory);
        }
        events
    };
    let indexed = match component.indexing() {
        Indexing::Single => serde_json::json!(false),
        Indexing::Any => "any".into(),
        Indexing::Named(named) => {
            let entry = |(name, index): &(String, i64)| (name.clone(), serde_json::json!(index));
            serde_json::Value::Object(named.iter().map(entry).collect())
        }
    };
    // JSON is YAML.
    serde_json::json!({
        "name": name, "description": component.description(), "indexed": indexed,
        "commands": topics(TopicKind::Command), "events": heartbeat(topics(TopicKind::Event)),
        "telemetry": topics(TopicKind::Telemetry),
    })
    .to_string()
}

fn assert_twins(files: Vec<(String, Vec<u8>)>, names: &[&str]) {
    let generics = files.iter().find(|file| file.0 == "SALGenerics.xml").unwrap().clone();
    let xml = Interfaces::load(files).unwrap();
    for name in names {
        let file = (format!("{name}.yaml"), twin(&xml, name).into_bytes());
        let yaml = Interfaces::load([generics.clone(), file]).unwrap();
        let (one, other) = (xml.component(name).unwrap(), yaml.component(name).unwrap());
        assert_eq!(one.topics().len(), other.topics().len(), "{name}");
        for (one, other) in one.topics().iter().zip(other.topics()) {
            assert_eq!(one.sal_schema_text(), other.sal_schema_text(), "{one}");
            assert_eq!(one.revcode(), other.revcode(), "{one}");
            assert_eq!(one.schema().unwrap().id(), other.schema().unwrap().id(), "{one}");
        }
    }
}

#[test]
fn a_yaml_twin_has_the_same_schemas() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/interfaces");
    assert_twins(files_under(folder.as_ref()), &["MTM1M3", "MTMount"]);
}

#[test]
fn a_yaml_twin_of_the_observatory_s_components_has_the_same_schemas() {
    let Some(folder) = shared_data("sal-interfaces/v27.1.1/sal_interfaces") else { return };
    let names = ["MTMount", "Test", "ATCamera", "ESS", "ScriptQueue", "MTM1M3", "Watcher"];
    assert_twins(files_under(&folder), &names);
}

/// Our own generics are those of SAL: names, types, counts and labels.
#[test]
fn our_generics_have_sal_s_names_and_types() {
    let Some(folder) = shared_data("sal-interfaces/v27.1.1/sal_interfaces") else { return };
    let generics = std::fs::read(folder.join("SALGenerics.xml")).unwrap();
    let all = "name: Wind\ngenerics: [csc, configurable, command_abort, command_enterControl, \
               logevent_clockOffset, logevent_largeFileObjectAvailable, logevent_statusCode]";
    let sals =
        Interfaces::load([("SALGenerics.xml", generics.as_slice()), ("Wind.yaml", all.as_bytes())]);
    let (sals, ours) = (sals.unwrap(), Interfaces::load([("Wind.yaml", all)]).unwrap());
    let count = std::str::from_utf8(&generics).unwrap().matches("<EFDB_Topic>").count();
    assert_eq!(ours.topics().count(), count + 1, "with the acknowledgements");
    for (ours, sals) in ours.topics().zip(sals.topics()) {
        assert_eq!(ours.topic_name(), sals.topic_name());
        assert_eq!(ours.schema().unwrap().id(), sals.schema().unwrap().id(), "{ours}");
    }
}

/// The example of the demo, with the features that the observatory's people expect.
#[test]
fn the_example_of_a_component_in_yaml_is_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/interfaces");
    let interfaces = Interfaces::load(files_under(folder.as_ref())).unwrap();
    let camera = interfaces.component("Camera").unwrap();
    let text: Vec<String> = camera
        .topics()
        .iter()
        .flat_map(|topic| {
            let field = |f: &helio_core::sal::Field| {
                let labels = f.enumeration.as_ref().map_or_else(String::new, |of| {
                    of.labels.iter().map(|(label, n)| format!(" {label}={n}")).collect()
                });
                format!(
                    "  {}: {} x{} {}{labels}",
                    f.name,
                    f.sal_type().unwrap().name(),
                    f.count,
                    f.units
                )
            };
            let head = format!("{topic} {} {}", topic.revcode(), topic.schema().unwrap().id());
            std::iter::once(head).chain(topic.fields().iter().map(field))
        })
        .collect();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/camera.txt");
    let text = text.join("\n") + "\n";
    if std::env::var_os("HELIO_WRITE_GOLDEN").is_some() {
        std::fs::write(golden, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(golden).unwrap(), text, "HELIO_WRITE_GOLDEN=1 writes it");
}

#[test]
fn nothing_costs_more_than_its_size() {
    let refused = |text: &str| load(text).unwrap_err().to_string();
    let deep = format!("name: {}Wind{}", "[".repeat(50_000), "]".repeat(50_000));
    assert!(refused(&deep).contains("cannot be read"));
    let block: String = (0..2_000).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    assert!(refused(&block).contains("cannot be read"));
    let laughs = "name: Wind\na: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: [*b,*b,*b,*b]\n";
    assert!(refused(laughs).contains("cannot be read"));
    let labels: String = (0..5_000).map(|n| format!("L{n},")).collect();
    let text = format!("name: Wind\nenumerations: {{Mode: [{labels}]}}");
    assert!(refused(&text).contains("at most 4096"));
    let field = |n: u32| format!("{{name: a{n}, type: int, count: 65536}},");
    let fields: String = (0..5).map(field).collect();
    let text = format!("name: Wind\ntelemetry: {{a: {{fields: [{fields}]}}}}");
    assert!(refused(&text).contains("more than 262144 elements"));
    let nodes = format!("name: Wind\ngenerics: [{}]", "csc,".repeat(600_000));
    assert!(refused(&nodes).contains("cannot be read"));
}

proptest! {
    /// A file with any change is read or rejected, and a read one gives schemas.
    #[test]
    fn changed_text_never_panics(
        at in any::<prop::sample::Index>(),
        cut in 0..40_usize,
        by in "[ -~]{0,12}|[\\[\\]{}:,&*!|>#\n -]{0,8}|\\PC{0,6}",
    ) {
        let mut text: Vec<char> = WIND.chars().collect();
        let start = at.index(text.len());
        let end = (start + cut).min(text.len());
        text.splice(start..end, by.chars());
        let text: String = text.into_iter().collect();
        if let Ok(interfaces) = load(&text) {
            for topic in interfaces.topics() {
                prop_assert_eq!(topic.revcode().len(), 8);
                prop_assert!(topic.helio_schema_json()["fields"].is_array());
            }
        }
    }

    /// Any bytes at all.
    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Interfaces::load([("Wind.yaml", bytes.as_slice())]).is_err());
    }
}
