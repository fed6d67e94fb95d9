//! Exports of a journal by processes that are killed, or whose disk is full.

use helio_alert_export::Format;

use crate::support::kills;

/// An export, started by the tests below.
#[test]
fn child() {
    kills::child();
}

#[test]
fn parquet_that_is_killed_twenty_times_is_the_same_files() {
    kills::kill_twenty_times(&kills::stream(None, "kills::child"), Format::Parquet);
}

#[test]
fn avro_that_is_killed_twenty_times_is_the_same_files() {
    kills::kill_twenty_times(&kills::stream(None, "kills::child"), Format::Avro);
}

#[test]
fn a_full_disk_is_an_error_and_the_export_continues() {
    kills::fill_the_disk(&kills::stream(None, "kills::child"));
}
