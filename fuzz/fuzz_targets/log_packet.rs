//! Any bytes as a packet of log records: all of them are read and selected, or told to be damaged.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "each target is one of several")]
#[path = "../../crates/services/logging/tests/targets/mod.rs"]
mod targets;

fuzz_target!(|data: &[u8]| targets::log_packet(data));
