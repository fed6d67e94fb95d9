//! Targets for hostile input, for the fuzzer (fuzz/fuzz_targets) and for `hostile.rs` in every test
//! run. Each target accepts any bytes and must neither panic nor hang nor allocate much.

#![allow(clippy::unwrap_used, reason = "a failure is to panic")]

use helio_core::codec::{Blocks, Codec, DecodeProblem, EncodeOptions, Reader, WireError};
use helio_core::container::Container;
use helio_core::evolution::{Level, compare};
use helio_core::idl::{Head, TopicType};
use helio_core::projection::{Projection, Shape, Sink};
use helio_core::resolve::Resolution;
use helio_core::schema::Schema;

/// Schemas whose datums are attacked; each is also resolved into the next.
pub(crate) const SCHEMAS: [&str; 10] = [
    r#"{"type": "record", "name": "T", "fields": [
        {"name": "a", "type": "int"}, {"name": "b", "type": "string"},
        {"name": "c", "type": {"type": "array", "items": "float"}},
        {"name": "d", "type": ["null", "T", "double"]}, {"name": "e", "type": "bytes"},
        {"name": "f", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {"name": "g", "type": {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}},
        {"name": "h", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "i", "type": {"type": "array", "items": "boolean"}, "length": 2}]}"#,
    r#"{"type": "record", "name": "T", "fields": [
        {"name": "g", "type": {"type": "enum", "name": "E", "symbols": ["C", "A"]}},
        {"name": "x", "type": {"type": "array", "items": "double"}, "default": [1, 2]},
        {"name": "a", "type": "double"}, {"name": "b", "type": "bytes"},
        {"name": "c", "type": {"type": "array", "items": "double"}, "length": 3},
        {"name": "d", "type": ["double", "T", "null"]}, {"name": "e", "type": "string"},
        {"name": "f", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
        {"name": "i", "type": {"type": "array", "items": "boolean"}}]}"#,
    r#"{"type": "array", "items": {"type": "record", "name": "E", "fields": []}}"#,
    r#"{"type": "array", "items": {"type": "record", "name": "E", "fields": [
        {"name": "s", "type": "string", "default": "a default"}]}}"#,
    r#"["null", {"type": "map", "values": "null"}, "string", {"type": "array", "items": "int"}]"#,
    r#"["string", "null", {"type": "map", "values": "null"}, {"type": "array", "items": "long"}]"#,
    r#"{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}"#,
    r#"{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["L", "null"]}]}"#,
    r#"{"type": "record", "name": "N", "fields": [
        {"name": "a", "type": {"type": "int", "logicalType": "uint16"}},
        {"name": "b", "type": ["null", {"type": "long", "logicalType": "uint64"}]},
        {"name": "c", "type": {"type": "long", "logicalType": "uint64"}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "ndarray",
            "dtype": "uint16", "shape": [-1, 2]}},
        {"name": "e", "type": {"type": "bytes", "logicalType": "ndarray",
            "dtype": "float32", "shape": [2]}},
        {"name": "f", "type": {"type": "array", "items":
            {"type": "int", "logicalType": "int8"}}},
        {"name": "g", "type": "bytes"}, {"name": "h", "type": "long"}]}"#,
    r#"{"type": "record", "name": "N", "fields": [
        {"name": "a", "type": "int"},
        {"name": "b", "type": ["long", "null"]},
        {"name": "c", "type": "long"},
        {"name": "d", "type": {"type": "bytes", "logicalType": "ndarray",
            "dtype": "uint16", "shape": [1, 2]}},
        {"name": "e", "type": "bytes"},
        {"name": "f", "type": {"type": "array", "items": "int"}},
        {"name": "g", "type": {"type": "bytes", "logicalType": "ndarray",
            "dtype": "int32", "shape": [-1]}},
        {"name": "h", "type": {"type": "long", "logicalType": "uint64"}}]}"#,
];

