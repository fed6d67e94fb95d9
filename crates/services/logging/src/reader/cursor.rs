//! Cursors: a reader's position as a short text.
//!
//! Format: `log1.` and, in the URL-safe Base64 of RFC 4648 section 5 without padding: the CRC-32C
//! of the bus's identity and the lanes' prefix (4 bytes); the number of lanes; for each lane its
//! level (1 byte) and the number of its partitions; for each partition its number, the offset of
//! the first packet that was not handed out whole, and the number of packets from there on that
//! were handed out in part; for each of these the difference of its offset to the previous one, and
//! how many of its records were handed out (0 is all); the CRC-32C of all that (4 bytes). Numbers
//! are varints unless bytes are given.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;

use crate::level::Level;
use crate::wire::{Bytes, Malformed, put_varint};

const PREFIX: &str = "log1.";
/// The longest cursor, in bytes. All lanes with the most partitions of a topic (1,024) and full
/// windows of packets take less.
const MAX_TEXT_BYTES: usize = 1 << 20;
const SUM_BYTES: usize = 4;

/// A reader's position in each lane and partition, also within a packet. Its text is one word
/// without characters that are special to a shell.
///
/// ```
/// use helio_logging::Cursor;
///
/// assert!("log1.".parse::<Cursor>().is_err());
/// assert_eq!(Cursor::default().to_string().parse(), Ok(Cursor::default()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor {
    /// The checksum of the bus's identity and the prefix.
    pub(super) site: u32,
    pub(super) lanes: BTreeMap<Level, BTreeMap<u32, PartitionPosition>>,
}

/// A reader's position in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PartitionPosition {
    /// All packets below this offset were delivered.
    pub(super) next: u64,
    /// The delivered part of packets from there on.
    pub(super) begun: BTreeMap<u64, PacketProgress>,
}

/// The delivered part of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketProgress {
    /// This many of its first records, at least one.
    Records(u32),
    /// All records.
    Whole,
}

/// An invalid text of a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no cursor, or not the whole of one; take the text that a reader gave, it begins with \
     \"log1.\""
)]
pub struct CursorError(String);

impl PartitionPosition {
    /// Records the delivered part of a packet.
    pub(super) fn advance(&mut self, offset: u64, begun: PacketProgress) {
        if offset >= self.next {
            self.begun.insert(offset, begun);
        }
        while self.begun.get(&self.next) == Some(&PacketProgress::Whole) {
            self.begun.remove(&self.next);
            self.next += 1;
        }
    }
}

impl Cursor {
    /// The position in one lane.
    #[must_use]
    pub fn lane(&self, level: Level) -> Self {
        let lane = self.lanes.get(&level).map(|stands| (level, stands.clone()));
        Self { site: self.site, lanes: lane.into_iter().collect() }
    }

