//! Any bytes as a sample of the topic of levels: its key, and its value behind.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target is one of several")]
#[path = "../../crates/services/logging/tests/targets/mod.rs"]
mod targets;

fuzz_target!(|data: &[u8]| targets::log_levels(data));