/// Any bytes as a schema's text.
pub(crate) fn schema(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(schema) = Schema::parse(text) else { return };
    let canonical = Schema::parse(schema.canonical_form()).unwrap();
    assert_eq!(canonical.fingerprint(), schema.fingerprint());
    let again = Schema::parse(&schema.to_string()).unwrap();
    assert_eq!(again.id(), schema.id());
    let same = compare(&schema, &again);
    assert_eq!((same.level, same.differences.len()), (Level::Full, 0));
    if let Ok(resolution) = Resolution::new(&schema, &schema) {
        let _ = resolution.transcode(&[], &mut Vec::new());
    }
    datum(&Codec::new(&schema), &[]);
}

/// Any bytes as a datum of the schema that the first byte names.
pub(crate) fn codec(data: &[u8]) {
    let Some((first, datum_bytes)) = data.split_first() else { return };
    let schema = Schema::parse(SCHEMAS[usize::from(*first) % SCHEMAS.len()]).unwrap();
    datum(&Codec::new(&schema), datum_bytes);
}

fn datum(codec: &Codec, bytes: &[u8]) {
    let decoded = codec.decode(bytes);
    assert_eq!(decoded.is_ok(), codec.check(bytes).is_ok());
    let Ok(value) = decoded else { return };
    let mut reader = Reader::new(bytes);
    codec.skip(&mut reader).unwrap();
    assert!(reader.finish().is_ok());
    let plain = Codec::with_options(codec.schema(), EncodeOptions { blocks: Blocks::Plain });
    for writer in [codec, &plain] {
        // NaN is not equal to itself, so bytes are compared.
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        if writer.encode(&value, &mut once).is_err() {
            continue;
        }
        let read = codec.decode(&once).unwrap();
        writer.encode(&read, &mut twice).unwrap();
        assert_eq!(once, twice);
        let json = codec.value_to_json(&value).unwrap();
        codec.value_from_json(&json).unwrap();
    }
}

/// Any bytes as a datum that is resolved from the schema that the first byte names to the next.
pub(crate) fn resolution(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let place = usize::from(*first) % SCHEMAS.len();
    let writer = Schema::parse(SCHEMAS[place]).unwrap();
    let reader = Schema::parse(SCHEMAS[place ^ 1]).unwrap();
    let Ok(resolution) = Resolution::new(&writer, &reader) else { return };
    let mut out = Vec::new();
    let done = resolution.transcode(bytes, &mut out);
    assert!(out.len() <= 5 << 20 || out.len() < 1000 * bytes.len());
    if Codec::new(&writer).check(bytes).is_err() {
        return;
    }
    match done {
        Ok(()) => Codec::new(&reader).check(&out).unwrap(),
        Err(error) => assert!(
            matches!(
                error.problem(),
                DecodeProblem::NoCounterpart(_)
                    | DecodeProblem::Length { .. }
                    | DecodeProblem::Range { .. }
                    | DecodeProblem::Shape { .. }
                    | DecodeProblem::Wire(_)
            ),
            "{error}"
        ),
    }
}

/// Columns of each of [`SCHEMAS`]; the second byte selects some. `L` has none.
const COLUMNS: [&[&str]; 10] = [
    &["a", "c", "d.T.f", "d.double", "f", "g", "h", "i", "d.T.d.T.b", "e", "d.T.c"],
    &["g", "x", "c", "d.double", "d.T.i", "f", "e", "b", "a"],
    &["value"],
    &["value[].s"],
    &["map", "string", "array"],
    &["array[]", "*"],
    &[],
    &[],
    &["a", "b", "c", "d", "e", "f", "g", "h"],
    &["a", "b", "c", "d", "e", "f", "g", "h"],
];

