//! Schemas as IDL types and samples as CDR: round trips, and a comparison with Eclipse Cyclone
//! DDS's own Python package for the same IDL (golden/cdr, written by its `make.py`).

use crate::random::{Random, any_sayable, any_value};
use helio_core::codec::{Blocks, Codec, EncodeOptions};
use helio_core::idl::cdr::{CdrProblem, Encoding};
use helio_core::idl::{Form, Head, TopicType};
use helio_core::schema::Schema;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

const EVERY: &str = include_str!("../golden/cdr/every.avsc");

fn every() -> Schema {
    Schema::parse(EVERY).unwrap()
}

fn hex(text: &Json) -> Vec<u8> {
    let digits = text.as_str().unwrap().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The header that `make.py` writes.
fn head(trace: &[u8; 16]) -> Head<'_> {
    Head {
        incarnation: 3,
        sequence: 17,
        previous: 15,
        time: 1_800_000_000_000_000_001,
        schema: (1 << 63) + 5,
        partition: 2,
        level: 6,
        flags: 1,
        producer: "mount1",
        trace,
        key: &[14],
        headers: &[1, 97, 1, 0, 98],
    }
}

#[test]
fn the_idl_is_that_of_the_golden_file() {
    let text = TopicType::new(&every()).unwrap().text();
    assert_eq!(text, include_str!("../golden/cdr/every.idl"));
}

