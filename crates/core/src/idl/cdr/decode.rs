//! From CDR to Avro.

use crate::codec::wire::{Blocks, close_block, put_bytes, put_long, put_raw_array, put_varints};
use crate::idl::{Form, Head, Integer, Kind, Member, Struct, TopicType};

use super::encode::{block_width, sized_items};
use super::{CdrError, CdrProblem, Encoding, Input, Result};

/// The mask of a parameter's id, and the id of an extended header.
const PARAMETER_ID: u16 = 0x3fff;
const EXTENDED: u16 = 0x3f01;

impl TopicType {
    /// Reads a sample's CDR with its encapsulation. Appends the datum to `avro` and the key to
    /// `key` (the header's; if a foreign writer left that empty, the Avro bytes of the key fields).
    /// After an error both are unchanged.
    ///
    /// Members that the writer appended are skipped. Members that it lacks take their defaults,
    /// else zeros.
    ///
    /// # Errors
    /// [`CdrError`] names the member that is invalid.
    pub fn from_cdr<'a>(
        &self,
        bytes: &'a [u8],
        avro: &mut Vec<u8>,
        key: &mut Vec<u8>,
    ) -> std::result::Result<Head<'a>, CdrError> {
        let (starts, mut input) = ((avro.len(), key.len()), open(bytes)?);
        self.get(&mut input, avro, key).inspect_err(|_| {
            avro.truncate(starts.0);
            key.truncate(starts.1);
        })
    }

    fn get<'a>(
        &self,
        input: &mut Input<'a>,
        avro: &mut Vec<u8>,
        key: &mut Vec<u8>,
    ) -> Result<Head<'a>> {
        let root = self.root();
        let sized = self.sized(root, input.encoding);
        let mut inner = if sized { input.delimited()? } else { input.clone() };
        let head = match self.form {
            Form::Foreign => Head::default(),
            Form::Typed | Form::Envelope => Head::get(&mut inner)?,
        };
        key.extend_from_slice(head.key);
        if self.form == Form::Envelope {
            avro.extend_from_slice(inner.octets()?);
        } else {
            for member in self.fields() {
                let start = avro.len();
                self.get_member(member, sized, &mut inner, avro)
                    .map_err(|error| error.in_field(&member.name))?;
                if member.key && head.sequence == 0 && head.key.is_empty() {
                    key.extend_from_slice(&avro[start..]);
                }
            }
        }
        let left = if sized { input.left() } else { inner.left() };
        // Some writers pad without a declaration.
        if left > 3 && (sized || !root.appendable) {
            return Err(CdrError::new(CdrProblem::Trailing(left)));
        }
        Ok(head)
    }

    /// Reads a member; `sized`: whether the bytes may end before it.
    fn get_member(
        &self,
        member: &Member,
        sized: bool,
        input: &mut Input<'_>,
        avro: &mut Vec<u8>,
    ) -> Result<()> {
        if sized && input.left() == 0 {
            let Some(default) = &member.default else {
                return Err(CdrError::new(CdrProblem::Missing));
            };
            let left = input.defaults.checked_sub(default.len());
            input.defaults = left.ok_or(CdrProblem::Missing)?;
            avro.extend_from_slice(default);
            return Ok(());
        }
        let Some(null) = member.optional else { return self.get_kind(&member.kind, input, avro) };
        match input.encoding {
            Encoding::Xcdr2 => match input.number::<1>()? {
                [0] => put_long(avro, null as i64),
                [1] => {
                    put_long(avro, 1 - null as i64);
                    self.get_kind(&member.kind, input, avro)?;
                }
                [other] => return Err(CdrError::new(CdrProblem::Boolean(other))),
            },
            Encoding::Xcdr1 => match parameter(input)? {
                None => put_long(avro, null as i64),
                Some(mut inner) => {
                    put_long(avro, 1 - null as i64);
                    self.get_kind(&member.kind, &mut inner, avro)?;
                    input.defaults = inner.defaults;
                }
            },
        }
        Ok(())
    }

    fn get_kind(&self, kind: &Kind, input: &mut Input<'_>, avro: &mut Vec<u8>) -> Result<()> {
        match kind {
            Kind::Boolean => avro.push(truth(input.number::<1>()?[0])?),
            Kind::Integer(integer) => put_long(avro, get_integer(*integer, input)?),
            Kind::Float => avro.extend_from_slice(&input.number::<4>()?),
            Kind::Double => avro.extend_from_slice(&input.number::<8>()?),
            Kind::String(_) => put_bytes(avro, input.text()?.as_bytes()),
            Kind::Bytes => put_bytes(avro, input.octets()?),
            Kind::Fixed(size) => avro.extend_from_slice(input.take(*size as usize)?),
            Kind::Enum(place) => put_long(avro, self.symbol(*place, input)?),
            Kind::Struct(place) => self.get_struct(&self.structs[*place], input, avro)?,
            Kind::Sequence(item) => self.get_collection(item, None, input, avro)?,
            Kind::Array(item, count) => {
                self.get_collection(item, Some(*count as usize), input, avro)?;
            }
        }
        Ok(())
    }

    fn symbol(&self, place: usize, input: &mut Input<'_>) -> Result<i64> {
        let value = u32::from_le_bytes(input.number()?);
        if value as usize >= self.enums[place].symbols.len() {
            return Err(CdrError::new(CdrProblem::Symbol(value)));
        }
        Ok(value.into())
    }

    fn get_struct(&self, of: &Struct, input: &mut Input<'_>, avro: &mut Vec<u8>) -> Result<()> {
        let sized = self.sized(of, input.encoding);
        let mut delimited = if sized { Some(input.delimited()?) } else { None };
        let inner = delimited.as_mut().unwrap_or(&mut *input);
        for member in &of.members {
            self.get_member(member, sized, inner, avro).map_err(|e| e.in_field(&member.name))?;
        }
        if let Some(inner) = delimited {
            input.defaults = inner.defaults;
        }
        Ok(())
    }

    /// Reads an array of `count` elements, else a sequence with a leading count.
    fn get_collection(
        &self,
        item: &Kind,
        count: Option<usize>,
        input: &mut Input<'_>,
        avro: &mut Vec<u8>,
    ) -> Result<()> {
        let sized = sized_items(item, input.encoding);
        let mut delimited = if sized { Some(input.delimited()?) } else { None };
        let inner = delimited.as_mut().unwrap_or(&mut *input);
        let count = match count {
            Some(count) => count,
            None => inner.count()?,
        };
        // Every element has a byte.
        if count > inner.left() {
            return Err(CdrError::new(CdrProblem::Truncated));
        }
        self.get_items(item, count, inner, avro)?;
        if let Some(inner) = delimited {
            input.defaults = inner.defaults;
            if inner.left() > 0 {
                return Err(CdrError::new(CdrProblem::Size));
            }
        }
        Ok(())
    }

    fn get_items(
        &self,
        item: &Kind,
        count: usize,
        input: &mut Input<'_>,
        avro: &mut Vec<u8>,
    ) -> Result<()> {
        if count == 0 {
            avro.push(0);
        } else if let Some(width) = block_width(item) {
            input.align(width)?;
            let raw = input.take(count.checked_mul(width).ok_or(CdrProblem::Truncated)?)?;
            put_blocks(item, width, raw, input.big, avro)?;
        } else if let Kind::Integer(integer) = item {
            let width = integer.width();
            input.align(width)?;
            let raw = input.take(count.checked_mul(width).ok_or(CdrProblem::Truncated)?)?;
            let (big, integer) = (input.big, *integer);
            let numbers = raw.chunks_exact(width).map(|bytes| integer.read(bytes, big));
            put_varints(avro, Blocks::Sized, numbers);
        } else {
            let start = avro.len();
            for i in 0..count {
                self.get_kind(item, input, avro).map_err(|error| error.in_element(i))?;
            }
            close_block(avro, Blocks::Sized, count, start);
        }
        Ok(())
    }
}

