//! Exports of a night on a real Kafka broker by processes that are killed.

use helio_alert_export::Format;

use crate::exports::kills;
use crate::support::broker;

/// An export, started by the tests below.
#[test]
fn child() {
    helio_transports::register_all();
    kills::child();
}

fn on_kafka(format: Format) {
    let Some(broker) = broker() else { return };
    let url = format!("{}?prefix=exports-{}.", broker.url, format.as_str());
    kills::kill_twenty_times(&kills::stream(Some(&url), "export_kills::child"), format);
}

#[test]
fn parquet_that_is_killed_twenty_times_is_the_same_files() {
    on_kafka(Format::Parquet);
}

#[test]
fn avro_that_is_killed_twenty_times_is_the_same_files() {
    on_kafka(Format::Avro);
}
