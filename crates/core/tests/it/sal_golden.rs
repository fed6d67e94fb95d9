//! The Rubin Observatory's interfaces, as released, against the schemas that its own code derives
//! from them. Needs the shared test data; skipped without it.

use std::collections::HashMap;

use crate::common::{files_under, gzip_json_lines, shared_data};
use helio_core::codec::{Blocks, Codec, EncodeOptions};
use helio_core::evolution::{Change, Level};
use helio_core::sal::{Interfaces, SalNaming, TopicKind};
use serde_json::Value;

fn load(release: &str) -> Option<Interfaces> {
    let folder = shared_data(&format!("sal-interfaces/{release}/sal_interfaces"))?;
    Some(Interfaces::load(files_under(&folder)).unwrap_or_else(|error| panic!("{error}")))
}

fn golden(release: &str) -> Option<Vec<Value>> {
    let path = shared_data(&format!("sal-golden/{release}/schemas.jsonl.gz"))?;
    Some(gzip_json_lines(&path))
}

/// Every record equals the golden one: also the order of its keys and the kinds of its numbers.
fn check_release(release: &str, components: usize, topics: usize) {
    let (Some(interfaces), Some(golden)) = (load(release), golden(release)) else { return };
    let naming = SalNaming::default();
    assert_eq!(interfaces.components().len(), components);
    assert_eq!(interfaces.topics().count(), topics);
    assert_eq!(golden.len(), topics);
    for (topic, expected) in interfaces.topics().zip(&golden) {
        let record = topic.sal_record(&naming);
        assert_eq!(
            serde_json::to_string(&record).unwrap(),
            serde_json::to_string(expected).unwrap(),
            "{topic}"
        );
        assert_eq!(naming.from_kafka(&record.kafka_name).as_ref(), Ok(topic.topic_name()));
        assert_eq!(naming.to_kafka(topic.topic_name()), Ok(record.kafka_name));
        assert_eq!(interfaces.topic(topic.topic_name().as_str()), Some(topic));
    }
}

#[test]
fn release_26_equals_the_observatory_s_schemas() {
    check_release("v26.0.0", 62, 3_131);
}

#[test]
fn release_27_equals_the_observatory_s_schemas() {
    check_release("v27.1.1", 63, 3_166);
}

#[test]
fn counts_are_those_of_the_observatory_s_schemas() {
    let (Some(interfaces), Some(golden)) = (load("v27.1.1"), golden("v27.1.1")) else { return };
    let mut kinds: HashMap<String, usize> = HashMap::new();
    let mut fields = 0;
    for record in &golden {
        *kinds.entry(record["topic"].as_str().unwrap()[..3].to_owned()).or_default() += 1;
        let private = if record["indexed"] == true { 9 } else { 8 };
        fields += record["schema"]["fields"].as_array().unwrap().len() - private;
    }
    let counts = interfaces.counts();
    assert_eq!(counts.components, 63);
    assert_eq!(counts.topics.ack, kinds["ack"]);
    assert_eq!(counts.topics.command, kinds["cmd"]);
    assert_eq!(counts.topics.event, kinds["evt"]);
    assert_eq!(counts.topics.telemetry, kinds["tel"]);
    assert_eq!(counts.fields, fields);
}

/// SAL's schema and ours differ in attributes only: same canonical form, same bytes on the wire.
/// The attributes are part of the identity.
#[test]
fn our_schemas_have_the_canonical_form_of_the_observatory_s() {
    let Some(interfaces) = load("v27.1.1") else { return };
    for topic in interfaces.topics() {
        let (ours, sal) = (topic.schema().unwrap(), topic.sal_schema().unwrap());
        assert_eq!(ours.canonical_form(), sal.canonical_form(), "{topic}");
        assert_eq!(ours.fingerprint(), sal.fingerprint(), "{topic}");
        assert_ne!(ours.id().0, ours.fingerprint(), "{topic}");
        for field in topic.fields().iter().filter(|field| field.count > 1) {
            assert_eq!(ours.field(&field.name).unwrap().length, Some(field.count as usize));
        }
    }
}

#[test]
fn enumerations_types_and_lengths_are_kept_beside() {
    let Some(interfaces) = load("v27.1.1") else { return };
    let field = |topic: &str, name: &str| {
        let schema = interfaces.topic(topic).unwrap().helio_schema_json();
        let fields = schema["fields"].as_array().unwrap().clone();
        fields.into_iter().find(|field| field["name"] == name).unwrap()
    };
    let summary = field("MTMount/event/summaryState", "summaryState");
    assert_eq!(summary["enumeration"]["StandbyState"], 5);
    assert_eq!(summary["salType"], "long");
    let int0 = field("Test/event/arrays", "int0");
    assert_eq!(int0["length"], 5);
    assert_eq!(int0["enumeration"]["Five"], 5);
    assert_eq!(int0["enumeration"]["Zero"], 0);
    let test = interfaces.component("Test").unwrap();
    assert!(test.indexed());
    assert_eq!(test.topic(TopicKind::Event, "summaryState").unwrap().key_fields(), ["salIndex"]);
}

