//! A count and a hash over distinct alerts that depend on no order.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

/// The hash of an alert's payload: XXH3-128 of its datum without frame.
pub type PayloadHash = u128;

/// Returns the hash of a payload.
#[must_use]
pub fn payload_hash(datum: &[u8]) -> PayloadHash {
    xxh3_128(datum)
}

/// The number of distinct alerts, and the sum modulo 2^128 of their hashes.
///
/// An alert's hash is XXH3-128 of its identifier (8 bytes, little-endian) and its payload's hash
/// (16 bytes, little-endian). The sum of disjoint sets is the sum of their sums. It proves against
/// loss, repetition and damage, not against an adversary who chooses payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Digest {
    count: u64,
    sum: u128,
}

/// A digest in messages.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Written {
    count: i64,
    hash: String,
}

helio_core::has_schema!(Written, "helio.alerts.Digest", {
    count: i64 [description("number of distinct alerts")],
    hash: String [description("sum modulo 2^128 of the alerts' hashes, 32 hexadecimal digits")],
});

impl helio_core::schema::HasSchema for Digest {
    fn type_spec() -> helio_core::schema::build::TypeSpec {
        Written::type_spec()
    }
}

/// The error of a digest's text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid digest {0:?}: a count, a colon and 32 hexadecimal digits are expected")]
pub struct DigestError(String);

impl Digest {
    /// The number of distinct alerts.
    #[must_use]
    pub fn count(self) -> u64 {
        self.count
    }

    /// Adds an alert that was not added before.
    pub fn add(&mut self, alert_id: i64, payload: PayloadHash) {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&alert_id.to_le_bytes());
        bytes[8..].copy_from_slice(&payload.to_le_bytes());
        self.count += 1;
        self.sum = self.sum.wrapping_add(xxh3_128(&bytes));
    }

    /// Returns the digest of this set and a disjoint one: of two detectors, or two members of a
    /// group. The count saturates.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            sum: self.sum.wrapping_add(other.sum),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:032x}", self.count, self.sum)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let wrong = || DigestError(text.chars().take(60).collect());
        let (count, hash) = text.split_once(':').ok_or_else(wrong)?;
        let count = count.parse().ok().filter(|count: &i64| *count >= 0).ok_or_else(wrong)?;
        Self::try_from(Written { count, hash: hash.to_owned() }).map_err(|_| wrong())
    }
}

impl From<Digest> for Written {
    fn from(digest: Digest) -> Self {
        let count = i64::try_from(digest.count).unwrap_or(i64::MAX);
        Self { count, hash: format!("{:032x}", digest.sum) }
    }
}

impl TryFrom<Written> for Digest {
    type Error = DigestError;

    fn try_from(written: Written) -> Result<Self, DigestError> {
        let wrong = || DigestError(written.hash.chars().take(60).collect());
        let is_hash =
            written.hash.len() == 32 && written.hash.bytes().all(|c| c.is_ascii_hexdigit());
        let sum = is_hash.then(|| u128::from_str_radix(&written.hash, 16).ok()).flatten();
        let count = u64::try_from(written.count).map_err(|_| wrong())?;
        Ok(Self { count, sum: sum.ok_or_else(wrong)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_count_and_every_bit_does() {
        let digest = |alerts: &[(i64, u128)]| {
            let mut digest = Digest::default();
            alerts.iter().for_each(|(id, payload)| digest.add(*id, *payload));
            digest
        };
        let all = digest(&[(1, 10), (2, 20), (3, 30)]);
        assert_eq!(all, digest(&[(3, 30), (1, 10), (2, 20)]));
        assert_eq!(all, digest(&[(2, 20)]).and(digest(&[(3, 30), (1, 10)])));
        // Payloads exchanged, an identifier changed, an alert twice.
        assert_ne!(all, digest(&[(1, 20), (2, 10), (3, 30)]));
        assert_ne!(all, digest(&[(1, 10), (2, 20), (4, 30)]));
        assert_ne!(all, digest(&[(1, 10), (2, 20), (2, 20)]));
    }

    /// Manifests of other programs are compared with it.
    #[test]
    fn the_format_of_a_digest() {
        let mut digest = Digest::default();
        digest.add(7_912_941_781_254_298, payload_hash(b"an alert"));
        assert_eq!(digest.to_string(), "1:586a5a76983d88197537b5d1b4663abc");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for wrong in [
            "",
            "1",
            "1:",
            "-1:00000000000000000000000000000000",
            "1:+0000000000000000000000000000000",
        ] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
