//! The primitives of CDR: aligned numbers, texts, sizes.

use super::{CdrError, CdrProblem, Encoding, Result};

impl Encoding {
    /// The largest alignment.
    fn widest(self) -> usize {
        match self {
            Self::Xcdr1 => 8,
            Self::Xcdr2 => 4,
        }
    }
}

/// A writer of little-endian CDR, behind the present contents of `bytes`.
pub(in crate::idl) struct Output<'a> {
    pub(in crate::idl) bytes: &'a mut Vec<u8>,
    pub(super) encoding: Encoding,
    /// The origin of alignment.
    pub(super) origin: usize,
}

impl Output<'_> {
    #[inline]
    pub(super) fn align(&mut self, size: usize) {
        let size = size.min(self.encoding.widest());
        let at = self.bytes.len() - self.origin;
        self.bytes.resize(self.origin + at.next_multiple_of(size), 0);
    }

    /// Writes a number of `N` little-endian bytes.
    #[inline]
    pub(in crate::idl) fn number<const N: usize>(&mut self, bytes: [u8; N]) {
        self.align(N);
        self.bytes.extend_from_slice(&bytes);
    }

    pub(super) fn count(&mut self, count: usize) -> Result<()> {
        let count = u32::try_from(count).map_err(|_| CdrProblem::TooLarge)?;
        self.number(count.to_le_bytes());
        Ok(())
    }

    pub(in crate::idl) fn text(&mut self, text: &[u8], bound: Option<u32>) -> Result<()> {
        if text.contains(&0) {
            return Err(CdrError::new(CdrProblem::Nul));
        }
        if let Some(bound) = bound.filter(|bound| text.len() > *bound as usize) {
            return Err(CdrError::new(CdrProblem::Bound { bytes: text.len(), bound }));
        }
        self.count(text.len() + 1)?;
        self.bytes.extend_from_slice(text);
        self.bytes.push(0);
        Ok(())
    }

    pub(in crate::idl) fn octets(&mut self, octets: &[u8]) -> Result<()> {
        self.count(octets.len())?;
        self.bytes.extend_from_slice(octets);
        Ok(())
    }

    /// Reserves a size or count, which [`Output::close`] or [`Output::patch`] fills in.
    pub(super) fn open(&mut self) -> usize {
        self.number([0; 4]);
        self.bytes.len()
    }

    /// Fills in the number of bytes since [`Output::open`].
    pub(super) fn close(&mut self, start: usize) -> Result<()> {
        self.patch(start, self.bytes.len() - start)
    }

    /// Fills in a number that [`Output::open`] has reserved.
    pub(super) fn patch(&mut self, start: usize, number: usize) -> Result<()> {
        let number = u32::try_from(number).map_err(|_| CdrProblem::TooLarge)?;
        self.bytes[start - 4..start].copy_from_slice(&number.to_le_bytes());
        Ok(())
    }
}

/// A reader of CDR.
#[derive(Debug, Clone)]
pub(in crate::idl) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
    origin: usize,
    pub(super) big: bool,
    pub(super) encoding: Encoding,
    /// The remaining budget of defaults, in bytes.
    pub(super) defaults: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8], encoding: Encoding, big: bool) -> Self {
        let defaults = crate::resolve::default_budget(bytes.len());
        Self { bytes, at: 0, origin: 0, big, encoding, defaults }
    }

    /// Returns the number of remaining bytes.
    #[inline]
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[inline]
    pub(super) fn align(&mut self, size: usize) -> Result<()> {
        let size = size.min(self.encoding.widest());
        let at = self.origin + (self.at - self.origin).next_multiple_of(size);
        if at > self.bytes.len() {
            return Err(CdrError::new(CdrProblem::Truncated));
        }
        self.at = at;
        Ok(())
    }

    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let all = self.bytes;
        let end = self.at.checked_add(count).filter(|end| *end <= all.len());
        let end = end.ok_or(CdrProblem::Truncated)?;
        let taken = &all[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Reads a number of `N` bytes; returns them in little-endian order.
    #[inline]
    pub(in crate::idl) fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.align(N)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        if self.big {
            bytes.reverse();
        }
        Ok(bytes)
    }

    #[inline]
    pub(super) fn count(&mut self) -> Result<usize> {
        Ok(u32::from_le_bytes(self.number()?) as usize)
    }

    pub(in crate::idl) fn text(&mut self) -> Result<&'a str> {
        let count = self.count()?;
        let Some((0, text)) = self.take(count)?.split_last() else {
            return Err(CdrError::new(CdrProblem::Text));
        };
        Ok(std::str::from_utf8(text).map_err(|_| CdrProblem::Text)?)
    }

    pub(in crate::idl) fn octets(&mut self) -> Result<&'a [u8]> {
        let count = self.count()?;
        self.take(count)
    }

    /// Splits off the bytes behind a leading size as a reader of their own.
    pub(super) fn delimited(&mut self) -> Result<Self> {
        let size = self.count()?;
        self.part(size)
    }

    /// Splits off the next `size` bytes, with the same origin of alignment.
    pub(super) fn part(&mut self, size: usize) -> Result<Self> {
        let at = self.at;
        self.take(size)?;
        Ok(Self { bytes: &self.bytes[..self.at], at, ..self.clone() })
    }

    /// Splits off the next `size` bytes, aligned from their first one.
    pub(super) fn parameter(&mut self, size: usize) -> Result<Self> {
        let part = self.part(size)?;
        Ok(Self { origin: part.at, ..part })
    }
}
