//! Little-endian numbers and short texts, written to and read from bytes.

/// Bytes that end early, or are not of the expected form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Bytes that are read from the front.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_le_bytes)
    }

    /// A number of seven bits a byte, the lowest first.
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// A signed one, zigzag.
    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let folded = self.varint()?;
        Ok((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }

    /// A number of elements, each of at least one byte.
    pub(crate) fn count(&mut self) -> Result<usize, Malformed> {
        let count = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        if count > self.0.len() { Err(Malformed) } else { Ok(count) }
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.count()?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }
}

pub(crate) fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

pub(crate) fn put_signed(into: &mut Vec<u8>, value: i64) {
    put_varint(into, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

pub(crate) fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(into, bytes.len() as u64);
    into.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(signed: i64, unsigned: u64) {
            let mut bytes = Vec::new();
            put_signed(&mut bytes, signed);
            put_varint(&mut bytes, unsigned);
            let mut read = Bytes(&bytes);
            prop_assert_eq!(read.signed(), Ok(signed));
            prop_assert_eq!(read.varint(), Ok(unsigned));
            prop_assert!(read.is_empty());
        }
    }

    #[test]
    fn numbers_above_64_bits_and_counts_above_the_rest_are_malformed() {
        assert_eq!(Bytes(&[0xff; 10]).varint(), Err(Malformed));
        let mut largest = [0xff; 10];
        largest[9] = 1;
        assert_eq!(Bytes(&largest).varint(), Ok(u64::MAX));
        assert_eq!(Bytes(&[0x80]).varint(), Err(Malformed));
        assert_eq!(Bytes(&[2, b'a']).text(), Err(Malformed));
        assert_eq!(Bytes(&[1, 0xff]).text(), Err(Malformed));
    }
}
