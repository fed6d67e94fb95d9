//! Headers beside the payload: a few named values, readable without decoding the payload.
//!
//! Constraints. Together at most [`MAX_HEADERS_BYTES`]; names are 1 to [`MAX_NAME_BYTES`] of lower
//! case ASCII letters, digits, `-`, `_` and `.`, each once. Foreign bytes give an error, never a
//! panic, in time proportional to their length.
//!
//! Format in a sample: for each header, in ascending order of the names (so equal headers have
//! equal bytes, and each name is unique), the name's length (1 byte), the name, the value's length
//! (2 bytes, little-endian), the value. No headers take no bytes.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The limit of a sample's headers in bytes, with lengths and names: they are no second payload.
pub const MAX_HEADERS_BYTES: usize = 4096;
/// The limit of a header's name in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// The error of invalid headers.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HeadersError {
    /// The name is empty, too long, or has an invalid character.
    #[error("invalid header name {0:?}; use 1 to {MAX_NAME_BYTES} of a-z, 0-9, '-', '_' and '.'")]
    Name(String),
    /// The name exists already.
    #[error("the header {0} is given twice; give it once")]
    Twice(String),
    /// All headers together are too long.
    #[error(
        "the headers have {0} bytes, the limit is {MAX_HEADERS_BYTES}; put what is long into the \
         payload"
    )]
    TooLarge(usize),
    /// The bytes are no headers.
    #[error("no headers: damaged at byte {0}")]
    Damaged(usize),
}

/// A sample's headers, borrowed and checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HeadersRef<'a>(&'a [u8]);

impl<'a> HeadersRef<'a> {
    /// No headers.
    pub const EMPTY: Self = Self(&[]);

    /// Parses the headers of a sample.
    ///
    /// # Errors
    /// [`HeadersError`] if the bytes are no headers.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, HeadersError> {
        if bytes.len() > MAX_HEADERS_BYTES {
            return Err(HeadersError::TooLarge(bytes.len()));
        }
        let (mut rest, mut before) = (bytes, "");
        while !rest.is_empty() {
            let damaged = || HeadersError::Damaged(bytes.len() - rest.len());
            let (name, _, behind) = split(rest).ok_or_else(damaged)?;
            // The order also implies that each name is unique and not empty.
            if !is_name(name.as_bytes()) || name <= before {
                return Err(damaged());
            }
            (rest, before) = (behind, name);
        }
        Ok(Self(bytes))
    }

    /// Returns the bytes, as they are in a sample.
    #[inline]
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns whether there are none.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the headers in ascending order of their names.
    #[must_use]
    pub const fn iter(self) -> Iter<'a> {
        Iter(self.0)
    }

    /// Returns a header's value.
    #[must_use]
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

impl<'a> IntoIterator for HeadersRef<'a> {
    type Item = (&'a str, &'a [u8]);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for HeadersRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Value<'a>(&'a [u8]);
        impl fmt::Debug for Value<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "b\"{}\"", self.0.escape_ascii())
            }
        }
        f.debug_map().entries(self.iter().map(|(name, value)| (name, Value(value)))).finish()
    }
}

/// An iterator over the headers of a sample.
#[derive(Debug, Clone)]
pub struct Iter<'a>(&'a [u8]);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value, rest) = split(self.0)?;
        self.0 = rest;
        Some((name, value))
    }
}

/// Splits off the first header's name and value.
fn split(bytes: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (value, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((std::str::from_utf8(name).ok()?, value, rest))
}

fn is_name(bytes: &[u8]) -> bool {
    let legal = |byte: &u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.')
    };
    (1..=MAX_NAME_BYTES).contains(&bytes.len()) && bytes.iter().all(legal)
}

/// Owned headers. Clones share the bytes; empty headers allocate nothing.
///
/// ```
/// use helio_core::Headers;
///
/// let headers = Headers::new().with("helio-caller", b"alice@summit1")?.with("attempt", [2])?;
/// assert_eq!(headers.as_ref().get("attempt"), Some(&[2][..]));
/// # Ok::<(), helio_core::headers::HeadersError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Headers(Option<Arc<[u8]>>);

impl Headers {
    /// No headers.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Returns these headers and one more.
    ///
    /// # Errors
    /// [`HeadersError`]: the name is invalid or exists already, or there are too many bytes.
    pub fn with(self, name: &str, value: impl AsRef<[u8]>) -> Result<Self, HeadersError> {
        self.as_ref().with(name, value.as_ref())
    }