/// The observatory's own messages: values as JSON, and the bytes that its Avro library made of
/// them.
#[test]
fn messages_have_the_bytes_of_the_reference_library() {
    let Some(interfaces) = load("v27.1.1") else { return };
    let Some(path) = shared_data("sal-golden/v27.1.1/messages.jsonl.gz") else { return };
    let naming = SalNaming::default();
    let messages = gzip_json_lines(&path);
    assert_eq!(messages.len(), 635);
    for message in &messages {
        let name = naming.from_kafka(message["kafka_name"].as_str().unwrap()).unwrap();
        let topic = interfaces.topic(name.as_str()).unwrap();
        let expected = base64(message["avro"].as_str().unwrap());
        let schema = topic.schema().unwrap();
        let codec = Codec::with_options(&schema, EncodeOptions { blocks: Blocks::Plain });
        let value = codec.value_from_json(&message["value"]).unwrap();
        let mut bytes = Vec::new();
        codec.encode(&value, &mut bytes).unwrap();
        assert_eq!(bytes, expected, "{name}");
        assert_eq!(codec.decode(&expected).unwrap(), value, "{name}");
        // Our default encoding gives equal values, too.
        let codec = Codec::new(&schema);
        bytes.clear();
        codec.encode(&value, &mut bytes).unwrap();
        assert_eq!(codec.decode(&bytes).unwrap(), value, "{name}");
    }
}

/// Bytes of base64 with padding (RFC 4648).
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |byte: u8| ALPHABET.iter().position(|known| *known == byte).unwrap() as u32;
    let mut bytes = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let number = group.iter().fold(0, |number, byte| number << 6 | digit(*byte));
        let number = number << (6 * (4 - group.len()));
        bytes.extend(&number.to_be_bytes()[1..group.len()]);
    }
    bytes
}

/// Counts differences of the two releases' golden schemas without the loader: fields removed and
/// added, units and lengths changed.
fn differences_of_golden() -> Option<[usize; 4]> {
    let [old, new] = [golden("v26.0.0")?, golden("v27.1.1")?];
    let name = |record: &Value| record["kafka_name"].as_str().unwrap().to_owned();
    let fields = |record: &Value| -> HashMap<String, Value> {
        let fields = record["schema"]["fields"].as_array().unwrap().iter();
        fields.map(|field| (field["name"].as_str().unwrap().to_owned(), field.clone())).collect()
    };
    let old: HashMap<String, Value> = old.into_iter().map(|r| (name(&r), r)).collect();
    let mut counts = [0; 4];
    for record in &new {
        let Some(before) = old.get(&name(record)) else { continue };
        let (had, has) = (fields(before), fields(record));
        counts[0] += had.keys().filter(|name| !has.contains_key(*name)).count();
        counts[1] += has.keys().filter(|name| !had.contains_key(*name)).count();
        for (name, field) in has.iter().filter(|(name, _)| had.contains_key(*name)) {
            counts[2] += usize::from(had[name]["units"] != field["units"]);
            let lengths = [before, record].map(|record| record["array_fields"].get(name).cloned());
            counts[3] += usize::from(lengths[0] != lengths[1]);
        }
    }
    Some(counts)
}

#[test]
fn what_changed_between_the_releases_is_told() {
    let (Some(old), Some(new)) = (load("v26.0.0"), load("v27.1.1")) else { return };
    let Some(expected) = differences_of_golden() else { return };
    let diff = old.diff(&new).unwrap();
    let kinds = [Change::FieldRemoved, Change::FieldAdded, Change::Units, Change::Length];
    let counts = kinds.map(|kind| {
        let all = diff.changed.iter().flat_map(|topic| &topic.evolution.differences);
        all.filter(|difference| difference.change == kind).count()
    });
    assert_eq!(counts, expected);
    assert_eq!(counts, [17, 55, 6, 3]);
    assert_eq!((diff.topics.added.len(), diff.topics.removed.len()), (116, 81));
    assert_eq!(diff.components.added, ["AlarmRule"]);
    assert_eq!(diff.level, Level::Breaking);
    let text = diff.to_string();
    for line in [
        "+ AlarmRule",
        "- CCCamera/event/rebpower_Reb_GeneralConfiguration",
        "~ MTCamera/telemetry/refrig_Cryo1: backward",
        "~ ESS/telemetry/agcGenset150: breaking",
        "~ GIS/event/effects2: breaking",
        "~ MTM1M3/event/forceActuatorSettings: full",
        "topics: 3131 -> 3166 (81 removed, 116 added)",
    ] {
        assert!(text.lines().any(|told| told == line), "{line}");
    }
    assert!(new.diff(&new).unwrap().is_empty());
}
