//! The partition of a key, equal in every language and on every transport.
//!
//! Kafka's default: 32-bit MurmurHash2 (Austin Appleby, public domain) with Kafka's seed, made
//! positive, modulo the number of partitions. A plain Kafka client therefore uses the same
//! partitions.

const MURMUR2_SEED: u32 = 0x9747_b28c;
const MURMUR2_MULTIPLIER: u32 = 0x5bd1_e995;

/// The partition of a key.
#[must_use]
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

fn murmur2(data: &[u8]) -> u32 {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut hash = MURMUR2_SEED ^ length;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]])
            .wrapping_mul(MURMUR2_MULTIPLIER);
        k ^= k >> 24;
        hash = hash.wrapping_mul(MURMUR2_MULTIPLIER) ^ k.wrapping_mul(MURMUR2_MULTIPLIER);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| (tail << 8) | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(MURMUR2_MULTIPLIER);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(MURMUR2_MULTIPLIER);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of Apache Kafka's own test (UtilsTest.testMurmur2).
    #[test]
    fn keys_fall_where_kafka_s_do() {
        let known: [(&[u8], i32); 7] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
            (b"", 275_646_681),
        ];
        for (key, hash) in known {
            assert_eq!(murmur2(key) as i32, hash, "{key:?}");
        }
        assert_eq!(partition_of(b"21", 1), 0);
        assert!(partition_of(b"21", 7) < 7);
    }
}
