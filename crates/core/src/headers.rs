//! Headers beside the payload: a few named values, readable without decoding the payload.
//!
//! Constraints. Together at most [`MAX_HEADERS_BYTES`]; names are 1 to [`MAX_NAME_BYTES`] of lower
//! case ASCII letters, digits, `-`, `_` and `.`, each once. Foreign bytes give an error, never a
//! panic, in time proportional to their length.
//!
//! Format in a sample: for each header, in ascending order of the names (so equal headers have
//! equal bytes, and each name is unique), the name's length (1 byte), the name, the value's length
//! (2 bytes, little-endian), the value. No headers take no bytes.
//!
//! Reserved names. [`NULL_HEADER`] marks a sample without a value. [`REFUSED_HEADER`] has the size
//! of another program's headers that exceed the limit. A header of another program whose name is
//! none here, or comes again, is kept under [`FOREIGN_PREFIX`] and its number in three digits: the
//! value is the name's length (1 byte), the name, and the header's value. Iterators return it by
//! its own name.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The limit of a sample's headers in bytes, with lengths and names: they are no second payload.
pub const MAX_HEADERS_BYTES: usize = 4096;
/// The limit of a header's name in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// The header that marks a sample as null: it has no value, and deletes its key's last value.
pub const NULL_HEADER: &str = "helio-null";
/// The header in the place of another program's headers that exceed [`MAX_HEADERS_BYTES`]: their
/// size in bytes, in decimal.
pub const REFUSED_HEADER: &str = "helio-refused";
/// The prefix of the names under which headers of other programs are kept.
pub const FOREIGN_PREFIX: &str = "helio-foreign.";

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
    /// The mark of a null, alone.
    pub const NULL: Self = Self(b"\x0ahelio-null\0\0");

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

    /// Returns whether they mark a sample as null.
    #[inline]
    #[must_use]
    pub fn mark_null(self) -> bool {
        !self.is_empty() && self.get(NULL_HEADER).is_some()
    }

    /// Returns the size in bytes of another program's headers that were too large to keep.
    #[inline]
    #[must_use]
    pub fn refused_bytes(self) -> Option<usize> {
        let text = if self.is_empty() { None } else { self.get(REFUSED_HEADER) };
        std::str::from_utf8(text?).ok()?.parse().ok()
    }

    /// Iterates over the headers in ascending order of their names. Headers of other programs that
    /// have other names, or repeat one, come last, in the order in which they were given.
    #[must_use]
    pub const fn iter(self) -> Iter<'a> {
        Iter { rest: self.0, foreign: &[] }
    }

    /// Iterates over the headers as they are stored: in ascending order of their names, each once,
    /// those of other programs under reserved names.
    pub fn raw(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (name, value, behind) = split(rest)?;
            rest = behind;
            Some((name, value))
        })
    }

    /// Returns a header's value; the first one, if another program gave several of that name.
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
pub struct Iter<'a> {
    rest: &'a [u8],
    /// The headers of other programs that keep their names, which come last: repeated names keep
    /// their order.
    foreign: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some((name, value, rest)) = split(self.rest) {
            let before = std::mem::replace(&mut self.rest, rest);
            if foreign(name, value).is_none() {
                return Some((name, value));
            }
            if self.foreign.is_empty() {
                self.foreign = before;
            }
        }
        while let Some((name, value, rest)) = split(self.foreign) {
            self.foreign = rest;
            if let Some(own) = foreign(name, value) {
                return Some(own);
            }
        }
        None
    }
}

