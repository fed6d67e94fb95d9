//! Resolution by the specification's rules, and by ours beyond them.

use helio_core::codec::{Codec, DecodeProblem, Value, WireError};
use helio_core::resolve::{Resolution, ResolveError, ResolveOptions, UnitsPolicy};
use helio_core::schema::Schema;
use serde_json::{Value as Json, json};

fn schema(json: Json) -> Schema {
    Schema::from_json(&json).unwrap()
}

fn fields(fields: Json) -> Schema {
    schema(json!({"type": "record", "name": "T", "fields": fields}))
}

/// The reader's JSON for the writer's JSON.
fn read(writer: &Schema, reader: &Schema, datum: &Json) -> Result<Json, String> {
    let resolution = Resolution::new(writer, reader).map_err(|error| error.to_string())?;
    let (from, to) = (Codec::new(writer), Codec::new(reader));
    let mut bytes = Vec::new();
    from.encode(&from.value_from_json(datum).unwrap(), &mut bytes).unwrap();
    let mut out = vec![42];
    let done = resolution.transcode(&bytes, &mut out);
    assert!(done.is_ok() || out == [42]);
    done.map_err(|error| error.to_string())?;
    Ok(to.value_to_json(&to.decode(&out[1..]).unwrap()).unwrap())
}

#[test]
fn numbers_widen_and_texts_exchange() {
    for (from, to, datum, result) in [
        (json!("int"), json!("long"), json!(-7), json!(-7)),
        (json!("int"), json!("float"), json!(7), json!(7.0)),
        (json!("int"), json!("double"), json!(7), json!(7.0)),
        (json!("long"), json!("float"), json!(1 << 20), json!(1_048_576.0)),
        (json!("long"), json!("double"), json!(7), json!(7.0)),
        (json!("float"), json!("double"), json!(0.5), json!(0.5)),
        (json!("string"), json!("bytes"), json!("abc"), json!("abc")),
        (json!("bytes"), json!("string"), json!("abc"), json!("abc")),
        (json!("int"), json!(["null", "string", "double", "int"]), json!(7), json!(7)),
        (json!("int"), json!(["null", "long", "double"]), json!(7), json!(7)),
        (json!(["null", "int"]), json!("long"), json!(7), json!(7)),
        (json!(["int", "null"]), json!(["null", "double"]), json!(7), json!(7.0)),
        (json!(["int", "null"]), json!(["null", "double"]), json!(null), json!(null)),
        (
            json!({"type": "array", "items": "int"}),
            json!({"type": "array", "items": "double"}),
            json!([1, -2]),
            json!([1.0, -2.0]),
        ),
        (
            json!({"type": "map", "values": "float"}),
            json!({"type": "map", "values": ["null", "double"]}),
            json!({"a": 0.5}),
            json!({"a": 0.5}),
        ),
    ] {
        let (from, to) = (schema(from), schema(to));
        assert_eq!(read(&from, &to, &datum), Ok(result), "{from} to {to}");
    }
    for (from, to) in [
        (json!("long"), json!("int")),
        (json!("double"), json!("float")),
        (json!("string"), json!("int")),
        (json!(["null", "string"]), json!(["null", "int"])),
        (json!({"type": "array", "items": "int"}), json!({"type": "map", "values": "int"})),
    ] {
        let (from, to) = (schema(from), schema(to));
        let error = Resolution::new(&from, &to).unwrap_err();
        assert!(matches!(error, ResolveError::Types { .. }), "{error}");
    }
}

