//! Bytes to dynamic values; skipping of datums.

use std::ops::Range;

use super::elements::check_decoded;
use super::wire::{MAX_VALUE_DEPTH, Reader, WireError};
use super::{
    ArrayStep, Codec, DecodeError, DecodeProblem, Items, RecordStep, Size, Skip, Step, Value,
};

type Result<T> = std::result::Result<T, DecodeError>;

/// How much of a skipped value is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// Only as much as needed to find the end.
    Skip,
    /// Everything.
    Check,
}

impl Codec {
    pub(super) fn get_value(
        &self,
        at: usize,
        reader: &mut Reader<'_>,
        depth: usize,
    ) -> Result<Value> {
        Ok(match &self.plan[at] {
            Step::Null => Value::Null,
            Step::Boolean => Value::Boolean(reader.boolean()?),
            Step::Int => Value::Int(reader.int()?),
            Step::Long => Value::Long(reader.long()?),
            Step::Integer(integer) => integer.value(integer.read(reader)?),
            Step::Float => Value::Float(reader.float()?),
            Step::Double => Value::Double(reader.double()?),
            Step::Bytes => Value::Bytes(reader.bytes()?.to_vec()),
            Step::NdArray(array) => Value::Bytes(check_decoded(*array, reader.bytes()?)?.to_vec()),
            Step::String => Value::String(reader.string()?.to_owned()),
            Step::Fixed(size) => Value::Bytes(reader.take(*size)?.to_vec()),
            Step::Enum(symbols) => Value::Enum(reader.symbol(*symbols)? as u32),
            Step::Array(array) => self.get_array(array, reader, depth)?,
            Step::Map { values, least } => self.get_map(*values, *least, reader, depth)?,
            Step::Union(branches) => {
                deeper(depth)?;
                let branch = reader.branch(branches.len())?;
                let inner = self.get_value(branches[branch], reader, depth + 1)?;
                Value::Union(branch as u32, Box::new(inner))
            }
            Step::Record(record) => {
                enter(record, reader, depth)?;
                let fields = &record.fields;
                let mut values = Vec::with_capacity(fields.len());
                for (place, step) in fields.iter().enumerate() {
                    let value = self.get_value(*step, reader, depth + 1);
                    values.push(value.map_err(|e| e.in_field(self.field_name(at, place)))?);
                }
                Value::Record(values)
            }
        })
    }

    fn get_array(&self, array: &ArrayStep, reader: &mut Reader<'_>, depth: usize) -> Result<Value> {
        let value = match array.kind {
            Items::Booleans => Value::Booleans(reader.booleans()?),
            Items::Ints => Value::Ints(reader.ints()?),
            Items::Longs => Value::Longs(reader.longs()?),
            Items::Floats => Value::Floats(reader.floats()?),
            Items::Doubles => Value::Doubles(reader.doubles()?),
            Items::Others => {
                deeper(depth)?;
                let mut all = Vec::new();
                while let Some(block) = reader.block(array.least)? {
                    let start = reader.rest().len();
                    for _ in 0..block.count {
                        let value = self.get_value(array.items, reader, depth + 1);
                        all.push(value.map_err(|error| error.in_element(all.len()))?);
                    }
                    reader.end_block(block, start)?;
                }
                Value::Array(all)
            }
        };
        check_length(array.length, value.elements().unwrap_or_default())?;
        Ok(value)
    }

    fn get_map(
        &self,
        step: usize,
        least: usize,
        reader: &mut Reader<'_>,
        depth: usize,
    ) -> Result<Value> {
        deeper(depth)?;
        let mut all = Vec::new();
        while let Some(block) = reader.block(least)? {
            let start = reader.rest().len();
            for _ in 0..block.count {
                let key = reader.string()?;
                let value = self.get_value(step, reader, depth + 1).map_err(|e| e.in_key(key))?;
                all.push((key.to_owned(), value));
            }
            reader.end_block(block, start)?;
        }
        Ok(Value::Map(all))
    }

