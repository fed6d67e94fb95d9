//! Types of schemas compared with those that Eclipse Cyclone DDS's own Python package makes of the
//! printed IDL. They have the same identity, and each side reads what the other writes.

use std::io::IoSlice;
use std::sync::mpsc;
use std::time::Duration;

use crate::others::{Foreign, LOOPBACK};
use crate::samples::{EVERY_TYPE_SCHEMA, schemas, value};
use helio_core::codec::Codec;
use helio_core::idl::{Form, Head, TopicType, document};
use helio_core::schema::{NodeId, Schema};
use helio_dds::dynamic_types::runtime_type;
use helio_dds::entity::{Domain, Participant, Qos, Reader, Representation, Topic, Writer};
use serde_json::json;

/// Ample on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Appendable types exist in XCDR2 only.
fn qos(form: Form) -> Qos {
    let all: &[_] = match form {
        Form::Foreign => &[Representation::Xcdr1, Representation::Xcdr2],
        _ => &[Representation::Xcdr2],
    };
    Qos::new().reliable(Duration::ZERO).keep_all().transient_local(None).representations(all)
}

/// A schema's topic, endpoints on it, and the written value.
struct Case {
    of: TopicType,
    avro: Vec<u8>,
    topic: std::sync::Arc<Topic>,
    _writer: Writer,
    reader: Reader,
    news: mpsc::Receiver<()>,
}

/// The header of the written samples.
const HEAD: Head<'_> = Head {
    incarnation: 7,
    sequence: 9,
    previous: 8,
    time: 1_800_000_000_000_000_001,
    schema: 11,
    partition: 1,
    level: 2,
    flags: 0,
    producer: "Mount",
    trace: &[5; 16],
    key: b"key",
    headers: &[1, 97, 1, 0, 98],
};

impl Case {
    fn new(here: &std::sync::Arc<Participant>, name: &str, schema: &Schema, of: TopicType) -> Self {
        let mut avro = Vec::new();
        let sample = value(schema, NodeId::ROOT, None, &mut 3);
        Codec::new(schema).encode(&sample, &mut avro).unwrap();
        let made = runtime_type(&of);
        let topic = Topic::create(here, name, &made, &Qos::new()).unwrap();
        let writer = Writer::open(&topic, &qos(of.form()), None).unwrap();
        let mut cdr = Vec::new();
        of.to_cdr(&HEAD, &avro, &mut cdr).unwrap();
        writer.write(&[IoSlice::new(&cdr)], 1).unwrap();
        let echo = Topic::create(here, &format!("{name}_echo"), &made, &Qos::new()).unwrap();
        let (tell, news) = mpsc::channel();
        let told = Box::new(move |_| tell.send(()).unwrap_or_default());
        let reader = Reader::open(&echo, &qos(of.form()), Some(told)).unwrap();
        Self { of, avro, topic, _writer: writer, reader, news }
    }

    /// The first sample that comes back is the written one, with the expected header.
    fn check(&self, expected: &Head<'_>) {
        let mut samples = Vec::new();
        while samples.is_empty() {
            self.news.recv_timeout(TEST_TIMEOUT).unwrap_or_else(|_| panic!("{}", self.of.name()));
            self.reader.take(&mut samples).unwrap();
        }
        let (mut avro, mut key) = (Vec::new(), Vec::new());
        let head = self.of.from_cdr(samples[0].cdr(), &mut avro, &mut key).unwrap();
        assert_eq!(head, *expected, "{}", self.of.name());
        assert_eq!(avro, self.avro, "{}", self.of.name());
    }
}

fn contains(bytes: &[u8], part: &str) -> bool {
    let part: Vec<u8> = (0..part.len() / 2)
        .map(|i| u8::from_str_radix(&part[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    bytes.windows(part.len()).any(|window| window == part)
}

/// In both directions, for every schema: our types, or types without our header.
fn meet(domain: u32, form: Form, anonymous: bool) {
    let here = Participant::join(Domain::open(domain, LOOPBACK).unwrap(), &Qos::new()).unwrap();
    for group in schemas().chunks(60) {
        let types: Vec<_> = group
            .iter()
            .map(|schema| match form {
                Form::Foreign => TopicType::foreign(schema).unwrap(),
                _ => TopicType::new(schema).unwrap(),
            })
            .collect();
        let Some(mut there) = Foreign::join(domain, &document(&types)) else { return };
        for (n, (schema, of)) in group.iter().zip(types).enumerate() {
            let name = format!("topic_{n}_{}", of.name().replace("::", "_"));
            let case = Case::new(&here, &name, schema, of);
            there.ask("identity", json!({"type": case.of.name()}));
            let to = format!("{name}_echo");
            let echo = json!({"type": case.of.name(), "topic": name, "to": to, "count": 1,
                "anonymous": anonymous});
            there.ask("echo", echo);
            let identity = there.answered();
            let known = case.topic.type_information();
            for kind in ["minimal", "complete"] {
                let hash = identity[kind].as_str().unwrap();
                assert!(contains(known, hash), "{}: another {kind} type", case.of.name());
            }
            let seen = there.answered();
            assert_eq!(seen["samples"].as_array().unwrap().len(), 1, "{}", case.of.name());
            let none = anonymous || form == Form::Foreign;
            case.check(&if none { Head::default() } else { HEAD });
            there.ask("forget", json!({}));
            there.answered();
        }
    }
}

#[test]
fn others_read_and_write_every_type_of_ours() {
    meet(181, Form::Typed, false);
}

#[test]
fn others_write_without_our_header() {
    meet(182, Form::Typed, true);
}

#[test]
fn topics_of_others_have_no_header() {
    meet(183, Form::Foreign, false);
}

#[test]
fn others_see_the_values() {
    let here = Participant::join(Domain::open(184, LOOPBACK).unwrap(), &Qos::new()).unwrap();
    let schema = Schema::parse(EVERY_TYPE_SCHEMA).unwrap();
    let of = TopicType::new(&schema).unwrap();
    let Some(mut there) = Foreign::join(184, &of.text()) else { return };
    let case = Case::new(&here, "every", &schema, of);
    let echo = json!({"type": case.of.name(), "topic": "every", "to": "every_echo", "count": 1});
    there.ask("echo", echo);
    let seen = there.answered()["samples"][0].clone();
    let codec = Codec::new(&schema);
    let ours = codec.value_to_json(&codec.decode(&case.avro).unwrap()).unwrap();
    for name in ["salIndex", "flag", "short", "float", "string", "colour", "doubles", "texts"] {
        assert_eq!(seen[name], ours[name], "{name}");
    }
    assert_eq!(seen["inner"]["x"], ours["inner"]["x"]);
    assert_eq!(seen["helio"]["producer"], "Mount");
    assert_eq!(seen["helio"]["key"], json!(b"key"));
    case.check(&HEAD);
}
