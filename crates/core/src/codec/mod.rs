//! Avro's binary encoding, compiled once for each schema.
//!
//! A [`Codec`] converts between a datum's bytes and a dynamic [`Value`], any serde type, or JSON.
//! It also skips or checks datums without decoding them. [`wire`] has the primitives for other
//! conversions.
//!
//! Any Avro library reads its output. Arrays and maps are written as one *sized* block, so that
//! readers can skip them ([`Blocks::Plain`] writes as other libraries do). A field's `length` is
//! checked on both sides. Input may be hostile: see [`wire`] for the bounds.

macro_rules! located {
    ($error:ident, $problem:ident) => {
        impl $error {
            #[cold]
            pub(crate) fn new(problem: impl Into<$problem>) -> Self {
                Self(Box::new(($crate::codec::Place::default(), problem.into())))
            }

            /// The field, for example `alert.sources[3].ra`; empty for the datum as a whole.
            #[must_use]
            pub fn at(&self) -> String {
                self.0.0.to_string()
            }

            /// The cause.
            #[must_use]
            pub fn problem(&self) -> &$problem {
                &self.0.1
            }

            #[cold]
            pub(crate) fn in_field(mut self, name: &str) -> Self {
                self.0.0.0.push($crate::codec::Segment::Field(name.to_owned()));
                self
            }

            #[cold]
            pub(crate) fn in_element(mut self, index: usize) -> Self {
                self.0.0.0.push($crate::codec::Segment::Element(index));
                self
            }

            #[cold]
            #[allow(dead_code, reason = "not every error is of what has maps")]
            pub(crate) fn in_key(mut self, key: &str) -> Self {
                self.0.0.0.push($crate::codec::Segment::Key(key.to_owned()));
                self
            }
        }

        impl std::fmt::Display for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if self.0.0.0.is_empty() {
                    write!(f, "{}", self.0.1)
                } else {
                    write!(f, "{}: {}", self.0.0, self.0.1)
                }
            }
        }

        impl std::error::Error for $error {}

        impl From<$problem> for $error {
            fn from(problem: $problem) -> Self {
                Self::new(problem)
            }
        }
    };
}

mod de;
pub(crate) mod decode;
pub(crate) mod elements;
mod encode;
mod json;
mod ser;
mod value;
pub mod wire;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::Deserialize;
use thiserror::Error;

use crate::Schema;
use crate::schema::{DType, Field, LogicalType, NdArray, NodeId, Type};
use elements::Integer;

pub use json::{JsonError, JsonProblem};
pub use value::Value;
pub use wire::{Blocks, Reader, WireError};

/// Encodes and decodes datums of one schema. Cheap to clone.
///
/// ```
/// use helio_core::codec::{Codec, Value};
/// use helio_core::schema::build::{array, double, float, record};
///
/// let schema = record("Wind").field("speed", double()).field("gusts", array(float())).schema()?;
/// let codec = Codec::new(&schema);
/// let wind = Value::Record(vec![7.5.into(), vec![6.0_f32, 9.0].into()]);
/// let mut bytes = Vec::new();
/// codec.encode(&wind, &mut bytes)?;
/// assert_eq!(codec.decode(&bytes)?, wind);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Codec {
    schema: Schema,
    pub(crate) plan: Arc<[Step]>,
    /// Whether there may be many values without bytes, which encoding then counts.
    free: bool,
    options: EncodeOptions,
}

/// Encoding options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncodeOptions {
    /// The form of arrays and maps.
    pub blocks: Blocks,
}

/// The compiled operation of a type, at the index of the schema's node.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Null,
    Boolean,
    Int,
    Long,
    Integer(Integer),
    Float,
    Double,
    Bytes,
    NdArray(NdArray),
    String,
    Fixed(usize),
    Enum(usize),
    Array(ArrayStep),
    Map { values: usize, least: usize },
    Union(Box<[usize]>),
    Record(RecordStep),
}

/// The compiled operation of a record.
#[derive(Debug, Clone)]
pub(crate) struct RecordStep {
    /// The fields' steps.
    pub(crate) fields: Box<[usize]>,
    /// The fewest bytes of a value.
    pub(crate) least: usize,
    /// Number of fields that never have bytes.
    pub(crate) free: usize,
    /// How the fields are skipped.
    pub(crate) skips: Box<[Skip]>,
}

