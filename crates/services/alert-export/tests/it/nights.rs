//! What an export of a night has, and what it proves.

use helio_alert_export::{
    Ended, Export, ExportOptions, Finding, Format, Job, Selection, VisitReport,
};
use helio_alerts::layout::Ccd;
use helio_alerts::visit::Digest;

use crate::contents::{avro_datums, parquet_ids};
use crate::support::{ALERTS, DETECTORS, Stream, TOPIC, export, files, job, published, sorted};

fn findings(visits: &[VisitReport]) -> Vec<Finding> {
    visits.iter().map(VisitReport::finding).collect()
}

#[test]
fn a_night_is_exported_whole_and_a_second_run_verifies_it() {
    let mut stream = Stream::new();
    stream.publish_night(6);
    let folder = stream.target("night");
    let options = ExportOptions::default();
    let outcome = export(&stream, &folder, &options);
    assert_eq!(outcome.ended, Ended::Finished);
    assert!(outcome.is_equal(), "{outcome:?}");
    assert_eq!(findings(&outcome.visits), [Finding::Equal; 6]);
    assert_eq!(sorted(parquet_ids(&folder)), published(&stream));
    let totals = outcome.totals;
    let all = u64::from(6 * ALERTS);
    assert_eq!((totals.rows, totals.alerts, totals.alerts_total), (all, all, all));
    assert_eq!((totals.visits, totals.visits_total, totals.files), (6, 6, 1));
    let digest = stream.closing(3).totals;
    assert_eq!((outcome.visits[3].found, outcome.visits[3].exported), (digest, digest));
    let before = files(&folder);
    let again = export(&stream, &folder, &options);
    assert_eq!(again.ended, Ended::Verified);
    assert_eq!(again.totals.verified_bytes, totals.bytes);
    assert_eq!((again.visits, files(&folder)), (outcome.visits, before));
}

#[test]
fn packets_are_the_published_bytes() {
    let mut stream = Stream::new();
    stream.publish_night(3);
    let folder = stream.target("night");
    let options = ExportOptions { format: Format::Avro, ..ExportOptions::default() };
    assert!(export(&stream, &folder, &options).is_equal());
    let found = avro_datums(&folder).into_iter().map(|(_, datum)| datum).collect();
    assert!(sorted(found) == sorted(stream.packets.values().cloned().collect()));
}

#[test]
fn alerts_that_come_again_are_exported_once_and_late_ones_not() {
    let mut stream = Stream::new();
    stream.publish(0, 0..2);
    let ccd = Ccd { visit: stream.visit(0), detector: 1 };
    let packets = stream.packets_of(0, 1);
    stream.publish_packets(ccd, &packets);
    stream.publish(0, 2..DETECTORS);
    stream.close(0);
    // Behind the closing record.
    let late = stream.packets_of(7, 1);
    stream.publish_packets(ccd, &late);
    let folder = stream.target("night");
    let outcome = export(&stream, &folder, &ExportOptions::default());
    assert_eq!(outcome.visits[0].repeated, packets.len() as u64);
    assert_eq!(outcome.visits[0].found, stream.closing(0).totals);
    assert_eq!(parquet_ids(&folder).len(), ALERTS as usize);
}

#[test]
fn a_visit_that_is_decided_later_is_added_by_a_later_run() {
    let mut stream = Stream::new();
    stream.publish(0, 0..DETECTORS);
    stream.publish(1, 0..2);
    stream.publish(2, 0..DETECTORS);
    stream.close(0);
    let folder = stream.target("night");
    let options = ExportOptions::default();
    let outcome = export(&stream, &folder, &options);
    assert_eq!((outcome.open.clone(), outcome.visits.len()), (vec![stream.visit(1)], 2));
    assert!(!outcome.is_equal());
    stream.publish(1, 2..DETECTORS);
    stream.close(0);
    let outcome = export(&stream, &folder, &options);
    assert_eq!((outcome.ended.clone(), outcome.visits.len()), (Ended::Finished, 3));
    assert!(outcome.is_equal(), "{outcome:?}");
    assert_eq!(sorted(parquet_ids(&folder)), published(&stream));
}

