//! Damaged and random input: what the fuzzer does, in small; and what costs a lot where it is not
//! bounded.

use crate::support::{records, whole};
use crate::targets::{self, NOW};
use helio_log_otlp::{
    MAX_EXPANDED_BYTES, MAX_LOG_RECORD_BYTES, MAX_REQUEST_RECORDS, ReadError, from_json,
    from_protobuf, to_json, to_protobuf,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

fn damaged(mut bytes: Vec<u8>, changes: &[(Index, u8)], cut: Index) -> Vec<u8> {
    for (place, byte) in changes {
        let place = place.index(bytes.len());
        bytes[place] = *byte;
    }
    // Most cuts leave no request: every second one is left whole.
    if cut.index(2) == 0 {
        bytes.truncate(cut.index(bytes.len() + 1));
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn damaged_requests(
        record in records(),
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
        cut in any::<Index>(),
    ) {
        let records = [record, whole()];
        targets::otlp_protobuf(&damaged(to_protobuf(&records), &changes, cut));
        targets::otlp_json(&damaged(to_json(&records), &changes, cut));
    }

    #[test]
    fn noise(bytes: Vec<u8>) {
        targets::otlp_protobuf(&bytes);
        targets::otlp_json(&bytes);
    }
}

/// A field of a message that has a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut field, mut length) = (vec![number << 3 | 2], bytes.len());
    while length >= 0x80 {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(bytes);
    field
}

/// A request whose one scope has these bytes.
fn request(resource: &[u8], scope: &[u8]) -> Vec<u8> {
    field(1, &[field(1, resource), field(2, scope)].concat())
}

#[test]
fn lengths_that_are_not_there_are_an_error() {
    let huge = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    for wrong in [&huge[..], &[0x0a, 0x05, 0x00], &[0x0f], &[0xff; 20], b"{}"] {
        let read = from_protobuf(wrong.to_vec().into(), NOW);
        assert!(matches!(read, Err(ReadError::Malformed { .. })), "{wrong:?}: {read:?}");
    }
    for wrong in ["", "[", "[]", "{\"resourceLogs\":7}", "{\"resourceLogs\":[7]}"] {
        let read = from_json(wrong.as_bytes(), NOW);
        assert!(matches!(read, Err(ReadError::Malformed { .. })), "{wrong}: {read:?}");
    }
    // Nothing is a request, too.
    assert_eq!(from_protobuf(Vec::new().into(), NOW), Ok(Default::default()));
    assert_eq!(from_json(b"{\"resourceLogs\":null}", NOW), Ok(Default::default()));
}

#[test]
fn a_million_empty_records_are_refused() {
    let records = field(2, &[]).repeat(MAX_REQUEST_RECORDS);
    let read = from_protobuf(request(&[], &records).into(), NOW).unwrap();
    assert_eq!(read.records.len(), MAX_REQUEST_RECORDS);
    let records = field(2, &[]).repeat(1_000_000);
    assert_eq!(from_protobuf(request(&[], &records).into(), NOW), Err(ReadError::TooMany));
    let records = vec!["{}"; MAX_REQUEST_RECORDS + 1].join(",");
    let json = format!("{{\"resourceLogs\":[{{\"scopeLogs\":[{{\"logRecords\":[{records}]}}]}}]}}");
    assert_eq!(from_json(json.as_bytes(), NOW), Err(ReadError::TooMany));
}

#[test]
fn a_resource_is_not_copied_without_end() {
    // An attribute of 100 kB, and 30,000 records that each would have it.
    let name = field(1, &vec![b'x'; 100_000]);
    let resource = field(1, &name);
    let records = field(2, &[]).repeat(30_000);
    let read = from_protobuf(request(&resource, &records).into(), NOW).unwrap();
    let kept = read.records.len();
    assert!(kept > 0 && kept * 100_000 < MAX_EXPANDED_BYTES, "{kept}");
    assert_eq!(read.refused, 30_000 - kept as u64);
    assert!(read.reason.unwrap().contains("send smaller batches"));
}

#[test]
fn a_record_that_is_too_large_is_refused_by_itself() {
    let text = field(1, &vec![b'x'; MAX_LOG_RECORD_BYTES]);
    let large = field(2, &field(5, &text));
    let small = field(2, &field(5, &field(1, b"small")));
    let read = from_protobuf(request(&[], &[large, small].concat()).into(), NOW).unwrap();
    assert_eq!((read.records.len(), read.refused), (1, 1));
    assert_eq!(read.records[0].message(), "small");
}

#[test]
fn depth_is_bounded() {
    let deep = (0..100_000).fold(field(1, b"x"), |inner, _| {
        // An array with one value; those behind the first thousand only cost this test time.
        if inner.len() > 4_000 { inner } else { field(5, &field(1, &inner)) }
    });
    let read = from_protobuf(request(&[], &field(2, &field(5, &deep))).into(), NOW).unwrap();
    assert_eq!((read.records.len(), read.refused), (0, 1));
    let deep = "[".repeat(1_000_000);
    assert!(from_json(format!("{{\"resourceLogs\":{deep}").as_bytes(), NOW).is_err());
    let body = "{\"arrayValue\":{\"values\":[".repeat(100_000);
    let text = format!("{{\"resourceLogs\":[{{\"scopeLogs\":[{{\"logRecords\":[{{\"body\":{body}");
    assert!(from_json(text.as_bytes(), NOW).is_err());
}

#[test]
fn many_data_pairs_with_places_take_no_long() {
    let place = |n: i64| {
        format!(
            "{{\"arrayValue\":{{\"values\":[{{\"intValue\":{n}}},\
        {{\"stringValue\":\"\"}},{{}}]}}}}"
        )
    };
    let pairs: Vec<_> = (0..12_000).map(|n| place(n % 3)).collect();
    let text = format!(
        "{{\"resourceLogs\":[{{\"scopeLogs\":[{{\"logRecords\":[{{\"attributes\":\
        [{{\"key\":\"helio.data\",\"value\":{{\"arrayValue\":{{\"values\":[{}]}}}}}}]}}]}}]}}]}}",
        pairs.join(",")
    );
    let read = from_json(text.as_bytes(), NOW).unwrap();
    assert_eq!(read.records[0].data.len(), 12_000, "{:?}", read.reason);
    targets::otlp_json(text.as_bytes());
}

#[test]
fn what_is_whole_is_read() {
    assert_eq!(from_protobuf(to_protobuf(&[whole()]).into(), NOW).unwrap().records, [whole()]);
    targets::otlp_protobuf(&to_protobuf(&[whole()]));
    targets::otlp_json(&to_json(&[whole()]));
}
