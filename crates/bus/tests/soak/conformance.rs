//! The conformance suite on the journal.

use crate::support::keeps_every_promise;
use helio_bus::conformance::{self, UrlHarness};

#[test]
fn the_journal_keeps_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    keeps_every_promise("journal", &conformance::run_all(&UrlHarness::to(&url)));
}
