//! Avro's types as Arrow's, with their metadata.

use std::sync::Arc;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Int32Type, TimestampMicrosecondType};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use helio_columns::{Decoder, Layout};
use helio_core::Codec;
use helio_core::codec::Value;
use helio_core::schema::Schema;

const EVERY: &str = r#"{"type": "record", "name": "every", "fields": [
    {"name": "flag", "type": "boolean"},
    {"name": "small", "type": "int", "enumeration": {"on": 1, "off": 2}},
    {"name": "none", "type": "null"},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-nanos"}},
    {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
    {"name": "ticks", "type": {"type": "long", "logicalType": "time-micros"}},
    {"name": "mode", "type": {"type": "enum", "name": "mode", "symbols": ["idle", "busy"]}},
    {"name": "hash", "type": {"type": "fixed", "name": "hash", "size": 3}},
    {"name": "large", "type": {"type": "fixed", "name": "large", "size": 65}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
        "scale": 2}},
    {"name": "raw", "type": "bytes"},
    {"name": "speed", "type": "double", "units": "m/s", "description": "of the wind"},
    {"name": "either", "type": ["null", "string", "long"]},
    {"name": "nested", "type": {"type": "array", "items": {"type": "array", "items": "float"}}},
    {"name": "by_name", "type": {"type": "map", "values": ["null", "int"]}},
    {"name": "points", "units": "px", "type": {"type": "array", "items": {
        "type": "record", "name": "point", "fields": [
            {"name": "x", "type": "float", "units": "mm"},
            {"name": "in", "type": {"type": "record", "name": "in", "fields": [
                {"name": "y", "type": "boolean"}]}}]}}}]}"#;

fn list(of: DataType) -> DataType {
    DataType::List(Field::new("item", of, true).into())
}

#[test]
fn types_are_those_of_the_table() {
    let layout = Layout::new(&[Schema::parse(EVERY).unwrap()], &["*"]).unwrap();
    let schema = layout.schema();
    let kinds: Vec<(&str, DataType)> =
        schema.fields().iter().map(|f| (f.name().as_str(), f.data_type().clone())).collect();
    let utc = || Some(Arc::from("UTC"));
    let entries = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Int32, true),
    ]);
    let x = Field::new("x", DataType::Float32, true)
        .with_metadata([("units".to_owned(), "mm".to_owned())]);
    let point = DataType::Struct(vec![x, Field::new("in.y", DataType::Boolean, true)].into());
    assert_eq!(
        kinds,
        [
            ("flag", DataType::Boolean),
            ("small", DataType::Int32),
            ("none", DataType::Null),
            ("day", DataType::Date32),
            ("at", DataType::Timestamp(TimeUnit::Microsecond, utc())),
            ("local", DataType::Timestamp(TimeUnit::Nanosecond, None)),
            ("clock", DataType::Time32(TimeUnit::Millisecond)),
            ("ticks", DataType::Time64(TimeUnit::Microsecond)),
            ("mode", DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into())),
            ("hash", DataType::FixedSizeBinary(3)),
            ("large", DataType::Binary),
            ("price", DataType::Binary),
            ("raw", DataType::Binary),
            ("speed", DataType::Float64),
            ("either.string", DataType::Utf8),
            ("either.long", DataType::Int64),
            ("nested", list(list(DataType::Float32))),
            (
                "by_name",
                DataType::Map(
                    Field::new("entries", DataType::Struct(entries), false).into(),
                    false
                )
            ),
            ("points", list(point)),
        ]
    );
    assert!(schema.fields().iter().all(|field| field.is_nullable()));
    let metadata =
        |name: &str, key: &str| schema.field_with_name(name).unwrap().metadata().get(key).cloned();
    assert_eq!(metadata("speed", "units").as_deref(), Some("m/s"));
    assert_eq!(metadata("speed", "description").as_deref(), Some("of the wind"));
    assert_eq!(metadata("price", "logicalType").as_deref(), Some("decimal(9, 2)"));
    assert_eq!(metadata("points", "units").as_deref(), Some("px"));
    assert_eq!(metadata("small", "enumeration").as_deref(), Some(r#"{"on":1,"off":2}"#));
}

#[test]
fn values_are_those_of_the_sample() {
    let schema = Schema::parse(EVERY).unwrap();
    let point = |x: f32| Value::Record(vec![x.into(), Value::Record(vec![true.into()])]);
    let value = Value::Record(vec![
        true.into(),
        1.into(),
        Value::Null,
        20_000.into(),
        Value::Union(1, Box::new(5_i64.into())),
        6_i64.into(),
        7.into(),
        8_i64.into(),
        Value::Enum(1),
        vec![1_u8, 2, 3].into(),
        vec![7_u8; 65].into(),
        vec![1_u8].into(),
        vec![9_u8].into(),
        2.5.into(),
        Value::Union(2, Box::new(11_i64.into())),
        Value::Array(vec![vec![1_f32].into(), vec![2_f32, 3.0].into()]),
        Value::Map(vec![("a".into(), Value::Union(1, Box::new(4.into())))]),
        Value::Array(vec![point(1.0), point(2.0)]),
    ]);
    let mut bytes = Vec::new();
    Codec::new(&schema).encode(&value, &mut bytes).unwrap();
    let mut decoder = Decoder::new(&Layout::new(std::slice::from_ref(&schema), &["*"]).unwrap());
    for _ in 0..3 {
        decoder.push(&schema, &bytes).unwrap();
    }
    let batch = decoder.finish().unwrap().records;
    assert_eq!(batch["none"].len(), 3);
    assert_eq!(batch["day"].as_primitive::<Date32Type>().value(2), 20_000);
    assert_eq!(batch["at"].as_primitive::<TimestampMicrosecondType>().value(1), 5);
    let mode = batch["mode"].as_dictionary::<Int32Type>();
    assert_eq!(mode.values().as_string::<i32>().value(mode.keys().value(2) as usize), "busy");
    assert_eq!(batch["hash"].as_fixed_size_binary().value(2), [1, 2, 3]);
    assert!(batch["either.string"].is_null(0) && batch["either.long"].is_valid(0));
    let nested = batch["nested"].as_list::<i32>().value(2);
    assert_eq!(nested.as_list::<i32>().value(1).len(), 2);
    let map = batch["by_name"].as_map();
    assert_eq!((map.keys().as_string::<i32>().value(1), map.value_length(1)), ("a", 1));
    let points = batch["points"].as_list::<i32>().value(1);
    assert!(points.as_struct().column_by_name("in.y").unwrap().as_boolean().value(1));
}
