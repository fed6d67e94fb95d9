//! Any bytes as a stream of syslog messages: the same ones however it is cut, each a record or an
//! error, and a record is a message of RFC 5424.
#![no_main]

use helio_core::Tai;
use helio_logging::formats::syslog::{Arrival, FrameError, Framer, read, write};
use libfuzzer_sys::fuzz_target;

fn messages(bytes: &[u8], size: usize) -> Vec<Result<Vec<u8>, FrameError>> {
    let (mut framer, mut found) = (Framer::default(), Vec::new());
    for piece in bytes.chunks(size) {
        framer.feed(piece);
        while let Some(message) = framer.message() {
            found.push(message.map(<[u8]>::to_vec));
        }
    }
    framer.end();
    while let Some(message) = framer.message() {
        found.push(message.map(<[u8]>::to_vec));
    }
    found
}

fuzz_target!(|data: &[u8]| {
    // The first byte says how large the pieces are.
    let Some((size, bytes)) = data.split_first() else { return };
    let found = messages(bytes, bytes.len().max(1));
    assert_eq!(messages(bytes, usize::from(*size) + 1), found);
    let arrival = Arrival { now: Tai::from_nanos(1_800_000_000_000_000_000), offset_s: 3_600 };
    for message in found.into_iter().flatten() {
        let Ok(record) = read(&message, &arrival) else { continue };
        let mut again = Vec::new();
        write(&record, &mut again);
        // Names of data are longer in a record than in a message.
        assert!(again.len() > 65_535 || read(&again, &arrival).is_ok());
    }
});
