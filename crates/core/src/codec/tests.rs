use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;
use crate::schema::build::{array, double, fixed, float, int, long, map, null, nullable, record};

fn codec(json: serde_json::Value) -> Codec {
    Codec::new(&Schema::from_json(&json).unwrap())
}

fn encoded(codec: &Codec, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    codec.encode(value, &mut out).unwrap();
    out
}

fn wind() -> Codec {
    codec(json!({"type": "record", "name": "Wind", "fields": [
        {"name": "speed", "type": "double", "default": 1.5},
        {"name": "gusts", "type": {"type": "array", "items": "float"}, "length": 3,
         "default": [0, 0, 0]},
        {"name": "label", "type": ["null", "string"], "default": null},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
         "default": "B"},
        {"name": "counts", "type": {"type": "array", "items": "long"}},
        {"name": "by", "type": {"type": "map", "values": ["int", "double"]}},
        {"name": "raw", "type": "bytes", "default": "\u{ff}"},
        {"name": "flags", "type": {"type": "array", "items": "boolean"}},
        {"name": "names", "type": {"type": "array", "items": "string"}},
        {"name": "inner", "type": ["null", "Wind"], "default": null},
    ]}))
}

fn wind_value(inner: Option<Value>) -> Value {
    let inner = inner.map_or(Value::Union(0, Value::Null.into()), |v| Value::Union(1, v.into()));
    Value::Record(vec![
        7.5.into(),
        vec![1.0_f32, -2.0, f32::INFINITY].into(),
        Value::Union(1, Box::new("é".into())),
        Value::Enum(1),
        vec![i64::MIN, 0, i64::MAX].into(),
        Value::Map(vec![
            ("a".into(), Value::Union(0, Box::new(3.into()))),
            ("b".into(), Value::Union(1, Box::new(0.1.into()))),
        ]),
        vec![0_u8, 255].into(),
        vec![true, false].into(),
        Value::Array(vec!["x".into(), "".into()]),
        inner,
    ])
}

#[test]
fn values_survive_both_forms_of_blocks() {
    let sized = wind();
    let value = wind_value(Some(wind_value(None)));
    for blocks in [Blocks::Sized, Blocks::Plain] {
        let codec = Codec::with_options(sized.schema(), EncodeOptions { blocks });
        let bytes = encoded(&codec, &value);
        assert_eq!(sized.decode(&bytes).unwrap(), value);
        assert_eq!(sized.check(&bytes), Ok(()));
        let mut reader = Reader::new(&bytes);
        sized.skip(&mut reader).unwrap();
        assert_eq!(reader.finish(), Ok(()));
        for end in 0..bytes.len() {
            assert!(sized.decode(&bytes[..end]).is_err());
            assert!(sized.check(&bytes[..end]).is_err());
        }
        let mut more = bytes.clone();
        more.push(0);
        let error = sized.decode(&more).unwrap_err();
        assert_eq!(*error.problem(), DecodeProblem::Wire(WireError::Trailing(1)));
    }
}

