//! Packets from columns: equal, byte for byte, to those from which the columns were taken.

use std::collections::BTreeMap;

use helio_alerts::arrays::{ArraysError, Column, Encoder, Images, Kind, Values, columns};
use helio_alerts::fits::{self, Size};
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, History};
use helio_alerts::rubin::Version;
use helio_core::codec::{Codec, Value};
use helio_core::schema::{Field, Schema, Type};

/// A column's values as they were found in packets.
#[derive(Debug, Default)]
struct Found {
    booleans: Vec<bool>,
    longs: Vec<i64>,
    floats: Vec<f32>,
    doubles: Vec<f64>,
    texts: Vec<Option<String>>,
    bytes: Vec<Option<Vec<u8>>>,
    nulls: Vec<bool>,
}

type Columns = BTreeMap<String, Found>;

/// Takes a packet's values into columns. A null record or list has no values.
fn take(schema: &Schema, fields: &[Field], value: &Value, path: &str, all: &mut Columns) {
    let Value::Record(values) = value else { panic!("{path} is no record: {value:?}") };
    for (field, value) in fields.iter().zip(values) {
        let path =
            if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
        let (kind, is_nullable) =
            schema.nullable(field.kind).map_or((field.kind, false), |(inner, _)| (inner, true));
        let column = all.entry(path.clone()).or_default();
        match (&schema.node(kind).kind, value.bare()) {
            (Type::Record(record), bare) => {
                if is_nullable {
                    column.booleans.push(*bare != Value::Null);
                }
                // The values of a row whose record is null are anything.
                let zeros = || record.fields.iter().map(|field| zero(schema, field)).collect();
                let bare = if *bare == Value::Null { &Value::Record(zeros()) } else { bare };
                take(schema, &record.fields, bare, &path, all);
            }
            (Type::Array(items), bare) => {
                let Type::Record(record) = &schema.node(*items).kind else { panic!("{path}") };
                let elements = if let Value::Array(elements) = bare { &elements[..] } else { &[] };
                let before = column.longs.last().copied().unwrap_or_default();
                column.longs.push(before + elements.len() as i64);
                for element in elements {
                    take(schema, &record.fields, element, &format!("{path}[]"), all);
                }
            }
            (kind, bare) => column.push(kind, bare),
        }
    }
}

fn zero(schema: &Schema, field: &Field) -> Value {
    match schema.node(field.kind).kind {
        Type::Int => Value::Int(0),
        Type::Long => Value::Long(0),
        Type::Float => Value::Float(0.0),
        Type::Double => Value::Double(0.0),
        Type::String => Value::String(String::new()),
        Type::Boolean => Value::Boolean(false),
        _ => Value::Null,
    }
}

impl Found {
    fn push(&mut self, kind: &Type, value: &Value) {
        self.nulls.push(*value == Value::Null);
        match (kind, value) {
            (Type::Boolean, value) => self.booleans.push(*value == Value::Boolean(true)),
            (_, Value::Int(number)) => self.longs.push((*number).into()),
            (_, Value::Long(number)) => self.longs.push(*number),
            (Type::Int | Type::Long, _) => self.longs.push(-1),
            (_, Value::Float(number)) => self.floats.push(*number),
            (Type::Float, _) => self.floats.push(f32::NAN),
            (_, Value::Double(number)) => self.doubles.push(*number),
            (Type::Double, _) => self.doubles.push(f64::NAN),
            (_, Value::String(text)) => self.texts.push(Some(text.clone())),
            (Type::String, _) => self.texts.push(None),
            (_, Value::Bytes(bytes)) => self.bytes.push(Some(bytes.clone())),
            (Type::Bytes, _) => self.bytes.push(None),
            (kind, value) => panic!("{kind:?}: {value:?}"),
        }
    }
}

fn generated(version: Version, count: u32) -> Vec<Vec<u8>> {
    let mut generator = Generator::new(GeneratorOptions {
        version,
        history: History::Points(17),
        alerts_per_visit: count,
        detectors: 1,
        ..GeneratorOptions::default()
    });
    let mut write = |number| {
        let mut datum = Vec::new();
        generator.write(AlertNumber { visit: 3, detector: 0, number }, &mut datum);
        datum
    };
    (0..count).map(&mut write).collect()
}

