//! Columns of datums: selected parts are read into a [`Sink`], everything else is skipped.
//!
//! A [`Shape`] is what paths such as `diaSource.snr` and `prvDiaSources[].psfFlux` select from one
//! or several schemas: typed, numbered slots. A [`Projection`] reads it from datums of one writer's
//! schema, which may be older or newer: fields match by name or alias, numbers are promoted as in
//! Avro's resolution, and what the writer lacks is null.
//!
//! Arrays and maps in *sized* blocks are skipped in one step (see
//! [`Blocks`](crate::codec::Blocks)); unsized ones element by element. Texts and bytes are borrowed
//! from the datum. Input may be hostile: the bounds are those of [`wire`](crate::codec::wire), and
//! nulls that have no bytes are taken from the budget of values.
//!
//! ```
//! use helio_core::codec::{Codec, Value};
//! use helio_core::projection::{Projection, Shape, Sink};
//! use helio_core::schema::build::{array, double, float, record};
//!
//! #[derive(Default)]
//! struct Speeds(Vec<f64>);
//! impl Sink<'_> for Speeds {
//!     fn double(&mut self, _slot: usize, value: f64) {
//!         self.0.push(value);
//!     }
//! }
//!
//! let schema = record("Wind").field("gusts", array(float())).field("speed", double()).schema()?;
//! let mut bytes = Vec::new();
//! let wind = Value::Record(vec![vec![6.0_f32, 9.0].into(), 7.5.into()]);
//! Codec::new(&schema).encode(&wind, &mut bytes)?;
//!
//! let shape = Shape::new(&[schema.clone()], &["speed"])?;
//! let mut speeds = Speeds::default();
//! Projection::new(&schema, &shape)?.read(&bytes, &mut speeds)?;
//! assert_eq!(speeds.0, [7.5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod path;
mod plan;
mod shape;
mod walk;

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::codec::{Codec, DecodeError, Reader};
use crate::schema::{LogicalType, Schema};

pub use shape::{MAX_SLOTS, Shape};

/// The name of a datum that is no record.
const VALUE: &str = "value";

/// A column, or a member or element within one.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// The path from the enclosing array, or from the datum: `diaSource.snr`.
    pub name: String,
    /// The type.
    pub kind: Kind,
    /// The slots of a list's or map's elements (one), or of a record's members.
    pub children: Vec<usize>,
    /// The logical type.
    pub logical: Option<LogicalType>,
    /// The unit of its numbers.
    pub units: Option<String>,
    /// The documentation.
    pub description: Option<String>,
    /// Labels of its integers.
    pub enumeration: Option<Vec<(String, i64)>>,
}

/// The type of a slot. Any value may be null: another schema may lack it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Only nulls.
    Null,
    /// `boolean`.
    Boolean,
    /// `int`.
    Int,
    /// `long`.
    Long,
    /// `float`.
    Float,
    /// `double`.
    Double,
    /// `bytes`.
    Bytes,
    /// `string`.
    String,
    /// `fixed`, with its size.
    Fixed(usize),
    /// `enum`, with its symbols.
    Enum(Arc<[String]>),
    /// `array`.
    List,
    /// `map`.
    Map,
    /// `record`, or a union of several types, as an element of an array or map.
    Record,
}

impl Kind {
    /// Returns Avro's name of the type.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Int => "int",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bytes => "bytes",
            Self::String => "string",
            Self::Fixed(_) => "fixed",
            Self::Enum(_) => "enum",
            Self::List => "array",
            Self::Map => "map",
            Self::Record => "record",
        }
    }
}

