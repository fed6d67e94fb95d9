//! Any bytes as a container file: its datums are found, or the damage.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target is one of several")]
#[path = "../../crates/core/tests/targets/mod.rs"]
mod targets;

fuzz_target!(|data: &[u8]| targets::container(data));
