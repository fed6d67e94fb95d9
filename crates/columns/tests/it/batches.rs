//! Batches with bad samples, changing schemas, and reading in two phases.

use std::sync::LazyLock;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use helio_columns::{Decoder, Layout, PushError, Reason};
use helio_core::Codec;
use helio_core::codec::{Blocks, EncodeOptions, Value};
use helio_core::schema::Schema;

const ALERT: &str = r#"{"type": "record", "name": "alert", "fields": [
    {"name": "id", "type": "long"},
    {"name": "source", "type": {"type": "record", "name": "source", "fields": [
        {"name": "snr", "type": ["null", "float"]},
        {"name": "band", "type": ["null", "string"]}]}},
    {"name": "prv", "type": ["null", {"type": "array", "items": {
        "type": "record", "name": "point", "fields": [
            {"name": "flux", "type": ["null", "float"]},
            {"name": "time", "type": "double"},
            {"name": "tags", "type": {"type": "map", "values": {
                "type": "array", "items": "string"}}}]}}]},
    {"name": "stamp", "type": ["null", "bytes"]}]}"#;
const PATHS: [&str; 7] =
    ["id", "source.snr", "source.band", "prv[].flux", "prv[].time", "prv[].tags", "stamp"];

pub(crate) fn schema() -> Schema {
    static PARSED: LazyLock<Schema> = LazyLock::new(|| Schema::parse(ALERT).unwrap());
    PARSED.clone()
}

fn some(value: impl Into<Value>) -> Value {
    Value::Union(1, Box::new(value.into()))
}

fn null() -> Value {
    Value::Union(0, Box::new(Value::Null))
}

/// The packet of a number, with as many points.
pub(crate) fn packet(number: i64, points: usize, blocks: Blocks) -> Vec<u8> {
    let point = |i: usize| {
        let flux = if i % 3 == 2 { null() } else { some(i as f32) };
        let tags = Value::Map(
            (0..i % 3)
                .map(|k| (format!("k{k}"), Value::Array(vec![format!("v{i}").into()])))
                .collect(),
        );
        Value::Record(vec![flux, (i as f64 / 2.0).into(), tags])
    };
    let prv = match number % 4 {
        3 => null(),
        _ => some(Value::Array((0..points).map(point).collect())),
    };
    let band = if number % 2 == 0 { some("r") } else { null() };
    let source = Value::Record(vec![some(number as f32), band]);
    let value = Value::Record(vec![number.into(), source, prv, some(vec![number as u8; 9])]);
    let mut bytes = Vec::new();
    let codec = Codec::with_options(&schema(), EncodeOptions { blocks });
    codec.encode(&value, &mut bytes).unwrap();
    bytes
}

fn ids(batch: &RecordBatch) -> Vec<i64> {
    batch.column_by_name("id").unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn decoded(layout: &Layout, packets: &[Vec<u8>]) -> helio_columns::Batch {
    let mut decoder = Decoder::new(layout);
    for packet in packets {
        let _ = decoder.push(&schema(), packet);
    }
    decoder.finish().unwrap()
}

#[test]
fn one_bad_sample_of_many_drops_only_itself() {
    let layout = Layout::new(&[schema()], &PATHS).unwrap();
    for blocks in [Blocks::Sized, Blocks::Plain] {
        let good: Vec<Vec<u8>> = (0..256).map(|n| packet(n, n as usize % 7, blocks)).collect();
        let without: Vec<Vec<u8>> =
            good.iter().enumerate().filter(|(i, _)| *i != 100).map(|(_, p)| p.clone()).collect();
        let expected = decoded(&layout, &without).records;
        // Cut at every byte: within each value, list, map and key.
        for end in 0..good[100].len() {
            let mut packets = good.clone();
            packets[100].truncate(end);
            let mut decoder = Decoder::new(&layout);
            for (i, packet) in packets.iter().enumerate() {
                let done = decoder.push(&schema(), packet);
                assert_eq!(done.is_err(), i == 100, "{end} {i}");
            }
            let batch = decoder.finish().unwrap();
            assert_eq!(batch.records, expected, "cut at {end}");
            let [rejected] = &batch.rejected[..] else { panic!("{:?}", batch.rejected) };
            assert_eq!(rejected.position, 100);
            assert!(matches!(rejected.reason, Reason::Datum(_)));
            assert!(batch.positions.iter().copied().eq((0..256).filter(|i| *i != 100)));
        }
    }
}

#[test]
fn a_rejection_names_the_sample_the_field_and_the_byte() {
    let layout = Layout::new(&[schema()], &PATHS).unwrap();
    let mut decoder = Decoder::new(&layout);
    decoder.push(&schema(), &packet(0, 2, Blocks::Plain)).unwrap();
    let error = decoder.push(&schema(), &packet(2, 2, Blocks::Plain)[..42]).unwrap_err();
    assert!(matches!(error, PushError::Rejected(Reason::Datum(_))), "{error}");
    let batch = decoder.finish().unwrap();
    assert_eq!(
        batch.rejected[0].to_string(),
        "sample 1: at byte 42: prv[1].tags[\"k0\"]: the bytes end within a value: truncated, or \
         of another schema"
    );
    // The next batch begins at 0.
    decoder.push(&schema(), &packet(4, 0, Blocks::Sized)).unwrap();
    let next = decoder.finish().unwrap();
    assert_eq!((next.positions, next.rejected), (vec![0], vec![]));
    assert_eq!(ids(&next.records), [4]);
}

#[test]
fn history_is_read_of_the_chosen_rows_only() {
    let all = Layout::new(&[schema()], &PATHS).unwrap();
    let flat = all.flat().unwrap();
    let names: Vec<&str> = flat.schema().fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["id", "source.snr", "source.band", "stamp"]);
    let mut packets: Vec<Vec<u8>> = (0..50).map(|n| packet(n, 5, Blocks::Sized)).collect();
    packets[7].truncate(3);
    let first = decoded(&flat, &packets);
    let snr = first.records["source.snr"].as_primitive::<Float32Type>();
    let chosen: Vec<usize> =
        (0..snr.len()).filter(|row| snr.value(*row) as i32 % 10 == 8).collect();
    let mut second = Decoder::new(&all);
    for row in &chosen {
        second.push(&schema(), &packets[first.positions[*row]]).unwrap();
    }
    let second = second.finish().unwrap().records;
    assert_eq!(ids(&second), [8, 18, 28, 38, 48]);
    assert_eq!(second["prv"].as_list::<i32>().value_length(0), 5);
}

