//! The conformance suite on real DDS: each connection is a participant of its own.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use helio_bus::conformance::{self, Connecting, Verdict};

/// What DDS refuses by name, without a durability service.
const REFUSED: [&str; 14] = [
    "start_earliest",
    "start_offset",
    "start_time",
    "history_outlives_writers",
    "retention_is_a_gap",
    "group_shares",
    "group_takes_over",
    "group_resumes",
    "group_apart",
    "receipt_names_the_sample",
    "receipt_is_true",
    "receipt_batch",
    "overload_drop_oldest",
    "overload_shed",
];

/// What DDS refuses by name with one: it has no places, and no groups.
const REFUSED_WITH_A_SERVICE: [&str; 7] = [
    "start_offset",
    "start_time",
    "retention_is_a_gap",
    "group_shares",
    "group_takes_over",
    "group_resumes",
    "group_apart",
];

#[test]
fn with_a_durability_service_persistent_topics_keep_every_promise_too() {
    let (url, folder) = (common::url(common::domain()), tempfile::tempdir().unwrap());
    let _service = common::Service::start(&url, folder.path());
    let report = conformance::run_all(&Connecting::to(&url));
    assert!(report.is_conformant(), "{report}");
    assert_eq!(refused(&report), REFUSED_WITH_A_SERVICE, "{report}");
}

#[test]
fn every_promise_is_kept_or_refused_by_name() {
    let harness = Connecting::to(&common::url(common::domain()));
    let report = conformance::run_all(&harness);
    assert!(report.is_conformant(), "{report}");
    assert_eq!(refused(&report), REFUSED);
}

fn refused(report: &conformance::Report) -> Vec<&'static str> {
    let refused = report.lines.iter().filter(|line| matches!(line.verdict, Verdict::Refused(_)));
    refused.map(|line| line.check).collect()
}