#[test]
fn fields_match_by_name_and_alias_in_any_order() {
    let writer = fields(json!([
        {"name": "a", "type": "int"},
        {"name": "gone", "type": {"type": "array", "items": "string"}},
        {"name": "old", "type": "string"},
        {"name": "d", "type": ["null", {"type": "record", "name": "D", "fields": [
            {"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}]},
    ]));
    let reader = fields(json!([
        {"name": "fresh", "type": {"type": "array", "items": "float"}, "default": [1, 2]},
        {"name": "d", "type": ["null", {"type": "record", "name": "D", "fields": [
            {"name": "y", "type": "double"}, {"name": "x", "type": "int"},
            {"name": "z", "type": ["null", "D"], "default": null}]}]},
        {"name": "new", "aliases": ["older", "old"], "type": "string"},
        {"name": "a", "type": "int"},
    ]));
    let datum = json!({"a": 1, "gone": ["x", "y"], "old": "o", "d": {"x": 3, "y": 4}});
    let result =
        json!({"fresh": [1.0, 2.0], "d": {"y": 4.0, "x": 3, "z": null}, "new": "o", "a": 1});
    assert_eq!(read(&writer, &reader, &datum), Ok(result));
}

#[test]
fn what_is_the_same_is_copied() {
    let list = json!({"type": "record", "name": "L", "doc": "d", "fields": [
        {"name": "x", "type": {"type": "array", "items": "float"}, "length": 1, "units": "m"},
        {"name": "u", "type": ["null", "int", {"type": "map", "values": "bytes"}]},
        {"name": "next", "type": ["null", "L"], "default": null}]});
    let one = schema(list.clone());
    let mut other = list.clone();
    other["doc"] = json!("else");
    other["fields"][2]["default"] = json!(null);
    assert!(Resolution::new(&one, &schema(other)).unwrap().is_identity());
    let mut wider = list;
    wider["fields"][1]["type"][1] = json!("long");
    let wider = schema(wider);
    assert!(Resolution::new(&one, &wider).unwrap().is_identity());
    assert_eq!(Resolution::new(&wider, &one).unwrap().cautions().len(), 1);
    let datum = json!({"x": [1.0], "u": 3, "next": {"x": [2.0], "u": {"k": "v"}, "next": null}});
    assert_eq!(read(&one, &wider, &datum), Ok(datum));
}

#[test]
fn symbols_match_by_name() {
    let writer = schema(json!({"type": "enum", "name": "a.E", "symbols": ["X", "Y", "Z"]}));
    let reader = schema(json!({"type": "enum", "name": "b.E", "symbols": ["Z", "X"]}));
    assert_eq!(read(&writer, &reader, &json!("Z")), Ok(json!("Z")));
    let error = read(&writer, &reader, &json!("Y")).unwrap_err();
    assert_eq!(error, "the reader's schema cannot represent the writer's symbol Y");
    let cautions = Resolution::new(&writer, &reader).unwrap();
    assert_eq!(cautions.cautions(), ["the whole: the reader has no symbol for Y"]);
    let default = schema(json!({"type": "enum", "name": "E", "symbols": ["Z", "X"],
        "default": "X"}));
    assert_eq!(read(&writer, &default, &json!("Y")), Ok(json!("X")));
}

#[test]
fn errors_name_the_field() {
    let writer = fields(json!([
        {"name": "a", "type": {"type": "array", "items": {"type": "record", "name": "A",
            "fields": [{"name": "x", "type": "float", "units": "m/s"},
                {"name": "v", "type": {"type": "array", "items": "int"}, "length": 3}]}}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4}},
        {"name": "n", "type": ["null", "int"]},
    ]));
    let text = writer.to_string();
    for (from, to, message) in [
        ("\"float\"", "\"string\"", "a.[].x: a string cannot be read from a float"),
        ("\"m/s\"", "\"km/h\"", "a.[].x: the writer's unit is \"m/s\", the reader's \"km/h\""),
        (
            "\"length\":3",
            "\"length\":4",
            "a.[].v: the writer's array has 3 elements, the reader's 4",
        ),
        ("\"name\":\"x\"", "\"name\":\"w\"", "a.[].w: the writer has no such field"),
        (
            "\"name\":\"A\"",
            "\"name\":\"B\"",
            "a.[]: the reader's record B has neither the name nor an alias A",
        ),
        ("\"size\":4", "\"size\":5", "f: a fixed F cannot be read from a fixed F"),
        ("\"null\",\"int\"", "\"null\",\"string\"", "n: a union cannot be read from a int"),
    ] {
        assert!(text.contains(from));
        let reader = Schema::parse(&text.replace(from, to)).unwrap();
        let error = Resolution::new(&writer, &reader).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
    let reader = Schema::parse(&text.replace("[\"null\",\"int\"]", "\"int\"")).unwrap();
    let datum = json!({"a": [], "f": "abcd", "n": null});
    let error = read(&writer, &reader, &datum).unwrap_err();
    assert_eq!(error, "n: the reader's schema cannot represent the writer's null");
    let reader = Schema::parse(&text.replace("\"m/s\"", "\"km/h\"")).unwrap();
    let options = ResolveOptions { units: UnitsPolicy::Report };
    let resolution = Resolution::with_options(&writer, &reader, options).unwrap();
    assert_eq!(resolution.cautions().len(), 1);
}

#[test]
fn a_reader_s_length_is_held_to() {
    let array = json!({"name": "v", "type": {"type": "array", "items": "float"}});
    let mut fixed = array.clone();
    fixed["length"] = json!(2);
    let (writer, reader) = (fields(json!([array])), fields(json!([fixed])));
    assert_eq!(read(&writer, &reader, &json!({"v": [1.0, 2.0]})), Ok(json!({"v": [1.0, 2.0]})));
    let error = read(&writer, &reader, &json!({"v": [1.0]})).unwrap_err();
    assert_eq!(error, "v: 1 elements, but the field's length is 2");
    assert!(Resolution::new(&reader, &writer).unwrap().is_identity());
}

#[test]
fn damaged_bytes_are_errors() {
    let writer = fields(json!([{"name": "x", "type": "int"},
        {"name": "s", "type": {"type": "array", "items": "bytes"}}]));
    let reader = fields(json!([{"name": "s", "type": {"type": "array", "items": "string"}},
        {"name": "x", "type": "double"}]));
    let resolution = Resolution::new(&writer, &reader).unwrap();
    let codec = Codec::new(&writer);
    let mut bytes = Vec::new();
    let value = Value::Record(vec![
        1000.into(),
        Value::Array(vec![vec![0xc3_u8, 0xa9].into(), vec![104_u8].into()]),
    ]);
    codec.encode(&value, &mut bytes).unwrap();
    assert!(resolution.transcode(&bytes, &mut Vec::new()).is_ok());
    for end in 0..bytes.len() {
        assert!(resolution.transcode(&bytes[..end], &mut Vec::new()).is_err());
    }
    bytes[5] = 0xff;
    assert!(resolution.transcode(&bytes, &mut Vec::new()).is_err());
}

#[test]
fn defaults_cannot_blow_up() {
    let empty = json!({"type": "record", "name": "E", "fields": []});
    let mut full = empty.clone();
    full["fields"] = json!([{"name": "s", "type": "string", "default": "x".repeat(100_000)}]);
    let array = |items: Json| schema(json!({"type": "array", "items": items}));
    let resolution = Resolution::new(&array(empty.clone()), &array(full)).unwrap();
    let mut bytes = Vec::new();
    helio_core::codec::wire::put_long(&mut bytes, 60_000);
    bytes.push(0);
    let error = resolution.transcode(&bytes, &mut Vec::new()).unwrap_err();
    assert_eq!(*error.problem(), DecodeProblem::Wire(WireError::Budget));
    // A default of 2^40 records.
    let mut wide = json!({"type": "record", "name": "T0", "fields": []});
    for i in 1..25 {
        let below = format!("T{}", i - 1);
        wide = json!({"type": "record", "name": format!("T{i}"), "fields": [
            {"name": "a", "type": wide, "default": {}},
            {"name": "b", "type": below, "default": {}}]});
    }
    let writer = fields(json!([]));
    let reader = fields(json!([{"name": "w", "type": wide, "default": {}}]));
    assert!(matches!(Resolution::new(&writer, &reader), Err(ResolveError::Default { .. })));
}