/// How a field is skipped: frequent types without a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Skip {
    /// The index of `null` in a union with one other type.
    pub(crate) null: Option<usize>,
    pub(crate) size: Size,
}

/// The bytes of a skipped value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Size {
    Fixed(usize),
    /// An `int` or `long`.
    Number,
    /// A length, and as many bytes.
    Bytes,
    /// Those of any other type: its step.
    Other(usize),
}

/// The compiled operation of an array.
#[derive(Debug, Clone)]
pub(crate) struct ArrayStep {
    /// The elements' step.
    pub(crate) items: usize,
    /// How the elements are stored.
    pub(crate) kind: Items,
    /// The fewest bytes of an element.
    pub(crate) least: usize,
    /// The required number of elements.
    pub(crate) length: Option<usize>,
}

/// How a [`Value`] stores an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Items {
    Booleans,
    Ints,
    Longs,
    Floats,
    Doubles,
    Others,
}

/// The cause of an encoding error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EncodeProblem {
    /// The value is not of the field's type.
    #[error("{found} where the schema has {expected}")]
    Type {
        /// The schema's type.
        expected: String,
        /// The value's type.
        found: String,
    },
    /// A record's value has the wrong number of fields.
    #[error("a record of {found} fields where the schema has {expected}")]
    Fields {
        /// The schema's number.
        expected: usize,
        /// The value's number.
        found: usize,
    },
    /// An array of fixed length has the wrong number of elements.
    #[error("{found} elements, but the field's length is {expected}")]
    Length {
        /// The field's length.
        expected: usize,
        /// The array's length.
        found: usize,
    },
    /// A `fixed` has the wrong number of bytes.
    #[error("{found} bytes, but the type's size is {expected}")]
    Size {
        /// The type's size.
        expected: usize,
        /// The value's size.
        found: usize,
    },
    /// A number does not fit its type.
    #[error("the number {0} does not fit the type")]
    Range(String),
    /// The bytes are no array of the type.
    #[error("{found} bytes, which are no array of {array}")]
    Shape {
        /// The number of bytes.
        found: usize,
        /// The array's type.
        array: NdArray,
    },
    /// There is no such branch or symbol.
    #[error("no {what} {name} in the schema; it has {known}")]
    Unknown {
        /// Branch, symbol or field.
        what: &'static str,
        /// Its number or name.
        name: String,
        /// The existing ones.
        known: String,
    },
    /// A bare value that fits several branches of a union.
    #[error("the value fits several branches of the union; name one with Value::Union")]
    Ambiguous,
    /// A field without default is missing.
    #[error("the field is missing and has no default")]
    Missing,
    /// The value is nested deeper than a decoder accepts.
    #[error("nested deeper than {}", wire::MAX_VALUE_DEPTH)]
    Depth,
    /// There are more values without bytes than a decoder accepts.
    #[error("more than {} values without bytes (nulls, empty records)", wire::FREE_VALUES)]
    Free,
    /// An error of a serde type.
    #[error("{0}")]
    Other(String),
}

/// An encoding error; nothing was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodeError(Box<(Place, EncodeProblem)>);

/// The cause of a decoding error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeProblem {
    /// The bytes are no datum of the schema.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// An array of fixed length has the wrong number of elements.
    #[error("{found} elements, but the field's length is {expected}")]
    Length {
        /// The field's length.
        expected: usize,
        /// The array's length.
        found: usize,
    },
    /// A number is outside the range of its logical type.
    #[error("the number {number}, which is no {dtype}")]
    Range {
        /// The number in the base type.
        number: i64,
        /// The logical type.
        dtype: DType,
    },
    /// The bytes are no array of the type.
    #[error("{found} bytes, which are no array of {array}")]
    Shape {
        /// The number of bytes.
        found: usize,
        /// The array's type.
        array: NdArray,
    },
    /// The reader's schema cannot represent a value of the writer.
    #[error("the reader's schema cannot represent the writer's {0}")]
    NoCounterpart(String),
    /// An error of a serde type.
    #[error("{0}")]
    Other(String),
}

/// A decoding error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError(Box<(Place, DecodeProblem)>);

