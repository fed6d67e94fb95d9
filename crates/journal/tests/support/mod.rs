//! Helpers of both test binaries.
#![allow(dead_code, reason = "each binary uses a part")]

pub(crate) mod damage;
pub(crate) mod matrix;
pub(crate) mod tmpfs;
pub(crate) mod users;

use std::time::Duration;

/// A guard against hanging, not an expectation: the limit of a test's waits.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// The full name of the test `child` of a module, by its `module_path!()`: for child processes that
/// run this binary.
pub(crate) fn child_test(module: &str) -> String {
    let (_, module) = module.split_once("::").expect("the module lies in a crate");
    format!("{module}::child")
}
