//! The primitives of Avro's binary encoding: zigzag numbers, lengths, blocks, numeric arrays.
//!
//! A [`Reader`] never reads beyond its bytes, and checks that the bytes can hold an announced
//! length before it allocates. A budget of values bounds types without bytes (an array of 2^60
//! nulls). Functions that write append to a `Vec<u8>`.

use std::borrow::Cow;

use thiserror::Error;

/// The limit of values without bytes in one datum (nulls, empty records, of which an array may
/// announce 2^60), in addition to one for each of its bytes. It also applies to encoding.
pub const FREE_VALUES: usize = 65_536;
/// The deepest nesting of values, arrays, maps, unions and records counted: recursion stays on the
/// stack.
pub const MAX_VALUE_DEPTH: usize = 256;

/// Why bytes are not a datum of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WireError {
    /// The bytes end before the value does.
    #[error("the bytes end within a value: truncated, or of another schema")]
    Truncated,
    /// Bytes are left after the value.
    #[error("{0} bytes are left after the value: damaged, or of another schema")]
    Trailing(usize),
    /// A number has more bits than its type.
    #[error("a number has more bits than its type: damaged, or of another schema")]
    Number,
    /// A length or count is negative.
    #[error("a length is negative: damaged, or of another schema")]
    Negative,
    /// A boolean is neither 0 nor 1.
    #[error("the byte {0} is no boolean: damaged, or of another schema")]
    Boolean(u8),
    /// A text is not UTF-8.
    #[error("a text is not UTF-8: damaged, or of another schema")]
    Utf8,
    /// A union's branch does not exist.
    #[error("the union has no branch {0}: damaged, or of another schema")]
    Branch(i64),
    /// An enumeration's symbol does not exist.
    #[error("the enumeration has no symbol {0}: damaged, or of another schema")]
    Symbol(i64),
    /// A sized block's size is not that of its elements.
    #[error("a block's size is not that of its elements: damaged")]
    BlockSize,
    /// There are more values without bytes than [`FREE_VALUES`] allows.
    #[error("more values without bytes than {FREE_VALUES}: damaged or hostile")]
    Budget,
    /// The nesting is deeper than [`MAX_VALUE_DEPTH`].
    #[error("values are nested deeper than {MAX_VALUE_DEPTH}: damaged or hostile")]
    Depth,
}

type Result<T> = std::result::Result<T, WireError>;

/// The start of a block of an array or map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Number of elements in it.
    pub count: usize,
    /// Its size in bytes, if its writer stored it.
    pub bytes: Option<usize>,
}

