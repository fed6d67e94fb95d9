//! Bloom filters of index terms: they prove that no record of a block has a term (B. H. Bloom,
//! Communications of the ACM 13, 1970). Two hashes generate all others (Kirsch and Mitzenmacher,
//! 2006).

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use helio_logging::{IndexTerm, Packet, index_terms};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The rate of false positives is one in a hundred.
const BITS_PER_KEY: usize = 10;
const PROBES_PER_KEY: u32 = 7;
/// More than any packet's terms fill. Positions fit into 32 bits.
const MAX_BYTES: usize = 1 << 24;

/// A term's hash; its kind is the seed.
pub(crate) fn hash(key: IndexTerm<'_>) -> u64 {
    xxh3_64_with_seed(key.text.as_bytes(), key.kind.number().into())
}

/// A hasher for values that are hashes already.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The filter of a packet's index terms.
pub(crate) fn of_packet(packet: &Packet<'_>) -> Vec<u8> {
    let mut hashes: HashSet<u64, BuildHasherDefault<IdentityHasher>> = HashSet::default();
    index_terms(packet, |key| _ = hashes.insert(hash(key)));
    let bytes = (hashes.len() * BITS_PER_KEY).div_ceil(64) * 8;
    let mut filter = vec![0; bytes.min(MAX_BYTES)];
    for hash in hashes {
        for (byte, bit) in places(hash, filter.len()) {
            filter[byte] |= bit;
        }
    }
    filter
}

/// Whether a term may be present.
pub(crate) fn may_have(filter: &[u8], hash: u64) -> bool {
    !filter.is_empty() && places(hash, filter.len()).all(|(byte, bit)| filter[byte] & bit != 0)
}

fn places(hash: u64, bytes: usize) -> impl Iterator<Item = (usize, u8)> {
    let (first, step) = (hash as u32, (hash >> 32) as u32 | 1);
    (0..PROBES_PER_KEY).map(move |probe| {
        let place = u64::from(first.wrapping_add(probe.wrapping_mul(step)));
        let at = (place * (bytes as u64 * 8)) >> 32;
        ((at / 8) as usize, 1 << (at % 8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_core::Tai;
    use helio_logging::{IndexTermKind, Level, Numbers, PacketWriter, Record, TextField};

    #[test]
    fn what_is_there_is_always_found_and_what_is_not_seldom() {
        let mut writer = PacketWriter::default();
        for number in 0..1_000 {
            let text = format!("step w{number}");
            writer.push(&Record::new(Tai::default(), Level::INFO, "a/b", &text)).unwrap();
        }
        let bytes = writer.finish(Numbers { lane: None, first: 0, shed: 0 });
        let filter = of_packet(&Packet::parse(bytes).unwrap());
        let has =
            |text: &str| may_have(&filter, hash(IndexTerm { kind: IndexTermKind::Word, text }));
        assert!((0..1_000).all(|number| has(&format!("w{number}"))));
        let wrong = (0..10_000).filter(|number| has(&format!("x{number}"))).count();
        assert!(wrong < 200, "{wrong} of 10,000 words that are not there seem to be");
        let host = IndexTerm { kind: IndexTermKind::Text(TextField::Host), text: "step" };
        assert!(!may_have(&filter, hash(host)));
        assert!(!may_have(&[], 7));
    }
}
