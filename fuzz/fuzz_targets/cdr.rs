//! Any bytes as the CDR of a DDS sample: refused, or read as a datum that is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target is one of several")]
#[path = "../../crates/core/tests/targets/mod.rs"]
mod targets;

fuzz_target!(|data: &[u8]| targets::cdr(data));
