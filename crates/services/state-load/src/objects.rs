//! Objects as Kubernetes stores them: their keys, and values that tell which write they are of.

use bytes::Bytes;

/// The prefix of all keys of a load.
pub const PREFIX: &str = "/registry/";
/// The number of a value that no load wrote.
pub const FOREIGN: u64 = u64::MAX;
/// The hexadecimal digits of the number that a value begins with.
const NUMBER_DIGITS: usize = 16;

/// A kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The lease of a node: renewed for ever.
    Lease,
    /// A pod: created, updated by its node, deleted.
    Pod,
    /// An event: created and left to its etcd lease; here also deleted.
    Event,
    /// A node: its status is updated.
    Node,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Lease, Self::Pod, Self::Event, Self::Node];

    /// The prefix of the kind's keys.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Lease => "/registry/leases/kube-node-lease/",
            Self::Pod => "/registry/pods/default/",
            Self::Event => "/registry/events/default/",
            Self::Node => "/registry/minions/",
        }
    }

    /// Bytes of a value: the usual size of such an object in protobuf form.
    pub fn value_bytes(self) -> usize {
        match self {
            Self::Lease => 480,
            Self::Pod => 2_300,
            Self::Event => 870,
            Self::Node => 5_200,
        }
    }

    /// The key of the kind's object of a number.
    pub fn key(self, number: usize) -> Bytes {
        format!("{}object-{number:06}", self.prefix()).into()
    }

    fn of_number(number: u64) -> Self {
        Self::ALL[(number % 4) as usize]
    }

    /// A number for the value of the kind's `n`-th write.
    pub fn number(self, n: u64) -> u64 {
        n * 4 + self as u64
    }
}

/// The value of a number, from which its kind follows: printable, of the kind's size.
pub fn value(number: u64) -> Bytes {
    sized_value(number, Kind::of_number(number).value_bytes())
}

/// A printable value that begins with a number in hexadecimal digits, of a size of at least these.
pub fn sized_value(number: u64, bytes: usize) -> Bytes {
    let mut random = Random::new(number);
    let mut text = format!("{number:0NUMBER_DIGITS$x}").into_bytes();
    while text.len() < bytes {
        // Letters, digits and a few marks, as serialized names and labels are.
        let word = random.draw();
        text.extend((0..8).map(|at| b'+' + ((word >> (8 * at)) as u8 & 0x3f)));
    }
    text.truncate(bytes);
    text.into()
}

/// The number of a value; [`FOREIGN`] where it is not the whole value of one.
pub fn number(found: &[u8]) -> u64 {
    head(found).filter(|number| value(*number) == found).unwrap_or(FOREIGN)
}

/// The number that a value begins with.
pub(crate) fn head(found: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(found.get(..NUMBER_DIGITS)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

/// The end of the range of keys with a prefix that is not empty and does not end with 0xff.
pub fn range_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end.into()
}

/// Numbers of a seed (splitmix64): a load is the same each time but for its timing.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_its_number_and_a_damaged_one_none() {
        for kind in Kind::ALL {
            let written = kind.number(77);
            let mut bytes = value(written).to_vec();
            assert_eq!((bytes.len(), number(&bytes)), (kind.value_bytes(), written));
            assert!(bytes.iter().all(u8::is_ascii_graphic), "{bytes:?}");
            bytes[100] ^= 1;
            assert_eq!(number(&bytes), FOREIGN);
            bytes.truncate(100);
            assert_eq!(number(&bytes), FOREIGN);
        }
        assert_eq!(number(b""), FOREIGN);
        assert_eq!(range_end(b"/registry/"), "/registry0");
    }
}