/// Any bytes as a datum of the schema that the first byte names, of which the columns that the
/// second names are read; by the columns of the other schema, too.
pub(crate) fn projection(data: &[u8]) {
    let [first, mask, bytes @ ..] = data else { return };
    let place = usize::from(*first) % SCHEMAS.len();
    let schema = Schema::parse(SCHEMAS[place]).unwrap();
    for of in [place, place ^ 1] {
        let chosen = |(i, _): &(usize, &&str)| mask >> (i % 8) & 1 == 0;
        let paths: Vec<&str> =
            COLUMNS[of].iter().enumerate().filter(chosen).map(|(_, path)| *path).collect();
        let shape = Shape::new(&[Schema::parse(SCHEMAS[of]).unwrap()], &paths).unwrap();
        let Ok(projection) = Projection::new(&schema, &shape) else { continue };
        let mut count = Count(0);
        let done = projection.read(bytes, &mut count);
        // Each value takes a byte, or one from the budget.
        assert!(count.0 <= 3 * bytes.len() + 70_000, "{} values", count.0);
        if Codec::new(&schema).check(bytes).is_ok()
            && let Err(error) = done
        {
            use DecodeProblem::{NoCounterpart, Range, Shape as Array, Wire};
            let problem = error.error().problem();
            let allowed = match problem {
                NoCounterpart(_) | Range { .. } | Array { .. } => of != place,
                // Bytes that are read as a text; nulls of what is not there.
                Wire(error) => matches!(error, WireError::Utf8 | WireError::Budget),
                _ => false,
            };
            assert!(allowed && error.offset() <= bytes.len(), "{error}");
        }
    }
}

/// Counts values.
struct Count(usize);

impl Sink<'_> for Count {
    fn null(&mut self, _slot: usize) {
        self.0 += 1;
    }
    fn boolean(&mut self, _slot: usize, _value: bool) {
        self.0 += 1;
    }
    fn int(&mut self, _slot: usize, _value: i32) {
        self.0 += 1;
    }
    fn long(&mut self, _slot: usize, _value: i64) {
        self.0 += 1;
    }
    fn double(&mut self, _slot: usize, _value: f64) {
        self.0 += 1;
    }
    fn string(&mut self, _slot: usize, _value: &str) {
        self.0 += 1;
    }
    fn record(&mut self, _slot: usize) {
        self.0 += 1;
    }
    fn end(&mut self, _slot: usize, _count: usize) {
        self.0 += 1;
    }
}

/// Schemas whose CDR is attacked.
pub(crate) const SAYABLE: [&str; 3] = [
    include_str!("../golden/cdr/every.avsc"),
    r#"{"type": "record", "name": "T", "fields": [
        {"name": "a", "type": {"type": "array", "items":
            {"type": "record", "name": "I", "fields": [
                {"name": "x", "type": "double", "default": 2},
                {"name": "y", "type": {"type": "array", "items": "long"}, "length": 1000},
                {"name": "z", "type": {"type": "array", "items": "int"}}]}}},
        {"name": "huge", "type": {"type": "array", "items": "double"}, "length": 1000000000},
        {"name": "b", "type": "string"}]}"#,
    r#"{"type": "record", "name": "T", "fields": [{"name": "o", "type": ["int", "null"]}]}"#,
];

/// Any bytes as the CDR of a type: the first byte selects the schema and the kind of topic. A
/// result is a datum that survives another round trip.
pub(crate) fn cdr(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let schema = Schema::parse(SAYABLE[usize::from(*first >> 1) % SAYABLE.len()]).unwrap();
    let of = if first & 1 == 0 { TopicType::new(&schema) } else { TopicType::foreign(&schema) };
    let of = of.unwrap();
    let (mut avro, mut key) = (Vec::new(), Vec::new());
    let Ok(head) = of.from_cdr(bytes, &mut avro, &mut key) else {
        assert!(avro.is_empty() && key.is_empty());
        return;
    };
    assert!(avro.len() <= 10 << 20 || avro.len() < 1000 * bytes.len());
    Codec::new(&schema).check(&avro).unwrap();
    let mut again = Vec::new();
    // A text may be longer than its bound here, and have a NUL in it.
    if of.to_cdr(&head, &avro, &mut again).is_ok() {
        let (mut back, mut key) = (Vec::new(), Vec::new());
        assert_eq!(of.from_cdr(&again, &mut back, &mut key).unwrap(), head);
        assert_eq!(back, avro);
    }
    // Any bytes as a datum, too.
    let _ = of.to_cdr(&Head::default(), bytes, &mut Vec::new());
}

/// Any bytes as a container file.
pub(crate) fn container(data: &[u8]) {
    let Ok(mut file) = Container::open(data) else { return };
    let codec = Codec::new(file.schema());
    let mut count = 0;
    while let Ok(Some(bytes)) = file.next_datum() {
        let _ = codec.check(bytes);
        count += 1;
        if count > 100_000 {
            break;
        }
    }
}
