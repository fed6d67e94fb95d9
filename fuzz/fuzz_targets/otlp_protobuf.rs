//! Any bytes as a request of OTLP in Protobuf: whatever is read of it is written and read as the
//! same records.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/services/log-otlp/tests/targets/mod.rs"]
mod targets;

fuzz_target!(|data: &[u8]| targets::otlp_protobuf(data));
