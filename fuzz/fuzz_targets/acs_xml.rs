//! Any bytes as log entries of ACS: errors at places of theirs, and records that come back; in
//! pieces as whole.
#![no_main]

use helio_logging::formats::acs_xml::{Reader, read, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // The first byte says how large the pieces are.
    let Some((size, bytes)) = data.split_first() else { return };
    let whole: Vec<_> = read(bytes).collect();
    let (mut reader, mut pieces) = (Reader::default(), Vec::new());
    for piece in bytes.chunks(usize::from(*size) + 1) {
        reader.feed(piece);
        pieces.extend(std::iter::from_fn(|| reader.record()));
    }
    reader.end();
    pieces.extend(std::iter::from_fn(|| reader.record()));
    // As texts, for a NaN is not itself.
    assert_eq!(format!("{pieces:?}"), format!("{whole:?}"));
    for found in whole {
        match found {
            Err(error) => assert!(error.position < bytes.len() as u64),
            Ok(record) => {
                let mut element = Vec::new();
                write(&record, &mut element);
                let again = read(&element).next().expect("an element is a record");
                assert_eq!(format!("{:?}", again), format!("Ok({record:?})"));
            }
        }
    }
});
