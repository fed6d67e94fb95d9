//! Our schemas against the published ones and a real packet.

use helio_alerts::rubin::{Version, reader_schema};
use helio_core::codec::{Codec, Value};
use helio_core::confluent::unframe;
use helio_core::resolve::Resolution;

use crate::support::{published, rubin_packet};

#[test]
fn every_version_has_the_published_canonical_form() {
    for version in Version::ALL {
        let Some(published) = published(version) else { return };
        let ours = version.schema();
        assert_eq!(ours.canonical_form(), published.canonical_form(), "{version}");
        assert_eq!(ours.fingerprint(), published.fingerprint());
    }
}

/// As the published files had them, where there is no package to compare with.
#[test]
fn the_fingerprints() {
    let prints = Version::ALL.map(|version| format!("{:016x}", version.schema().fingerprint()));
    let published =
        ["90d8c13076f08f48", "d0ee050ddfbabb3a", "2b4e3549e664e4ef", "0cd7c3c16b8160a9"];
    assert_eq!(prints, published);
}

#[test]
fn a_number_in_the_registry_is_100_major_plus_minor() {
    assert_eq!(Version::ALL.map(Version::registry_id), [900, 1000, 1100, 1101]);
    assert_eq!(Version::of_registry_id(1100), Some(Version::V11_0));
    assert_eq!(Version::of_registry_id(704), None);
    assert_eq!("11.1".parse(), Ok(Version::LATEST));
    assert!("11".parse::<Version>().unwrap_err().to_string().contains("known are 9.0"));
}

#[test]
fn a_real_packet_is_a_datum_of_version_9() {
    let Some(packet) = rubin_packet() else { return };
    let (id, datum) = unframe(&packet).unwrap();
    let version = Version::of_registry_id(id).unwrap();
    let codec = Codec::new(version.schema());
    let alert = codec.decode(datum).unwrap();
    assert_eq!(codec.field(&alert, "diaSourceId"), Some(&Value::Long(7_912_941_781_254_298)));
    let mut again = Vec::new();
    codec.encode(&alert, &mut again).unwrap();
    assert!(again == datum);
}

#[test]
fn one_schema_reads_all_versions() {
    let reader = Codec::new(reader_schema());
    for version in Version::ALL {
        let resolution = Resolution::new(version.schema(), reader_schema()).unwrap();
        assert!(resolution.cautions().is_empty(), "{:?}", resolution.cautions());
    }
    let Some(packet) = rubin_packet() else { return };
    let datum = unframe(&packet).unwrap().1;
    let resolution = Resolution::new(Version::V9_0.schema(), reader_schema()).unwrap();
    let mut read = Vec::new();
    resolution.transcode(datum, &mut read).unwrap();
    let alert = reader.decode(&read).unwrap();
    let Some(Value::Record(source)) = reader.field(&alert, "diaSource") else { panic!() };
    assert_eq!(source[0], Value::Long(7_912_941_781_254_298));
}

/// Orbits of version 9.0 under their later names, and the geometry's.
#[test]
fn renamed_records_and_fields_are_found() {
    let writer = Codec::new(Version::V9_0.schema());
    let json = |codec: &Codec, value| codec.value_to_json(&value).unwrap();
    let Some(packet) = rubin_packet() else { return };
    let datum = unframe(&packet).unwrap().1;
    let mut alert = json(&writer, writer.decode(datum).unwrap());
    for (record, fields) in [
        ("MPCORB", [("incl", 12.5), ("t_p", 60_000.25)]),
        ("ssSource", [("eclipticLambda", 200.5), ("galacticB", -7.5)]),
    ] {
        let names = writer.schema().nodes().iter().find_map(|node| match &node.kind {
            helio_core::schema::Type::Record(found) if found.name.ends_with(record) => Some(found),
            _ => None,
        });
        let fields_of = names.unwrap().fields.iter();
        let mut value: serde_json::Map<_, _> =
            fields_of.map(|field| (field.name.clone(), serde_json::Value::Null)).collect();
        value.extend(fields.map(|(name, number)| (name.to_owned(), number.into())));
        alert[record] = value.into();
    }
    let mut written = Vec::new();
    writer.encode(&writer.value_from_json(&alert).unwrap(), &mut written).unwrap();
    let resolution = Resolution::new(writer.schema(), reader_schema()).unwrap();
    let mut read = Vec::new();
    resolution.transcode(&written, &mut read).unwrap();
    let reader = Codec::new(reader_schema());
    let alert = json(&reader, reader.decode(&read).unwrap());
    assert_eq!(alert["mpc_orbits"]["i"], 12.5);
    assert_eq!(alert["mpc_orbits"]["peri_time"], 60_000.25);
    assert_eq!(alert["ssSource"]["eclLambda"], 200.5);
    assert_eq!(alert["ssSource"]["galLat"], -7.5);
}