/// Reads values from bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    budget: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        let budget = bytes.len().saturating_add(FREE_VALUES);
        Self { bytes, budget }
    }

    /// Returns the bytes that are not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Checks that all bytes are read.
    ///
    /// # Errors
    /// [`WireError::Trailing`] if not.
    pub fn finish(&self) -> Result<()> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(WireError::Trailing(left)),
        }
    }

    /// Takes `values` without bytes from the budget, such as a record's nulls. ([`Reader::block`]
    /// takes those of an array; a union's null has a byte.)
    ///
    /// # Errors
    /// [`WireError::Budget`] if it is used up.
    #[inline]
    pub fn spend(&mut self, values: usize) -> Result<()> {
        self.budget = self.budget.checked_sub(values).ok_or(WireError::Budget)?;
        Ok(())
    }

    /// Takes the next `count` bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(WireError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Reads a `boolean`.
    ///
    /// # Errors
    /// [`WireError`] if the byte is no boolean.
    #[inline]
    pub fn boolean(&mut self) -> Result<bool> {
        match self.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            other => Err(WireError::Boolean(other[0])),
        }
    }

    /// Reads a `long`.
    ///
    /// # Errors
    /// [`WireError`] if the bytes end inside it, or if it has more than 64 bits.
    #[inline]
    pub fn long(&mut self) -> Result<i64> {
        if let [first, rest @ ..] = self.bytes
            && *first < 0x80
        {
            self.bytes = rest;
            return Ok(unzigzag(u64::from(*first)));
        }
        self.long_slow()
    }

    fn long_slow(&mut self) -> Result<i64> {
        let mut bits = 0_u64;
        for (i, byte) in self.bytes.iter().take(10).enumerate() {
            let part = u64::from(byte & 0x7f);
            if i == 9 && *byte > 1 {
                return Err(WireError::Number);
            }
            bits |= part << (7 * i);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[i + 1..];
                return Ok(unzigzag(bits));
            }
        }
        Err(WireError::Truncated)
    }

    /// Reads an `int`.
    ///
    /// # Errors
    /// [`WireError`] if the bytes end inside it, or if it has more than 32 bits.
    #[inline]
    pub fn int(&mut self) -> Result<i32> {
        i32::try_from(self.long()?).map_err(|_| WireError::Number)
    }

    /// Reads a `float`.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    #[inline]
    pub fn float(&mut self) -> Result<f32> {
        let (bytes, rest) = self.bytes.split_first_chunk().ok_or(WireError::Truncated)?;
        self.bytes = rest;
        Ok(f32::from_le_bytes(*bytes))
    }

    /// Reads a `double`.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    #[inline]
    pub fn double(&mut self) -> Result<f64> {
        let (bytes, rest) = self.bytes.split_first_chunk().ok_or(WireError::Truncated)?;
        self.bytes = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    /// Reads a length: a `long` that is not negative.
    #[inline]
    fn length(&mut self) -> Result<usize> {
        usize::try_from(self.long()?).map_err(|_| WireError::Negative)
    }

    /// Reads `bytes`.
    ///
    /// # Errors
    /// [`WireError`] if fewer follow than announced.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    /// Reads a `string`.
    ///
    /// # Errors
    /// [`WireError`] if fewer bytes follow than announced, or if they are not UTF-8.
    #[inline]
    pub fn string(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::Utf8)
    }

    /// Reads a union's branch, of `branches`.
    ///
    /// # Errors
    /// [`WireError::Branch`] if there is no such branch.
    #[inline]
    pub fn branch(&mut self, branches: usize) -> Result<usize> {
        let branch = self.long()?;
        let known = usize::try_from(branch).ok().filter(|branch| *branch < branches);
        known.ok_or(WireError::Branch(branch))
    }

    /// Reads an enumeration's symbol, of `symbols`.
    ///
    /// # Errors
    /// [`WireError::Symbol`] if there is no such symbol.
    #[inline]
    pub fn symbol(&mut self, symbols: usize) -> Result<usize> {
        let symbol = self.int()?;
        let known = usize::try_from(symbol).ok().filter(|symbol| *symbol < symbols);
        known.ok_or(WireError::Symbol(symbol.into()))
    }

    /// Reads the start of the next block of an array or map whose elements take at least `least`
    /// bytes; `None` at its end. Elements that take none are taken from the budget.
    ///
    /// # Errors
    /// [`WireError`] if the remaining bytes cannot hold the block.
    #[inline]
    pub fn block(&mut self, least: usize) -> Result<Option<Block>> {
        let count = self.long()?;
        if count == 0 {
            return Ok(None);
        }
        let bytes = if count < 0 { Some(self.length()?) } else { None };
        let count = usize::try_from(count.unsigned_abs()).map_err(|_| WireError::Truncated)?;
        if bytes.is_some_and(|bytes| bytes > self.bytes.len()) {
            return Err(WireError::Truncated);
        }
        let room = bytes.unwrap_or(self.bytes.len());
        if least == 0 {
            self.spend(count)?;
        } else if count > room / least {
            return Err(WireError::Truncated);
        }
        Ok(Some(Block { count, bytes }))
    }

    /// Checks that a block is at its end; `start` is the number of bytes that remained at its
    /// start.
    ///
    /// # Errors
    /// [`WireError::BlockSize`] if its writer stored another size.
    #[inline]
    pub fn end_block(&self, block: Block, start: usize) -> Result<()> {
        match block.bytes {
            Some(bytes) if start - self.bytes.len() != bytes => Err(WireError::BlockSize),
            _ => Ok(()),
        }
    }

    /// Reads a whole array whose elements take `width` bytes each (4 for `float`, 8 for `double`, 1
    /// for `boolean`) as their little-endian bytes. An array in one block is not copied.
    ///
    /// # Errors
    /// [`WireError`] if the array is damaged.
    pub fn raw_array(&mut self, width: usize) -> Result<Cow<'a, [u8]>> {
        let mut all: Cow<'a, [u8]> = Cow::Borrowed(&[]);
        while let Some(block) = self.block(width)? {
            let start = self.bytes.len();
            let size = block.count.checked_mul(width).ok_or(WireError::Truncated)?;
            let part = self.take(size)?;
            self.end_block(block, start)?;
            if all.is_empty() {
                all = Cow::Borrowed(part);
            } else {
                all.to_mut().extend_from_slice(part);
            }
        }
        Ok(all)
    }

    /// Reads an array of `float`.
    ///
    /// # Errors
    /// [`WireError`] if the array is damaged.
    pub fn floats(&mut self) -> Result<Vec<f32>> {
        let raw = self.raw_array(4)?;
        Ok(raw.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// Reads an array of `double`.
    ///
    /// # Errors
    /// [`WireError`] if the array is damaged.
    pub fn doubles(&mut self) -> Result<Vec<f64>> {
        let raw = self.raw_array(8)?;
        Ok(raw.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
    }

    /// Reads an array of `boolean`.
    ///
    /// # Errors
    /// [`WireError`] if the array is damaged.
    pub fn booleans(&mut self) -> Result<Vec<bool>> {
        let raw = self.raw_array(1)?;
        if let Some(wrong) = raw.iter().find(|byte| **byte > 1) {
            return Err(WireError::Boolean(*wrong));
        }
        Ok(raw.iter().map(|byte| *byte == 1).collect())
    }

    /// Reads an array of `int`.
    ///
    /// # Errors
    /// [`WireError`] if the array is damaged.
    pub fn ints(&mut self) -> Result<Vec<i32>> {
        self.numbers(Self::int)
    }

    /// Reads an array of `long`.
    ///
    /// # Errors
    /// [`WireError`] if the array is damaged.
    pub fn longs(&mut self) -> Result<Vec<i64>> {
        self.numbers(Self::long)
    }

    fn numbers<T>(&mut self, one: fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut all = Vec::new();
        while let Some(block) = self.block(1)? {
            let start = self.bytes.len();
            all.reserve(block.count);
            for _ in 0..block.count {
                all.push(one(self)?);
            }
            self.end_block(block, start)?;
        }
        Ok(all)
    }
}

#[inline]
fn unzigzag(bits: u64) -> i64 {
    (bits >> 1) as i64 ^ -((bits & 1) as i64)
}

#[inline]
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// How arrays and maps are written. Readers accept both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Blocks {
    /// With their size in bytes, so that readers can skip them: a negative count, then the size.
    #[default]
    Sized,
    /// Without size, as most Avro libraries write them.
    Plain,
}

/// Writes a `long`, or an `int`, whose bytes are the same.
#[inline]
pub fn put_long(out: &mut Vec<u8>, number: i64) {
    let mut bits = zigzag(number);
    while bits >= 0x80 {
        out.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    out.push(bits as u8);
}

/// Returns the number of bytes that [`put_long`] writes, 1 to 10.
#[inline]
#[must_use]
pub fn long_size(number: i64) -> usize {
    let bits = 64 - (zigzag(number) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Writes a length, a count or an index.
#[inline]
pub fn put_length(out: &mut Vec<u8>, length: usize) {
    put_long(out, length as i64);
}

/// Writes `bytes`, or a `string`.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes the start of an array's or map's only block of `count` elements (not 0) in `bytes` bytes.
#[inline]
pub fn put_block(out: &mut Vec<u8>, blocks: Blocks, count: usize, bytes: usize) {
    match blocks {
        Blocks::Plain => put_length(out, count),
        Blocks::Sized => {
            put_long(out, -(count as i64));
            put_length(out, bytes);
        }
    }
}

/// Writes an array of `count` elements (numbers, booleans) from their little-endian bytes.
pub fn put_raw_array(out: &mut Vec<u8>, blocks: Blocks, count: usize, raw: &[u8]) {
    if count > 0 {
        put_block(out, blocks, count, raw.len());
        out.extend_from_slice(raw);
    }
    out.push(0);
}

/// Writes an array of `float`.
pub fn put_floats(out: &mut Vec<u8>, blocks: Blocks, numbers: &[f32]) {
    put_wide(out, blocks, numbers, |number| number.to_le_bytes());
}

/// Writes an array of `double`.
pub fn put_doubles(out: &mut Vec<u8>, blocks: Blocks, numbers: &[f64]) {
    put_wide(out, blocks, numbers, |number| number.to_le_bytes());
}

/// Writes an array of `boolean`.
pub fn put_booleans(out: &mut Vec<u8>, blocks: Blocks, values: &[bool]) {
    put_wide(out, blocks, values, |value| [u8::from(value)]);
}

#[inline]
fn put_wide<T: Copy, const N: usize>(
    out: &mut Vec<u8>,
    blocks: Blocks,
    numbers: &[T],
    bytes: impl Fn(T) -> [u8; N],
) {
    if !numbers.is_empty() {
        put_block(out, blocks, numbers.len(), numbers.len() * N);
        let start = out.len();
        out.resize(start + numbers.len() * N, 0);
        let (places, _) = out[start..].as_chunks_mut::<N>();
        for (place, number) in places.iter_mut().zip(numbers) {
            *place = bytes(*number);
        }
    }
    out.push(0);
}

/// Writes an array of `int`.
pub fn put_ints(out: &mut Vec<u8>, blocks: Blocks, numbers: &[i32]) {
    put_varints(out, blocks, numbers.iter().map(|number| i64::from(*number)));
}

/// Writes an array of `long`.
pub fn put_longs(out: &mut Vec<u8>, blocks: Blocks, numbers: &[i64]) {
    put_varints(out, blocks, numbers.iter().copied());
}

/// Writes an array of numbers that are `int` or `long`.
pub(crate) fn put_varints(
    out: &mut Vec<u8>,
    blocks: Blocks,
    numbers: impl ExactSizeIterator<Item = i64> + Clone,
) {
    if numbers.len() > 0 {
        let size = match blocks {
            Blocks::Sized => numbers.clone().map(long_size).sum(),
            Blocks::Plain => 0,
        };
        put_block(out, blocks, numbers.len(), size);
        out.reserve(size);
        numbers.for_each(|number| put_long(out, number));
    }
    out.push(0);
}

/// Inserts the start of a block before the `count` elements written since `start`, and appends the
/// array's end.
pub fn close_block(out: &mut Vec<u8>, blocks: Blocks, count: usize, start: usize) {
    if count > 0 {
        let end = out.len();
        put_block(out, blocks, count, end - start);
        let added = out.len() - end;
        out[start..].rotate_right(added);
    }
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_specification() {
        let known: [(i64, &[u8]); 6] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (-64, &[0x7f]),
            (64, &[0x80, 1]),
            (i64::MIN, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ];
        for (number, bytes) in known {
            let mut out = Vec::new();
            put_long(&mut out, number);
            assert_eq!(out, bytes);
            assert_eq!(long_size(number), bytes.len());
            assert_eq!(Reader::new(bytes).long(), Ok(number));
        }
    }

    #[test]
    fn numbers_that_are_too_long_are_refused() {
        assert_eq!(Reader::new(&[0xff; 11]).long(), Err(WireError::Number));
        assert_eq!(Reader::new(&[0xff; 9]).long(), Err(WireError::Truncated));
        let two = [255, 255, 255, 255, 255, 255, 255, 255, 255, 2];
        assert_eq!(Reader::new(&two).long(), Err(WireError::Number));
        let mut big = Vec::new();
        put_long(&mut big, 1 << 31);
        assert_eq!(Reader::new(&big).int(), Err(WireError::Number));
    }

    #[test]
    fn arrays_in_all_forms_are_read() {
        let mut out = Vec::new();
        put_floats(&mut out, Blocks::Sized, &[1.0, 2.5]);
        out.pop();
        put_floats(&mut out, Blocks::Plain, &[f32::INFINITY]);
        let mut reader = Reader::new(&out);
        assert_eq!(reader.floats(), Ok(vec![1.0, 2.5, f32::INFINITY]));
        assert_eq!(reader.finish(), Ok(()));
        let mut out = Vec::new();
        put_longs(&mut out, Blocks::Sized, &[i64::MAX, -3, 77_777]);
        assert_eq!(Reader::new(&out).longs(), Ok(vec![i64::MAX, -3, 77_777]));
        out[1] += 2;
        assert!(Reader::new(&out).longs().is_err());
        assert_eq!(Reader::new(&[0]).doubles(), Ok(vec![]));
    }

    #[test]
    fn counts_beyond_the_bytes_are_refused_before_anything_is_allocated() {
        for count in [1 << 60, -(1 << 60), i64::MIN, i64::MAX, 100] {
            let mut out = Vec::new();
            put_long(&mut out, count);
            out.extend([0; 20]);
            assert!(Reader::new(&out).floats().is_err());
            assert!(Reader::new(&out).ints().is_err());
            assert!(Reader::new(&out).raw_array(8).is_err());
        }
        let mut out = Vec::new();
        put_long(&mut out, 1 << 60);
        assert_eq!(Reader::new(&out).block(0), Err(WireError::Budget));
    }
}
