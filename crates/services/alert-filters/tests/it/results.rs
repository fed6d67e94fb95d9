//! What a result has, in each encoding and content.

use helio_alert_filters::{Content, Delivery, FilterStore, Format, Reference};
use helio_alerts::generator::{GeneratorOptions, WithStamps};
use helio_alerts::layout::Layout;
use helio_alerts::rubin::Version;
use helio_bus::{Bus, Sample, SchemaId};
use helio_core::Schema;
use helio_core::codec::{Codec, Value};

use crate::support::{
    Alert, Night, Process, TOPIC, generated, header, results, sql, until_decided,
};

const COLUMNS: &str = "SELECT diaSourceId, diaSource.band, max(prvDiaSources.psfFlux) AS most, \
                       diaSource.psfFlux / diaSource.psfFluxErr AS ratio \
                       FROM alerts WHERE diaSource.snr > 0 ORDER BY diaSource.snr DESC";
const PACKET: &str = "SELECT * FROM alerts WHERE diaSource.snr > 0 ORDER BY diaSource.snr DESC";

/// A visit's results for one user.
fn visit(text: &str, delivery: Delivery) -> (Bus, Vec<Alert>, Vec<Sample>) {
    let bus = Bus::connect("memory:").unwrap();
    let stamps = GeneratorOptions { stamps: WithStamps::Fits, ..generated(12) };
    let mut night = Night::new(&bus, stamps);
    sql(&bus, "ada", "f", text);
    FilterStore::open(&bus, TOPIC).unwrap().set_delivery("ada", delivery).unwrap();
    let mut process = [Process::open(&bus)];
    let alerts = night.visit(0);
    until_decided(&mut process, 1);
    let found = results(&bus, "ada");
    let with_snr = alerts.iter().filter(|alert| alert.snr.is_some_and(|snr| snr > 0.0));
    assert_eq!(found.len(), with_snr.count());
    assert!(!found.is_empty());
    (bus, alerts, found)
}

fn of<'a>(sample: &Sample, alerts: &'a [Alert]) -> &'a Alert {
    let id: i64 = header(sample, "alert").parse().unwrap();
    alerts.iter().find(|alert| alert.id == id).unwrap()
}

fn delivery(format: Format, content: Content) -> Delivery {
    Delivery { format, content }
}

#[test]
fn whole_packets_have_stamps_when_asked() {
    let (bus, alerts, found) = visit(PACKET, delivery(Format::Confluent, Content::WithStamps));
    for sample in &found {
        assert_eq!(sample.payload, of(sample, &alerts).packet);
        assert_eq!(sample.header.schema, Version::LATEST.schema().id());
    }
    let name = helio_bus::TopicName::new("alerts/results/ada").unwrap();
    assert!(bus.schemas_of(&name).unwrap().unwrap().contains(&Version::LATEST.schema().id()));
    let (_, alerts, found) = visit(PACKET, Delivery::default());
    let layout = Layout::new(Version::LATEST.schema());
    for sample in &found {
        let mut metadata = Vec::new();
        layout.split(&of(sample, &alerts).packet, &mut metadata).unwrap();
        assert_eq!(sample.payload, metadata);
    }
}

#[test]
fn selected_columns_are_avro_with_their_schema() {
    let (bus, alerts, found) = visit(COLUMNS, Delivery::default());
    let text = bus.schema_text(found[0].header.schema).unwrap();
    let schema = Schema::parse(&text.text).unwrap();
    let names: Vec<_> = schema.fields().iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["diaSourceId", "diaSource_band", "most", "ratio"]);
    for sample in &found {
        let Value::Record(values) = Codec::new(&schema).decode(&sample.payload).unwrap() else {
            panic!("no record")
        };
        assert_eq!(values[0].bare(), &Value::Long(of(sample, &alerts).id));
        assert!(matches!(values[2].bare(), Value::Float(_)), "{values:?}");
        assert!(matches!(values[3].bare(), Value::Float(_)), "{values:?}");
    }
}

#[test]
fn fink_has_the_schema_as_key() {
    let (_, alerts, found) = visit(COLUMNS, delivery(Format::Fink, Content::Selected));
    for sample in &found {
        assert_eq!(sample.header.schema, SchemaId::BYTES);
        let schema = Schema::parse(std::str::from_utf8(&sample.key).unwrap()).unwrap();
        let Value::Record(values) = Codec::new(&schema).decode(&sample.payload).unwrap() else {
            panic!("no record")
        };
        assert_eq!(values[0].bare(), &Value::Long(of(sample, &alerts).id));
    }
}

#[test]
fn json_has_columns_by_their_names() {
    let (_, alerts, found) = visit(COLUMNS, delivery(Format::Json, Content::Selected));
    for sample in &found {
        let json: serde_json::Value = serde_json::from_slice(&sample.payload).unwrap();
        assert_eq!(json["diaSourceId"], of(sample, &alerts).id);
        assert!(json["most"].is_number() && json["diaSource_band"].is_string(), "{json}");
    }
    let (_, alerts, found) = visit(PACKET, delivery(Format::Json, Content::Selected));
    let json: serde_json::Value = serde_json::from_slice(&found[0].payload).unwrap();
    assert_eq!(json["diaSource"]["diaSourceId"], of(&found[0], &alerts).id);
    assert!(json["cutoutScience"].is_null());
}

#[test]
fn a_reference_says_where_the_alert_is() {
    let (bus, alerts, found) = visit(PACKET, delivery(Format::Json, Content::Reference));
    let stored = crate::support::samples(&bus, TOPIC);
    for sample in &found {
        let reference: Reference = serde_json::from_slice(&sample.payload).unwrap();
        let at = (reference.partition as u32, reference.offset as u64);
        let alert = stored.iter().find(|alert| (alert.partition, alert.offset) == at).unwrap();
        assert_eq!(alert.payload, of(sample, &alerts).packet);
    }
}

#[test]
fn a_result_names_its_filter_and_the_times_of_its_stages() {
    let (_, _, found) = visit(PACKET, Delivery::default());
    for (sample, rank) in found.iter().zip(1..) {
        assert_eq!(header(sample, "filters"), "f@1");
        assert_eq!(header(sample, "rank"), rank.to_string());
        assert_eq!(header(sample, "shutter-ns"), "77");
        let time = |name| header(sample, name).parse::<i64>().unwrap();
        let stages = [time("published-ns"), time("filtered-ns"), time("decided-ns")];
        assert!(stages.is_sorted() && stages[2] <= sample.header.time.nanos(), "{stages:?}");
    }
}
