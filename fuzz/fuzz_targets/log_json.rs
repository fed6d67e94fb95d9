//! Any bytes as a log record's JSON line: refused, or read as a record that comes back.
#![no_main]

use helio_logging::formats::json;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(record) = json::read(data) else { return };
    let mut line = Vec::new();
    json::write(&record, &mut line);
    let again = json::read(&line).expect("what we write is a record's line");
    // As texts, for a NaN is not itself.
    assert_eq!(format!("{again:?}"), format!("{record:?}"));
});
