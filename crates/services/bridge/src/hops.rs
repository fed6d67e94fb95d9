//! The header that lists the buses where a sample has been.
//!
//! Format: `helio-hops` has one ASCII word for each bus that the sample was forwarded from,
//! separated by spaces, oldest first. A word is the bus's identity, `@`, and the sample's offset in
//! its partition there. If other samples were in flight, `-` and the distance to the oldest of them
//! follows, then `+` and the distance to the newest. The first word names the bus where the sample
//! was published; a bridge resumes at the last one. Words that do not parse are ignored.

use std::fmt;

use helio_core::headers::HeadersError;
use helio_core::{Headers, HeadersRef};

/// The header's name.
pub const NAME: &str = "helio-hops";

/// The most hops of a sample; more are likely a loop.
pub const MAX_HOPS: usize = 16;

/// A forwarded sample's offset on the bus that it came from, and what was settled there when it was
/// sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The sample's offset.
    pub offset: u64,
    /// All samples below were acknowledged or given up.
    pub low: u64,
    /// The newest offset that had been sent to the target.
    pub high: u64,
}

impl Mark {
    /// The mark of a sample with no other in flight.
    #[must_use]
    pub fn alone(offset: u64) -> Self {
        Self { offset, low: offset, high: offset }
    }

    fn parse(text: &str) -> Option<Self> {
        let (text, behind) = text.split_once('+').unwrap_or((text, "0"));
        let (offset, before) = text.split_once('-').unwrap_or((text, "0"));
        let number = |text: &str| {
            // `parse` would accept a sign.
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

/// The hops in a sample's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hops<'a>(&'a str);

impl<'a> Hops<'a> {
    /// The hops of a sample; none if it was never forwarded.
    #[must_use]
    pub fn of(headers: HeadersRef<'a>) -> Self {
        let text = headers.get(NAME).and_then(|value| std::str::from_utf8(value).ok());
        Self(text.unwrap_or_default())
    }

    /// The buses' identities and the sample's marks, oldest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = (&'a str, Mark)> {
        self.0.split(' ').filter_map(|word| {
            let (bus, mark) = word.rsplit_once('@')?;
            Some((bus, Mark::parse(mark)?))
        })
    }

    /// Whether the sample was on a bus.
    #[must_use]
    pub fn visited(self, bus: &str) -> bool {
        self.iter().any(|(known, _)| known == bus)
    }

    /// The last hop: the bus that the sample was forwarded from, and its mark there.
    #[must_use]
    pub fn last(self) -> Option<(&'a str, Mark)> {
        self.iter().next_back()
    }
}

/// A sample's headers with one more hop.
///
/// # Errors
/// [`HeadersError::TooLarge`].
pub fn with_hop(headers: HeadersRef<'_>, bus: &str, mark: Mark) -> Result<Headers, HeadersError> {
    let before = Hops::of(headers).0;
    let space = if before.is_empty() { "" } else { " " };
    let mut others = headers.raw().filter(|(name, _)| *name != NAME);
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
