//! Integers of other ranges than their base types', and the elements of raw arrays.

use serde::de::{DeserializeSeed, IntoDeserializer, SeqAccess};
use serde_json::Value as Json;

use super::json::{from_double, from_float, real};
use super::wire::Reader;
use super::{DecodeError, DecodeProblem, EncodeError, EncodeProblem, Step, Value};
use crate::schema::{DType, NdArray};

/// The compiled operation of an integer of another range than its base type's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Integer {
    pub(crate) dtype: DType,
    /// Whether the base type is a `long`.
    pub(crate) long: bool,
}

impl Integer {
    /// Whether the `long` has the number's 64 bits, whatever its sign.
    pub(crate) fn is_bits(self) -> bool {
        self.dtype == DType::Uint64
    }

    /// Reads the base type's number, and checks its range.
    #[inline]
    pub(crate) fn read(self, reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
        let number = if self.long { reader.long()? } else { reader.int()?.into() };
        if self.is_bits() || self.dtype.holds(number) {
            return Ok(number);
        }
        Err(DecodeError::new(DecodeProblem::Range { number, dtype: self.dtype }))
    }

    pub(super) fn value(self, number: i64) -> Value {
        match i32::try_from(number) {
            Ok(number) if !self.long => Value::Int(number),
            _ => Value::Long(number),
        }
    }

    /// Returns a value's number as it is in the base type.
    pub(super) fn number(self, value: &Value) -> Option<i64> {
        match value {
            Value::Int(number) => Some(i64::from(*number)).filter(|n| self.dtype.holds(*n)),
            Value::Long(bits) if self.is_bits() => Some(*bits),
            Value::Long(number) if self.long => Some(*number).filter(|n| self.dtype.holds(*n)),
            _ => None,
        }
    }

    pub(super) fn parse(self, json: &Json) -> Option<Value> {
        if self.is_bits() {
            return json.as_u64().map(|number| Value::Long(number as i64));
        }
        json.as_i64().filter(|n| self.dtype.holds(*n)).map(|number| self.value(number))
    }

    pub(super) fn to_json(self, number: i64) -> Json {
        if self.is_bits() { Json::from(number as u64) } else { Json::from(number) }
    }
}

pub(crate) fn check_decoded(array: NdArray, bytes: &[u8]) -> Result<&[u8], DecodeError> {
    if array.holds(bytes.len()) {
        return Ok(bytes);
    }
    Err(DecodeError::new(DecodeProblem::Shape { found: bytes.len(), array }))
}

pub(super) fn check_encoded(array: NdArray, bytes: &[u8]) -> Result<&[u8], EncodeError> {
    if array.holds(bytes.len()) {
        return Ok(bytes);
    }
    Err(EncodeError::new(EncodeProblem::Shape { found: bytes.len(), array }))
}

/// Returns the step whose Avro number an element is written as, one by one.
pub(super) fn element_step(dtype: DType) -> Step {
    match dtype {
        DType::Int32 => Step::Int,
        DType::Int64 => Step::Long,
        DType::Float32 => Step::Float,
        DType::Float64 => Step::Double,
        DType::Uint32 | DType::Uint64 => Step::Integer(Integer { dtype, long: true }),
        _ => Step::Integer(Integer { dtype, long: false }),
    }
}

/// Appends the raw form of an element that was written as an Avro number.
pub(super) fn put_element(dtype: DType, avro: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let mut reader = Reader::new(avro);
    match dtype {
        DType::Float32 | DType::Float64 => out.extend_from_slice(avro),
        _ => out.extend_from_slice(&reader.long()?.to_le_bytes()[..dtype.size()]),
    }
    Ok(())
}

/// The elements of a raw array for serde.
pub(super) struct Elements<'a> {
    pub(super) dtype: DType,
    pub(super) rest: &'a [u8],
}

macro_rules! take {
    ($rest:expr, $rust:ty) => {{
        let Some((bytes, rest)) = $rest.split_first_chunk() else { return Ok(None) };
        $rest = rest;
        <$rust>::from_le_bytes(*bytes)
    }};
}

