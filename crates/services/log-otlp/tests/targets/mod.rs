//! What is done with hostile input: by the fuzzer (fuzz/fuzz_targets), and by `hostile.rs` in every
//! test run. Each target takes any bytes and must neither panic nor hang nor allocate much.
#![allow(dead_code, reason = "each test uses some of it")]

use helio_core::Tai;
use helio_log_otlp::{Received, from_json, from_protobuf, to_json, to_protobuf};
use helio_logging::{MAX_DEPTH, Record};

/// When requests come.
pub(crate) const NOW: Tai = Tai::from_nanos(1_800_000_000_000_000_000);

/// Two records are the same where their texts are: a NaN is itself there, and a negative zero no
/// zero.
pub(crate) fn shown(records: &[Record]) -> Vec<String> {
    let mut shown: Vec<_> = records.iter().map(|record| format!("{record:?}")).collect();
    // Records of one resource and logger come together.
    shown.sort();
    shown
}

/// Whatever was read is written and read as the same records.
fn again(received: &Received) {
    let records = &received.records;
    let values = records.iter().flat_map(|record| record.data.iter().map(|(_, value)| value));
    values.for_each(|value| assert!(value.depth() <= MAX_DEPTH));
    let read = from_protobuf(to_protobuf(records).into(), NOW).expect("it is ours");
    assert_eq!(shown(&read.records), shown(records));
    let read = from_json(&to_json(records), NOW).expect("it is ours");
    // Bits of a NaN are not in JSON, which nobody sees here.
    assert_eq!(shown(&read.records), shown(records));
}

/// Any bytes as a request in Protobuf.
pub(crate) fn otlp_protobuf(data: &[u8]) {
    if let Ok(received) = from_protobuf(data.to_vec().into(), NOW) {
        again(&received);
    }
}

/// Any bytes as a request in JSON.
pub(crate) fn otlp_json(data: &[u8]) {
    if let Ok(received) = from_json(data, NOW) {
        again(&received);
    }
}
