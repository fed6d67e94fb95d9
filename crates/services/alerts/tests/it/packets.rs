//! Framings, and stamps taken out of packets and put back.

use helio_alerts::framing::{Framing, PacketError, Schemas, put_single_object};
use helio_alerts::layout::{Ccd, Layout, SplitError};
use helio_alerts::rubin::Version;
use helio_core::codec::{Codec, Value};
use helio_core::confluent::{frame, unframe};
use helio_core::container::{Compression, Writer};
use helio_core::schema::Schema;
use proptest::prelude::*;

use crate::support::{rubin_packet, shared_data};

#[test]
fn a_confluent_frame_names_the_schema() {
    let Some(packet) = rubin_packet() else { return };
    let mut schemas = Schemas::rubin();
    let opened = schemas.open(&packet).unwrap();
    assert_eq!(opened.framing, Framing::Confluent(900));
    assert_eq!(opened.datums.len(), 1);
    assert!(*opened.datums[0] == packet[5..]);
    let layout = &opened.layout;
    assert_eq!(layout.alert_id(&packet[5..]), Ok(Some(7_912_941_781_254_298)));
    assert_eq!(layout.ccd(&packet[5..]), Ok(Some(Ccd { visit: 943_296, detector: 168 })));
    let refused = Schemas::rubin().open(b"\0\0\0\x02\xc0x").map(drop).unwrap_err().to_string();
    assert_eq!(refused, "no schema has the registry number 704; there are 900, 1000, 1100, 1101");
}

#[test]
fn a_single_object_and_a_container_are_read_too() {
    let Some(packet) = rubin_packet() else { return };
    let datum = unframe(&packet).unwrap().1;
    let schema = Version::V9_0.schema();
    let mut single = Vec::new();
    put_single_object(schema, datum, &mut single);
    let mut writer = Writer::new(schema, Compression::Snappy, [3; 16]);
    writer.append(datum);
    writer.append(datum);
    let container = writer.finish();
    let mut schemas = Schemas::rubin();
    let opened = schemas.open(&single).unwrap();
    assert_eq!(opened.framing, Framing::SingleObject(schema.fingerprint()));
    assert!(*opened.datums[0] == *datum);
    let opened = schemas.open(&container).unwrap();
    assert_eq!((opened.framing, opened.datums.len()), (Framing::Container, 2));
    assert!(*opened.datums[1] == *datum);
    // Its schema is compiled once.
    let again = schemas.open(&container).unwrap();
    assert!(std::sync::Arc::ptr_eq(&opened.layout, &again.layout));
    assert!(matches!(
        Schemas::empty().open(&single),
        Err(PacketError::UnknownFingerprint(print)) if print == schema.fingerprint()
    ));
    assert!(matches!(schemas.open(&container[..100_000]), Err(PacketError::Container(_))));
    assert_eq!(schemas.open(b"{}").map(drop), Err(PacketError::Unframed(b"{}".to_vec())));
}

#[test]
fn a_packet_without_stamps_is_a_datum_of_802_bytes_and_is_whole_again() {
    let Some(packet) = rubin_packet() else { return };
    let opened = Schemas::rubin().open(&packet).unwrap();
    let (layout, datum) = (&opened.layout, &*opened.datums[0]);
    let names: Vec<_> = layout.stamps().collect();
    assert_eq!(names, ["cutoutDifference", "cutoutScience", "cutoutTemplate"]);
    let mut metadata = Vec::new();
    let stamps = layout.split(datum, &mut metadata).unwrap();
    let sizes: Vec<_> = stamps.iter().map(|stamp| stamp.unwrap().len()).collect();
    assert_eq!((metadata.len(), sizes), (802, vec![34_560, 34_560, 69_120]));
    let alert = layout.codec().decode(&metadata).unwrap();
    assert_eq!(layout.codec().field(&alert, "cutoutScience"), Some(&Value::Null));
    let mut whole = Vec::new();
    layout.join(&metadata, &stamps, &mut whole).unwrap();
    assert!(whole == datum);
    let occupied = layout.join(datum, &stamps, &mut whole);
    assert_eq!(occupied, Err(SplitError::Occupied("cutoutDifference".into())));
    let count = layout.join(&metadata, &stamps[..2], &mut whole);
    assert_eq!(count, Err(SplitError::Count { expected: 3, found: 2 }));
    assert!(whole == datum);
}

