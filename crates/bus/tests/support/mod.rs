//! Helpers of both test binaries.
#![allow(dead_code, reason = "each binary uses a part")]

use std::path::Path;
use std::time::Duration;

use helio_bus::conformance::{self, Report};

/// A guard against hanging, not an expectation: how long a test waits for an expected event.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// The full name of the test `child` of a module, by its `module_path!()`, for processes that run
/// this binary again.
pub(crate) fn child_test(module: &str) -> String {
    let (_, module) = module.split_once("::").expect("the module lies in a crate");
    format!("{module}::child")
}

/// Checks that a report on the whole suite passes, and that it agrees with `docs/conformance.md`.
pub(crate) fn keeps_every_promise(name: &str, report: &Report) {
    assert!(report.is_conformant(), "{report}");
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance");
    conformance::compare_with_stored(&results, name, report).unwrap();
}
