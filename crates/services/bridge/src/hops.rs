//! The header that says on which buses a sample has been.
//!
//! Format: `helio-hops` has one word of ASCII for each bus that the sample was forwarded from, with
//! spaces between, oldest first: the bus's own name, `@`, and the sample's offset in its partition
//! there. The first word names the bus that it was published on, the last one is the position that
//! a bridge goes on from. Foreign bytes are no hops.

use helio_core::headers::HeadersError;
use helio_core::{Headers, HeadersRef};

/// The header's name.
pub const NAME: &str = "helio-hops";

/// The most buses that a sample is forwarded from: beyond it a way round is more likely than a
/// facility.
pub const MAX_HOPS: usize = 16;

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

    /// The buses by name, and the sample's offset on each, oldest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = (&'a str, u64)> {
        self.0.split(' ').filter_map(|word| {
            let (bus, offset) = word.rsplit_once('@')?;
            Some((bus, offset.parse().ok()?))
        })
    }

    /// Whether it was on a bus.
    #[must_use]
    pub fn visited(self, bus: &str) -> bool {
        self.iter().any(|(known, _)| known == bus)
    }

    /// The bus that it was forwarded from, and its offset there.
    #[must_use]
    pub fn last(self) -> Option<(&'a str, u64)> {
        self.iter().next_back()
    }
}

/// A sample's headers with one hop more.
///
/// # Errors
/// [`HeadersError::TooLarge`].
pub fn with_hop(headers: HeadersRef<'_>, bus: &str, offset: u64) -> Result<Headers, HeadersError> {
    let before = Hops::of(headers).0;
    let space = if before.is_empty() { "" } else { " " };
    let mut others = headers.iter().filter(|(name, _)| *name != NAME);
    let all = others.try_fold(Headers::new(), |all, (name, value)| all.with(name, value))?;
    all.with(NAME, format!("{before}{space}{bus}@{offset}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bus_adds_a_word_and_leaves_other_headers() {
        let own = Headers::new().with("helio-caller", b"me").unwrap().with("z", b"1").unwrap();
        let once = with_hop(own.as_ref(), "journal-00a1", 7).unwrap();
        let twice = with_hop(once.as_ref(), "kafka-x.", 0).unwrap();
        assert_eq!(twice.as_ref().get(NAME), Some(&b"journal-00a1@7 kafka-x.@0"[..]));
        assert_eq!(
            (twice.as_ref().get("helio-caller"), twice.as_ref().iter().count()),
            (Some(&b"me"[..]), 3)
        );
        let hops = Hops::of(twice.as_ref());
        assert_eq!(hops.last(), Some(("kafka-x.", 0)));
        assert!(hops.visited("journal-00a1") && !hops.visited("journal-00a"));
        assert_eq!(Hops::of(own.as_ref()).last(), None);
    }

    #[test]
    fn foreign_bytes_are_no_hops() {
        for bytes in
            [&b""[..], b" ", b"x", b"x@", b"@@", b"x@-1", b"\xff@1", b"x@99999999999999999999"]
        {
            let headers = Headers::new().with(NAME, bytes).unwrap();
            assert_eq!(Hops::of(headers.as_ref()).last(), None, "{bytes:?}");
        }
    }
}