/// The own name and value of another program's header, if it is kept under a reserved name.
fn foreign<'a>(name: &str, value: &'a [u8]) -> Option<(&'a str, &'a [u8])> {
    if !name.starts_with(FOREIGN_PREFIX) {
        return None;
    }
    let (length, rest) = value.split_first()?;
    let (name, value) = rest.split_at_checked(usize::from(*length))?;
    let name = std::str::from_utf8(name).ok().filter(|name| !name.contains('\0'))?;
    Some((name, value))
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

    /// Returns these headers and one of another program, whose name may be any text, also one that
    /// is there already. It keeps its name and its place among such headers.
    ///
    /// # Errors
    /// [`HeadersError::TooLarge`]; [`HeadersError::Name`] if the name has more than 255 bytes, or a
    /// zero.
    pub fn with_foreign(self, name: &str, value: &[u8]) -> Result<Self, HeadersError> {
        match self.as_ref().with(name, value) {
            Err(HeadersError::Name(_) | HeadersError::Twice(_)) => {}
            plain => return plain,
        }
        let kept = self.as_ref().raw().filter(|(known, _)| known.starts_with(FOREIGN_PREFIX));
        let kept = kept.count();
        let length = u8::try_from(name.len()).ok().filter(|_| !name.contains('\0'));
        let length = length.ok_or_else(|| HeadersError::Name(name.to_owned()))?;
        let both = [&[length], name.as_bytes(), value].concat();
        self.as_ref().with(&format!("{FOREIGN_PREFIX}{kept:03}"), &both)
    }

    /// Returns the mark of a null with these headers.
    ///
    /// # Errors
    /// [`HeadersError::TooLarge`].
    pub fn null(self) -> Result<Self, HeadersError> {
        if self.as_ref().mark_null() { Ok(self) } else { self.with(NULL_HEADER, b"") }
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
        let mut place = self.0;
        while let Some((known, _, rest)) = split(place).filter(|(known, ..)| *known <= name) {
            if known == name {
                return Err(HeadersError::Twice(name.to_owned()));
            }
            place = rest;
        }
        let whole = self.0.len() + 1 + name.len() + 2 + value.len();
        let length = u16::try_from(value.len()).ok().filter(|_| whole <= MAX_HEADERS_BYTES);
        let length = length.ok_or(HeadersError::TooLarge(whole))?.to_le_bytes();
        let before = &self.0[..self.0.len() - place.len()];
        let parts = [before, &[name.len() as u8], name.as_bytes(), &length, value, place];
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
    fn headers_of_other_programs_keep_their_names_and_order() {
        let long = "N".repeat(200);
        let given: [(&str, &[u8]); 7] = [
            ("Content-Type", b"1"),
            ("trace", b"2"),
            ("trace", b"3"),
            ("", b"4"),
            ("trace", b"5"),
            ("\u{e4} b", b""),
            (&long, b"6"),
        ];
        let add = |headers: Headers, (name, value): (&str, &[u8])| {
            headers.with_foreign(name, value).unwrap()
        };
        let headers = given.into_iter().fold(Headers::new(), add);
        let parsed = HeadersRef::parse(headers.as_ref().as_bytes()).unwrap();
        // The one plain name comes first.
        let expected = [1, 0, 2, 3, 4, 5, 6].map(|n: usize| given[n]);
        assert_eq!(parsed.iter().collect::<Vec<_>>(), expected);
        assert_eq!(parsed.get("trace"), Some(&b"2"[..]));
        let again = parsed.iter().fold(Headers::new(), add);
        assert_eq!(again.as_ref().iter().count(), 7);
        let large = Headers::new().with_foreign("A", &[0; MAX_HEADERS_BYTES]);
        assert!(matches!(large, Err(HeadersError::TooLarge(_))), "{large:?}");
    }

    #[test]
    fn the_mark_of_a_null_is_a_header() {
        assert!(HeadersRef::parse(HeadersRef::NULL.as_bytes()).unwrap().mark_null());
        assert_eq!(Headers::new().null().unwrap().as_ref(), HeadersRef::NULL);
        let more = Headers::new().with("a", b"1").unwrap().null().unwrap();
        assert!(more.as_ref().mark_null() && more.clone().null() == Ok(more));
        assert!(!Headers::new().with("a", b"1").unwrap().as_ref().mark_null());
        let refused = Headers::new().with(REFUSED_HEADER, b"5000").unwrap();
        assert_eq!(refused.as_ref().refused_bytes(), Some(5000));
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
