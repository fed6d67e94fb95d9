//! Any text as a predicate of log records: it is read as it is written, and decides of records.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target is one of several")]
#[path = "../../crates/services/logging/tests/targets/mod.rs"]
mod targets;

fuzz_target!(|data: &[u8]| targets::log_predicate(data));