/// A path in a value, built from the innermost part outwards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Place(pub(crate) Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    Field(String),
    Element(usize),
    Key(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().rev().take(20).enumerate() {
            match segment {
                Segment::Field(name) if i == 0 => f.write_str(name)?,
                Segment::Field(name) => write!(f, ".{name}")?,
                Segment::Element(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        if self.0.len() > 20 { f.write_str("…") } else { Ok(()) }
    }
}

located!(EncodeError, EncodeProblem);
located!(DecodeError, DecodeProblem);

impl From<WireError> for DecodeError {
    #[cold]
    fn from(error: WireError) -> Self {
        Self::new(error)
    }
}

impl Codec {
    /// Compiles a schema.
    #[must_use]
    pub fn new(schema: &Schema) -> Self {
        Self::with_options(schema, EncodeOptions::default())
    }

    /// Compiles a schema, with encoding options.
    #[must_use]
    pub fn with_options(schema: &Schema, options: EncodeOptions) -> Self {
        let plan = compile(schema);
        let free = plan.iter().any(|step| match step {
            Step::Array(array) => array.least == 0,
            Step::Record(record) => record.free > 0,
            _ => false,
        });
        Self { schema: schema.clone(), plan: plan.into(), free, options }
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Appends the datum of a value to `out`. After an error, `out` is unchanged.
    ///
    /// # Errors
    /// [`EncodeError`] names the field with the wrong value.
    pub fn encode(&self, value: &Value, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        let done = self.put_value(0, value, out, 0).and_then(|()| self.count_free(&out[start..]));
        done.inspect_err(|_| out.truncate(start))
    }

    /// Rejects a datum with more values without bytes than a decoder accepts.
    fn count_free(&self, datum: &[u8]) -> Result<(), EncodeError> {
        if self.free && self.check(datum).is_err() {
            return Err(EncodeError::new(EncodeProblem::Free));
        }
        Ok(())
    }

    /// Decodes a datum that is all of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no datum of the schema.
    pub fn decode(&self, bytes: &[u8]) -> Result<Value, DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = self.read(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }

    /// Decodes the next datum.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no datum of the schema.
    pub fn read(&self, reader: &mut Reader<'_>) -> Result<Value, DecodeError> {
        self.get_value(0, reader, 0)
    }

    /// Skips the next datum. The contents of sized blocks, texts and symbols are not checked;
    /// [`Codec::check`] checks them.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no datum of the schema.
    pub fn skip(&self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.pass(0, reader, 0, decode::Care::Skip)
    }

    /// Skips the first fields of the next datum, a record.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes do not begin with them.
    pub fn skip_fields(&self, count: usize, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.pass_fields(0, 0..count.min(self.schema.fields().len()), reader, 0)
    }

    /// Checks that `bytes` are one datum, without decoding it.
    ///
    /// # Errors
    /// [`DecodeError`] if they are not.
    pub fn check(&self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(bytes);
        self.pass(0, &mut reader, 0, decode::Care::Check)?;
        Ok(reader.finish()?)
    }

    /// Appends the datum of a serde value to `out`. Structures match records by field name (a field
    /// that the structure lacks takes its default), options match unions with `null`, and unit
    /// variants match enumerations. Other variants match a union's branch of that name, else of
    /// that index. After an error, `out` is unchanged.
    ///
    /// # Errors
    /// [`EncodeError`] names the field with the wrong value.
    pub fn serialize<T: Serialize + ?Sized>(
        &self,
        value: &T,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let start = out.len();
        let done = value.serialize(ser::Encoder::new(self, out));
        let done = done.and_then(|()| self.count_free(&out[start..]));
        done.inspect_err(|_| out.truncate(start))
    }

    /// Decodes a datum that is all of `bytes` into a serde value, which may borrow from them.
    /// Fields that the value lacks are skipped.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no datum of the schema, or do not match the value's type.
    pub fn deserialize<'de, T: Deserialize<'de>>(
        &self,
        bytes: &'de [u8],
    ) -> Result<T, DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = T::deserialize(de::Decoder::new(self, &mut reader))?;
        reader.finish()?;
        Ok(value)
    }

    /// Returns the value of a field of the root record; for a union, that of its branch.
    #[must_use]
    pub fn field<'a>(&self, value: &'a Value, name: &str) -> Option<&'a Value> {
        let Value::Record(values) = value.bare() else { return None };
        let place = self.schema.fields().iter().position(|field| field.name == name)?;
        values.get(place).map(Value::bare)
    }

    fn kind(&self, step: usize) -> &Type {
        &self.schema.nodes()[step].kind
    }

    /// Returns the name of a record's field.
    pub(crate) fn field_name(&self, step: usize, place: usize) -> &str {
        match self.kind(step) {
            Type::Record(record) => record.fields.get(place).map_or("", |field| &field.name),
            _ => "",
        }
    }
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Codec({:?})", self.schema)
    }
}

