//! Against the reference library: random schemas, datums and resolutions, both ways.

use crate::random::{Random, any_schema, any_value, evolved};
use apache_avro::types::Value as Theirs;
use apache_avro::{from_avro_datum, rabin::Rabin, to_avro_datum};
use helio_core::codec::{Blocks, Codec, EncodeOptions, Value};
use helio_core::resolve::Resolution;
use helio_core::schema::{NodeId, Schema, Type};
use proptest::prelude::*;

fn theirs(schema: &Schema, id: NodeId, value: &Value) -> Theirs {
    let all = |item: NodeId, all: &[Value]| {
        Theirs::Array(all.iter().map(|value| theirs(schema, item, value)).collect())
    };
    match (&schema.node(id).kind, value) {
        (_, Value::Null) => Theirs::Null,
        (_, Value::Boolean(value)) => Theirs::Boolean(*value),
        (_, Value::Int(number)) => Theirs::Int(*number),
        (_, Value::Long(number)) => Theirs::Long(*number),
        (_, Value::Float(number)) => Theirs::Float(*number),
        (_, Value::Double(number)) => Theirs::Double(*number),
        (Type::Fixed(fixed), Value::Bytes(bytes)) => Theirs::Fixed(fixed.size, bytes.clone()),
        (_, Value::Bytes(bytes)) => Theirs::Bytes(bytes.clone()),
        (_, Value::String(text)) => Theirs::String(text.clone()),
        (Type::Enum(of), Value::Enum(place)) => {
            Theirs::Enum(*place, of.symbols[*place as usize].clone())
        }
        (Type::Array(item), Value::Array(values)) => all(*item, values),
        (_, Value::Booleans(all)) => Theirs::Array(all.iter().map(|v| (*v).into()).collect()),
        (_, Value::Ints(all)) => Theirs::Array(all.iter().map(|v| (*v).into()).collect()),
        (_, Value::Longs(all)) => Theirs::Array(all.iter().map(|v| (*v).into()).collect()),
        (_, Value::Floats(all)) => Theirs::Array(all.iter().map(|v| (*v).into()).collect()),
        (_, Value::Doubles(all)) => Theirs::Array(all.iter().map(|v| (*v).into()).collect()),
        (Type::Map(item), Value::Map(entries)) => Theirs::Map(
            entries.iter().map(|(key, v)| (key.clone(), theirs(schema, *item, v))).collect(),
        ),
        (Type::Union(branches), Value::Union(branch, inner)) => {
            Theirs::Union(*branch, theirs(schema, branches[*branch as usize], inner).into())
        }
        (Type::Record(record), Value::Record(values)) => Theirs::Record(
            record
                .fields
                .iter()
                .zip(values)
                .map(|(field, v)| (field.name.clone(), theirs(schema, field.kind, v)))
                .collect(),
        ),
        other => panic!("{other:?}"),
    }
}

fn cases() -> ProptestConfig {
    ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn canonical_forms_and_fingerprints_agree(seed: u64) {
        let json = any_schema(&mut Random::new(seed));
        let ours = Schema::from_json(&json).unwrap();
        let theirs = apache_avro::Schema::parse(&json).unwrap();
        prop_assert_eq!(ours.canonical_form(), theirs.canonical_form());
        let print = theirs.fingerprint::<Rabin>().bytes;
        prop_assert_eq!(ours.fingerprint().to_le_bytes().to_vec(), print);
        prop_assert_eq!(&Schema::parse(&ours.to_string()).unwrap(), &ours);
        let again = Schema::parse(ours.canonical_form()).unwrap();
        prop_assert_eq!(again.fingerprint(), ours.fingerprint());
    }

    #[test]
    fn each_reads_what_the_other_writes(seed: u64) {
        let random = &mut Random::new(seed);
        let json = any_schema(random);
        let ours = Schema::from_json(&json).unwrap();
        let reference = apache_avro::Schema::parse(&json).unwrap();
        for blocks in [Blocks::Sized, Blocks::Plain] {
            let codec = Codec::with_options(&ours, EncodeOptions { blocks });
            let value = any_value(random, &ours);
            let expected = theirs(&ours, NodeId::ROOT, &value);
            let mut bytes = Vec::new();
            codec.encode(&value, &mut bytes).unwrap();
            prop_assert_eq!(codec.decode(&bytes).unwrap(), value.clone());
            codec.check(&bytes).unwrap();
            let read = from_avro_datum(&reference, &mut &bytes[..], None).unwrap();
            prop_assert_eq!(&read, &expected, "{}", ours);
            let written = to_avro_datum(&reference, expected).unwrap();
            prop_assert_eq!(&codec.decode(&written).unwrap(), &sorted(&codec, &written, &value));
            if blocks == Blocks::Plain && !json.to_string().contains("\"map\"") {
                prop_assert_eq!(&written, &bytes);
            }
            let natural = codec.value_to_json(&value).unwrap();
            let text: serde_json::Value = serde_json::from_str(&natural.to_string()).unwrap();
            prop_assert_eq!(codec.value_from_json(&text).unwrap(), value, "{}", text);
        }
    }

    #[test]
    fn resolutions_agree(seed: u64) {
        let random = &mut Random::new(seed);
        let json = any_schema(random);
        let other = evolved(random, &json);
        let writer = Schema::from_json(&json).unwrap();
        let reader = Schema::from_json(&other).unwrap();
        prop_assume!(told_apart_by_shape(&writer));
        let value = any_value(random, &writer);
        let mut bytes = Vec::new();
        Codec::new(&writer).encode(&value, &mut bytes).unwrap();
        let mut out = Vec::new();
        let resolution = Resolution::new(&writer, &reader).unwrap();
        resolution.transcode(&bytes, &mut out).unwrap();
        let ours = Codec::new(&reader).decode(&out).unwrap();
        let from = apache_avro::Schema::parse(&json).unwrap();
        let to = apache_avro::Schema::parse(&other).unwrap();
        let expected = from_avro_datum(&from, &mut &bytes[..], Some(&to)).unwrap();
        prop_assert_eq!(theirs(&reader, NodeId::ROOT, &ours), expected, "{} to {}", writer, reader);
        prop_assert!(!resolution.is_identity() || out == bytes);
    }
}

/// Whether no union's branches differ by name only. The reference library resolves them by the
/// value's shape, the specification (and we) by the written branch.
fn told_apart_by_shape(schema: &Schema) -> bool {
    schema.nodes().iter().all(|node| match &node.kind {
        Type::Union(branches) => {
            let kinds = || branches.iter().map(|branch| &schema.node(*branch).kind);
            let among = |words: &[&str]| kinds().filter(|k| words.contains(&k.word())).count() < 2;
            among(&["record", "map"]) && among(&["enum", "string", "bytes", "fixed"])
        }
        _ => true,
    })
}

/// The value with its maps' entries in the order of `bytes`, which the reference library does not
/// keep.
fn sorted(codec: &Codec, bytes: &[u8], value: &Value) -> Value {
    let read = codec.decode(bytes).unwrap();
    assert_eq!(ordered(read.clone()), ordered(value.clone()));
    read
}

fn ordered(value: Value) -> Value {
    match value {
        Value::Map(entries) => {
            let mut all: Vec<_> = entries.into_iter().map(|(k, v)| (k, ordered(v))).collect();
            all.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Map(all)
        }
        Value::Array(all) => Value::Array(all.into_iter().map(ordered).collect()),
        Value::Record(all) => Value::Record(all.into_iter().map(ordered).collect()),
        Value::Union(branch, inner) => Value::Union(branch, ordered(*inner).into()),
        other => other,
    }
}