/// Receives the values of a [`Shape`]'s slots, in the order of the datum.
///
/// For each datum, each column receives one value or null; for each element of a list, its slot
/// does, and each member of a record. A null record is followed by nulls of its members, a null
/// list by nothing. After an error, a sink may have received a part of the datum. By default,
/// values are ignored.
#[allow(unused_variables, reason = "the defaults ignore what they receive")]
pub trait Sink<'a> {
    /// Receives a null of any type.
    fn null(&mut self, slot: usize) {}
    /// Receives a `boolean`.
    fn boolean(&mut self, slot: usize, value: bool) {}
    /// Receives an `int`.
    fn int(&mut self, slot: usize, value: i32) {}
    /// Receives a `long`.
    fn long(&mut self, slot: usize, value: i64) {}
    /// Receives a `float`.
    fn float(&mut self, slot: usize, value: f32) {}
    /// Receives a `double`.
    fn double(&mut self, slot: usize, value: f64) {}
    /// Receives `bytes` or a `fixed`, borrowed from the datum.
    fn bytes(&mut self, slot: usize, value: &'a [u8]) {}
    /// Receives a `string`, borrowed from the datum.
    fn string(&mut self, slot: usize, value: &'a str) {}
    /// Receives an `enum`'s symbol, by its index in the slot's [`Kind::Enum`].
    fn symbol(&mut self, slot: usize, value: u32) {}
    /// Receives consecutive `float` elements as their little-endian bytes.
    fn floats(&mut self, slot: usize, values: &'a [[u8; 4]]) {
        values.iter().for_each(|bytes| self.float(slot, f32::from_le_bytes(*bytes)));
    }
    /// Receives consecutive `double` elements as their little-endian bytes.
    fn doubles(&mut self, slot: usize, values: &'a [[u8; 8]]) {
        values.iter().for_each(|bytes| self.double(slot, f64::from_le_bytes(*bytes)));
    }
    /// Begins a record that is an element; its members follow.
    fn record(&mut self, slot: usize) {}
    /// Begins an array or map; its elements follow.
    fn begin(&mut self, slot: usize) {}
    /// Receives the key of a map's next element, borrowed from the datum.
    fn key(&mut self, slot: usize, key: &'a str) {}
    /// Ends an array or map of so many elements.
    fn end(&mut self, slot: usize, count: usize) {}
}

/// Why paths cannot be selected from schemas, or a shape cannot be read from a schema.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// The text is no path.
    #[error("{path:?} is no path; write names with dots, and [] behind an array: a.b[].c")]
    Path {
        /// The text.
        path: String,
    },
    /// No schema has the path.
    #[error("there is no {path}; beside it are: {known}")]
    Unknown {
        /// The path.
        path: String,
        /// The known names at its place.
        known: String,
    },
    /// The elements of an array are selected without brackets.
    #[error("{at} is an array; write {at}[] for its elements")]
    Array {
        /// The array.
        at: String,
    },
    /// A path leads into a type that has no parts that can be selected.
    #[error("{at} is a {kind}, of which no part can be selected; select the whole")]
    Inside {
        /// The field.
        at: String,
        /// Its type.
        kind: String,
    },
    /// All fields of a record that contains itself are selected.
    #[error("{at}: the record {name} contains itself; select its fields by name")]
    Recursive {
        /// The field.
        at: String,
        /// The record's name.
        name: String,
    },
    /// A field's types do not resolve to one type.
    #[error("{at}: a {reader} cannot be read from a {writer}")]
    Types {
        /// The field.
        at: String,
        /// The type in one schema.
        writer: String,
        /// The type in the shape.
        reader: String,
    },
    /// A field's numbers have different meanings.
    #[error("{at}: the writer's values are {writer}, the reader's {reader}")]
    Logical {
        /// The field.
        at: String,
        /// The logical type in one schema.
        writer: String,
        /// That in the shape.
        reader: String,
    },
    /// A field's numbers have different units.
    #[error("{at}: the writer's unit is {writer:?}, the reader's {reader:?}")]
    Units {
        /// The field.
        at: String,
        /// The unit in one schema.
        writer: String,
        /// That in the shape.
        reader: String,
    },
    /// The selection is too large.
    #[error("{at}: the selection is too large; name fewer fields")]
    Limit {
        /// The field at which it was.
        at: String,
    },
}

/// Why a datum cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectionError {
    offset: usize,
    error: DecodeError,
}

impl ProjectionError {
    /// The position in the datum at which it cannot be read, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The field and the cause.
    #[must_use]
    pub fn error(&self) -> &DecodeError {
        &self.error
    }
}

impl fmt::Display for ProjectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.error)
    }
}

impl std::error::Error for ProjectionError {}

/// Reads the columns of a [`Shape`] from datums of one schema.
#[derive(Debug)]
pub struct Projection {
    codec: Codec,
    root: plan::Op,
}

impl Projection {
    /// Compiles the projection of a writer's schema. Columns that it lacks are null.
    ///
    /// # Errors
    /// [`ShapeError`] names the field whose type does not resolve to the shape's.
    pub fn new(writer: &Schema, shape: &Shape) -> Result<Self, ShapeError> {
        let codec = Codec::new(writer);
        let root = plan::compile(writer, shape)?;
        Ok(Self { codec, root })
    }

    /// The writer's schema.
    #[must_use]
    pub fn writer(&self) -> &Schema {
        self.codec.schema()
    }

    /// Reads a datum that is all of `bytes`. What is skipped is not checked.
    ///
    /// # Errors
    /// [`ProjectionError`] if the bytes are no datum of the writer's schema, or if the shape cannot
    /// represent a value.
    pub fn read<'a, S: Sink<'a>>(
        &self,
        bytes: &'a [u8],
        sink: &mut S,
    ) -> Result<(), ProjectionError> {
        let mut reader = Reader::new(bytes);
        let done = walk::Walk { codec: &self.codec, sink }.op(&self.root, &mut reader, 0);
        done.and_then(|()| Ok(reader.finish()?))
            .map_err(|error| ProjectionError { offset: bytes.len() - reader.rest().len(), error })
    }
}