/// Reads the encapsulation.
fn open(bytes: &[u8]) -> Result<Input<'_>> {
    let Some(([id0, id1, _, options], body)) = bytes.split_first_chunk::<4>() else {
        return Err(CdrError::new(CdrProblem::Truncated));
    };
    let identifier = u16::from_be_bytes([*id0, *id1]);
    let encoding = match identifier {
        0x0000 | 0x0001 => Encoding::Xcdr1,
        0x0006..=0x0009 => Encoding::Xcdr2,
        other => return Err(CdrError::new(CdrProblem::Encapsulation(other))),
    };
    let padding = usize::from(options & 3);
    let size = body.len().checked_sub(padding).ok_or(CdrProblem::Truncated)?;
    Ok(Input::new(&body[..size], encoding, identifier & 1 == 0))
}

/// Reads an optional member's header in XCDR1; returns its bytes, `None` if it is missing.
fn parameter<'a>(input: &mut Input<'a>) -> Result<Option<Input<'a>>> {
    input.align(4)?;
    let id = u16::from_le_bytes(input.number()?);
    let mut size = usize::from(u16::from_le_bytes(input.number()?));
    if id & PARAMETER_ID == EXTENDED {
        input.number::<4>()?;
        size = input.count()?;
    }
    if size == 0 { Ok(None) } else { input.parameter(size).map(Some) }
}

/// Appends elements that are equal in CDR and Avro, apart from the byte order.
fn put_blocks(item: &Kind, width: usize, raw: &[u8], big: bool, avro: &mut Vec<u8>) -> Result<()> {
    if *item == Kind::Boolean {
        for byte in raw {
            truth(*byte)?;
        }
    }
    let end = avro.len();
    put_raw_array(avro, Blocks::Sized, raw.len() / width, raw);
    if big && width > 1 {
        // With the block's start before them, and the array's end behind.
        let numbers = avro.len() - 1 - raw.len()..avro.len() - 1;
        debug_assert!(numbers.start > end);
        avro[numbers].chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
    Ok(())
}

fn truth(byte: u8) -> Result<u8> {
    if byte > 1 { Err(CdrError::new(CdrProblem::Boolean(byte))) } else { Ok(byte) }
}

#[inline]
fn get_integer(kind: Integer, input: &mut Input<'_>) -> Result<i64> {
    Ok(match kind.width() {
        1 => kind.read(&input.number::<1>()?, false),
        2 => kind.read(&input.number::<2>()?, false),
        4 => kind.read(&input.number::<4>()?, false),
        _ => kind.read(&input.number::<8>()?, false),
    })
}
