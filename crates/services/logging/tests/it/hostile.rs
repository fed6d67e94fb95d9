//! Damaged and random input: what the fuzzer does, in small.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::targets;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn predicates(changes in vec((any::<Index>(), ".{0,3}"), 0..4), cut in any::<Index>()) {
        let mut text: Vec<char> = targets::EVERYWHERE.chars().collect();
        for (place, other) in changes {
            let place = place.index(text.len());
            text.splice(place..=place, other.chars());
        }
        text.truncate(cut.index(text.len() + 1));
        targets::log_predicate(text.iter().collect::<String>().as_bytes());
    }

    #[test]
    fn packets(changes in vec((any::<Index>(), any::<u8>()), 0..4), cut in any::<Index>()) {
        let mut bytes = targets::PACKET.to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        // Most cuts leave no packet: every second one is left whole.
        if cut.index(2) == 0 {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        targets::log_packet(&bytes);
    }

    #[test]
    fn levels(changes in vec((any::<Index>(), any::<u8>()), 0..3), cut in any::<Index>()) {
        let mut bytes = [b"\x03a/*", targets::LEVELS].concat();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        targets::log_levels(&bytes[..cut.index(bytes.len() + 1)]);
    }

    #[test]
    fn noise(bytes: Vec<u8>) {
        targets::log_predicate(&bytes);
        targets::log_packet(&bytes);
        targets::log_levels(&bytes);
    }
}

#[test]
fn what_is_whole_is_read() {
    targets::log_predicate(targets::EVERYWHERE.as_bytes());
    targets::log_packet(targets::PACKET);
    targets::log_levels(&[b"\x03a/*", targets::LEVELS].concat());
    assert!(helio_logging::LevelEntry::parse(b"a/*", targets::LEVELS).is_ok_and(|e| e.is_some()));
    assert!(helio_logging::Packet::parse(targets::PACKET).is_ok());
    assert!(targets::EVERYWHERE.parse::<helio_logging::Predicate>().is_ok());
}
