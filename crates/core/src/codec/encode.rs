//! Dynamic values to bytes.

use super::elements::check_encoded;
use super::wire::{
    MAX_VALUE_DEPTH, close_block, put_booleans, put_bytes, put_doubles, put_floats, put_ints,
    put_length, put_long, put_longs,
};
use super::{ArrayStep, Codec, EncodeError, EncodeProblem, Items, Step, Value};
use crate::schema::Type;

type Result<T> = std::result::Result<T, EncodeError>;

impl Codec {
    pub(super) fn put_value(
        &self,
        at: usize,
        value: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<()> {
        if depth >= MAX_VALUE_DEPTH {
            return Err(EncodeError::new(EncodeProblem::Depth));
        }
        match (&self.plan[at], value) {
            (Step::Null, Value::Null) => {}
            (Step::Boolean, Value::Boolean(value)) => out.push(u8::from(*value)),
            (Step::Int | Step::Long, Value::Int(number)) => put_long(out, i64::from(*number)),
            (Step::Long, Value::Long(number)) => put_long(out, *number),
            (Step::Integer(integer), Value::Int(_) | Value::Long(_)) => {
                put_long(out, integer.number(value).ok_or_else(|| range(value))?);
            }
            (Step::Float, Value::Float(number)) => out.extend(number.to_le_bytes()),
            (Step::Double, Value::Double(number)) => out.extend(number.to_le_bytes()),
            (Step::Double, Value::Float(number)) => out.extend(f64::from(*number).to_le_bytes()),
            (Step::Bytes, Value::Bytes(bytes)) => put_bytes(out, bytes),
            (Step::NdArray(array), Value::Bytes(bytes)) => {
                put_bytes(out, check_encoded(*array, bytes)?);
            }
            (Step::String, Value::String(text)) => put_bytes(out, text.as_bytes()),
            (Step::Fixed(size), Value::Bytes(bytes)) => put_fixed(*size, bytes, out)?,
            (Step::Enum(_), Value::Enum(_) | Value::String(_)) => {
                self.put_symbol(at, value, out)?
            }
            (Step::Record(record), Value::Record(values)) => {
                self.put_record(at, &record.fields, values, out, depth)?;
            }
            (Step::Array(array), value) if value.elements().is_some() => {
                self.put_array(at, array, value, out, depth)?;
            }
            (Step::Map { values: step, .. }, Value::Map(values)) => {
                let start = out.len();
                for (key, value) in values {
                    put_bytes(out, key.as_bytes());
                    self.put_value(*step, value, out, depth + 1).map_err(|e| e.in_key(key))?;
                }
                close_block(out, self.options.blocks, values.len(), start);
            }
            (Step::Union(branches), Value::Union(branch, inner)) => {
                let step = branches.get(*branch as usize);
                let step = step.ok_or_else(|| self.unknown_branch(at, *branch))?;
                put_length(out, *branch as usize);
                self.put_value(*step, inner, out, depth + 1)?;
            }
            (Step::Union(branches), bare) => {
                let branch = self.branch_of(at, branches, bare)?;
                put_length(out, branch);
                self.put_value(branches[branch], bare, out, depth + 1)?;
            }
            (_, value) => return Err(self.wrong(at, value.word())),
        }
        Ok(())
    }

    fn put_record(
        &self,
        at: usize,
        fields: &[usize],
        values: &[Value],
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<()> {
        if fields.len() != values.len() {
            let (expected, found) = (fields.len(), values.len());
            return Err(EncodeError::new(EncodeProblem::Fields { expected, found }));
        }
        for (place, (step, value)) in fields.iter().zip(values).enumerate() {
            self.put_value(*step, value, out, depth + 1)
                .map_err(|error| error.in_field(self.field_name(at, place)))?;
        }
        Ok(())
    }

    fn put_array(
        &self,
        at: usize,
        array: &ArrayStep,
        value: &Value,
        out: &mut Vec<u8>,
        depth: usize,
    ) -> Result<()> {
        let found = value.elements().unwrap_or_default();
        check_length(array.length, found)?;
        let blocks = self.options.blocks;
        match (array.kind, value) {
            (Items::Floats, Value::Floats(all)) => put_floats(out, blocks, all),
            (Items::Doubles, Value::Doubles(all)) => put_doubles(out, blocks, all),
            (Items::Ints | Items::Longs, Value::Ints(all)) => put_ints(out, blocks, all),
            (Items::Longs, Value::Longs(all)) => put_longs(out, blocks, all),
            (Items::Booleans, Value::Booleans(all)) => put_booleans(out, blocks, all),
            (_, Value::Array(all)) => {
                let start = out.len();
                for (i, value) in all.iter().enumerate() {
                    self.put_value(array.items, value, out, depth + 1)
                        .map_err(|e| e.in_element(i))?;
                }
                close_block(out, blocks, all.len(), start);
            }
            _ => return Err(self.wrong(at, value.word())),
        }
        Ok(())
    }

    fn put_symbol(&self, at: usize, value: &Value, out: &mut Vec<u8>) -> Result<()> {
        let Type::Enum(of) = self.kind(at) else { return Err(self.wrong(at, value.word())) };
        let place = match value {
            Value::Enum(place) => Some(*place as usize).filter(|place| *place < of.symbols.len()),
            Value::String(symbol) => of.symbols.iter().position(|known| known == symbol),
            _ => None,
        };
        let name = || match value {
            Value::String(symbol) => format!("{symbol:?}"),
            Value::Enum(place) => place.to_string(),
            other => other.word().to_owned(),
        };
        put_length(out, place.ok_or_else(|| unknown("symbol", name(), &of.symbols))?);
        Ok(())
    }

    /// Returns the only branch that a bare value matches.
    fn branch_of(&self, at: usize, branches: &[usize], bare: &Value) -> Result<usize> {
        let fit = |exact| {
            let fits = move |(_, step): &(usize, &usize)| self.fits(**step, bare, exact);
            let mut all = branches.iter().enumerate().filter(fits);
            (all.next(), all.next())
        };
        match (fit(Exact::Yes), fit(Exact::No)) {
            ((Some((branch, _)), None), _) | ((None, _), (Some((branch, _)), None)) => Ok(branch),
            ((None, _), (None, _)) => Err(self.wrong(at, bare.word())),
            _ => Err(EncodeError::new(EncodeProblem::Ambiguous)),
        }
    }

    fn fits(&self, step: usize, value: &Value, exact: Exact) -> bool {
        match (&self.plan[step], value) {
            (Step::Null, Value::Null)
            | (Step::Boolean, Value::Boolean(_))
            | (Step::Int, Value::Int(_))
            | (Step::Long, Value::Long(_))
            | (Step::Float, Value::Float(_))
            | (Step::Double, Value::Double(_))
            | (Step::Bytes, Value::Bytes(_))
            | (Step::String, Value::String(_))
            | (Step::Enum(_), Value::Enum(_))
            | (Step::Map { .. }, Value::Map(_)) => true,
            (Step::Integer(of), Value::Int(_)) => !of.long || exact == Exact::No,
            (Step::Integer(of), Value::Long(_)) => of.long,
            (Step::NdArray(array), Value::Bytes(bytes)) => array.holds(bytes.len()),
            (Step::Fixed(size), Value::Bytes(bytes)) => *size == bytes.len(),
            (Step::Long, Value::Int(_)) | (Step::Double, Value::Float(_)) => exact == Exact::No,
            (Step::Enum(_), Value::String(_)) => exact == Exact::No,
            (Step::Array(_), value) => value.elements().is_some(),
            (Step::Record(record), Value::Record(values)) => record.fields.len() == values.len(),
            _ => false,
        }
    }

    #[cold]
    pub(super) fn wrong(&self, at: usize, found: &str) -> EncodeError {
        let expected = self.expected(at);
        EncodeError::new(EncodeProblem::Type { expected, found: found.to_owned() })
    }

    /// Returns a type's name, for errors.
    #[cold]
    pub(super) fn expected(&self, at: usize) -> String {
        match self.kind(at) {
            Type::Union(branches) => {
                let words = branches.iter().take(20).map(|id| self.kind(id.index()).to_string());
                format!("one of {}", words.collect::<Vec<_>>().join(", "))
            }
            Type::Array(items) => format!("array of {}", self.kind(items.index())),
            kind => kind.to_string(),
        }
    }

    #[cold]
    fn unknown_branch(&self, at: usize, branch: u32) -> EncodeError {
        let Step::Union(branches) = &self.plan[at] else { return self.wrong(at, "union") };
        let words: Vec<_> = branches.iter().map(|step| self.kind(*step).to_string()).collect();
        unknown("branch", branch.to_string(), &words)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Exact {
    Yes,
    No,
}

#[cold]
fn range(value: &Value) -> EncodeError {
    let number = match value {
        Value::Int(number) => number.to_string(),
        Value::Long(number) => number.to_string(),
        other => other.word().to_owned(),
    };
    EncodeError::new(EncodeProblem::Range(number))
}

#[cold]
pub(super) fn unknown(what: &'static str, name: String, known: &[String]) -> EncodeError {
    let mut known = known.iter().take(20).cloned().collect::<Vec<_>>().join(", ");
    if known.is_empty() {
        known.push_str("none");
    }
    EncodeError::new(EncodeProblem::Unknown { what, name, known })
}

pub(super) fn put_fixed(expected: usize, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    if bytes.len() != expected {
        let found = bytes.len();
        return Err(EncodeError::new(EncodeProblem::Size { expected, found }));
    }
    out.extend_from_slice(bytes);
    Ok(())
}

pub(super) fn check_length(expected: Option<usize>, found: usize) -> Result<()> {
    match expected {
        Some(expected) if expected != found => {
            Err(EncodeError::new(EncodeProblem::Length { expected, found }))
        }
        _ => Ok(()),
    }
}