#[test]
fn an_incomplete_visit_is_exported_and_named() {
    let mut stream = Stream::new();
    stream.publish(0, 0..3);
    stream.close(0);
    stream.close(u64::MAX);
    let folder = stream.target("night");
    let outcome = export(&stream, &folder, &ExportOptions::default());
    let visit = &outcome.visits[0];
    assert_eq!((visit.finding(), visit.missing.clone()), (Finding::Incomplete, vec![3, 4]));
    assert!(!outcome.is_equal());
    assert_eq!(sorted(parquet_ids(&folder)), published(&stream));
    let shown = visit.to_string();
    assert!(shown.contains("names detectors without manifest [3, 4]"), "{shown}");
}

#[test]
fn alerts_that_the_log_lacks_are_found() {
    let mut stream = Stream::new();
    stream.publish(0, 0..3);
    // A closing record that counts more than there is.
    let mut totals = Digest::default();
    (0..100).for_each(|id| totals.add(id, 0));
    let closing = helio_alerts::visit::Closing {
        visit: stream.visit(0),
        closer: "another".to_owned(),
        totals,
        ends: vec![i64::MAX; 3],
        missing: Vec::new(),
        short: Vec::new(),
        repeated: Vec::new(),
    };
    stream.append(&helio_alerts::visit::Control::Closing(closing));
    let outcome = export(&stream, &stream.target("night"), &ExportOptions::default());
    let visit = &outcome.visits[0];
    assert_eq!((visit.finding(), visit.differing.clone()), (Finding::Differs, vec![3, 4]));
    assert!(visit.to_string().contains("the closing record counts 100"), "{visit}");
}

#[test]
fn a_packet_that_cannot_be_read_drops_only_itself() {
    for format in [Format::Parquet, Format::Avro] {
        let mut stream = Stream::new();
        stream.publish(0, 0..4);
        let mut packets = stream.packets_of(0, 4);
        // Producers refuse it; another program might not.
        let mut damaged = packets.remove(2);
        damaged.truncate(damaged.len() - 3);
        let ccd = Ccd { visit: stream.visit(0), detector: 4 };
        stream.publish_unchecked(ccd, &damaged);
        stream.publish_packets(ccd, &packets);
        stream.close(0);
        let folder = stream.target("night");
        let options = ExportOptions { format, ..ExportOptions::default() };
        let outcome = export(&stream, &folder, &options);
        let visit = &outcome.visits[0];
        assert_eq!((visit.finding(), visit.unreadable), (Finding::Unreadable, 1));
        assert_eq!((visit.found, visit.short.clone()), (visit.decided, vec![]));
        assert_eq!(visit.exported.count(), u64::from(ALERTS) - 1);
        assert_eq!(outcome.totals.rows, u64::from(ALERTS) - 1);
    }
}

#[test]
fn visits_are_chosen_by_night_or_by_name() {
    let mut stream = Stream::new();
    stream.publish_night(8);
    let folder = stream.target("two");
    let visits = [stream.visit(5), stream.visit(6)];
    let job = Job {
        topic: TOPIC.to_owned(),
        visits: Selection::Visits(visits.into()),
        folder: folder.clone(),
    };
    let mut export = Export::open(&stream.bus, job, ExportOptions::default()).unwrap();
    let outcome = export.run(&mut ()).unwrap();
    let found: Vec<_> = outcome.visits.iter().map(|visit| visit.visit).collect();
    assert!(outcome.is_equal() && found == visits, "{outcome:?}");
    assert_eq!(parquet_ids(&folder).len(), 2 * ALERTS as usize);
    // It does not read the whole log.
    let manifest: serde_json::Value =
        serde_json::from_slice(&files(&folder)["export.json"]).unwrap();
    let ranges = manifest["manifest"]["parts"][0]["ranges"].as_array().unwrap().clone();
    assert!(ranges.iter().all(|range| range["from"].as_u64().unwrap() > 0), "{ranges:?}");
    let mut other = crate::support::job(&stream.target("other"));
    other.visits = Selection::Night("2026-11-24".parse().unwrap());
    let error = Export::open(&stream.bus, other, ExportOptions::default()).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "the topic alerts/control has no visit of the night 2026-11-24");
    assert!(
        Export::open(&stream.bus, self::job(&stream.target("third")), ExportOptions::default())
            .is_ok()
    );
}
