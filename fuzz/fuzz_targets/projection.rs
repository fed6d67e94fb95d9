//! Any bytes as a datum of which some columns are read: read or refused, within the bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target is one of several")]
#[path = "../../crates/core/tests/targets/mod.rs"]
mod targets;

fuzz_target!(|data: &[u8]| targets::projection(data));
