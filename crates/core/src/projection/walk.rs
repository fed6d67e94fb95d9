//! Walks a datum.

use super::Sink;
use super::plan::{Fields, Op, Read, RecordOp, Symbols};
use crate::codec::decode::{check_length, deeper, enter};
use crate::codec::elements::{Integer, check_decoded};
use crate::codec::wire::Block;
use crate::codec::{Codec, DecodeError, DecodeProblem, Reader, Step};
use crate::schema::DType;

type Done = Result<(), DecodeError>;

pub(super) struct Walk<'w, S> {
    pub(super) codec: &'w Codec,
    pub(super) sink: &'w mut S,
}

impl<'a, S: Sink<'a>> Walk<'_, S> {
    pub(super) fn op(&mut self, op: &Op, reader: &mut Reader<'a>, depth: usize) -> Done {
        match op {
            Op::Leaf { slot, read } => self.leaf(*slot, read, reader),
            Op::Nulls(slots) => self.nulls(slots, reader),
            Op::Skip { step, nulls } => {
                self.codec.pass(*step, reader, depth, crate::codec::decode::Care::Skip)?;
                self.nulls(nulls, reader)
            }
            Op::Record(record) => self.record(record, reader, depth),
            Op::List { slot, step, item } => self.list(*slot, *step, item, reader, depth),
            Op::Union(branches) => {
                deeper(depth)?;
                let branch = reader.branch(branches.len())?;
                self.op(&branches[branch], reader, depth + 1)
            }
            Op::Branch { record, nulls, op } => {
                if let Some(slot) = record {
                    self.sink.record(*slot);
                }
                self.nulls(nulls, reader)?;
                self.op(op, reader, depth)
            }
            Op::Fail(kind) => Err(DecodeError::new(DecodeProblem::NoCounterpart(kind.clone()))),
        }
    }

    /// Fills slots. One null has a byte in the datum, or is in the budget already: the others are
    /// taken from it.
    fn nulls(&mut self, slots: &[usize], reader: &mut Reader<'a>) -> Done {
        reader.spend(slots.len().saturating_sub(1))?;
        slots.iter().for_each(|slot| self.sink.null(*slot));
        Ok(())
    }

    #[inline]
    fn leaf(&mut self, slot: usize, read: &Read, reader: &mut Reader<'a>) -> Done {
        let sink = &mut *self.sink;
        match read {
            Read::Boolean => sink.boolean(slot, reader.boolean()?),
            Read::Int => sink.int(slot, reader.int()?),
            Read::IntToLong => sink.long(slot, reader.int()?.into()),
            Read::IntToFloat => sink.float(slot, reader.int()? as f32),
            Read::IntToDouble => sink.double(slot, reader.int()?.into()),
            Read::Long => sink.long(slot, reader.long()?),
            Read::LongToFloat => sink.float(slot, reader.long()? as f32),
            Read::LongToDouble => sink.double(slot, reader.long()? as f64),
            Read::Integer { from, to, long } => {
                let number = integer(*from, *to, reader)?;
                match i32::try_from(number) {
                    Ok(number) if !long => sink.int(slot, number),
                    _ => sink.long(slot, number),
                }
            }
            Read::UintToFloat => sink.float(slot, reader.long()? as u64 as f32),
            Read::UintToDouble => sink.double(slot, reader.long()? as u64 as f64),
            Read::NdArray(array) => sink.bytes(slot, check_decoded(*array, reader.bytes()?)?),
            Read::Float => sink.float(slot, reader.float()?),
            Read::FloatToDouble => sink.double(slot, reader.float()?.into()),
            Read::Double => sink.double(slot, reader.double()?),
            Read::Bytes => sink.bytes(slot, reader.bytes()?),
            Read::Fixed(size) => sink.bytes(slot, reader.take(*size)?),
            Read::String => sink.string(slot, reader.string()?),
            Read::Enum(symbols) => sink.symbol(slot, symbol(symbols, reader)?),
        }
        Ok(())
    }

    fn record(&mut self, record: &RecordOp, reader: &mut Reader<'a>, depth: usize) -> Done {
        let codec = self.codec;
        let at = record.step;
        let Step::Record(step) = &codec.plan[at] else { return Ok(()) };
        enter(step, reader, depth)?;
        if let Some(slot) = record.slot {
            self.sink.record(slot);
        }
        reader.spend(record.missing.len())?;
        record.missing.iter().for_each(|slot| self.sink.null(*slot));
        for part in &record.parts {
            match part {
                Fields::Skip(fields) => codec.pass_fields(at, fields.clone(), reader, depth)?,
                Fields::Read(place, op) => self
                    .op(op, reader, depth + 1)
                    .map_err(|error| error.in_field(codec.field_name(at, *place)))?,
            }
        }
        Ok(())
    }

    fn list(
        &mut self,
        slot: usize,
        step: usize,
        item: &Op,
        reader: &mut Reader<'a>,
        depth: usize,
    ) -> Done {
        deeper(depth)?;
        let (least, length, keys) = match &self.codec.plan[step] {
            Step::Array(array) => (array.least, array.length, false),
            Step::Map { least, .. } => (*least, None, true),
            _ => return Ok(()),
        };
        self.sink.begin(slot);
        let mut all = 0;
        while let Some(block) = reader.block(least)? {
            let start = reader.rest().len();
            match item {
                Op::Leaf { slot, read: Read::Float } if !keys => {
                    let raw = reader.take(block.count.saturating_mul(4))?;
                    self.sink.floats(*slot, raw.as_chunks().0);
                }
                Op::Leaf { slot, read: Read::Double } if !keys => {
                    let raw = reader.take(block.count.saturating_mul(8))?;
                    self.sink.doubles(*slot, raw.as_chunks().0);
                }
                _ if keys => self.entries(slot, block, item, reader, depth)?,
                _ => {
                    for i in 0..block.count {
                        let done = self.op(item, reader, depth + 1);
                        done.map_err(|error| error.in_element(all + i))?;
                    }
                }
            }
            reader.end_block(block, start)?;
            all += block.count;
        }
        check_length(length, all)?;
        self.sink.end(slot, all);
        Ok(())
    }

    /// The elements of a map's block.
    fn entries(
        &mut self,
        slot: usize,
        block: Block,
        item: &Op,
        reader: &mut Reader<'a>,
        depth: usize,
    ) -> Done {
        for _ in 0..block.count {
            let key = reader.string()?;
            self.sink.key(slot, key);
            self.op(item, reader, depth + 1).map_err(|error| error.in_key(key))?;
        }
        Ok(())
    }
}

/// Reads an integer in the writer's range, and checks the shape's.
fn integer(from: Integer, to: DType, reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let number = from.read(reader)?;
    let exact = if from.is_bits() { i128::from(number as u64) } else { number.into() };
    if to.holds(exact) {
        return Ok(number);
    }
    Err(DecodeError::new(DecodeProblem::Range { number, dtype: to }))
}

fn symbol(symbols: &Symbols, reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let symbol = reader.symbol(symbols.places.len())?;
    let lost = || DecodeProblem::NoCounterpart(format!("symbol {}", symbols.names[symbol]));
    symbols.places[symbol].ok_or_else(|| lost().into())
}
