//! Integers of all ranges, and arrays of raw elements: exact values, limits, evolution, bytes.

use helio_core::codec::{Codec, DecodeProblem, EncodeProblem, Value};
use helio_core::evolution::{Level, compare};
use helio_core::projection::{Kind, Projection, Shape, Sink};
use helio_core::resolve::Resolution;
use helio_core::schema::build::{
    TypeSpec, array, bytes, double, int, int8, long, ndarray, nullable, record, string, uint8,
    uint16, uint32, uint64,
};
use helio_core::schema::{DType, LogicalType, NdArray, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

fn one(kind: TypeSpec) -> Schema {
    record("R").field("x", kind).schema().unwrap()
}

fn encoded(schema: &Schema, value: impl Into<Value>) -> Result<Vec<u8>, EncodeProblem> {
    let mut out = Vec::new();
    let done = Codec::new(schema).encode(&Value::Record(vec![value.into()]), &mut out);
    done.map(|()| out).map_err(|error| error.problem().clone())
}

fn read_as(from: TypeSpec, to: TypeSpec, value: impl Into<Value>) -> Result<Value, String> {
    let (writer, reader) = (one(from), one(to));
    let bytes = encoded(&writer, value).map_err(|error| error.to_string())?;
    let resolution = Resolution::new(&writer, &reader).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    resolution.transcode(&bytes, &mut out).map_err(|error| error.to_string())?;
    let value = Codec::new(&reader).decode(&out).map_err(|error| error.to_string())?;
    let Value::Record(mut fields) = value else { return Err("no record".to_owned()) };
    Ok(fields.remove(0))
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Numbers {
    byte: u8,
    small: i8,
    half: u16,
    word: u32,
    wide: u64,
    pixels: Vec<u16>,
    waves: Vec<f64>,
}

fn numbers() -> Schema {
    record("site.Numbers")
        .field("byte", uint8())
        .field("small", int8())
        .field("half", uint16())
        .field("word", uint32())
        .field("wide", uint64())
        .field("pixels", ndarray(DType::Uint16, &[-1, 2]))
        .field("waves", ndarray(DType::Float64, &[2]))
        .schema()
        .unwrap()
}

fn most() -> Numbers {
    Numbers {
        byte: u8::MAX,
        small: i8::MIN,
        half: u16::MAX,
        word: u32::MAX,
        wide: u64::MAX,
        pixels: vec![0, 1, 65535, 258],
        waves: vec![-0.0, f64::INFINITY],
    }
}

#[test]
fn the_bytes_are_those_of_the_golden_file() {
    let codec = Codec::new(&numbers());
    let mut out = Vec::new();
    codec.serialize(&most(), &mut out).unwrap();
    let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/numbers.txt");
    let golden = std::fs::read_to_string(golden).unwrap();
    let golden: Vec<_> = golden.lines().collect();
    let [schema, id, datum, json] = golden[..] else { panic!("four lines") };
    assert_eq!(numbers().to_string(), schema);
    assert_eq!(numbers().id().to_string(), id);
    assert_eq!(hex, datum);
    let value = codec.decode(&out).unwrap();
    assert_eq!(codec.value_to_json(&value).unwrap().to_string(), json);
    let parsed: Json = serde_json::from_str(json).unwrap();
    assert_eq!(codec.value_from_json(&parsed).unwrap(), value);
    assert_eq!(codec.deserialize::<Numbers>(&out).unwrap(), most());
}

#[test]
fn a_reader_that_does_not_know_them_sees_the_base_types() {
    let mut out = Vec::new();
    Codec::new(&numbers()).serialize(&most(), &mut out).unwrap();
    let old = Schema::parse(numbers().canonical_form()).unwrap();
    assert_eq!(old.fingerprint(), numbers().fingerprint());
    assert_ne!(old.id(), numbers().id());
    let Value::Record(fields) = Codec::new(&old).decode(&out).unwrap() else { panic!() };
    assert_eq!(fields[..5], [255.into(), (-128).into(), 65535.into(), u32_max(), (-1_i64).into()]);
    assert_eq!(fields[5], Value::Bytes(vec![0, 0, 1, 0, 255, 255, 2, 1]));
}

fn u32_max() -> Value {
    i64::from(u32::MAX).into()
}

#[test]
fn a_number_out_of_range_is_no_value_on_either_side() {
    for (schema, base, number) in [
        (one(uint8()), one(int()), 256),
        (one(uint8()), one(int()), -1),
        (one(int8()), one(int()), 128),
        (one(uint16()), one(int()), 65536),
        (one(uint32()), one(long()), 1 << 32),
        (one(uint32()), one(long()), -1),
    ] {
        let value = |schema: &Schema| match schema {
            _ if base == one(int()) => Value::Int(number as i32),
            _ => Value::Long(number),
        };
        let error = encoded(&schema, value(&schema)).unwrap_err();
        assert_eq!(error, EncodeProblem::Range(number.to_string()));
        let bytes = encoded(&base, value(&base)).unwrap();
        let error = Codec::new(&schema).decode(&bytes).unwrap_err();
        assert!(matches!(error.problem(), DecodeProblem::Range { number: n, .. } if *n == number));
        assert!(Codec::new(&schema).check(&bytes).is_err());
        let json = json!({"x": number});
        assert!(Codec::new(&schema).value_from_json(&json).is_err());
    }
    let codec = Codec::new(&one(uint64()));
    let mut out = Vec::new();
    assert!(codec.serialize(&json!({"x": -1}), &mut out).is_err());
    codec.serialize(&json!({"x": u64::MAX}), &mut out).unwrap();
    let back: Json = codec.deserialize(&out).unwrap();
    assert_eq!(back, json!({"x": u64::MAX}));
}

#[test]
fn an_array_of_another_size_is_no_value_on_either_side() {
    let schema = one(ndarray(DType::Uint32, &[3, -1]));
    for good in [0, 12, 24] {
        let bytes = encoded(&schema, vec![7_u8; good]).unwrap();
        Codec::new(&schema).check(&bytes).unwrap();
    }
    for wrong in [1, 4, 8, 13] {
        let error = encoded(&schema, vec![7_u8; wrong]).unwrap_err();
        assert!(matches!(error, EncodeProblem::Shape { found, .. } if found == wrong));
        let bytes = encoded(&one(bytes()), vec![7_u8; wrong]).unwrap();
        let error = Codec::new(&schema).decode(&bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("x: {wrong} bytes, which are no array of uint32[3, -1]")
        );
        assert!(Codec::new(&schema).check(&bytes).is_err());
    }
}

#[test]
fn shapes_are_numpys() {
    let shape = |shape: &[i32]| NdArray::new(DType::Int16, shape);
    assert_eq!(shape(&[]).unwrap().shape_of(2), Some(vec![]));
    assert_eq!(shape(&[2, -1, 3]).unwrap().shape_of(24), Some(vec![2, 2, 3]));
    assert_eq!(shape(&[2, -1, 3]).unwrap().shape_of(26), None);
    assert_eq!(shape(&[0, 5]).unwrap().shape_of(0), Some(vec![0, 5]));
    assert_eq!(shape(&[0, 5]).unwrap().shape_of(10), None);
    for wrong in [&[-1, -1][..], &[-2], &[0, -1], &[1 << 29, 2], &[1; 11], &[i32::MAX; 4]] {
        assert_eq!(shape(wrong), None, "{wrong:?}");
    }
    // From no bytes at all JSON would have as many empty arrays as the other dimensions say.
    assert!(shape(&[65_536, 0]).is_some());
    for wrong in [&[65_537, 0][..], &[i32::MAX, 0], &[0, i32::MAX, i32::MAX, i32::MAX]] {
        assert_eq!(shape(wrong), None, "{wrong:?}");
    }
    // What is no shape is plain bytes, as Avro requires.
    assert_eq!(one(ndarray(DType::Int8, &[-1, -1])).nodes()[1].logical, None);
    let known = one(ndarray(DType::Int8, &[-1, 2])).nodes()[1].logical;
    assert_eq!(known, NdArray::new(DType::Int8, &[-1, 2]).map(LogicalType::NdArray));
}

#[test]
fn json_is_nested_as_the_shape_is() {
    let codec = Codec::new(&one(ndarray(DType::Float32, &[2, -1])));
    let value = codec.value_from_json(&json!({"x": [[1, "NaN"], [0.1, "-Infinity"]]})).unwrap();
    let json = codec.value_to_json(&value).unwrap();
    assert_eq!(json, json!({"x": [[1.0, "NaN"], [0.1, "-Infinity"]]}));
    for wrong in
        [json!([1, 2]), json!([[1], [2, 3]]), json!([[1]]), json!([[[1]], [[2]]]), json!(1)]
    {
        assert!(codec.value_from_json(&json!({"x": wrong})).is_err(), "{wrong}");
    }
    let empty = codec.value_from_json(&json!({"x": [[], []]})).unwrap();
    assert_eq!(empty, Value::Record(vec![Value::Bytes(vec![])]));
    let text = codec.value_from_json(&json!({"x": "\u{0}\u{0}\u{80}\u{3f}\u{0}\u{0}\u{0}\u{40}"}));
    let json = codec.value_to_json(&text.unwrap()).unwrap();
    assert_eq!(json, json!({"x": [[1.0], [2.0]]}));
}

#[test]
fn readers_widen_integers_and_nothing_else() {
    let wide = 0xffff_ffff_ffff_fff0_u64;
    assert_eq!(read_as(uint8(), uint16(), 200), Ok(200.into()));
    assert_eq!(read_as(uint16(), uint32(), 65535), Ok(65535_i64.into()));
    assert_eq!(read_as(uint32(), uint64(), u32_max()), Ok(u32_max()));
    assert_eq!(read_as(uint8(), int(), 255), Ok(255.into()));
    assert_eq!(read_as(uint64(), double(), wide as i64), Ok((wide as f64).into()));
    assert_eq!(read_as(int(), uint8(), 7), Ok(7.into()));
    assert!(read_as(int(), uint8(), 700).unwrap_err().contains("700, which is no uint8"));
    assert_eq!(read_as(uint64(), long(), 5_i64), Ok(5_i64.into()));
    assert!(read_as(uint64(), long(), wide as i64).unwrap_err().contains("no int64"));
    assert!(read_as(long(), uint64(), -1_i64).unwrap_err().contains("-1, which is no uint64"));
    assert!(read_as(int(), uint64(), -1).unwrap_err().contains("no uint64"));
    for (from, to) in [(uint16(), uint8()), (uint8(), int8()), (uint64(), uint32())] {
        let error = Resolution::new(&one(from), &one(to)).unwrap_err().to_string();
        assert!(error.contains("cannot be read from a uint"), "{error}");
    }
}

#[test]
fn readers_agree_with_the_writers_element_and_shape() {
    let array = |shape: &[i32]| ndarray(DType::Uint16, shape);
    let raw = vec![1_u8, 0, 2, 0];
    assert_eq!(read_as(array(&[2]), array(&[-1]), raw.clone()), Ok(raw.clone().into()));
    assert_eq!(read_as(array(&[-1]), array(&[2]), raw.clone()), Ok(raw.clone().into()));
    assert_eq!(read_as(array(&[2]), bytes(), raw.clone()), Ok(raw.clone().into()));
    assert_eq!(read_as(bytes(), array(&[2]), raw.clone()), Ok(raw.clone().into()));
    assert!(read_as(array(&[-1]), array(&[3]), raw.clone()).unwrap_err().contains("4 bytes"));
    for (to, text) in [
        (array(&[3]), "a ndarray uint16[3] cannot be read from a ndarray uint16[2]"),
        (array(&[-1, 1]), "a ndarray uint16[-1, 1]"),
        (ndarray(DType::Int16, &[2]), "a ndarray int16[2]"),
        (string(), "a string cannot be read from a ndarray"),
    ] {
        let error = read_as(array(&[2]), to, raw.clone()).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn compatibility_is_that_of_the_values() {
    let level = |old: TypeSpec, new: TypeSpec| compare(&one(old), &one(new)).level;
    let array = |shape: &[i32]| ndarray(DType::Uint16, shape);
    assert_eq!(level(uint8(), uint16()), Level::Backward);
    assert_eq!(level(uint16(), uint8()), Level::Forward);
    assert_eq!(level(uint16(), uint32()), Level::Backward);
    assert_eq!(level(int(), uint8()), Level::Forward);
    assert_eq!(level(uint8(), int8()), Level::Breaking);
    assert_eq!(level(uint64(), long()), Level::Breaking);
    assert_eq!(level(array(&[2]), array(&[-1])), Level::Backward);
    assert_eq!(level(array(&[2]), bytes()), Level::Backward);
    assert_eq!(level(array(&[2]), array(&[3])), Level::Breaking);
    assert_eq!(level(array(&[2]), ndarray(DType::Int16, &[2])), Level::Breaking);
    assert_eq!(level(array(&[2]), array(&[2])), Level::Full);
    assert_eq!(level(array(&[2]), nullable(array(&[2]))), Level::Backward);
    assert_eq!(level(nullable(array(&[2])), array(&[2])), Level::Forward);
    assert_eq!(level(nullable(array(&[2])), nullable(array(&[3]))), Level::Breaking);
    assert_eq!(level(uint8(), nullable(uint16())), Level::Backward);
}

#[derive(Default)]
struct Cells(Vec<Value>);

impl<'a> Sink<'a> for Cells {
    fn int(&mut self, _: usize, value: i32) {
        self.0.push(value.into());
    }
    fn long(&mut self, _: usize, value: i64) {
        self.0.push(value.into());
    }
    fn double(&mut self, _: usize, value: f64) {
        self.0.push(value.into());
    }
    fn bytes(&mut self, _: usize, value: &'a [u8]) {
        self.0.push(value.to_vec().into());
    }
}

/// The column's logical type and type for two schemas, and what is read from a value of the first.
fn column(one_of: TypeSpec, other: TypeSpec, value: Value) -> Result<(Kind, Value), String> {
    let (writer, other) = (one(one_of), one(other));
    let shape = Shape::new(&[writer.clone(), other], &["x"]).map_err(|e| e.to_string())?;
    let mut cells = Cells::default();
    let bytes = encoded(&writer, value).map_err(|error| error.to_string())?;
    let projection = Projection::new(&writer, &shape).map_err(|error| error.to_string())?;
    projection.read(&bytes, &mut cells).map_err(|error| error.to_string())?;
    Ok((shape.slots()[0].kind.clone(), cells.0.remove(0)))
}

#[test]
fn columns_have_the_range_of_all_schemas() {
    assert_eq!(column(uint8(), uint16(), 200.into()), Ok((Kind::Int, 200.into())));
    assert_eq!(column(uint8(), int8(), 200.into()), Ok((Kind::Int, 200.into())));
    assert_eq!(column(int(), uint8(), 700.into()), Ok((Kind::Int, 700.into())));
    assert_eq!(column(int(), uint32(), (-1).into()), Ok((Kind::Long, (-1_i64).into())));
    let wide = Value::Long(-16);
    assert_eq!(column(uint64(), uint8(), wide.clone()), Ok((Kind::Long, wide.clone())));
    let real = (0xffff_ffff_ffff_fff0_u64 as f64).into();
    assert_eq!(column(uint64(), double(), wide.clone()), Ok((Kind::Double, real)));
    assert!(column(uint64(), long(), wide).unwrap_err().contains("cannot be read"));
    let raw = Value::Bytes(vec![1; 4]);
    let array = |shape: &[i32]| ndarray(DType::Uint16, shape);
    assert_eq!(column(array(&[2]), array(&[-1]), raw.clone()), Ok((Kind::Bytes, raw.clone())));
    assert_eq!(column(array(&[2]), bytes(), raw.clone()), Ok((Kind::Bytes, raw.clone())));
    for other in [bytes(), string()] {
        let schemas = [one(other), one(array(&[2]))];
        let logical = |schemas: &[Schema]| Shape::new(schemas, &["x"]).unwrap().slots()[0].logical;
        let [first, second] = schemas.clone();
        assert_eq!([logical(&schemas), logical(&[second, first])], [None, None]);
    }
    assert!(column(array(&[2]), array(&[3]), raw).unwrap_err().contains("uint16[2]"));
}

#[test]
fn a_projection_checks_range_and_shape() {
    for (kind, base, value) in [
        (uint8(), int(), Value::Int(256)),
        (ndarray(DType::Uint16, &[2]), bytes(), Value::Bytes(vec![0; 3])),
    ] {
        let bytes = encoded(&one(base), value).unwrap();
        let shape = Shape::new(&[one(kind.clone())], &["x"]).unwrap();
        let projection = Projection::new(&one(kind), &shape).unwrap();
        let error = projection.read(&bytes, &mut Cells::default()).unwrap_err();
        assert!(error.to_string().contains("which"), "{error}");
    }
}

#[test]
fn lists_of_them_are_numbers() {
    let codec = Codec::new(&one(array(uint64())));
    let mut out = Vec::new();
    codec.serialize(&json!({"x": [0, 1, u64::MAX]}), &mut out).unwrap();
    let value = codec.decode(&out).unwrap();
    assert_eq!(codec.value_to_json(&value).unwrap(), json!({"x": [0, 1, u64::MAX]}));
}