#[test]
fn the_bytes_are_the_specification_s() {
    // The two examples of the Avro specification 1.11, "Binary Encoding".
    let test = codec(json!({"type": "record", "name": "test", "fields": [
        {"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}));
    let value = Value::Record(vec![Value::Long(27), "foo".into()]);
    assert_eq!(encoded(&test, &value), [0x36, 0x06, 0x66, 0x6f, 0x6f]);
    let longs = Schema::parse(r#"{"type": "array", "items": "long"}"#).unwrap();
    let plain = Codec::with_options(&longs, EncodeOptions { blocks: Blocks::Plain });
    let value = vec![3_i64, 27].into();
    assert_eq!(encoded(&plain, &value), [4, 6, 0x36, 0]);
    assert_eq!(encoded(&Codec::new(&longs), &value), [3, 4, 6, 0x36, 0]);
    assert_eq!(encoded(&plain, &Value::Longs(vec![])), [0]);
    // Several blocks, sized and plain.
    assert_eq!(plain.decode(&[2, 6, 1, 2, 0x36, 0]).unwrap(), value);
}

#[test]
fn errors_name_the_field() {
    let codec = wind();
    let mut cases = Vec::new();
    for (place, wrong, part) in [
        (0, Value::from("x"), "inner.speed: string where the schema has double"),
        (1, vec![1.0_f32].into(), "inner.gusts: 1 elements, but the field's length is 3"),
        (2, Value::Union(2, Value::Null.into()), "inner.label: no branch 2"),
        (3, Value::Enum(2), "inner.kind: no symbol 2 in the schema; it has A, B"),
        (
            4,
            vec![1.0_f32].into(),
            "inner.counts: array of float where the schema has array of long",
        ),
        (5, Value::Map(vec![("k".into(), true.into())]), "inner.by[\"k\"]: boolean where"),
        (8, Value::Array(vec!["a".into(), Value::Null]), "inner.names[1]: null where"),
    ] {
        let mut inner = wind_value(None);
        if let Value::Record(values) = &mut inner {
            values[place] = wrong;
        }
        cases.push((inner, part));
    }
    cases.push((Value::Record(vec![]), "inner: a record of 0 fields"));
    for (inner, part) in cases {
        let mut out = vec![9];
        let error = codec.encode(&wind_value(Some(inner)), &mut out).unwrap_err().to_string();
        assert!(error.starts_with(part), "{error}");
        assert_eq!(out, [9]);
    }
    let mut bytes = encoded(&codec, &wind_value(None));
    let plain = Schema::parse(&codec.schema().to_string().replace(r#","length":3"#, "")).unwrap();
    let mut short = wind_value(None);
    if let Value::Record(values) = &mut short {
        values[1] = vec![1.0_f32].into();
    }
    bytes.clear();
    Codec::new(&plain).encode(&short, &mut bytes).unwrap();
    let error = codec.decode(&bytes).unwrap_err().to_string();
    assert_eq!(error, "gusts: 1 elements, but the field's length is 3");
    assert!(codec.check(&bytes).is_err());
}

#[test]
fn bare_values_find_their_branch() {
    let codec = codec(json!(["null", "int", "double", "string",
        {"type": "enum", "name": "E", "symbols": ["a"]}, {"type": "array", "items": "int"}]));
    for (value, branch) in [
        (Value::Null, 0),
        (1.into(), 1),
        (1.0_f32.into(), 2),
        ("a".into(), 3),
        (Value::Enum(0), 4),
        (vec![1].into(), 5),
    ] {
        let bytes = encoded(&codec, &value);
        assert_eq!(bytes[0], branch * 2);
    }
    assert!(codec.encode(&true.into(), &mut vec![]).is_err());
    let two = super::tests::codec(json!([{"type": "fixed", "name": "F", "size": 1},
        {"type": "fixed", "name": "G", "size": 1}]));
    let error = two.encode(&vec![1_u8].into(), &mut vec![]).unwrap_err();
    assert_eq!(*error.problem(), EncodeProblem::Ambiguous);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Wind {
    // Not in the schema's order; `kind` and `raw` are missing and take their defaults.
    names: Vec<String>,
    speed: f64,
    gusts: [f32; 3],
    counts: Vec<i64>,
    label: Option<String>,
    by: BTreeMap<String, Number>,
    flags: Vec<bool>,
    inner: Option<Box<Wind>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Number {
    #[serde(rename = "int")]
    Whole(i32),
    #[serde(rename = "double")]
    Real(f64),
}

fn wind_struct(inner: Option<Box<Wind>>) -> Wind {
    Wind {
        names: vec!["x".into(), "".into()],
        speed: 7.5,
        gusts: [1.0, -2.0, f32::INFINITY],
        counts: vec![i64::MIN, 0, i64::MAX],
        label: Some("é".into()),
        by: [("a".into(), Number::Whole(3)), ("b".into(), Number::Real(0.1))].into(),
        flags: vec![true, false],
        inner,
    }
}

#[test]
fn serde_types_and_values_have_the_same_bytes() {
    let wide = wind();
    let wind = wind_struct(Some(Box::new(wind_struct(None))));
    for blocks in [Blocks::Sized, Blocks::Plain] {
        let codec = Codec::with_options(wide.schema(), EncodeOptions { blocks });
        let mut bytes = Vec::new();
        codec.serialize(&wind, &mut bytes).unwrap();
        assert_eq!(codec.deserialize::<Wind>(&bytes).unwrap(), wind);
        let mut value = wind_value(Some(wind_value(None)));
        fn raw(value: &mut Value) {
            match value {
                Value::Record(values) => {
                    values[6] = vec![255_u8].into();
                    raw(&mut values[9]);
                }
                Value::Union(_, inner) => raw(inner),
                _ => {}
            }
        }
        raw(&mut value);
        assert_eq!(codec.decode(&bytes).unwrap(), value);
        assert_eq!(encoded(&codec, &value), bytes);
        for end in 0..bytes.len() {
            assert!(codec.deserialize::<Wind>(&bytes[..end]).is_err());
        }
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    A,
    B,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Circle { radius: f64 },
    Point,
    Polygon(Vec<f64>),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Borrowed<'a> {
    kind: Kind,
    #[serde(borrow)]
    text: &'a str,
    bytes: &'a [u8],
    digest: [u8; 2],
    shape: Shape,
    small: u8,
    maybe: Option<f32>,
    unit: (),
}

#[test]
fn serde_s_other_types() {
    let codec = codec(json!({"type": "record", "name": "T", "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "text", "type": "string"},
        {"name": "bytes", "type": "string"},
        {"name": "digest", "type": {"type": "fixed", "name": "D", "size": 2}},
        {"name": "shape", "type": ["null", {"type": "array", "items": "double"},
            {"type": "record", "name": "site.Circle", "fields": [
                {"name": "radius", "type": "double"}]}]},
        {"name": "small", "type": "int"},
        {"name": "maybe", "type": ["double", "null"]},
        {"name": "unit", "type": "null"},
    ]}));
    #[derive(Serialize)]
    struct Text<'a> {
        kind: Kind,
        text: &'a str,
        bytes: &'a str,
        digest: [u8; 2],
        shape: Option<Circle>,
        small: u8,
        maybe: Option<f32>,
        unit: (),
    }
    #[derive(Serialize)]
    struct Circle {
        radius: f64,
    }
    let text = Text {
        kind: Kind::B,
        text: "é",
        bytes: "abc",
        digest: [1, 255],
        shape: Some(Circle { radius: 2.0 }),
        small: 200,
        maybe: Some(1.5),
        unit: (),
    };
    let mut bytes = Vec::new();
    codec.serialize(&text, &mut bytes).unwrap();
    let read: Borrowed<'_> = codec.deserialize(&bytes).unwrap();
    assert_eq!(read.shape, Shape::Circle { radius: 2.0 });
    assert_eq!((read.kind, read.text, read.bytes), (Kind::B, "é", &b"abc"[..]));
    assert_eq!((read.digest, read.small, read.maybe), ([1, 255], 200, Some(1.5)));
    #[derive(Deserialize)]
    struct Part {
        shape: BTreeMap<String, f64>,
    }
    assert_eq!(codec.deserialize::<Part>(&bytes).unwrap().shape["radius"], 2.0);
}

#[test]
fn serde_errors_name_the_field() {
    #[derive(Serialize)]
    struct Outer {
        inner: Vec<Inner>,
    }
    #[derive(Serialize, Default)]
    struct Inner {
        x: i64,
        y: Vec<f32>,
        more: Option<i32>,
    }
    let schema = record("Outer")
        .field(
            "inner",
            array(record("Inner").field("x", int()).field("y", array(float())).length(2)),
        )
        .schema()
        .unwrap();
    let codec = Codec::new(&schema);
    let error = |inner: Inner| {
        let outer = Outer { inner: vec![inner] };
        codec.serialize(&outer, &mut vec![]).unwrap_err().to_string()
    };
    let wrong = error(Inner { x: 1 << 40, ..Inner::default() });
    assert!(wrong.starts_with("inner[0].x: the number 1099511627776"), "{wrong}");
    let wrong = error(Inner { y: vec![1.0], ..Inner::default() });
    assert_eq!(wrong, "inner[0].y: 1 elements, but the field's length is 2");
    let wrong = error(Inner { y: vec![1.0, 2.0], ..Inner::default() });
    assert_eq!(wrong, "inner[0]: no field \"more\" in the schema; it has x, y");
    let wrong = codec.serialize(&BTreeMap::<String, i32>::new(), &mut vec![]).unwrap_err();
    assert_eq!(wrong.to_string(), "inner: the field is missing and has no default");
    #[derive(Debug, Deserialize)]
    struct Two {
        #[allow(dead_code, reason = "only its type matters")]
        y: [f32; 3],
    }
    let schema = record("T").field("y", array(float())).schema().unwrap();
    let error = Codec::new(&schema).deserialize::<Two>(&[2, 0, 0, 0, 0, 0]).unwrap_err();
    assert!(error.to_string().starts_with("y: invalid length 1"), "{error}");
    let four = [8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let error = Codec::new(&schema).deserialize::<Two>(&four).unwrap_err();
    assert!(error.to_string().starts_with("y: more elements"), "{error}");
}

#[test]
fn json_is_natural() {
    let codec = wind();
    let json = json!({"speed": 7.5, "gusts": [1.0, -2.0, "Infinity"], "label": "é", "kind": "B",
        "counts": [i64::MIN, 0, i64::MAX], "by": {"a": 3, "b": 0.1}, "raw": "\u{0}\u{ff}",
        "flags": [true, false], "names": ["x", ""], "inner": null});
    let value = codec.value_from_json(&json).unwrap();
    assert_eq!(value, wind_value(None));
    assert_eq!(codec.value_to_json(&value).unwrap(), json);
    let Value::Record(record) = &value else { panic!("a record") };
    let some = codec.fields_to_json(record, 1..3).unwrap();
    assert_eq!(serde_json::Value::Object(some), json!({"gusts": json["gusts"], "label": "é"}));
    assert!(codec.fields_to_json(&record[1..], 0..1).is_err());
    let least = json!({"counts": [], "by": {}, "flags": [], "names": [],
        "inner": {"Wind": {"counts": [], "by": {"x": {"double": 1}}, "flags": [], "names": []}}});
    let value = codec.value_from_json(&least).unwrap();
    assert_eq!(codec.field(&value, "speed"), Some(&Value::Double(1.5)));
    assert_eq!(codec.field(&value, "raw"), Some(&Value::Bytes(vec![255])));
    let json = codec.value_to_json(&value).unwrap();
    assert_eq!(json["inner"]["by"]["x"], 1.0);
    assert_eq!(codec.value_from_json(&json).unwrap(), value);
    for (json, part) in [
        (json!({"speed": "fast"}), "speed: \"fast\" where the schema has double"),
        (json!({"inner": {"counts": [1, "a"]}}), "counts: the field is missing"),
        (json!({"counts": [1, "a"]}), "counts[1]: \"a\" where the schema has long"),
        (json!({"kind": "C"}), "kind: \"C\" where the schema has enum Kind"),
    ] {
        let error = codec.value_from_json(&json).unwrap_err().to_string();
        assert!(error.starts_with(part), "{error}");
    }
    let mut extra = least.clone();
    extra["sped"] = json!(1);
    let error = codec.value_from_json(&extra).unwrap_err().to_string();
    assert!(error.starts_with("sped: no such field in Wind; it has speed, gusts"), "{error}");
}

#[test]
fn floats_are_short_in_json_and_survive() {
    let codec = codec(json!("float"));
    for number in [0.1_f32, 1e-45, f32::MAX, f32::MIN_POSITIVE, -0.0, 16_777_217.0, f32::INFINITY] {
        let json = codec.value_to_json(&number.into()).unwrap();
        let text = json.to_string();
        let json = serde_json::from_str(&text).unwrap();
        assert_eq!(codec.value_from_json(&json).unwrap(), number.into(), "{text}");
    }
    assert_eq!(codec.value_to_json(&0.1_f32.into()).unwrap().to_string(), "0.1");
    assert_eq!(codec.value_to_json(&f32::NAN.into()).unwrap(), "NaN");
}

#[test]
fn unions_survive_json_where_bare_values_would_not() {
    let codec = codec(json!(["null", "double", "long", "string", "bytes", "float",
        {"type": "map", "values": "string"},
        {"type": "record", "name": "R", "fields": [{"name": "string", "type": "string"}]}]));
    for (branch, value) in [
        (1, Value::Double(1.0)),
        (2, Value::Long(1)),
        (3, "a".into()),
        (4, vec![97_u8].into()),
        (5, 0.1_f32.into()),
        (6, Value::Map(vec![("string".into(), "x".into())])),
        (7, Value::Record(vec!["x".into()])),
    ] {
        let value = Value::Union(branch, Box::new(value));
        let json = codec.value_to_json(&value).unwrap();
        assert_eq!(codec.value_from_json(&json).unwrap(), value, "{json}");
    }
}

#[test]
fn hostile_bytes_cost_little() {
    let nulls = Codec::new(&array(null()).schema().unwrap());
    let mut bytes = Vec::new();
    wire::put_long(&mut bytes, 1 << 60);
    bytes.push(0);
    assert!(nulls.decode(&bytes).is_err());
    assert!(nulls.check(&bytes).is_err());
    assert!(nulls.deserialize::<Vec<()>>(&bytes).is_err());
    let empty = Codec::new(&array(record("E")).schema().unwrap());
    assert!(empty.decode(&bytes).is_err());
    let maps = Codec::new(&map(long()).schema().unwrap());
    assert!(maps.decode(&bytes).is_err());
    let sized = Codec::new(&fixed("F", 1 << 30).schema().unwrap());
    assert!(sized.decode(&bytes).is_err());
    // 2^40 empty records without a byte.
    let mut wide = record("T0");
    for i in 1..40 {
        let inner = wide.clone();
        wide = record(&format!("T{i}"))
            .field("a", inner)
            .field("b", crate::schema::build::named(&format!("T{}", i - 1)));
    }
    let wide = Codec::new(&wide.schema().unwrap());
    assert!(wide.decode(&[]).is_err());
    assert!(wide.check(&[]).is_err());
}

#[test]
fn deep_values_end_in_an_error_on_both_sides() {
    let list = record("L").field("next", nullable(crate::schema::build::named("L")));
    let codec = Codec::new(&list.schema().unwrap());
    let deep = vec![2_u8; 100_000];
    let depth = DecodeProblem::Wire(WireError::Depth);
    assert_eq!(*codec.decode(&deep).unwrap_err().problem(), depth);
    assert_eq!(*codec.check(&deep).unwrap_err().problem(), depth);
    assert!(codec.deserialize::<serde::de::IgnoredAny>(&deep).is_err());
    let mut value = Value::Record(vec![Value::Union(0, Value::Null.into())]);
    for _ in 0..1000 {
        value = Value::Record(vec![Value::Union(1, value.into())]);
    }
    let error = codec.encode(&value, &mut vec![]).unwrap_err();
    assert_eq!(*error.problem(), EncodeProblem::Depth);
    assert!(error.to_string().len() < 500);
}

#[test]
fn a_value_that_is_written_can_be_read() {
    let list =
        record("L").field("x", double()).field("next", nullable(crate::schema::build::named("L")));
    let codec = Codec::new(&list.schema().unwrap());
    let mut value = Value::Record(vec![0.0.into(), Value::Union(0, Value::Null.into())]);
    loop {
        let mut bytes = Vec::new();
        if codec.encode(&value, &mut bytes).is_err() {
            break;
        }
        assert_eq!(codec.decode(&bytes).unwrap(), value);
        codec.check(&bytes).unwrap();
        value = Value::Record(vec![0.0.into(), Value::Union(1, value.into())]);
    }
}

#[test]
fn what_is_written_never_has_more_values_without_bytes_than_are_read() {
    let nulls = Codec::new(&array(null()).schema().unwrap());
    let value = |count: usize| Value::Array(vec![Value::Null; count]);
    let most = encoded(&nulls, &value(wire::FREE_VALUES));
    assert_eq!(nulls.decode(&most).unwrap(), value(wire::FREE_VALUES));
    let error = nulls.encode(&value(wire::FREE_VALUES + 100), &mut vec![]).unwrap_err();
    assert_eq!(*error.problem(), EncodeProblem::Free);
    assert!(nulls.serialize(&vec![(); wire::FREE_VALUES + 100], &mut vec![]).is_err());
    // A union's null has a byte.
    let maybe = Codec::new(&array(nullable(int())).schema().unwrap());
    let many = Value::Array(vec![Value::Union(0, Value::Null.into()); 2 * wire::FREE_VALUES]);
    assert_eq!(maybe.decode(&encoded(&maybe, &many)).unwrap(), many);
}

#[test]
fn room_for_fields_is_made_only_where_the_bytes_can_hold_them() {
    let mut wide = record("W").field("next", nullable(crate::schema::build::named("W")));
    for i in 0..20_000 {
        wide = wide.field(&format!("f{i}"), int());
    }
    let codec = Codec::new(&wide.schema().unwrap());
    let error = codec.decode(&[2; 200]).unwrap_err();
    assert_eq!(error.at(), "");
    assert_eq!(*error.problem(), DecodeProblem::Wire(WireError::Truncated));
}

#[test]
fn a_vector_of_bytes_is_bytes() {
    let codec = Codec::new(&<Vec<u8> as crate::HasSchema>::schema().unwrap());
    let value: Vec<u8> = (0..=255).collect();
    let mut bytes = Vec::new();
    codec.serialize(&value, &mut bytes).unwrap();
    assert_eq!(codec.decode(&bytes).unwrap(), Value::Bytes(value.clone()));
    assert_eq!(codec.deserialize::<Vec<u8>>(&bytes).unwrap(), value);
    assert!(codec.serialize(&vec![1, 256], &mut bytes).is_err());
}