#[test]
fn packets_from_columns_are_those_that_the_columns_come_from() {
    for version in Version::ALL {
        let schema = version.schema();
        let codec = Codec::new(schema);
        let packets = generated(version, 40);
        let mut found = Columns::new();
        for packet in &packets {
            take(schema, schema.fields(), &codec.decode(packet).unwrap(), "", &mut found);
        }
        for column in found.values_mut() {
            column.longs.insert(0, 0);
        }
        let texts: BTreeMap<_, Vec<_>> = found
            .iter()
            .map(|(p, c)| (p, c.texts.iter().map(Option::as_deref).collect()))
            .collect();
        let files: BTreeMap<_, Vec<_>> = found
            .iter()
            .map(|(p, c)| (p, c.bytes.iter().map(Option::as_deref).collect()))
            .collect();
        let kinds = columns(schema);
        let given =
            kinds.iter().filter(|(path, _)| found.contains_key(path)).map(|(path, kind)| {
                let column = &found[path];
                let values = match kind {
                    Kind::Booleans | Kind::Presence => Values::Booleans(&column.booleans),
                    Kind::Longs => Values::Longs(&column.longs[1..]),
                    Kind::Offsets => Values::Longs(&column.longs),
                    Kind::Floats => Values::Floats(&column.floats),
                    Kind::Doubles => Values::Doubles(&column.doubles),
                    Kind::Texts => Values::Texts(&texts[path]),
                    Kind::Bytes => Values::Bytes(&files[path]),
                };
                let has_nulls = column.nulls.iter().any(|null| *null);
                (path.clone(), Column { values, nulls: has_nulls.then_some(&column.nulls[..]) })
            });
        let given: Vec<_> = given.collect();
        assert!(given.len() > 300, "{}", given.len());
        let encoder = Encoder::new(&codec, packets.len(), &given).unwrap();
        for (row, packet) in packets.iter().enumerate() {
            let mut datum = Vec::new();
            encoder.put(row, &mut datum);
            assert!(datum == *packet, "version {version}, alert {row}");
        }
    }
}

const SMALL: &str = r#"{"type": "record", "name": "alert", "fields": [
    {"name": "candid", "type": "long"},
    {"name": "source", "type": {"type": "record", "name": "source", "fields": [
        {"name": "flux", "type": ["null", "float"]}, {"name": "count", "type": "int"},
        {"name": "band", "type": "string", "default": "r"}]}},
    {"name": "past", "type": {"type": "array", "items": "source"}},
    {"name": "cutout", "type": ["bytes", "null"]},
    {"name": "other", "type": ["null", "source"]}]}"#;

fn column<'a>(path: &str, values: Values<'a>) -> (String, Column<'a>) {
    (path.to_owned(), values.into())
}

