//! Interface folders of our own: valid ones, errors and their messages, and hostile text.

use helio_core::sal::{Indexing, Interfaces, SalCause, SalError, SalType, TopicKind};
use proptest::prelude::*;

const SUBSYSTEMS: &str = "<SALSubsystemSet>
  <SALSubsystem><Name>Mount</Name><Description>Moves.</Description>
    <IndexEnumeration>Main=1, Aux=2</IndexEnumeration>
    <AddedGenerics>csc,  logevent_clock</AddedGenerics></SALSubsystem>
  <SALSubsystem><Name>Wind</Name><IndexEnumeration>no</IndexEnumeration><AddedGenerics/>
  </SALSubsystem>
</SALSubsystemSet>";

const GENERICS: &str = "<SALObjects>
  <SALCommandSet>
    <SALCommand><EFDB_Topic>SALGeneric_command_enable</EFDB_Topic>
      <Category>csc</Category></SALCommand>
  </SALCommandSet>
  <SALEventSet>
    <Enumeration>States_Off, States_On=4</Enumeration>
    <SALEvent><Subsystem>SALGeneric</Subsystem><EFDB_Topic>SALGeneric_logevent_beat</EFDB_Topic>
      <Category>mandatory</Category>
      <item><EFDB_Name>state</EFDB_Name><IDL_Type>long</IDL_Type><Count>1</Count></item></SALEvent>
    <SALEvent><EFDB_Topic>SALGeneric_logevent_clock</EFDB_Topic></SALEvent>
  </SALEventSet>
</SALObjects>";

const COMMANDS: &str = "\u{feff}<?xml version='1.0'?>
<SALCommandSet>
  <Enumeration>
    Mode_Slow=0x10,
    Mode_Fast
  </Enumeration>
  <SALCommand>
    <EFDB_Topic>Mount_command_move</EFDB_Topic>
    <Description>Go &amp; <!-- soon -->stay.</Description>
    <item>
      <EFDB_Name>target</EFDB_Name> <IDL_Type>unsigned  short</IDL_Type>
      <Units>deg</Units> <Count> 3 </Count>
    </item>
    <item>
      <EFDB_Name>mode</EFDB_Name> <IDL_Type>byte</IDL_Type> <IDL_Size>1</IDL_Size>
      <Units>unitless</Units> <Count>1</Count> <IsJavaArray>no</IsJavaArray>
    </item>
    <item>
      <EFDB_Name>names</EFDB_Name> <IDL_Type>string</IDL_Type> <IDL_Size>32</IDL_Size>
      <Units/> <Count>5</Count>
    </item>
    <item>
      <EFDB_Name>side</EFDB_Name> <IDL_Type>int</IDL_Type> <Count>1</Count>
      <Enumeration>LEFT, RIGHT=7</Enumeration>
    </item>
  </SALCommand>
</SALCommandSet>";

fn load_with(replaced: &[(&str, &str)]) -> Result<Interfaces, SalError> {
    let mut files = vec![
        ("SALSubsystems.xml", SUBSYSTEMS),
        ("SALGenerics.xml", GENERICS),
        ("Mount/Mount_Commands.xml", COMMANDS),
        ("Mount/README.md", "not read"),
        ("deep/er/elsewhere.xml", "not read"),
    ];
    files.retain(|file| !replaced.iter().any(|new| new.0 == file.0));
    Interfaces::load(files.into_iter().chain(replaced.iter().copied()))
}

fn refusal(file: &str, text: &str) -> String {
    load_with(&[(file, text)]).expect_err("it is wrong").to_string()
}

/// The commands with one part of their text replaced.
fn refusal_of(part: &str, by: &str) -> String {
    assert!(COMMANDS.contains(part), "{part}");
    refusal("Mount/Mount_Commands.xml", &COMMANDS.replacen(part, by, 1))
}

