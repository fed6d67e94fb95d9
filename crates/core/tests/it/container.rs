//! Container files: the reference library's, ours in it, and a real alert.

use crate::common::shared_data;
use apache_avro::{Codec as Packing, DeflateSettings, types::Value as Theirs};
use helio_core::codec::{Codec, Value};
use helio_core::container::{Compression, Container, Writer};
use helio_core::schema::Schema;

const SCHEMA: &str = r#"{"type": "record", "name": "R", "fields": [
    {"name": "x", "type": "long"}, {"name": "s", "type": {"type": "array", "items": "string"}}]}"#;

fn datums(bytes: &[u8]) -> (Schema, Vec<Vec<u8>>) {
    let mut file = Container::open(bytes).unwrap();
    let mut all = Vec::new();
    while let Some(datum) = file.next_datum().unwrap() {
        all.push(datum.to_vec());
    }
    (file.schema().clone(), all)
}

#[test]
fn theirs_is_read() {
    let schema = apache_avro::Schema::parse_str(SCHEMA).unwrap();
    for packing in [Packing::Null, Packing::Deflate(DeflateSettings::default())] {
        let mut writer = apache_avro::Writer::with_codec(&schema, Vec::new(), packing);
        for i in 0..3000 {
            let texts = Theirs::Array(vec![Theirs::String("x".repeat(i % 50))]);
            let fields = vec![("x".to_owned(), Theirs::Long(i as i64)), ("s".to_owned(), texts)];
            writer.append(Theirs::Record(fields)).unwrap();
        }
        let (schema, all) = datums(&writer.into_inner().unwrap());
        assert_eq!(all.len(), 3000);
        let value = Codec::new(&schema).decode(&all[2999]).unwrap();
        let texts = Value::Array(vec!["x".repeat(2999 % 50).into()]);
        assert_eq!(value, Value::Record(vec![2999_i64.into(), texts]));
    }
}

#[test]
fn ours_is_read_by_theirs() {
    let schema = Schema::parse(SCHEMA).unwrap();
    let codec = Codec::new(&schema);
    for compression in [Compression::Null, Compression::Deflate] {
        let mut writer = Writer::new(&schema, compression, [3; 16]);
        for i in 0..3000_i64 {
            let mut datum = Vec::new();
            let value = Value::Record(vec![i.into(), Value::Array(vec!["é".into(), "".into()])]);
            codec.encode(&value, &mut datum).unwrap();
            writer.append(&datum);
        }
        let bytes = writer.finish();
        let reader = apache_avro::Reader::new(&bytes[..]).unwrap();
        let all: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(all.len(), 3000);
        let texts = vec![Theirs::String("é".to_owned()), Theirs::String(String::new())];
        let fields =
            vec![("x".to_owned(), Theirs::Long(2999)), ("s".to_owned(), Theirs::Array(texts))];
        assert_eq!(all[2999], Theirs::Record(fields));
    }
}

#[test]
fn a_real_alert_is_read_and_written() {
    let Some(path) = shared_data("alerts/ztf-3_3.avro") else { return };
    let (schema, all) = datums(&std::fs::read(path).unwrap());
    assert_eq!(schema.name(), Some("ztf.alert"));
    assert_eq!(all.len(), 1);
    let codec = Codec::new(&schema);
    let value = codec.decode(&all[0]).unwrap();
    codec.check(&all[0]).unwrap();
    let candidate = codec.field(&value, "candidate").unwrap();
    assert!(matches!(candidate, Value::Record(fields) if fields.len() > 90));
    let Some(Value::Record(stamp)) = codec.field(&value, "cutoutScience") else { panic!() };
    let Value::Bytes(stamp) = stamp[1].bare() else { panic!("{stamp:?}") };
    assert_eq!(stamp[..2], [0x1f, 0x8b]);
    let json = codec.value_to_json(&value).unwrap();
    assert_eq!(codec.value_from_json(&json).unwrap(), value);
    for compression in [Compression::Null, Compression::Deflate, Compression::Snappy] {
        let mut writer = Writer::new(&schema, compression, [1; 16]);
        writer.append(&all[0]);
        assert_eq!(datums(&writer.finish()), (schema.clone(), all.clone()));
    }
    let reference = apache_avro::Schema::parse_str(&schema.to_string()).unwrap();
    assert_eq!(schema.canonical_form(), reference.canonical_form());
    let theirs = apache_avro::from_avro_datum(&reference, &mut &all[0][..], None).unwrap();
    let mut ours = Vec::new();
    codec.encode(&value, &mut ours).unwrap();
    assert_eq!(apache_avro::from_avro_datum(&reference, &mut &ours[..], None).unwrap(), theirs);
}
