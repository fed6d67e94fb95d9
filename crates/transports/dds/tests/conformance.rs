//! The conformance suite on real DDS: each connection is a participant of its own.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::path::Path;

use helio_bus::conformance::{self, Connecting};

#[test]
fn every_promise_is_kept_or_refused_by_name() {
    keeps_every_promise("dds", &common::url(common::domain()));
}

#[test]
fn with_a_durability_service_persistent_topics_keep_every_promise_too() {
    let (url, folder) = (common::url(common::domain()), tempfile::tempdir().unwrap());
    let _service = common::Service::start(&url, folder.path());
    keeps_every_promise("dds-durability", &url);
}

/// Holds it to the whole suite, and to what `docs/conformance.md` says of it.
fn keeps_every_promise(name: &str, url: &str) {
    let report = conformance::run_all(&Connecting::to(url));
    assert!(report.is_conformant(), "{report}");
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/conformance");
    conformance::kept(&results, name, &report).unwrap();
}
