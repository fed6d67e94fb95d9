//! What is done with hostile input: by the fuzzer (fuzz/fuzz_targets), and by `hostile.rs` in every
//! test run. Each target takes any bytes and must neither panic nor hang nor allocate much.

#![allow(clippy::unwrap_used, reason = "a failure is to panic")]

use helio_core::Tai;
use helio_logging::{LevelEntry, Packet, Predicate, Views};

/// A packet of the format's first version.
pub(crate) const PACKET: &[u8] = include_bytes!("../golden/packet-1.bin");

/// A predicate that looks everywhere in a record.
pub(crate) const EVERYWHERE: &str = "level >= WARNING and logger = CONTROL/** or view Operator and \
     not (host = dv* or line > 100 or message ~ \"off|on\") or data.encoder.a = true or axis or \
     args.axis != elevation or thread = c* or time < -1h or trace = 07* or stack !~ dv11";

/// Any bytes as a predicate's text: it is written as it is read, and decides of records.
pub(crate) fn log_predicate(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(predicate) = text.parse::<Predicate>() else { return };
    assert_eq!(predicate.to_string().parse(), Ok(predicate.clone()));
    let Ok(selector) = predicate.compile(Tai::default(), &Views::default()) else { return };
    let packet = Packet::parse(PACKET).unwrap();
    let found: Vec<_> =
        selector.select(&packet).map(|record| record.to_record().unwrap()).collect();
    for record in packet.records() {
        let record = record.to_record().unwrap();
        let is_found = found.contains(&record);
        assert_eq!(selector.matches(&record), is_found);
        let levels = selector.levels().any(|level| level == record.level);
        assert!(!is_found || levels && selector.times().contains(&record.time));
    }
}

/// Any bytes as a packet, also with the checksum that they should have: all records are read, and
/// selected as their values are.
pub(crate) fn log_packet(data: &[u8]) {
    _ = Packet::parse(data);
    let mut data = data.to_vec();
    if data.len() >= 48 {
        let sum = crc32c::crc32c_append(crc32c::crc32c(&data[..44]), &data[48..]);
        data[44..48].copy_from_slice(&sum.to_le_bytes());
    }
    let Ok(packet) = Packet::parse(&data) else { return };
    let predicate: Predicate = EVERYWHERE.parse().unwrap();
    let selector = predicate.compile(Tai::default(), &Views::default()).unwrap();
    let mut found = selector.select(&packet).map(|record| record.sequence()).peekable();
    for record in packet.records() {
        let is_found = found.next_if_eq(&record.sequence()).is_some();
        assert_eq!(selector.matches_ref(record), is_found);
        if let Ok(record) = record.to_record() {
            assert_eq!(selector.matches(&record), is_found);
            _ = record.message();
        }
    }
    assert_eq!(found.next(), None);
}

/// A setting of levels, as the format's first version has it.
pub(crate) const LEVELS: &[u8] = b"\x06a/*\x06\x01\x00\x10ops@dv11\x00\x0e";

/// Any bytes as a sample of the topic of levels: the length of its key, the key, and the value.
pub(crate) fn log_levels(data: &[u8]) {
    let Some((&length, rest)) = data.split_first() else { return };
    let Some((key, value)) = rest.split_at_checked(length.into()) else { return };
    if let Ok(Some(entry)) = LevelEntry::parse(key, value) {
        assert_eq!(entry.pattern.as_str().as_bytes(), key);
        assert!(entry.until.is_none_or(|until| until.nanos() > 0));
    }
}
