//! Any bytes as a datum: decoded or refused, and what is decoded encodes and decodes again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target is one of several")]
#[path = "../../crates/core/tests/targets/mod.rs"]
mod targets;

fuzz_target!(|data: &[u8]| targets::codec(data));
