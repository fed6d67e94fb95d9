//! Exports of the alerts that a filter matches.

use helio_alert_export::{Ended, ExportOptions, FilterQuery, Format};
use helio_alerts::rubin::Version;
use helio_core::codec::{Codec, Value};

use crate::contents::{avro_datums, parquet_ids};
use crate::support::{ALERTS, Stream, export, parts, sorted};

fn filter(text: &str) -> Option<FilterQuery> {
    Some(FilterQuery { text: text.to_owned(), ..FilterQuery::default() })
}

/// The alerts of which a function of the decoded packet is true.
fn matching(stream: &Stream, is_match: impl Fn(&Codec, &Value) -> bool) -> Vec<i64> {
    let codec = Codec::new(Version::LATEST.schema());
    let matches = |datum: &Vec<u8>| is_match(&codec, &codec.decode(datum).unwrap());
    sorted(stream.packets.iter().filter(|(_, datum)| matches(datum)).map(|(id, _)| *id).collect())
}

fn number(codec: &Codec, alert: &Value, path: &[&str]) -> f64 {
    let json = codec.value_to_json(alert).unwrap();
    let mut found = &json;
    for name in path {
        found = &found[*name];
    }
    found.as_f64().unwrap_or(f64::NAN)
}

#[test]
fn a_filter_exports_all_matches_without_a_cap() {
    let mut stream = Stream::new();
    stream.publish_night(3);
    // Three in five.
    let codec = Codec::new(Version::LATEST.schema());
    let flux = |codec: &Codec, alert: &Value| number(codec, alert, &["diaSource", "psfFlux"]);
    let packets = stream.packets.values().map(|datum| flux(&codec, &codec.decode(datum).unwrap()));
    let mut fluxes: Vec<f64> = packets.collect();
    fluxes.sort_by(f64::total_cmp);
    let limit = fluxes[fluxes.len() * 2 / 5];
    let expected = matching(&stream, |codec, alert| flux(codec, alert) > limit);
    assert!(expected.len() > 3 * 20, "{}", expected.len());
    let text = &format!("SELECT * FROM alerts WHERE diaSource.psfFlux > {limit:?}");
    for format in [Format::Parquet, Format::Avro] {
        let folder = stream.target(&format!("{format:?}"));
        let options = ExportOptions { format, filter: filter(text), ..Default::default() };
        let outcome = export(&stream, &folder, &options);
        // All alerts were read, and are those of the closing records.
        assert!(outcome.is_equal(), "{outcome:?}");
        assert_eq!(outcome.totals.alerts, u64::from(3 * ALERTS));
        assert_eq!(outcome.totals.rows, expected.len() as u64);
        let exported: u64 = outcome.visits.iter().map(|visit| visit.exported.count()).sum();
        assert_eq!(exported, expected.len() as u64);
        let found = match format {
            Format::Parquet => parquet_ids(&folder),
            Format::Avro => {
                let layout = helio_alerts::layout::Layout::new(Version::LATEST.schema());
                let ids = avro_datums(&folder).into_iter();
                ids.map(|(_, datum)| layout.alert_id(&datum).unwrap().unwrap()).collect()
            }
        };
        assert_eq!(sorted(found), expected);
    }
}

#[test]
fn light_curves_and_the_columns_of_the_select() {
    let mut stream = Stream::new();
    stream.publish_night(2);
    let expected = matching(&stream, |codec, alert| {
        let json = codec.value_to_json(alert).unwrap();
        let past = json["prvDiaSources"].as_array().cloned().unwrap_or_default();
        past.iter().filter(|one| one["snr"].as_f64().is_some_and(|snr| snr > 10.0)).count() >= 2
    });
    assert!(!expected.is_empty() && expected.len() < 2 * ALERTS as usize, "{}", expected.len());
    let text = "SELECT diaSourceId, slope(prvDiaSources.psfFlux) AS rise FROM alerts \
                WHERE count_if(prvDiaSources.snr > 10) >= 2";
    let folder = stream.target("select");
    let options = ExportOptions { filter: filter(text), ..Default::default() };
    assert!(export(&stream, &folder, &options).is_equal());
    assert_eq!(sorted(parquet_ids(&folder)), expected);
    assert_eq!(column_names(&folder), ["diaSourceId", "rise"]);
    // Named columns are written instead of those of the SELECT.
    let folder = stream.target("columns");
    let columns = ["diaSourceId", "diaSource.ra", "prvDiaSources[].psfFlux"];
    let columns = Some(columns.map(str::to_owned).to_vec());
    let options = ExportOptions { columns, ..options };
    assert!(export(&stream, &folder, &options).is_equal());
    assert_eq!(sorted(parquet_ids(&folder)), expected);
    assert_eq!(column_names(&folder), ["diaSourceId", "diaSource.ra", "prvDiaSources"]);
}

fn column_names(folder: &std::path::Path) -> Vec<String> {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    let file = bytes::Bytes::from(parts(folder, ".parquet").remove(0));
    let reader = SerializedFileReader::new(file).unwrap();
    let schema = reader.metadata().file_metadata().schema();
    schema.get_fields().iter().map(|field| field.name().to_owned()).collect()
}

#[test]
fn a_filter_without_matches_writes_a_file_with_columns_and_no_rows() {
    let mut stream = Stream::new();
    stream.publish_night(2);
    for format in [Format::Parquet, Format::Avro] {
        let folder = stream.target(&format!("{format:?}"));
        let filter = filter("SELECT * FROM alerts WHERE diaSource.snr < 0");
        let options = ExportOptions { format, filter, ..Default::default() };
        let outcome = export(&stream, &folder, &options);
        assert!(outcome.is_equal());
        assert_eq!((outcome.totals.rows, outcome.totals.files), (0, 1));
        let extension = format!(".{}", format.as_str());
        assert_eq!(parts(&folder, &extension).len(), 1);
        assert_eq!(export(&stream, &folder, &options).ended, Ended::Verified);
    }
}

#[test]
fn a_wrong_filter_is_named_before_anything_is_written() {
    let mut stream = Stream::new();
    stream.publish_night(1);
    let folder = stream.target("wrong");
    let filter = filter("SELECT * FROM alerts WHERE diaSource.snir > 10");
    let options = ExportOptions { filter, ..Default::default() };
    let opened =
        helio_alert_export::Export::open(&stream.bus, crate::support::job(&folder), options);
    let error = opened.map(drop).unwrap_err().to_string();
    assert!(error.contains("is it diaSource.snr?"), "{error}");
    assert!(parts(&folder, "").is_empty());
}