#[test]
fn components_get_their_own_topics_and_their_generics() {
    let interfaces = load_with(&[]).unwrap();
    let names: Vec<_> = interfaces.topics().map(|topic| topic.topic_name().as_str()).collect();
    let expected = [
        "Mount/ackcmd",
        "Mount/command/enable",
        "Mount/command/move",
        "Mount/event/beat",
        "Mount/event/clock",
        "Wind/ackcmd",
        "Wind/event/beat",
    ];
    assert_eq!(names, expected);
    let mount = interfaces.component("Mount").unwrap();
    let named = [("Main".to_owned(), 1), ("Aux".to_owned(), 2)];
    assert_eq!(mount.indexing(), &Indexing::Named(named.to_vec()));
    assert_eq!(interfaces.component("Wind").unwrap().indexing(), &Indexing::Single);
    let counts = serde_json::to_value(interfaces.counts()).unwrap();
    let topics = serde_json::json!({"command": 2, "event": 3, "telemetry": 0, "ack": 2});
    assert_eq!(counts, serde_json::json!({"components": 2, "topics": topics, "fields": 20}));
}

#[test]
fn fields_have_types_counts_units_and_enumerations() {
    let interfaces = load_with(&[]).unwrap();
    let topic = interfaces.component("Mount").unwrap().topic(TopicKind::Command, "move").unwrap();
    assert_eq!(topic.description(), "Go & stay.");
    let [target, mode, names, side] = topic.fields() else { panic!("{:?}", topic.fields()) };
    assert_eq!((target.sal_type(), target.count), (Some(SalType::UnsignedShort), 3));
    assert_eq!(&*target.units, "deg");
    assert_eq!((names.sal_type(), names.count), (Some(SalType::String), 1));
    assert_eq!((&*names.units, &*side.units), ("", "unitless"));
    let mode = mode.enumeration.as_ref().unwrap();
    assert_eq!(mode.labels, [("Slow".to_owned(), 16), ("Fast".to_owned(), 17)]);
    let schema = topic.helio_schema_json();
    let fields = schema["fields"].as_array().unwrap();
    assert_eq!(fields[0]["name"], "salIndex");
    let expected = serde_json::json!({
        "name": "target", "type": {"type": "array", "items": "int"}, "default": [0, 0, 0],
        "description": "", "units": "deg", "length": 3, "salType": "unsigned short",
    });
    assert_eq!(fields[9], expected);
    assert_eq!(fields[12]["enumeration"], serde_json::json!({"LEFT": 1, "RIGHT": 7}));
}