#[test]
fn ztf_s_stamps_lie_in_records_and_come_back_as_well() {
    let Some(file) = shared_data("alerts/ztf-3_3.avro") else { return };
    let opened = Schemas::empty().open(&file).unwrap();
    let (layout, datum) = (&opened.layout, &*opened.datums[0]);
    assert_eq!(layout.alert_id(datum), Ok(Some(2_695_378_462_115_010_012)));
    assert_eq!(layout.ccd(datum), Ok(None));
    let mut metadata = Vec::new();
    let stamps = layout.split(datum, &mut metadata).unwrap();
    assert_eq!(stamps.len(), 3);
    // ZTF's are compressed with gzip.
    assert!(stamps.iter().all(|stamp| stamp.unwrap().starts_with(&[0x1f, 0x8b])));
    layout.codec().check(&metadata).unwrap();
    let mut whole = Vec::new();
    layout.join(&metadata, &stamps, &mut whole).unwrap();
    assert!(whole == datum);
}

#[test]
fn a_length_in_a_longer_form_leaves_the_packet_whole() {
    let text = r#"{"type": "record", "name": "A", "fields": [
        {"name": "candid", "type": "long"},
        {"name": "cutout", "type": ["null", "bytes"]}, {"name": "z", "type": "int"}]}"#;
    let layout = Layout::new(&Schema::parse(text).unwrap());
    let mut metadata = Vec::new();
    assert_eq!(layout.split(b"\x02\x02\x04ab\x07", &mut metadata).unwrap(), [Some(&b"ab"[..])]);
    assert_eq!(metadata, b"\x02\0\x07");
    for long in [&b"\x02\x02\x84\0ab\x07"[..], b"\x02\x82\0\x04ab\x07"] {
        let refused = layout.split(long, &mut metadata);
        assert_eq!(refused, Err(SplitError::Length("cutout".into())));
    }
    assert_eq!(metadata, b"\x02\0\x07");
}

fn stamp() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200))
}

proptest! {
    /// Of any stamps, and of any bytes: no panic, and what is split is the same when joined.
    #[test]
    fn what_is_split_is_joined(stamps in [stamp(), stamp(), stamp()], bits in any::<[u16; 4]>()) {
        let text = r#"{"type": "record", "name": "A", "fields": [
            {"name": "candid", "type": "long"},
            {"name": "cutoutA", "type": ["bytes", "null"]},
            {"name": "cutoutB", "type": ["null", {"type": "record", "name": "C", "fields": [
                {"name": "f", "type": "string"}, {"name": "d", "type": "bytes"},
                {"name": "g", "type": "string"}]}]},
            {"name": "cutoutC", "type": ["null", "C"]}, {"name": "z", "type": "string"}]}"#;
        let schema = Schema::parse(text).unwrap();
        let (layout, codec) = (Layout::new(&schema), Codec::new(&schema));
        let [a, b, c] = stamps;
        let union = |branch, value: Option<Value>| match value {
            Some(value) => Value::Union(branch, Box::new(value)),
            None => Value::Union(1 - branch, Box::new(Value::Null)),
        };
        let record = |image: Vec<u8>| {
            Value::Record(vec!["x.fits".into(), image.into(), "after".into()])
        };
        let alert = Value::Record(vec![
            7_i64.into(),
            union(0, a.map(Value::Bytes)),
            union(1, b.map(record)),
            union(1, c.map(record)),
            "end".into(),
        ]);
        let mut datum = Vec::new();
        codec.encode(&alert, &mut datum).unwrap();
        let mut metadata = Vec::new();
        let found = layout.split(&datum, &mut metadata).unwrap();
        codec.check(&metadata).unwrap();
        let mut whole = Vec::new();
        layout.join(&metadata, &found, &mut whole).unwrap();
        prop_assert_eq!(&whole, &datum);
        for bit in bits {
            let at = usize::from(bit) % (datum.len() * 8);
            datum[at / 8] ^= 1 << (at % 8);
        }
        let mut metadata = Vec::new();
        if let Ok(found) = layout.split(&datum, &mut metadata) {
            let mut whole = Vec::new();
            layout.join(&metadata, &found, &mut whole).unwrap();
            prop_assert_eq!(&whole, &datum);
        }
    }

    #[test]
    fn no_bytes_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut schemas = Schemas::rubin();
        for begin in [&b""[..], b"\0\0\0\x03\x84", b"Obj\x01", b"\xc3\x01"] {
            let _ = schemas.open(&[begin, &bytes].concat()).map(drop);
        }
        let layout = Layout::new(Version::LATEST.schema());
        let _ = (layout.alert_id(&bytes), layout.ccd(&bytes));
        let _ = layout.split(&bytes, &mut Vec::new());
    }

    #[test]
    fn a_frame_is_taken_off(
        id in any::<u32>(),
        datum in proptest::collection::vec(any::<u8>(), 0..9),
    ) {
        let mut schemas = Schemas::empty();
        schemas.add(id, Version::V10_0.schema());
        let mut framed = Vec::new();
        frame(id, &datum, &mut framed);
        prop_assert_eq!(&*schemas.open(&framed).unwrap().datums[0], &datum[..]);
    }
}