#[test]
fn samples_are_byte_for_byte_those_of_cyclone() {
    let schema = every();
    let codec = Codec::new(&schema);
    let trace = std::array::from_fn(|i| i as u8);
    for (form, golden) in [
        (Form::Typed, include_str!("../golden/cdr/typed.json")),
        (Form::Foreign, include_str!("../golden/cdr/foreign.json")),
    ] {
        let golden: Json = serde_json::from_str(golden).unwrap();
        let (of, expected, ours) = match form {
            Form::Foreign => (TopicType::foreign(&schema), Head::default(), "XCDR1 little"),
            _ => (TopicType::new(&schema), head(&trace), "XCDR2 little"),
        };
        let of = of.unwrap();
        let avro = hex(&golden["avro"]);
        let value = codec.decode(&avro).unwrap();
        for (name, cdr) in golden["cdr"].as_object().unwrap() {
            let (cdr, mut back, mut key) = (hex(cdr), Vec::new(), Vec::new());
            let found = of.from_cdr(&cdr, &mut back, &mut key).unwrap();
            assert_eq!(found, expected, "{form:?} {name}");
            assert_eq!(codec.decode(&back).unwrap(), value, "{form:?} {name}");
            assert_eq!(key, [14], "{form:?} {name}");
            if name == ours {
                let (mut out, mut key) = (Vec::new(), Vec::new());
                of.to_cdr_with_key(&expected, &avro, &mut out, &mut key).unwrap();
                assert_eq!(key, [14], "{form:?}: the key fields' own bytes");
                let padding = usize::from(out[3]);
                out[3] = 0;
                out.truncate(out.len() - padding);
                assert_eq!(out, cdr, "{form:?} {name}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_written_is_read(seed: u64) {
        let random = &mut Random::new(seed);
        let schema = Schema::from_json(&any_sayable(random)).unwrap();
        let codec = Codec::new(&schema);
        let plain = Codec::with_options(&schema, EncodeOptions { blocks: Blocks::Plain });
        for of in [TopicType::new(&schema).unwrap(), TopicType::foreign(&schema).unwrap()] {
            let value = any_value(random, &schema);
            let (mut avro, mut blocks) = (Vec::new(), Vec::new());
            codec.encode(&value, &mut avro).unwrap();
            plain.encode(&value, &mut blocks).unwrap();
            let head = Head { producer: "P", sequence: 1, key: b"k", ..Head::default() };
            let mut cdr = b"before".to_vec();
            match of.to_cdr(&head, &avro, &mut cdr) {
                Ok(()) => {}
                // Some Avro values are invalid in the IDL type: a byte of 300, a text with a NUL.
                Err(error) => {
                    let problem = error.problem();
                    let said = matches!(problem, CdrProblem::Range { .. } | CdrProblem::Nul);
                    prop_assert!(said, "{}", error);
                    prop_assert_eq!(cdr, b"before");
                    continue;
                }
            }
            let mut again = b"before".to_vec();
            of.to_cdr(&head, &blocks, &mut again).unwrap();
            prop_assert_eq!(&again, &cdr);
            prop_assert_eq!((cdr.len() - 6) % 4, 0);
            let (mut back, mut key) = (b"here".to_vec(), Vec::new());
            let found = of.from_cdr(&cdr[6..], &mut back, &mut key).unwrap();
            prop_assert_eq!(&back[4..], &avro);
            match of.form() {
                Form::Foreign => {
                    prop_assert_eq!(of.encoding(), Encoding::Xcdr1);
                    prop_assert_eq!(found, Head::default());
                }
                _ => prop_assert_eq!((found, key), (head, b"k".to_vec())),
            }
        }
    }
}

#[test]
fn what_idl_cannot_say_is_named() {
    let cases = [
        (json!("int"), "the whole: IDL cannot say a topic of int"),
        (field(json!({"type": "map", "values": "int"})), "x: IDL cannot say a map"),
        (field(json!("null")), "x: IDL cannot say a `null`"),
        (field(json!(["int", "string"])), "x: IDL cannot say a union other than"),
        (field(json!({"type": "array", "items": ["null", "int"]})), "x[]: IDL cannot say a union"),
        (field(json!(["null", "T"])), "x: IDL cannot say the record T, which holds itself"),
        (field(json!({"type": "record", "name": "E", "fields": []})), "x: IDL cannot say the rec"),
        (
            field(json!({"type": "array", "items": {"type": "array", "items": "int"}})),
            "x[]: IDL cannot say an array of arrays or bytes",
        ),
        (named("Helio"), "Helio: IDL cannot say two names that differ in case only, or our own"),
        (named("_x"), "_x: IDL cannot say the name \"_x\""),
        (named(&"x".repeat(255)), "IDL cannot say a name of 255 bytes"),
        (
            field(json!({"type": "record", "name": "I", "fields": [
                {"name": "a", "type": {"type": "array", "items": {"type": "map", "values": "int"}}}
            ]})),
            "x.a[]: IDL cannot say a map",
        ),
    ];
    for (schema, expected) in cases {
        let schema = Schema::from_json(&schema).unwrap();
        let said = TopicType::new(&schema).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

fn field(kind: Json) -> Json {
    json!({"type": "record", "name": "T", "fields": [{"name": "x", "type": kind}]})
}

fn named(name: &str) -> Json {
    json!({"type": "record", "name": "T", "fields": [{"name": name, "type": "int"}]})
}

#[test]
fn names_that_are_taken_get_underscores() {
    let schema = Schema::from_json(&json!({
        "type": "record", "name": "Wind", "namespace": "obs.wind", "fields": [
            {"name": "a", "type": {"type": "enum", "name": "A", "symbols": ["OK", "BAD"]}},
            {"name": "b", "type": {"type": "enum", "name": "B", "symbols": ["ok", "WORSE"]}},
            {"name": "default", "type": {"type": "record", "name": "Map", "fields": [
                {"name": "map", "type": "int"}]}},
        ]
    }));
    let of = TopicType::new(&schema.unwrap()).unwrap();
    assert_eq!(of.name(), "obs::wind::Wind_");
    assert_eq!(of.enums()[1].symbols, ["B_ok", "B_WORSE"]);
    let text = of.text();
    assert!(text.contains("struct Map_ {\n  int32 _map;"), "{text}");
    assert!(text.contains("::obs::wind::Map_ _default;"), "{text}");
}

/// A type with the fields in `names`, and a sample of it.
fn sample(names: &[&str]) -> (TopicType, Vec<u8>) {
    let fields: Vec<Json> =
        names.iter().map(|name| json!({"name": name, "type": "long", "default": 7})).collect();
    let schema = json!({"type": "record", "name": "T", "fields": fields});
    let of = TopicType::new(&Schema::from_json(&schema).unwrap()).unwrap();
    let avro: Vec<u8> = (1..=names.len() as u8).map(|n| n * 2).collect();
    let (head, mut cdr) = (Head { sequence: 1, ..Head::default() }, Vec::new());
    of.to_cdr(&head, &avro, &mut cdr).unwrap();
    (of, cdr)
}

#[test]
fn members_that_were_appended_are_passed_over_and_missing_ones_take_defaults() {
    let ((old, short), (new, long)) = (sample(&["a"]), sample(&["a", "b", "c"]));
    let read = |of: &TopicType, cdr: &[u8]| {
        let mut avro = Vec::new();
        of.from_cdr(cdr, &mut avro, &mut Vec::new()).unwrap();
        avro
    };
    assert_eq!(read(&new, &short), [2, 14, 14]);
    assert_eq!(read(&old, &long), [2]);
}

#[test]
fn a_foreign_writers_key_is_that_of_the_fields() {
    let schema = json!({"type": "record", "name": "T", "fields": [
        {"name": "a", "type": "string", "key": true}, {"name": "b", "type": "double"},
        {"name": "c", "type": "int", "key": true}]});
    let of = TopicType::new(&Schema::from_json(&schema).unwrap()).unwrap();
    let (avro, mut cdr) = (b"\x04hi\0\0\0\0\0\0\0\0\x06".to_vec(), Vec::new());
    of.to_cdr(&Head::default(), &avro, &mut cdr).unwrap();
    let (mut back, mut key) = (Vec::new(), Vec::new());
    let head = of.from_cdr(&cdr, &mut back, &mut key).unwrap();
    assert_eq!((head.sequence, back, &key[..]), (0, avro, &b"\x04hi\x06"[..]));
}

#[test]
fn values_that_the_type_cannot_have_are_refused_by_the_field() {
    let schema = json!({"type": "record", "name": "T", "fields": [
        {"name": "list", "type": {"type": "array", "items": "int"}, "salType": "byte"},
        {"name": "text", "type": "string", "maxLength": 3}]});
    let of = TopicType::new(&Schema::from_json(&schema).unwrap()).unwrap();
    let refused = |avro: &[u8]| {
        let mut cdr = Vec::new();
        let error = of.to_cdr(&Head::default(), avro, &mut cdr).unwrap_err();
        assert!(cdr.is_empty());
        error.to_string()
    };
    assert_eq!(refused(b"\x04\x02\x01\0\0"), "list[1]: the number -1 does not fit octet");
    assert_eq!(
        refused(b"\0\x04a\0"),
        "text: a text with a NUL within, which IDL's strings cannot have"
    );
    let long = refused(b"\0\x08abcd");
    assert_eq!(long, "text: a text of 4 bytes, but the field's maxLength is 3");
    assert_eq!(
        refused(b"\0\0\0"),
        "1 bytes are left after the value: damaged, or of another schema"
    );
}

#[test]
fn the_envelope_has_any_bytes() {
    let of = TopicType::envelope();
    let head = Head { producer: "me", sequence: 9, key: b"key", ..Head::default() };
    for payload in [&b""[..], b"x", b"any bytes"] {
        let (mut cdr, mut back, mut key) = (Vec::new(), Vec::new(), Vec::new());
        of.to_cdr(&head, payload, &mut cdr).unwrap();
        assert_eq!(of.from_cdr(&cdr, &mut back, &mut key).unwrap(), head);
        assert_eq!((&back[..], &key[..]), (payload, &b"key"[..]));
    }
    let text = of.text();
    assert_eq!(text.matches("module helio {").count(), 1, "{text}");
    assert!(text.contains("struct Envelope {\n  @key ::helio::Header helio;"), "{text}");
}