#[test]
fn avsc_files_are_topics_too_and_replace_those_of_their_name() {
    let record = r#"{"type": "record", "name": "speed", "namespace": "lsst.sal.Wind", "fields": [
        {"name": "timestamp", "type": "long", "units": "millisecond"},
        {"name": "gust", "type": ["null", "double"], "default": null, "description": "Peak"}]}"#;
    let xml = "<SALTelemetrySet><SALTelemetry><EFDB_Topic>Wind_speed</EFDB_Topic></SALTelemetry>
        <SALTelemetry><EFDB_Topic>Wind_heat</EFDB_Topic></SALTelemetry></SALTelemetrySet>";
    let files = [("Wind/speed.avsc", record), ("Wind/Wind_Telemetry.xml", xml)];
    let interfaces = load_with(&files).unwrap();
    assert_eq!(interfaces.counts().topics.telemetry, 2);
    let topic = interfaces.topic("Wind/telemetry/speed").unwrap();
    assert_eq!((topic.fields().len(), topic.private_at()), (2, 2));
    assert_eq!(&*topic.fields()[0].units, "millisecond");
    let schema = topic.sal_schema_json();
    assert_eq!(schema["namespace"], "lsst.sal.Wind");
    assert_eq!(schema["fields"][0]["type"], "long");
    assert_eq!(schema["fields"][1]["type"], serde_json::json!(["null", "double"]));
    for (bad, told) in [
        ("{", "Wind/speed.avsc:1: no Avro record"),
        ("[]", "must be \"record\""),
        (r#"{"type": "record", "name": "a b", "fields": []}"#, "invalid name"),
        (r#"{"type": "record", "name": "a", "fields": [{"name": "b"}]}"#, "has no \"type\""),
        (
            r#"{"type": "record", "name": "a", "fields": [{"name": "salIndex"}]}"#,
            "is declared twice",
        ),
    ] {
        let message = refusal("Wind/speed.avsc", bad);
        assert!(message.contains(told), "{message}");
    }
}

/// SAL registers the file's record with the private fields appended, and adds no description.
///
/// That order was seen on salobj 8.2.12. The text is `json.dumps(record, indent=4)` of Python 3.11
/// on such a record (`golden/sal-avsc/make.py`), and the code the start of its MD5.
#[test]
fn the_schema_of_an_avsc_file_ends_with_the_private_fields() {
    let files = [("Wind/speed.avsc", include_str!("../golden/sal-avsc/speed.avsc"))];
    let interfaces = load_with(&files).unwrap();
    let topic = interfaces.topic("Wind/telemetry/speed").unwrap();
    assert_eq!(topic.sal_schema_text(), include_str!("../golden/sal-avsc/speed.json"));
    assert_eq!(topic.revcode(), "2c7650ca");
    let ours = topic.schema().unwrap();
    assert_eq!(ours.canonical_form(), topic.sal_schema().unwrap().canonical_form());
    assert_eq!(ours.fields()[topic.private_at()].name, "private_sndStamp");
}

#[test]
fn errors_name_file_line_and_remedy() {
    let told = refusal_of("<IDL_Type>byte</IDL_Type>", "<IDL_Type>uint8</IDL_Type>");
    assert!(
        told.starts_with("Mount/Mount_Commands.xml:15: unknown SAL type \"uint8\"; use boolean")
    );
    for (part, by, expected) in [
        ("<IDL_Type>byte</IDL_Type>", "", "<item> has no <IDL_Type>; add it"),
        ("<Count> 3 </Count>", "<Count>0</Count>", "from 1 to 65536"),
        ("<Count> 3 </Count>", "<Count>99999999999</Count>", "from 1 to 65536"),
        ("<Units>deg</Units>", "<Units>a</Units><Units>b</Units>", "<Units> twice"),
        ("names</EFDB_Name>", "mode</EFDB_Name>", "\"mode\" is declared twice"),
        ("names</EFDB_Name>", "private_origin</EFDB_Name>", "\"private_origin\" is declared twice"),
        ("names</EFDB_Name>", "my names</EFDB_Name>", "invalid name \"my names\""),
        ("Mount_command_move", "Mount_logevent_move", "like \"Mount_command_name\""),
        ("Mount_command_move", "Wind_command_move", "like \"Mount_command_name\""),
        ("Mount_command_move", "Mount_command_enable", "perhaps once by its generics"),
        ("Mode_Fast", "Fast", "enumeration"),
        ("RIGHT=7", "RIGHT=", "\"RIGHT=\" cannot be read"),
        ("RIGHT=7", "RIGHT=010", "leading zero"),
        ("<EFDB_Topic>", "<Subsystem>Wind</Subsystem><EFDB_Topic>", "<Subsystem> is \"Wind\""),
        ("</SALCommandSet>", "<SALComand/></SALCommandSet>", "<SALComand> cannot stand here"),
        ("</SALCommandSet>", "", "the XML cannot be read"),
    ] {
        let message = refusal_of(part, by);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_diff_tells_what_changed_and_what_that_means() {
    let old = load_with(&[]).unwrap();
    let subsystems = SUBSYSTEMS
        .replace("Wind", "Rain")
        .replace("<IndexEnumeration>Main=1, Aux=2</IndexEnumeration>", INDEX_NO);
    let commands = COMMANDS
        .replace("Mode_Fast", "Mode_Fast=3, Mode_Stop")
        .replace("<Count> 3 </Count>", "<Count>4</Count>")
        .replace("<Units>deg</Units>", "<Units>rad</Units>")
        .replace("<EFDB_Name>side<", "<EFDB_Name>edge<")
        .replace("soon", "later");
    let files = [
        ("SALSubsystems.xml", subsystems.as_str()),
        ("Mount/Mount_Commands.xml", commands.as_str()),
    ];
    let new = load_with(&files).unwrap();
    let diff = old.diff(&new).unwrap();
    let text = diff.to_string();
    let expected = "\
- Wind
+ Rain
- Wind/ackcmd
- Wind/event/beat
+ Rain/ackcmd
+ Rain/event/beat
~ Mount is no longer indexed
~ enumeration Mount Mode: Fast=17->3 +Stop=4
~ Mount/ackcmd: backward
    salIndex: field removed int -> none (backward)
";
    assert!(text.starts_with(expected), "{text}");
    let moved = diff.changed.iter().find(|changed| changed.topic == "Mount/command/move").unwrap();
    let told: Vec<String> = moved.evolution.differences.iter().map(ToString::to_string).collect();
    for part in ["target: length 3 -> 4 (breaking)", "target: units deg -> rad (breaking)"] {
        assert!(told.iter().any(|line| line == part), "{told:?}");
    }
    assert_eq!((diff.summary.breaking, diff.summary.backward), (1, 4));
    let json = serde_json::to_value(&diff).unwrap();
    assert_eq!(json["level"], "breaking");
    assert_eq!(json["changed"][0]["differences"][0]["change"], "field_removed");
    // The keys that `helio schema diff --json` prints.
    let keys = |value: &serde_json::Value| {
        value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    let top = "level old new summary components topics indexing enumerations changed";
    assert_eq!(keys(&json), top);
    assert_eq!(keys(&json["old"]), "components topics fields");
    assert_eq!(keys(&json["summary"]), "full forward backward breaking unchanged");
    assert_eq!(keys(&json["topics"]), "added removed");
    assert_eq!(keys(&json["indexing"][0]), "component indexed");
    assert_eq!(keys(&json["enumerations"][0]), "component class old new");
    assert_eq!(keys(&json["changed"][0]), "topic level differences");
    assert!(old.diff(&old).unwrap().is_empty());
}

const INDEX_NO: &str = "<IndexEnumeration>no</IndexEnumeration>";

#[test]
fn files_that_would_not_be_read_are_refused() {
    let files = [("SALSubsystems.xml", SUBSYSTEMS)];
    let missing = Interfaces::load(files).unwrap_err();
    assert_eq!((missing.file.as_str(), missing.cause), ("SALGenerics.xml", SalCause::Missing));
    let message = refusal("Dome/Dome_Events.xml", "<SALEventSet/>");
    assert!(message.contains("has no component \"Dome\"; add a <SALSubsystem>"), "{message}");
    let message = refusal("Mount/Mount_Event.xml", "<SALEventSet/>");
    assert!(message.contains("Mount_Events.xml"), "{message}");
    let unknown = SUBSYSTEMS.replace("logevent_clock", "logevent_clok");
    let message = refusal("SALSubsystems.xml", &unknown);
    assert!(message.contains("SALSubsystems.xml:4: \"logevent_clok\" is neither a category"));
    let message = refusal("SALSubsystems.xml", &SUBSYSTEMS.replace("Wind", "Mount"));
    assert!(message.contains("the component \"Mount\" is declared twice"), "{message}");
}

#[test]
fn hostile_text_is_refused() {
    let entities: String =
        (1..10).map(|n| format!("<!ENTITY l{n} '&l{0};&l{0};'>", n - 1)).collect();
    let laughs =
        format!("<!DOCTYPE x [<!ENTITY l0 'ha'>{entities}]><SALCommandSet>&l9;</SALCommandSet>");
    let attributes: String = (0..100_000).map(|n| format!(" a{n}=''")).collect();
    let spaces: String = (0..10_000).map(|n| format!("<a xmlns:n{n}='u{n}'>")).collect();
    let quoted = format!("<SALCommandSet a='>'{attributes}/>");
    let labels: String = (0..5_000).map(|n| format!("M_{n},")).collect();
    for (text, told) in [
        (laughs, "DTD"),
        ("<a>".repeat(200_000), "cannot be read"),
        ("<a/>".repeat(2_000_000), "cannot be read"),
        (format!("<SALCommandSet{attributes}/>"), "attributes in a tag"),
        (quoted, "attributes in a tag"),
        (spaces, "name spaces"),
        (format!("<SALCommandSet>{}</SALCommandSet>", "<b/>".repeat(600_000)), "cannot be read"),
        (
            format!("<SALCommandSet><Enumeration>{labels}</Enumeration></SALCommandSet>"),
            "at most 4096",
        ),
        (" ".repeat(9 << 20), "the limit is"),
    ] {
        let message = refusal("Mount/Mount_Commands.xml", &text);
        assert!(message.contains(told) && message.len() < 1_000, "{message}");
    }
    let bytes: [(&str, &[u8]); 1] = [("SALGenerics.xml", b"<SALObjects>\n\xff</SALObjects>")];
    let error = Interfaces::load(bytes).unwrap_err();
    assert_eq!((error.line, error.cause), (2, SalCause::NotUtf8));
}

#[test]
fn long_enumerations_and_comments_are_no_attributes() {
    let labels: String = (0..4_000).map(|n| format!("M_{n}={n},")).collect();
    let comment = "=".repeat(1_000);
    let by = format!("<!-- {comment} --><Enumeration>{labels}</Enumeration><SALCommand>");
    let text = COMMANDS.replacen("<SALCommand>", &by, 1);
    let interfaces = load_with(&[("Mount/Mount_Commands.xml", &text)]).unwrap();
    let enumerations = interfaces.component("Mount").unwrap().enumerations();
    assert_eq!(enumerations.iter().map(|e| e.labels.len()).max(), Some(4_000));
}

#[test]
fn arrays_cannot_make_schemas_explode() {
    let item = |n: u32| {
        format!(
            "<item><EFDB_Name>a{n}</EFDB_Name><IDL_Type>int</IDL_Type><Count>65536</Count></item>"
        )
    };
    let items: String = (0..5).map(item).collect();
    let message = refusal_of("<Description>", &format!("{items}<Description>"));
    assert!(message.contains("more than 262144 elements"), "{message}");
}

#[test]
fn generics_and_components_cannot_multiply_without_bound() {
    let event = |n: u32| {
        format!(
            "<SALEvent><EFDB_Topic>SALGeneric_logevent_a{n}</EFDB_Topic><Category>csc</Category>\
             </SALEvent>"
        )
    };
    let events: String = (0..1_000).map(event).collect();
    let generics = format!("<SALObjects><SALEventSet>{events}</SALEventSet></SALObjects>");
    let subsystem = |n: u32| {
        format!(
            "<SALSubsystem><Name>C{n}</Name><IndexEnumeration>no</IndexEnumeration>\
             <AddedGenerics>csc</AddedGenerics></SALSubsystem>"
        )
    };
    let load = |count: u32| {
        let list: String = (0..count).map(subsystem).collect();
        let subsystems = format!("<SALSubsystemSet>{list}</SALSubsystemSet>");
        Interfaces::load([("SALGenerics.xml", &generics), ("SALSubsystems.xml", &subsystems)])
    };
    assert_eq!(load(65).unwrap().counts().topics.event, 65_000);
    for too_many in [66, 4_097] {
        assert_eq!(load(too_many).unwrap_err().cause, SalCause::TooMuch);
    }
}

proptest! {
    /// A folder with any change of a file is read or rejected, and a read one gives schemas.
    #[test]
    fn changed_text_never_panics(
        file in 0..3_usize,
        at in any::<prop::sample::Index>(),
        cut in 0..40_usize,
        by in "[ -~]{0,12}|</?[a-zA-Z_]{0,12}>|<!--|<!\\[CDATA\\[|&[a-z]{0,4};|\\PC{0,6}",
    ) {
        let names = ["SALSubsystems.xml", "SALGenerics.xml", "Mount/Mount_Commands.xml"];
        let mut text: Vec<char> = [SUBSYSTEMS, GENERICS, COMMANDS][file].chars().collect();
        let start = at.index(text.len());
        let end = (start + cut).min(text.len());
        text.splice(start..end, by.chars());
        let text: String = text.into_iter().collect();
        if let Ok(interfaces) = load_with(&[(names[file], &text)]) {
            for topic in interfaces.topics() {
                prop_assert_eq!(topic.revcode().len(), 8);
                prop_assert!(topic.helio_schema_json()["fields"].is_array());
            }
        }
    }

    /// Any bytes at all.
    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let generics = ("SALGenerics.xml", GENERICS.as_bytes());
        let files = [("SALSubsystems.xml", bytes.as_slice()), generics];
        prop_assert!(Interfaces::load(files).is_err());
        let files = [("SALGenerics.xml", bytes.as_slice())];
        prop_assert!(Interfaces::load(files).is_err());
    }
}
