//! The conformance suite on real DDS: each connection is a participant of its own.

use std::path::Path;

use helio_bus::conformance::{self, UrlHarness};

#[test]
fn every_promise_is_kept_or_refused_by_name() {
    keeps_every_promise("dds", &crate::support::url(crate::support::domain()));
}

#[test]
fn with_a_durability_service_persistent_topics_keep_every_promise_too() {
    let (url, folder) =
        (crate::support::url(crate::support::domain()), tempfile::tempdir().unwrap());
    let _service = crate::support::Service::start(&url, folder.path());
    keeps_every_promise("dds-durability", &url);
}

/// Runs the whole suite, and compares the results with `docs/conformance.md`.
fn keeps_every_promise(name: &str, url: &str) {
    let report = conformance::run_all(&UrlHarness::to(url));
    assert!(report.is_conformant(), "{report}");
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/conformance");
    conformance::compare_with_stored(&results, name, &report).unwrap();
}