#[test]
fn a_wrong_column_is_named() {
    let codec = Codec::new(&Schema::parse(SMALL).unwrap());
    let whole = || {
        vec![
            column("candid", Values::Longs(&[7, 8])),
            column("source.count", Values::Longs(&[1, -1])),
            column("past", Values::Longs(&[0, 0, 1])),
            column("past[].count", Values::Longs(&[5])),
            column("past[].flux", Values::Floats(&[1.5])),
        ]
    };
    let encoder = Encoder::new(&codec, 2, &whole()).unwrap();
    let mut datum = Vec::new();
    encoder.put(1, &mut datum);
    let source = |flux, count| {
        let flux = match flux {
            Some(flux) => Value::Union(1, Box::new(Value::Float(flux))),
            None => Value::Union(0, Box::new(Value::Null)),
        };
        Value::Record(vec![flux, Value::Int(count), Value::String("r".to_owned())])
    };
    let null = |branch| Value::Union(branch, Box::new(Value::Null));
    let past = Value::Array(vec![source(Some(1.5), 5)]);
    let expected = vec![Value::Long(8), source(None, -1), past, null(1), null(0)];
    assert_eq!(codec.decode(&datum).unwrap(), Value::Record(expected));

    let refused = |place: Option<usize>, with: (String, Column<'_>)| {
        let mut columns = whole();
        match place {
            Some(place) => columns[place] = with,
            None => columns.push(with),
        }
        Encoder::new(&codec, 2, &columns).map(drop).unwrap_err().to_string()
    };
    let nulls = Column { values: Values::Longs(&[1, 2]), nulls: Some(&[false, true]) };
    let nothing = Encoder::new(&codec, 2, &[]).map(drop).unwrap_err();
    assert_eq!(nothing, ArraysError::Missing("candid".to_owned()));
    let found = [
        refused(None, column("source.fluks", Values::Floats(&[1.0, 2.0]))),
        refused(Some(1), column("source.flux", Values::Floats(&[1.0, 2.0]))),
        refused(Some(1), column("source.count", Values::Floats(&[1.0, 2.0]))),
        refused(Some(1), column("source.count", Values::Longs(&[1]))),
        refused(Some(1), column("source.count", Values::Longs(&[1, 1 << 40]))),
        refused(Some(1), ("source.count".to_owned(), nulls)),
        refused(Some(2), column("past", Values::Longs(&[0, 2, 1]))),
        refused(Some(2), column("past", Values::Longs(&[0, 1]))),
        refused(Some(3), column("past[].count", Values::Longs(&[5, 6]))),
    ];
    let expected = [
        "the schema has no field for the column source.fluks",
        "the column source.count is missing: the field may not be null and has no default",
        "the column source.count: whole numbers are expected, not numbers of 32 bits",
        "the column source.count has 1 values where 2 are expected",
        "the column source.count: 1099511627776 does not fit 32 bits",
        "the column source.count has a null at 1, and the field may not be null",
        "the offsets past are not in order at 2",
        "the column past has 2 values where 3 are expected",
        "the column past[].count has 2 values where 1 are expected",
    ];
    assert_eq!(found, expected);
}

#[test]
fn images_become_fits_files() {
    let codec = Codec::new(&Schema::parse(SMALL).unwrap());
    let pixels: Vec<f32> = (0..2 * 30 * 20).map(|at| at as f32).collect();
    let variances: Vec<f32> = pixels.iter().map(|pixel| pixel + 0.5).collect();
    let psf = [0.25; 9];
    let images = Images {
        size: Size { columns: 30, rows: 20 },
        pixels: &pixels,
        variances: Some(&variances),
        psf: Some((&psf, Size { columns: 3, rows: 3 })),
    };
    let mut columns = vec![
        column("candid", Values::Longs(&[7, 8])),
        column("source.count", Values::Longs(&[1, -1])),
        column("past", Values::Longs(&[0, 0, 0])),
        column("past[].count", Values::Longs(&[])),
        column("cutout", Values::Images(images)),
    ];
    let encoder = Encoder::new(&codec, 2, &columns).unwrap();
    let mut datum = Vec::new();
    encoder.put(1, &mut datum);
    let Value::Record(fields) = codec.decode(&datum).unwrap() else { panic!("a record") };
    let Value::Bytes(file) = fields[3].bare() else { panic!("bytes: {:?}", fields[3]) };
    let hdus = fits::hdus(file).unwrap();
    let names: Vec<_> = hdus.iter().map(|hdu| hdu.value("EXTNAME").unwrap_or_default()).collect();
    assert_eq!(names, ["", "UNCERT", "PSFIMAGE"]);
    let first = |hdu: usize| f32::from_be_bytes(hdus[hdu].data[..4].try_into().unwrap());
    assert_eq!((first(0), first(1)), (600.0, 600.5));
    assert_eq!((hdus[1].data_bytes, hdus[2].data_bytes), (2_400, 72));
    assert_eq!(hdus[0].value("NAXIS1").as_deref(), Some("30"));

    let short = Images { pixels: &pixels[..1_199], ..images };
    columns[4] = column("cutout", Values::Images(short));
    let refused = Encoder::new(&codec, 2, &columns).map(drop).unwrap_err();
    assert!(matches!(refused, ArraysError::Length { found: 1, .. }), "{refused}");
    let short = Images { variances: Some(&variances[..5]), ..images };
    columns[4] = column("cutout", Values::Images(short));
    let refused = Encoder::new(&codec, 2, &columns).map(drop).unwrap_err();
    assert_eq!(refused, ArraysError::Pixels("cutout".to_owned()));
}