    /// Borrows the headers.
    #[must_use]
    pub fn as_ref(&self) -> HeadersRef<'_> {
        HeadersRef(self.0.as_deref().unwrap_or_default())
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl HeadersRef<'_> {
    fn with(self, name: &str, value: &[u8]) -> Result<Headers, HeadersError> {
        if !is_name(name.as_bytes()) {
            return Err(HeadersError::Name(name.to_owned()));
        }
        let mut place = Iter(self.0);
        while let Some((known, ..)) = split(place.0).filter(|(known, ..)| *known <= name) {
            if known == name {
                return Err(HeadersError::Twice(name.to_owned()));
            }
            place.next();
        }
        let whole = self.0.len() + 1 + name.len() + 2 + value.len();
        let length = u16::try_from(value.len()).ok().filter(|_| whole <= MAX_HEADERS_BYTES);
        let length = length.ok_or(HeadersError::TooLarge(whole))?.to_le_bytes();
        let before = &self.0[..self.0.len() - place.0.len()];
        let parts = [before, &[name.len() as u8], name.as_bytes(), &length, value, place.0];
        Ok(Headers(Some(parts.concat().into())))
    }
}

impl From<HeadersRef<'_>> for Headers {
    fn from(headers: HeadersRef<'_>) -> Self {
        Self((!headers.is_empty()).then(|| headers.0.into()))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out(
            all in prop::collection::btree_map("[a-z0-9_.-]{1,64}", any::<Vec<u8>>(), 0..8),
            turn in 0_usize..8,
        ) {
            let mut order: Vec<_> = all.iter().collect();
            order.rotate_left(turn.min(all.len()));
            let mut headers = Headers::new();
            for (name, value) in order {
                headers = headers.with(name, value).unwrap();
            }
            let parsed = HeadersRef::parse(headers.as_ref().as_bytes()).unwrap();
            let back: Vec<_> = parsed.iter().map(|(n, v)| (n.to_owned(), v.to_vec())).collect();
            prop_assert_eq!(&back, &all.clone().into_iter().collect::<Vec<_>>());
            for (name, value) in &all {
                prop_assert_eq!(parsed.get(name), Some(&value[..]));
                let twice = headers.clone().with(name, b"");
                prop_assert_eq!(twice, Err(HeadersError::Twice(name.clone())));
            }
            prop_assert_eq!(Headers::from(parsed), headers);
        }

        #[test]
        fn any_bytes_parse_or_do_not(bytes in prop::collection::vec(0_u8..=128, 0..300)) {
            if let Ok(headers) = HeadersRef::parse(&bytes) {
                // Bytes that parse are those that the same headers produce.
                let made = headers.iter().try_fold(Headers::new(), |h, (n, v)| h.with(n, v));
                let made = made.unwrap();
                prop_assert_eq!(made.as_ref(), headers);
            }
        }
    }

    #[test]
    fn hostile_bytes_are_refused() {
        let wrong: [&[u8]; 9] = [
            b"\x00\x00\x00",               // no name
            b"\x01",                       // no name's bytes
            b"\x01a",                      // no length
            b"\x01a\x05",                  // half a length
            b"\x01a\x05\x00",              // no value
            b"\x01A\x00\x00",              // upper case
            b"\x02\xff\xfe\x00\x00",       // no text
            b"\x01a\x00\x00\x01a\x00\x00", // twice
            b"\x01b\x00\x00\x01a\x00\x00", // out of order
        ];
        for bytes in wrong {
            assert!(matches!(HeadersRef::parse(bytes), Err(HeadersError::Damaged(_))), "{bytes:?}");
        }
        let long = vec![0; MAX_HEADERS_BYTES + 1];
        assert_eq!(HeadersRef::parse(&long), Err(HeadersError::TooLarge(long.len())));
    }

    #[test]
    fn limits_are_told_by_name() {
        let most = MAX_HEADERS_BYTES - 4;
        let full = Headers::new().with("a", vec![7; most]).unwrap();
        assert_eq!(full.as_ref().as_bytes().len(), MAX_HEADERS_BYTES);
        let refused = Headers::new().with("a", vec![7; most + 1]).unwrap_err();
        assert_eq!(refused, HeadersError::TooLarge(MAX_HEADERS_BYTES + 1));
        assert!(refused.to_string().contains("4096"), "{refused}");
        assert!(full.with("b", b"").is_err());
        for name in ["", "Ab", "a b", "ä", &"n".repeat(65)] {
            assert_eq!(Headers::new().with(name, b""), Err(HeadersError::Name(name.to_owned())));
        }
        let text = format!("{:?}", Headers::new().with("k", b"\0v").unwrap());
        assert_eq!(text, r#"{"k": b"\x00v"}"#);
    }
}