fn record(fields: &str) -> Schema {
    Schema::parse(&format!(r#"{{"type": "record", "name": "v.R", "fields": [{fields}]}}"#)).unwrap()
}

fn encoded(schema: &Schema, values: Vec<Value>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Codec::new(schema).encode(&Value::Record(values), &mut bytes).unwrap();
    bytes
}

#[test]
fn a_schema_may_change_within_a_batch() {
    let old = record(
        r#"{"name": "a", "type": "int"}, {"name": "b", "type": "string"},
        {"name": "p", "type": {"type": "array", "items": {"type": "record", "name": "v.P",
            "fields": [{"name": "x", "type": "float"}]}}}"#,
    );
    let new = record(
        r#"{"name": "p", "type": {"type": "array", "items": {"type": "record", "name": "w.P",
            "fields": [{"name": "y", "type": "int"}, {"name": "x", "type": "double"}]}}},
        {"name": "c", "type": "boolean"}, {"name": "a", "type": ["null", "double"]}"#,
    );
    let old_row = encoded(
        &old,
        vec![7.into(), "b".into(), Value::Array(vec![Value::Record(vec![0.5_f32.into()])])],
    );
    let point = Value::Record(vec![3.into(), 1.5.into()]);
    let new_row =
        encoded(&new, vec![Value::Array(vec![point.clone(), point]), true.into(), some(2.5)]);
    let layout = Layout::new(&[old.clone(), new.clone()], &["a", "b", "c", "p"]).unwrap();
    let mut decoder = Decoder::new(&layout);
    for _ in 0..2 {
        decoder.push(&old, &old_row).unwrap();
        decoder.push(&new, &new_row).unwrap();
    }
    let batch = decoder.finish().unwrap().records;
    assert_eq!(batch["a"].as_primitive::<Float64Type>().values()[..], [7.0, 2.5, 7.0, 2.5]);
    let nulls = |array: &dyn Array| (0..array.len()).map(|i| array.is_null(i)).collect::<Vec<_>>();
    assert_eq!(nulls(&batch["b"]), [false, true, false, true]);
    assert_eq!(nulls(&batch["c"]), [true, false, true, false]);
    let points = batch["p"].as_list::<i32>();
    assert_eq!((points.value_length(0), points.value_length(1)), (1, 2));
    let members = points.values().as_struct();
    let x = members.column_by_name("x").unwrap().as_primitive::<Float64Type>();
    assert_eq!(x.values()[..3], [0.5, 1.5, 1.5]);
    assert_eq!(nulls(members.column_by_name("y").unwrap())[..3], [true, false, false]);
}

#[test]
fn a_type_that_does_not_resolve_is_rejected_by_name() {
    let int = record(r#"{"name": "a", "type": "int"}"#);
    let double = record(r#"{"name": "a", "type": "double"}"#);
    let text = record(r#"{"name": "a", "type": "string"}"#);
    let layout = Layout::new(std::slice::from_ref(&int), &["a"]).unwrap();
    let mut decoder = Decoder::new(&layout);
    decoder.push(&int, &encoded(&int, vec![7.into()])).unwrap();
    let error = decoder.push(&double, &encoded(&double, vec![7.5.into()])).unwrap_err();
    assert_eq!(error.to_string(), "a: a int cannot be read from a double");
    decoder.push(&int, &encoded(&int, vec![8.into()])).unwrap();
    let batch = decoder.finish().unwrap();
    assert_eq!((batch.records.num_rows(), batch.rejected[0].position), (2, 1));
    // A wider layout reads both; none reads a text as well.
    let wide = layout.with(&double).unwrap();
    let mut decoder = Decoder::new(&wide);
    decoder.push(&int, &encoded(&int, vec![7.into()])).unwrap();
    decoder.push(&double, &encoded(&double, vec![7.5.into()])).unwrap();
    let batch = decoder.finish().unwrap().records;
    assert_eq!(batch["a"].as_primitive::<Float64Type>().values()[..], [7.0, 7.5]);
    assert_eq!(
        wide.with(&text).unwrap_err().to_string(),
        "a: a double cannot be read from a string"
    );
}

#[test]
fn no_columns_are_rows_without_values() {
    let layout = Layout::new::<&str>(&[schema()], &[]).unwrap();
    let batch =
        decoded(&layout, &[packet(1, 3, Blocks::Plain), vec![], packet(2, 0, Blocks::Sized)]);
    assert_eq!((batch.records.num_rows(), batch.rejected.len()), (2, 1));
}
