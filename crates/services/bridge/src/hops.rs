//! The header that says on which buses a sample has been.
//!
//! Format: `helio-hops` has one word of ASCII for each bus that the sample was forwarded from, with
//! spaces between, oldest first: the bus's own name, `@`, and the sample's offset in its partition
//! there; where others were under way when it was given to the target, `-` and how far before it
//! the oldest of them lies, and `+` and how far behind it the newest. The first word names the bus
//! that it was published on, the last one is where a bridge goes on. Foreign bytes are no hops.

use std::fmt;

use helio_core::headers::HeadersError;
use helio_core::{Headers, HeadersRef};

/// The header's name.
pub const NAME: &str = "helio-hops";

/// The most buses that a sample is forwarded from: beyond it a way round is more likely than a
/// facility.
pub const MAX_HOPS: usize = 16;

/// Where a forwarded sample lies on the bus that it comes from, and what was settled there when it
/// was given to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its offset.
    pub offset: u64,
    /// All below was acknowledged by the target, or given up.
    pub low: u64,
    /// The newest that had been given to the target.
    pub high: u64,
}

impl Mark {
    /// Of a sample that nothing else was under way with.
    #[must_use]
    pub fn alone(offset: u64) -> Self {
        Self { offset, low: offset, high: offset }
    }

    fn parse(text: &str) -> Option<Self> {
        let (text, behind) = text.split_once('+').unwrap_or((text, "0"));
        let (offset, before) = text.split_once('-').unwrap_or((text, "0"));
        let number = |text: &str| {
            // A sign is no number here.
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?
        };
        let offset = number(offset)?;
        let (low, high) =
            (offset.checked_sub(number(before)?)?, offset.checked_add(number(behind)?)?);
        Some(Self { offset, low, high })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.offset)?;
        if self.low < self.offset {
            write!(f, "-{}", self.offset - self.low)?;
        }
        if self.high > self.offset {
            write!(f, "+{}", self.high - self.offset)?;
        }
        Ok(())
    }
}

/// Where a sample has been, as its header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hops<'a>(&'a str);

impl<'a> Hops<'a> {
    /// The hops of a sample; none where it was forwarded by nobody.
    #[must_use]
    pub fn of(headers: HeadersRef<'a>) -> Self {
        let text = headers.get(NAME).and_then(|value| std::str::from_utf8(value).ok());
        Self(text.unwrap_or_default())
    }

    /// The buses by name, and the sample's place on each, oldest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = (&'a str, Mark)> {
        self.0.split(' ').filter_map(|word| {
            let (bus, mark) = word.rsplit_once('@')?;
            Some((bus, Mark::parse(mark)?))
        })
    }

    /// Whether it was on a bus.
    #[must_use]
    pub fn visited(self, bus: &str) -> bool {
        self.iter().any(|(known, _)| known == bus)
    }

    /// The bus that it was forwarded from, and its place there.
    #[must_use]
    pub fn last(self) -> Option<(&'a str, Mark)> {
        self.iter().next_back()
    }
}

/// A sample's headers with one hop more.
///
/// # Errors
/// [`HeadersError::TooLarge`].
pub fn with_hop(headers: HeadersRef<'_>, bus: &str, mark: Mark) -> Result<Headers, HeadersError> {
    let before = Hops::of(headers).0;
    let space = if before.is_empty() { "" } else { " " };
    let mut others = headers.iter().filter(|(name, _)| *name != NAME);
    let all = others.try_fold(Headers::new(), |all, (name, value)| all.with(name, value))?;
    all.with(NAME, format!("{before}{space}{bus}@{mark}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bus_adds_a_word_and_leaves_other_headers() {
        let own = Headers::new().with("helio-caller", b"me").unwrap().with("z", b"1").unwrap();
        let once = with_hop(own.as_ref(), "journal-00a1", Mark::alone(7)).unwrap();
        let mark = Mark { offset: 12, low: 10, high: 15 };
        let twice = with_hop(once.as_ref(), "kafka-x.", mark).unwrap();
        assert_eq!(twice.as_ref().get(NAME), Some(&b"journal-00a1@7 kafka-x.@12-2+3"[..]));
        assert_eq!(
            (twice.as_ref().get("helio-caller"), twice.as_ref().iter().count()),
            (Some(&b"me"[..]), 3)
        );
        let hops = Hops::of(twice.as_ref());
        assert_eq!(hops.last(), Some(("kafka-x.", mark)));
        assert!(hops.visited("journal-00a1") && !hops.visited("journal-00a"));
        assert_eq!(Hops::of(own.as_ref()).last(), None);
    }

    #[test]
    fn marks_are_read_as_they_are_written() {
        for (offset, low, high) in [(0, 0, 0), (9, 9, 9), (9, 3, 9), (9, 9, 12), (9, 0, 10)] {
            let mark = Mark { offset, low, high };
            assert_eq!(Mark::parse(&mark.to_string()), Some(mark));
        }
    }

    #[test]
    fn foreign_bytes_are_no_hops() {
        for bytes in
            [&b""[..], b" ", b"x", b"x@", b"@@", b"x@-1", b"\xff@1", b"x@99999999999999999999"]
                .into_iter()
                .chain([&b"x@1-2"[..], b"x@1-", b"x@1+", b"x@1+-1", b"x@1--1", b"x@+1"])
        {
            let headers = Headers::new().with(NAME, bytes).unwrap();
            assert_eq!(Hops::of(headers.as_ref()).last(), None, "{bytes:?}");
        }
    }
}