fn compile(schema: &Schema) -> Vec<Step> {
    let ids = (0..schema.len()).map(|i| NodeId(i as u32));
    let mut plan: Vec<Step> = ids.map(|id| step(schema, id)).collect();
    for node in schema.nodes() {
        let Type::Record(record) = &node.kind else { continue };
        for field in &record.fields {
            if let Some(length) = field.length {
                limit(&mut plan, schema, field.kind, length);
            }
        }
    }
    plan
}

fn step(schema: &Schema, id: NodeId) -> Step {
    let node = schema.node(id);
    match (node.logical, &node.kind) {
        (Some(LogicalType::Integer(dtype)), kind) => {
            return Step::Integer(Integer { dtype, long: *kind == Type::Long });
        }
        (Some(LogicalType::NdArray(array)), _) => return Step::NdArray(array),
        _ => {}
    }
    match &node.kind {
        Type::Null => Step::Null,
        Type::Boolean => Step::Boolean,
        Type::Int => Step::Int,
        Type::Long => Step::Long,
        Type::Float => Step::Float,
        Type::Double => Step::Double,
        Type::Bytes => Step::Bytes,
        Type::String => Step::String,
        Type::Fixed(fixed) => Step::Fixed(fixed.size),
        Type::Enum(of) => Step::Enum(of.symbols.len()),
        Type::Array(items) => {
            let item = schema.node(*items);
            let ranged = matches!(item.logical, Some(LogicalType::Integer(_)));
            let kind = match item.kind {
                Type::Boolean => Items::Booleans,
                Type::Int if !ranged => Items::Ints,
                Type::Long if !ranged => Items::Longs,
                Type::Float => Items::Floats,
                Type::Double => Items::Doubles,
                _ => Items::Others,
            };
            let least = schema.least_bytes(*items);
            Step::Array(ArrayStep { items: items.index(), kind, least, length: None })
        }
        // A key takes at least one byte.
        Type::Map(values) => {
            Step::Map { values: values.index(), least: schema.least_bytes(*values) + 1 }
        }
        Type::Union(branches) => Step::Union(branches.iter().map(|id| id.index()).collect()),
        Type::Record(record) => {
            let fields: Box<[usize]> =
                record.fields.iter().map(|field| field.kind.index()).collect();
            let least = schema.least_bytes(id);
            let empty = |field: &&Field| schema.least_bytes(field.kind) == 0;
            let free = record.fields.iter().filter(empty).count();
            let skips = record.fields.iter().map(|field| skip(schema, field.kind)).collect();
            Step::Record(RecordStep { fields, least, free, skips })
        }
    }
}

fn skip(schema: &Schema, id: NodeId) -> Skip {
    let size = |id: NodeId| match &schema.node(id).kind {
        Type::Boolean => Size::Fixed(1),
        Type::Float => Size::Fixed(4),
        Type::Double => Size::Fixed(8),
        Type::Fixed(fixed) => Size::Fixed(fixed.size),
        Type::Int | Type::Long | Type::Enum(_) => Size::Number,
        Type::Bytes | Type::String => Size::Bytes,
        _ => Size::Other(id.index()),
    };
    match schema.nullable(id).map(|(inner, null)| (size(inner), null)) {
        // Nesting is counted in the union's own step.
        None | Some((Size::Other(_), _)) => Skip { null: None, size: size(id) },
        Some((size, null)) => Skip { null: Some(null), size },
    }
}

/// Fixes the number of elements of a field's array, or of the array in its union.
fn limit(plan: &mut [Step], schema: &Schema, id: NodeId, elements: usize) {
    match &schema.node(id).kind {
        Type::Union(branches) => {
            for branch in branches {
                if let Type::Array(_) = schema.node(*branch).kind {
                    limit(plan, schema, *branch, elements);
                }
            }
        }
        _ => {
            if let Step::Array(array) = &mut plan[id.index()] {
                array.length = Some(elements);
            }
        }
    }
}
