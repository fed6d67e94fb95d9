//! Numbers in bytes, little-endian.

/// Bytes that are read from the front; none where they end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// A text behind its length.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()?;
        std::str::from_utf8(self.take(length as usize)?).ok()
    }

    /// A number of seven bits a byte, the lowest first.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

/// Writes a text behind its length.
pub(crate) fn put_text(into: &mut Vec<u8>, text: &str) {
    into.extend_from_slice(&(text.len() as u32).to_le_bytes());
    into.extend_from_slice(text.as_bytes());
}

pub(crate) fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Small numbers of either sign become small ones without.
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

pub(crate) fn unzigzag(folded: u64) -> i64 {
    (folded >> 1).cast_signed() ^ -(folded & 1).cast_signed()
}