impl<'de> SeqAccess<'de> for &mut Elements<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        macro_rules! one {
            ($rust:ty) => {{
                let number = take!(self.rest, $rust);
                seed.deserialize(IntoDeserializer::<DecodeError>::into_deserializer(number))
            }};
        }
        let element = match self.dtype {
            DType::Int8 => one!(i8),
            DType::Uint8 => one!(u8),
            DType::Int16 => one!(i16),
            DType::Uint16 => one!(u16),
            DType::Int32 => one!(i32),
            DType::Uint32 => one!(u32),
            DType::Int64 => one!(i64),
            DType::Uint64 => one!(u64),
            DType::Float32 => one!(f32),
            DType::Float64 => one!(f64),
        };
        element.map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len() / self.dtype.size())
    }
}

/// Converts an array to nested JSON arrays, in numbers.
pub(super) fn to_json(array: NdArray, bytes: &[u8]) -> Option<Json> {
    let shape = array.shape_of(bytes.len())?;
    let dtype = array.dtype();
    Some(nested(dtype, &shape, bytes))
}

fn nested(dtype: DType, shape: &[usize], bytes: &[u8]) -> Json {
    let [size, inner @ ..] = shape else { return number(dtype, bytes) };
    let each = inner.iter().product::<usize>() * dtype.size();
    let part = |i: usize| nested(dtype, inner, &bytes[i * each..(i + 1) * each]);
    Json::Array((0..*size).map(part).collect())
}

fn number(dtype: DType, bytes: &[u8]) -> Json {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    match dtype {
        DType::Int8 => Json::from(bits as i8),
        DType::Int16 => Json::from(bits as i16),
        DType::Int32 => Json::from(bits as i32),
        DType::Int64 => Json::from(bits as i64),
        DType::Uint8 | DType::Uint16 | DType::Uint32 | DType::Uint64 => Json::from(bits),
        DType::Float32 => from_float(f32::from_bits(bits as u32)),
        DType::Float64 => from_double(f64::from_bits(bits)),
    }
}

/// Converts nested JSON arrays to an array; `None` if they are not of its shape and type.
pub(super) fn from_json(array: NdArray, json: &Json) -> Option<Vec<u8>> {
    let mut shape: Vec<usize> = Vec::new();
    let mut level = Some(json);
    while let Some(Json::Array(items)) = level.filter(|_| shape.len() < array.shape().len()) {
        shape.push(items.len());
        level = items.first();
    }
    // Behind a dimension of 0 JSON shows no further ones.
    let fits = |(size, wanted): (&usize, &i32)| *wanted < 0 || *size == *wanted as usize;
    let empty = shape.last() == Some(&0);
    let all = empty || shape.len() == array.shape().len();
    if !all || !shape.iter().zip(array.shape()).all(fits) {
        return None;
    }
    let mut out = Vec::new();
    flatten(array.dtype(), &shape, json, &mut out)?;
    array.holds(out.len()).then_some(out)
}

fn flatten(dtype: DType, shape: &[usize], json: &Json, out: &mut Vec<u8>) -> Option<()> {
    let [size, inner @ ..] = shape else { return put_number(dtype, json, out) };
    let items = json.as_array().filter(|items| items.len() == *size)?;
    items.iter().try_for_each(|item| flatten(dtype, inner, item, out))
}

fn put_number(dtype: DType, json: &Json, out: &mut Vec<u8>) -> Option<()> {
    match dtype {
        DType::Float32 => out.extend((real(json)? as f32).to_le_bytes()),
        DType::Float64 => out.extend(real(json)?.to_le_bytes()),
        _ => {
            let bits = match (json.as_i64(), json.as_u64()) {
                (Some(number), _) if dtype.holds(number) => number as u64,
                (_, Some(number)) if dtype.holds(number) => number,
                _ => return None,
            };
            out.extend_from_slice(&bits.to_le_bytes()[..dtype.size()]);
        }
    }
    Some(())
}
