//! What a result has, in each encoding and content.

use helio_alert_filters::{Content, Delivery, FilterStore, Format, Reference};
use helio_alerts::generator::{GeneratorOptions, WithStamps};
use helio_alerts::layout::Layout;
use helio_alerts::producer::{ProducerOptions, TopicLayout};
use helio_alerts::rubin::Version;
use helio_alerts::stamps::Packing;
use helio_bus::{Bus, Sample, SchemaId, TopicName};
use helio_core::Schema;
use helio_core::codec::{Codec, Value};

use crate::support::{
    Alert, DETECTORS, Night, Process, TOPIC, generated, header, producing, results, sql,
    until_decided,
};

const COLUMNS: &str = "SELECT diaSourceId, diaSource.band, max(prvDiaSources.psfFlux) AS most, \
                       diaSource.psfFlux / diaSource.psfFluxErr AS ratio \
                       FROM alerts WHERE diaSource.snr > 0 ORDER BY diaSource.snr DESC";
const PACKET: &str = "SELECT * FROM alerts WHERE diaSource.snr > 0 ORDER BY diaSource.snr DESC";

/// A visit's results for one user.
fn visit(text: &str, delivery: Delivery) -> (Bus, Vec<Alert>, Vec<Sample>) {
    visit_in(TopicLayout::Inline, text, delivery)
}

fn visit_in(layout: TopicLayout, text: &str, delivery: Delivery) -> (Bus, Vec<Alert>, Vec<Sample>) {
    let bus = Bus::connect("memory:").unwrap();
    let stamps = GeneratorOptions { stamps: WithStamps::Fits, ..generated(12) };
    let mut night = Night::with(&bus, stamps, ProducerOptions { layout, ..producing() });
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

/// An alert's packet without its stamps.
fn without_stamps(alert: &Alert) -> Vec<u8> {
    let mut metadata = Vec::new();
    Layout::new(Version::LATEST.schema()).split(&alert.packet, &mut metadata).unwrap();
    metadata
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
    for sample in &found {
        assert_eq!(sample.payload, without_stamps(of(sample, &alerts)));
    }
}

/// Where stamps have a topic of their own, results have them as those of an inline topic do.
#[test]
fn stamps_of_a_split_stream_are_in_results_when_asked() {
    let with_stamps = delivery(Format::Confluent, Content::WithStamps);
    let split = TopicLayout::Split(Packing::default());
    let (_, alerts, found) = visit_in(split, PACKET, with_stamps);
    for sample in &found {
        assert_eq!(sample.payload, of(sample, &alerts).packet);
    }
    let (_, alerts, found) = visit_in(split, PACKET, Delivery::default());
    for sample in &found {
        assert_eq!(sample.payload, without_stamps(of(sample, &alerts)));
    }
}

/// Stamps that are gone are counted, and the results have the rest.
#[test]
fn results_stand_without_stamps_that_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let bus = Bus::connect(&format!("journal:{}", folder.path().display())).unwrap();
    let stamps = GeneratorOptions { stamps: WithStamps::Fits, ..generated(12) };
    let layout = TopicLayout::Split(Packing::default());
    let mut night = Night::with(&bus, stamps, ProducerOptions { layout, ..producing() });
    sql(&bus, "ada", "f", PACKET);
    let with_stamps = delivery(Format::Confluent, Content::WithStamps);
    FilterStore::open(&bus, TOPIC).unwrap().set_delivery("ada", with_stamps).unwrap();
    let mut process = [Process::open(&bus)];
    night.open(0);
    let alerts = night.publish(0, 0..DETECTORS);
    assert!(bus.remove_topic(&TopicName::new("alerts/stamps").unwrap()).unwrap());
    night.close(0);
    until_decided(&mut process, 1);
    let found = results(&bus, "ada");
    for sample in &found {
        assert_eq!(sample.payload, without_stamps(of(sample, &alerts)));
    }
    assert!(!found.is_empty());
    assert_eq!(process[0].count(|c| &c.results_without_stamps), found.len() as u64);
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

/// Two users have chosen the same alerts: what one gets does not depend on the other.
#[test]
fn a_reference_is_one_beside_users_of_packets() {
    let bus = Bus::connect("memory:").unwrap();
    let mut night = Night::new(&bus, generated(12));
    let mut store = FilterStore::open(&bus, TOPIC).unwrap();
    for (user, content) in [("ada", Content::Reference), ("bob", Content::Selected)] {
        sql(&bus, user, "f", PACKET);
        store.set_delivery(user, delivery(Format::Json, content)).unwrap();
    }
    drop(store);
    let mut process = [Process::open(&bus)];
    night.visit(0);
    until_decided(&mut process, 1);
    let [of_ada, of_bob] = ["ada", "bob"].map(|user| results(&bus, user));
    assert!(!of_ada.is_empty() && of_ada.len() == of_bob.len());
    let is_reference =
        |sample: &Sample| serde_json::from_slice::<Reference>(&sample.payload).is_ok();
    assert!(of_ada.iter().all(is_reference) && !of_bob.iter().any(is_reference));
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
