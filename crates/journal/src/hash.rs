//! Hashes of keys (128 bits, seeded per partition against crafted collisions) and of words.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// A key's hash in the keys index. Its lower half is never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyHash {
    pub high: u64,
    pub low: u64,
}

impl KeyHash {
    pub(crate) fn of(key: &[u8], seed: u64) -> Self {
        let hash = xxh3_128_with_seed(key, seed);
        Self { high: (hash >> 64) as u64, low: hash as u64 | 1 }
    }
}

/// Spreads a word's bits (the finaliser of SplitMix64, a public-domain generator).
pub(crate) fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns bytes whose last four are the CRC-32C of those before with the one wrong bit corrected
/// that explains a wrong checksum; `None` if no single bit does. Two bits of so few bytes are never
/// taken for one.
pub(crate) fn correct_bit(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let fixed = bytes.len().checked_sub(4)?;
    let whole = |bytes: &[u8]| crc32c::crc32c(&bytes[..fixed]).to_le_bytes() == bytes[fixed..];
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if whole(&bytes) {
            return Some(bytes);
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    None
}

/// Returns a random word.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds its hashers from the system's random source, once a thread.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    mix(hasher.finish())
}