    /// Joins two positions; the other one's lanes take precedence. None if they are of two buses or
    /// prefixes.
    #[must_use]
    pub fn joined(mut self, other: &Self) -> Option<Self> {
        if self.site != other.site {
            return None;
        }
        self.lanes.extend(other.lanes.iter().map(|(level, stands)| (*level, stands.clone())));
        Some(self)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = self.site.to_le_bytes().to_vec();
        put_varint(&mut out, self.lanes.len() as u64);
        for (level, partitions) in &self.lanes {
            out.push(level.number());
            put_varint(&mut out, partitions.len() as u64);
            for (partition, PartitionPosition { next, begun }) in partitions {
                put_varint(&mut out, u64::from(*partition));
                put_varint(&mut out, *next);
                put_varint(&mut out, begun.len() as u64);
                let mut before = *next;
                for (offset, begun) in begun {
                    put_varint(&mut out, offset - before);
                    before = *offset;
                    put_varint(
                        &mut out,
                        match begun {
                            PacketProgress::Whole => 0,
                            PacketProgress::Records(count) => u64::from(*count),
                        },
                    );
                }
            }
        }
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let (bytes, sum) = bytes.split_last_chunk::<SUM_BYTES>().ok_or(Malformed)?;
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*sum) {
            return Err(Malformed);
        }
        let mut bytes = Bytes(bytes);
        let mut cursor = Self { site: bytes.u32()?, ..Self::default() };
        for _ in 0..bytes.count()? {
            let level = Level::new(bytes.byte()?).ok_or(Malformed)?;
            let lane = cursor.lanes.entry(level).or_default();
            for _ in 0..bytes.count()? {
                let partition = u32::try_from(bytes.varint()?).map_err(|_| Malformed)?;
                lane.insert(partition, Self::read_stand(&mut bytes)?);
            }
        }
        if bytes.is_empty() { Ok(cursor) } else { Err(Malformed) }
    }

    fn read_stand(bytes: &mut Bytes<'_>) -> Result<PartitionPosition, Malformed> {
        let mut stand = PartitionPosition { next: bytes.varint()?, ..PartitionPosition::default() };
        let mut offset = stand.next;
        for _ in 0..bytes.count()? {
            offset = offset.checked_add(bytes.varint()?).ok_or(Malformed)?;
            let begun = match u32::try_from(bytes.varint()?).map_err(|_| Malformed)? {
                0 => PacketProgress::Whole,
                count => PacketProgress::Records(count),
            };
            stand.begun.insert(offset, begun);
        }
        Ok(stand)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(self.bytes()))
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        // The error does not show the whole text either.
        let wrong = || CursorError(text.chars().take(64).collect());
        let coded = text.strip_prefix(PREFIX).filter(|_| text.len() <= MAX_TEXT_BYTES);
        let bytes = URL_SAFE_NO_PAD.decode(coded.ok_or_else(wrong)?).map_err(|_| wrong())?;
        Self::read(&bytes).map_err(|Malformed| wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    fn stands() -> impl Strategy<Value = PartitionPosition> {
        let begun = btree_map(0..90_u64, 0..70_000_u32, 0..5);
        (0..1_u64 << 50, begun).prop_map(|(next, begun)| {
            let begun = begun.into_iter().map(|(above, count)| {
                let begun =
                    if count == 0 { PacketProgress::Whole } else { PacketProgress::Records(count) };
                (next + above, begun)
            });
            PartitionPosition { next, begun: begun.collect() }
        })
    }

    fn cursors() -> impl Strategy<Value = Cursor> {
        let level = (1..=11_u8).prop_map(|number| Level::new(number).unwrap());
        let lanes = btree_map(level, btree_map(0..1024_u32, stands(), 0..3), 0..10);
        (any::<u32>(), lanes).prop_map(|(site, lanes)| Cursor { site, lanes })
    }

    proptest! {
        #[test]
        fn cursors_come_back_as_a_word_that_a_shell_leaves_alone(cursor in cursors()) {
            let text = cursor.to_string();
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            prop_assert!(text.starts_with(PREFIX) && text.chars().all(plain), "{}", text);
            prop_assert_eq!(text.parse(), Ok(cursor));
        }

        #[test]
        fn lanes_make_up_the_whole(cursor in cursors()) {
            let levels = Level::ALL.into_iter().chain(Level::new(7));
            let mut lanes = levels.map(|level| cursor.lane(level));
            let nothing = Cursor { site: cursor.site, ..Cursor::default() };
            let joined = lanes.try_fold(nothing, |sum, lane| sum.joined(&lane));
            prop_assert_eq!(joined, Some(cursor.clone()));
            let elsewhere = Cursor { site: !cursor.site, ..Cursor::default() };
            prop_assert_eq!(cursor.joined(&elsewhere), None);
        }

        #[test]
        fn any_cut_and_any_other_letter_is_told(cursor in cursors(), at: prop::sample::Index) {
            let text = cursor.to_string();
            let at = at.index(text.len());
            prop_assert!(text[..at].parse::<Cursor>().is_err());
            let mut other = text.into_bytes();
            other[at] = if other[at] == b'Q' { b'g' } else { b'Q' };
            prop_assert!(String::from_utf8(other).unwrap().parse::<Cursor>().is_err());
        }

        #[test]
        fn foreign_bytes_are_a_cursor_or_an_error(mut bytes in vec(any::<u8>(), 0..64)) {
            let sum = crc32c::crc32c(&bytes);
            bytes.extend_from_slice(&sum.to_le_bytes());
            let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&bytes));
            if let Ok(cursor) = text.parse::<Cursor>() {
                prop_assert!(cursor.lanes.len() <= bytes.len());
                _ = cursor.to_string();
            }
        }
    }

    #[test]
    fn the_text_is_that_of_version_1() {
        let mut stand = PartitionPosition { next: 70, ..PartitionPosition::default() };
        stand.advance(71, PacketProgress::Whole);
        stand.advance(70, PacketProgress::Records(3));
        let lanes = [(Level::DEBUG, [(0, stand)].into()), (Level::ERROR, BTreeMap::new())];
        let cursor = Cursor { site: 0xdead_beef, lanes: lanes.into() };
        let golden = "log1.776t3gIDAQBGAgADAQAIAPWI__w";
        assert_eq!(golden.parse(), Ok(cursor.clone()), "{cursor}");
        assert_eq!(cursor.to_string(), golden);
        let long = "x".repeat(MAX_TEXT_BYTES);
        let told = format!("{PREFIX}{long}").parse::<Cursor>().unwrap_err();
        assert!(told.to_string().len() < 250);
    }

    #[test]
    fn the_longest_cursor_is_one() {
        let stand = PartitionPosition { next: u64::MAX - 1, ..PartitionPosition::default() };
        let lane = || (0..1_024).map(|partition| (partition, stand.clone())).collect();
        let lanes = Level::ALL.iter().map(|level| (*level, lane())).collect();
        let cursor = Cursor { site: 1, lanes };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }

    #[test]
    fn packets_that_were_handed_out_are_let_go_in_order() {
        let mut stand = PartitionPosition { next: 5, ..PartitionPosition::default() };
        stand.advance(6, PacketProgress::Whole);
        stand.advance(5, PacketProgress::Records(2));
        stand.advance(3, PacketProgress::Whole);
        assert_eq!((stand.next, stand.begun.len()), (5, 2));
        stand.advance(5, PacketProgress::Whole);
        assert_eq!((stand.next, stand.begun.len()), (7, 0));
    }
}