    /// Skips a value.
    pub(crate) fn pass(
        &self,
        at: usize,
        reader: &mut Reader<'_>,
        depth: usize,
        care: Care,
    ) -> Result<()> {
        match &self.plan[at] {
            Step::Null => {}
            Step::Boolean => drop(reader.boolean()?),
            Step::Int => drop(reader.int()?),
            Step::Long => drop(reader.long()?),
            Step::Integer(_) if care == Care::Skip => drop(reader.long()?),
            Step::Integer(integer) => drop(integer.read(reader)?),
            Step::Float => drop(reader.take(4)?),
            Step::Double => drop(reader.take(8)?),
            Step::Bytes => drop(reader.bytes()?),
            Step::NdArray(_) if care == Care::Skip => drop(reader.bytes()?),
            Step::NdArray(array) => drop(check_decoded(*array, reader.bytes()?)?),
            Step::String if care == Care::Skip => drop(reader.bytes()?),
            Step::String => drop(reader.string()?),
            Step::Fixed(size) => drop(reader.take(*size)?),
            Step::Enum(symbols) => drop(reader.symbol(*symbols)?),
            Step::Array(array) => self.pass_array(array, reader, depth, care)?,
            Step::Map { values, least } => {
                deeper(depth)?;
                pass_blocks(reader, *least, care, |reader| {
                    reader.string()?;
                    self.pass(*values, reader, depth + 1, care)
                })?;
            }
            Step::Union(branches) => {
                deeper(depth)?;
                let branch = reader.branch(branches.len())?;
                self.pass(branches[branch], reader, depth + 1, care)?;
            }
            Step::Record(record) => {
                enter(record, reader, depth)?;
                if care == Care::Skip {
                    return self.pass_fields(at, 0..record.fields.len(), reader, depth);
                }
                for (place, step) in record.fields.iter().enumerate() {
                    self.pass(*step, reader, depth + 1, care)
                        .map_err(|error| error.in_field(self.field_name(at, place)))?;
                }
            }
        }
        Ok(())
    }

    /// Skips fields of a record.
    pub(crate) fn pass_fields(
        &self,
        at: usize,
        fields: Range<usize>,
        reader: &mut Reader<'_>,
        depth: usize,
    ) -> Result<()> {
        let Step::Record(record) = &self.plan[at] else { return Ok(()) };
        let start = fields.start;
        for (i, skip) in record.skips.get(fields).unwrap_or_default().iter().enumerate() {
            self.pass_field(*skip, reader, depth)
                .map_err(|error| error.in_field(self.field_name(at, start + i)))?;
        }
        Ok(())
    }

    #[inline]
    fn pass_field(&self, skip: Skip, reader: &mut Reader<'_>, depth: usize) -> Result<()> {
        if let Some(null) = skip.null
            && reader.branch(2)? == null
        {
            return Ok(());
        }
        match skip.size {
            Size::Fixed(size) => drop(reader.take(size)?),
            Size::Number => drop(reader.long()?),
            Size::Bytes => drop(reader.bytes()?),
            Size::Other(step) => self.pass(step, reader, depth + 1, Care::Skip)?,
        }
        Ok(())
    }

    fn pass_array(
        &self,
        array: &ArrayStep,
        reader: &mut Reader<'_>,
        depth: usize,
        care: Care,
    ) -> Result<()> {
        deeper(depth)?;
        let found = match array.kind {
            Items::Floats => reader.raw_array(4)?.len() / 4,
            Items::Doubles => reader.raw_array(8)?.len() / 8,
            _ => pass_blocks(reader, array.least, care, |reader| {
                self.pass(array.items, reader, depth + 1, care)
            })?,
        };
        if care == Care::Check {
            check_length(array.length, found)?;
        }
        Ok(())
    }
}

/// Skips the blocks of an array or map, and counts the elements.
fn pass_blocks<'a>(
    reader: &mut Reader<'a>,
    least: usize,
    care: Care,
    mut element: impl FnMut(&mut Reader<'a>) -> Result<()>,
) -> Result<usize> {
    let mut all = 0;
    while let Some(block) = reader.block(least)? {
        all += block.count;
        match (block.bytes, care) {
            (Some(bytes), Care::Skip) => drop(reader.take(bytes)?),
            _ => {
                let start = reader.rest().len();
                for i in 0..block.count {
                    element(reader).map_err(|error| error.in_element(i))?;
                }
                reader.end_block(block, start)?;
            }
        }
    }
    Ok(all)
}

/// Checks the depth of a nested value.
#[inline]
pub(crate) fn deeper(depth: usize) -> Result<()> {
    if depth >= MAX_VALUE_DEPTH {
        return Err(DecodeError::new(WireError::Depth));
    }
    Ok(())
}

/// The same for a record, whose fields without bytes are taken from the budget. The remaining bytes
/// must be able to hold it, before its fields are allocated.
#[inline]
pub(crate) fn enter(record: &RecordStep, reader: &mut Reader<'_>, depth: usize) -> Result<()> {
    deeper(depth)?;
    if reader.rest().len() < record.least {
        return Err(DecodeError::new(WireError::Truncated));
    }
    Ok(reader.spend(record.free)?)
}

pub(crate) fn check_length(expected: Option<usize>, found: usize) -> Result<()> {
    match expected {
        Some(expected) if expected != found => {
            Err(DecodeError::new(DecodeProblem::Length { expected, found }))
        }
        _ => Ok(()),
    }
}
