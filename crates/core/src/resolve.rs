//! Avro schema resolution: data of a writer's schema, read with a reader's schema.
//!
//! A [`Resolution`] is compiled once for a writer's and a reader's schema. It rewrites a datum of
//! the first as a datum of the second ([`Resolution::transcode`]), so that decoders need only the
//! reader's schema. Equal parts are copied in one piece.
//!
//! The rules are the specification's: numbers widen, `string` and `bytes` exchange, records match
//! by field name or the reader's alias, missing fields take the reader's default, unknown symbols
//! the reader's default symbol, unions match branch by branch. Beyond them, lengths and units are
//! checked: arrays must have the length of the reader's field, and different units are rejected
//! unless [`ResolveOptions`] allows them. Failures that depend on the value (a union's branch, a
//! symbol) are listed in [`Resolution::cautions`], and are errors when such a value arrives.

use std::collections::HashMap;

use thiserror::Error;

use crate::codec::decode::{Care, check_length, deeper, enter};
use crate::codec::elements::check_decoded;
use crate::codec::wire::{Blocks, close_block, put_bytes, put_length, put_long};
use crate::codec::{Codec, DecodeError, DecodeProblem, Reader, Step, WireError};
use crate::schema::{DType, Field, LogicalType, NdArray, NodeId, Reads, Record, Schema, Type};

/// The limit of pairs of types in one resolution.
pub const MAX_PAIRS: usize = 200_000;
/// The limit of nesting of pairs, which bounds the recursion.
const MAX_DEPTH: usize = 200;
/// The limit of bytes of one field's default.
pub const MAX_DEFAULT_BYTES: usize = 1 << 20;
/// The limit of bytes of defaults in one datum, in addition to [`DEFAULTS_PER_BYTE`] for each of
/// its bytes: an array of empty records must not grow without bound.
const FREE_DEFAULTS: usize = 4 << 20;
/// Bytes of defaults for each byte of a datum.
const DEFAULTS_PER_BYTE: usize = 256;

/// The policy for fields with different units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnitsPolicy {
    /// The resolution fails.
    #[default]
    Refuse,
    /// The resolution succeeds, with a caution.
    Report,
}

/// Options of a resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResolveOptions {
    /// The policy for fields with different units.
    pub units: UnitsPolicy,
}

/// Why the reader's schema cannot read the writer's data. `at` is the field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// The types are incompatible.
    #[error("{at}: a {reader} cannot be read from a {writer}")]
    Types {
        /// The field.
        at: String,
        /// The writer's type.
        writer: String,
        /// The reader's type.
        reader: String,
    },
    /// The types have different names.
    #[error(
        "{at}: the reader's {reader} has neither the name nor an alias {writer} of the \
         writer; add that alias"
    )]
    Names {
        /// The field.
        at: String,
        /// The writer's name.
        writer: String,
        /// The reader's type and name.
        reader: String,
    },
    /// The writer lacks a field for which the reader has no default.
    #[error("{at}: the writer has no such field; give the reader's a default")]
    Missing {
        /// The field.
        at: String,
    },
    /// The arrays have different numbers of elements.
    #[error("{at}: the writer's array has {writer} elements, the reader's {reader}")]
    Length {
        /// The field.
        at: String,
        /// The writer's number.
        writer: usize,
        /// The reader's number.
        reader: usize,
    },
    /// The fields have different units.
    #[error("{at}: the writer's unit is {writer:?}, the reader's {reader:?}")]
    Units {
        /// The field.
        at: String,
        /// The writer's unit.
        writer: String,
        /// The reader's unit.
        reader: String,
    },
    /// The reader's default cannot be written.
    #[error("{at}: the reader's default cannot be used: {problem}")]
    Default {
        /// The field.
        at: String,
        /// The cause.
        problem: String,
    },
    /// The schemas are too large or too deep together.
    #[error("{at}: the schemas are too large or too deep to resolve")]
    Limit {
        /// The field.
        at: String,
    },
}

/// A compiled conversion from a writer's schema to a reader's.
///
/// ```
/// use helio_core::codec::{Codec, Value};
/// use helio_core::resolve::Resolution;
/// use helio_core::schema::build::{double, int, record, string};
///
/// let writer = record("T").field("x", int()).field("old", string()).schema()?;
/// let reader = record("T").field("new", double()).default(0.5).field("x", double()).schema()?;
/// let mut bytes = Vec::new();
/// Codec::new(&writer).encode(&Value::Record(vec![7.into(), "gone".into()]), &mut bytes)?;
///
/// let mut out = Vec::new();
/// Resolution::new(&writer, &reader)?.transcode(&bytes, &mut out)?;
/// let value = Codec::new(&reader).decode(&out)?;
/// assert_eq!(value, Value::Record(vec![0.5.into(), 7.0.into()]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Resolution {
    writer: Codec,
    reader: Schema,
    ops: Vec<Op>,
    /// Whether an operation copies its input unchanged.
    same: Vec<bool>,
    root: usize,
    cautions: Vec<String>,
}

/// The operation for a pair of types.
#[derive(Debug, Clone)]
enum Op {
    /// Copies the value.
    Copy(usize),
    IntToFloat,
    IntToDouble,
    LongToFloat,
    LongToDouble,
    UintToFloat,
    UintToDouble,
    FloatToDouble,
    /// Copies bytes that must be UTF-8.
    Text,
    Enum(Symbols),
    Array {
        item: usize,
        from: usize,
        least: usize,
        length: Option<usize>,
    },
    Map {
        value: usize,
        from: usize,
        least: usize,
    },
    /// The writer's union: one operation for each branch. `from` is the union.
    Branches {
        branches: Vec<usize>,
        from: usize,
    },
    /// The reader's union: the branch, then the value.
    Branch(usize, usize),
    /// The fields in the reader's order, which is also the writer's. `from` is the record.
    Record {
        parts: Vec<Part>,
        from: usize,
    },
    /// The same for different orders: a first pass finds the start of each of the writer's fields.
    Reordered {
        parts: Vec<Part>,
        from: usize,
    },
    /// Copies an integer of the reader's range; `bits` is for the writer's `uint64`.
    Integer {
        bits: bool,
        to: DType,
    },
    /// Copies bytes that are an array of the reader's type.
    NdArray(NdArray),
    /// No value of the writer's type can be read.
    Fail(String),
}

#[derive(Debug, Clone)]
struct Symbols {
    /// The reader's index of each of the writer's symbols.
    places: Vec<Option<usize>>,
    names: Vec<String>,
    from: usize,
}

/// The operation for a field.
#[derive(Debug, Clone)]
enum Part {
    /// Reads the writer's field (its index) by an operation.
    Field(usize, usize),
    /// Skips the writer's field (its index).
    Skip(usize),
    /// Writes the reader's default (its bytes).
    Default(Vec<u8>),
}

impl Resolution {
    /// Compiles the resolution from `writer` to `reader`; different units are an error.
    ///
    /// # Errors
    /// [`ResolveError`] names the field that cannot be read.
    pub fn new(writer: &Schema, reader: &Schema) -> Result<Self, ResolveError> {
        Self::with_options(writer, reader, ResolveOptions::default())
    }

    /// Compiles the resolution from `writer` to `reader`, with options.
    ///
    /// # Errors
    /// [`ResolveError`] names the field that cannot be read.
    pub fn with_options(
        writer: &Schema,
        reader: &Schema,
        options: ResolveOptions,
    ) -> Result<Self, ResolveError> {
        let mut compiler = Compiler {
            writer,
            reader,
            from: Codec::new(writer),
            to: Codec::new(reader),
            options,
            ops: Vec::new(),
            pairs: HashMap::new(),
            failed: HashMap::new(),
            cautions: Vec::new(),
            path: Vec::new(),
        };
        let root = compiler.pair(NodeId::ROOT, NodeId::ROOT)?;
        let Compiler { from, ops, cautions, .. } = compiler;
        let same = unchanged(&ops);
        Ok(Self { writer: from, reader: reader.clone(), ops, same, root, cautions })
    }

    /// The writer's schema.
    #[must_use]
    pub fn writer(&self) -> &Schema {
        self.writer.schema()
    }

    /// The reader's schema.
    #[must_use]
    pub fn reader(&self) -> &Schema {
        &self.reader
    }

    /// Returns whether datums of both schemas have the same bytes, so that no conversion is needed.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.same[self.root]
    }

    /// Returns the names of the reader's fields that the writer lacks, in the reader's order: their
    /// defaults stand for values that nobody gave. Fields of nested records are not listed.
    #[must_use]
    pub fn defaulted_fields(&self) -> Vec<&str> {
        let (writer, reader) = (self.writer.schema(), &self.reader);
        let kinds = (&writer.node(NodeId::ROOT).kind, &reader.node(NodeId::ROOT).kind);
        let (Type::Record(from), Type::Record(to)) = kinds else { return Vec::new() };
        let fields = to.fields.iter().zip(sources(from, to));
        fields.filter(|(_, source)| source.is_none()).map(|(field, _)| &*field.name).collect()
    }

    /// Returns possible failures for some values, and differences in meaning, as sentences.
    #[must_use]
    pub fn cautions(&self) -> &[String] {
        &self.cautions
    }

    /// Converts a writer's datum, all of `bytes`, to the reader's, and appends it to `out`. After
    /// an error, `out` is unchanged.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are no datum of the writer's schema, or if the reader's schema
    /// cannot represent a value.
    pub fn transcode(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let start = out.len();
        let mut reader = Reader::new(bytes);
        let mut run = Run { of: self, out, defaults: default_budget(bytes.len()) };
        run.op(self.root, &mut reader, 0)
            .and_then(|()| Ok(reader.finish()?))
            .inspect_err(|_| out.truncate(start))
    }
}

/// Returns the limit of bytes of defaults for a datum of so many bytes.
pub(crate) fn default_budget(bytes: usize) -> usize {
    bytes.saturating_mul(DEFAULTS_PER_BYTE).saturating_add(FREE_DEFAULTS)
}

/// Marks the operations that copy their input: those that do so themselves, and contain no other
/// ones.
fn unchanged(ops: &[Op]) -> Vec<bool> {
    let mut same: Vec<bool> = ops.iter().map(|op| same_alone(op, ops)).collect();
    let mut holders = vec![Vec::new(); ops.len()];
    for (i, op) in ops.iter().enumerate() {
        each_child(op, ops, |child| holders[child].push(i));
    }
    let mut changed: Vec<usize> = (0..ops.len()).filter(|i| !same[*i]).collect();
    while let Some(i) = changed.pop() {
        for holder in std::mem::take(&mut holders[i]) {
            if std::mem::replace(&mut same[holder], false) {
                changed.push(holder);
            }
        }
    }
    same
}

/// Returns whether an operation copies its input, if the ones inside it do.
fn same_alone(op: &Op, ops: &[Op]) -> bool {
    match op {
        Op::Copy(_) | Op::Map { .. } => true,
        Op::Enum(symbols) => symbols.places.iter().enumerate().all(|(i, place)| *place == Some(i)),
        Op::Array { length, .. } => length.is_none(),
        Op::Record { parts, .. } => parts.iter().all(|part| matches!(part, Part::Field(..))),
        Op::Branches { branches, .. } => {
            let aligned = |(i, op): (usize, &usize)| matches!(ops[*op], Op::Branch(b, _) if b == i);
            branches.iter().enumerate().all(aligned)
        }
        _ => false,
    }
}

/// Iterates over the operations inside one. A union's branch counts as its contents.
fn each_child(op: &Op, ops: &[Op], mut each: impl FnMut(usize)) {
    match op {
        Op::Array { item, .. } => each(*item),
        Op::Map { value, .. } => each(*value),
        Op::Branches { branches, .. } => {
            for op in branches {
                match ops[*op] {
                    Op::Branch(_, inner) => each(inner),
                    _ => each(*op),
                }
            }
        }
        Op::Branch(_, op) => each(*op),
        Op::Record { parts, .. } | Op::Reordered { parts, .. } => {
            for part in parts {
                if let Part::Field(_, op) = part {
                    each(*op);
                }
            }
        }
        _ => {}
    }
}

struct Compiler<'a> {
    writer: &'a Schema,
    reader: &'a Schema,
    from: Codec,
    to: Codec,
    options: ResolveOptions,
    ops: Vec<Op>,
    pairs: HashMap<(NodeId, NodeId), usize>,
    failed: HashMap<(NodeId, NodeId), ResolveError>,
    cautions: Vec<String>,
    path: Vec<String>,
}

type Compiled<T> = Result<T, ResolveError>;

impl<'a> Compiler<'a> {
    fn at(&self) -> String {
        match &self.path[..] {
            [] => "the whole".to_owned(),
            path => path.join("."),
        }
    }

    fn types(&self, w: NodeId, r: NodeId) -> ResolveError {
        let (writer, reader) = (self.writer.node(w), self.reader.node(r));
        let (writer, reader) = (writer.title(), reader.title());
        ResolveError::Types { at: self.at(), writer, reader }
    }

    /// Returns the operation for a pair of types, compiled once.
    fn pair(&mut self, w: NodeId, r: NodeId) -> Compiled<usize> {
        if let Some(error) = self.failed.get(&(w, r)) {
            return Err(error.clone());
        }
        if let Some(op) = self.pairs.get(&(w, r)) {
            return Ok(*op);
        }
        if self.ops.len() >= MAX_PAIRS || self.path.len() > MAX_DEPTH {
            return Err(ResolveError::Limit { at: self.at() });
        }
        let place = self.reserve();
        self.pairs.insert((w, r), place);
        match self.compile(w, r) {
            Ok(op) => self.ops[place] = op,
            Err(error) => {
                self.ops[place] = Op::Fail(self.writer.node(w).kind.to_string());
                self.failed.insert((w, r), error.clone());
                return Err(error);
            }
        }
        Ok(place)
    }

    fn reserve(&mut self) -> usize {
        self.ops.push(Op::Fail(String::new()));
        self.ops.len() - 1
    }

    fn compile(&mut self, w: NodeId, r: NodeId) -> Compiled<Op> {
        let (writer, reader) = (self.writer, self.reader);
        let (from, to) = (&writer.node(w).kind, &reader.node(r).kind);
        match (from, to) {
            (Type::Union(branches), _) => return self.writer_union(w, branches, r),
            (_, Type::Union(branches)) => return self.reader_union(w, branches, r),
            _ => {}
        }
        self.check_logical(w, r)?;
        let copy = Op::Copy(w.index());
        let bits = writer.node(w).integer() == Some(DType::Uint64);
        let checked = writer.node(w).reads_as(reader.node(r)) == Some(Reads::Sometimes);
        Ok(match (from, to) {
            (Type::Long, Type::Float) if bits => Op::UintToFloat,
            (Type::Long, Type::Double) if bits => Op::UintToDouble,
            (Type::Int, Type::Int | Type::Long) | (Type::Long, Type::Long) if checked => {
                let to = reader.node(r).integer().unwrap_or(DType::Int64);
                Op::Integer { bits, to }
            }
            (Type::Bytes, Type::Bytes) if checked => match reader.node(r).logical {
                Some(LogicalType::NdArray(array)) => Op::NdArray(array),
                _ => copy,
            },
            (Type::Int, Type::Int | Type::Long)
            | (Type::Null, Type::Null)
            | (Type::Boolean, Type::Boolean)
            | (Type::Long, Type::Long)
            | (Type::Float, Type::Float)
            | (Type::Double, Type::Double)
            | (Type::Bytes | Type::String, Type::Bytes)
            | (Type::String, Type::String) => copy,
            (Type::Bytes, Type::String) => Op::Text,
            (Type::Int, Type::Float) => Op::IntToFloat,
            (Type::Int, Type::Double) => Op::IntToDouble,
            (Type::Long, Type::Float) => Op::LongToFloat,
            (Type::Long, Type::Double) => Op::LongToDouble,
            (Type::Float, Type::Double) => Op::FloatToDouble,
            (Type::Fixed(from), Type::Fixed(to)) if from.size == to.size => {
                self.check_names(w, r)?;
                copy
            }
            (Type::Enum(_), Type::Enum(_)) => self.symbols(w, r)?,
            (Type::Array(from), Type::Array(to)) => self.array(w, *from, r, *to)?,
            (Type::Map(from), Type::Map(to)) => {
                let value = self.part("{}", *from, *to)?;
                let least = writer.least_bytes(*from) + 1;
                Op::Map { value, from: w.index(), least }
            }
            (Type::Record(from), Type::Record(to)) => {
                self.check_names(w, r)?;
                self.record(w, from, r, to)?
            }
            _ => return Err(self.types(w, r)),
        })
    }

    fn part(&mut self, segment: &str, w: NodeId, r: NodeId) -> Compiled<usize> {
        self.path.push(segment.to_owned());
        let op = self.pair(w, r)?;
        self.path.pop();
        Ok(op)
    }

    /// Decimals must agree in scale, integers of two ranges widen, raw arrays agree in element and
    /// shape; other different logical types are a caution.
    fn check_logical(&mut self, w: NodeId, r: NodeId) -> Compiled<()> {
        let (from, to) = (self.writer.node(w), self.reader.node(r));
        let stated = matches!((from.logical, to.logical), (Some(LogicalType::Integer(_)), Some(_)));
        match from.reads_as(to) {
            Some(Reads::Never) => return Err(self.types(w, r)),
            Some(Reads::Sometimes) if stated => return Err(self.types(w, r)),
            Some(Reads::Sometimes) => {
                let (from, to) = (from.title(), to.title());
                self.caution(format!("some values of the writer's {from} are no {to}"));
                return Ok(());
            }
            Some(Reads::Always) => return Ok(()),
            None => {}
        }
        let (from, to) = (self.writer.node(w).logical, self.reader.node(r).logical);
        match (from, to) {
            (
                Some(LogicalType::Decimal { scale: from, .. }),
                Some(LogicalType::Decimal { scale: to, .. }),
            ) if from != to => Err(self.types(w, r)),
            (Some(from), Some(to)) if from != to => {
                self.caution(format!("the writer's values are {from}, the reader's {to}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn caution(&mut self, text: String) {
        let text = format!("{}: {text}", self.at());
        if self.cautions.len() < 1000 {
            self.cautions.push(text);
        }
    }

    fn check_names(&self, w: NodeId, r: NodeId) -> Compiled<()> {
        let (from, to) = (&self.writer.node(w).kind, &self.reader.node(r).kind);
        if answers(to, from) != Answer::No {
            return Ok(());
        }
        let writer = from.name().unwrap_or_default().to_owned();
        Err(ResolveError::Names { at: self.at(), writer, reader: to.to_string() })
    }

    fn symbols(&mut self, w: NodeId, r: NodeId) -> Compiled<Op> {
        self.check_names(w, r)?;
        let (Type::Enum(from), Type::Enum(to)) =
            (&self.writer.node(w).kind, &self.reader.node(r).kind)
        else {
            return Err(self.types(w, r));
        };
        let known: HashMap<&String, usize> =
            to.symbols.iter().enumerate().map(|(i, symbol)| (symbol, i)).collect();
        let find = |symbol: &String| known.get(symbol).copied();
        let default = to.default.as_ref().and_then(find);
        let places: Vec<_> = from.symbols.iter().map(|symbol| find(symbol).or(default)).collect();
        let lost = from.symbols.iter().zip(&places).filter(|(_, place)| place.is_none());
        let lost: Vec<_> = lost.map(|(symbol, _)| symbol.as_str()).collect();
        if lost.len() == places.len() {
            return Err(self.types(w, r));
        }
        let names = from.symbols.clone();
        if !lost.is_empty() {
            self.caution(format!("the reader has no symbol for {}", lost.join(", ")));
        }
        Ok(Op::Enum(Symbols { places, names, from: w.index() }))
    }

    fn array(&mut self, w: NodeId, from: NodeId, r: NodeId, to: NodeId) -> Compiled<Op> {
        let length = |codec: &Codec, id: NodeId| match &codec.plan[id.index()] {
            Step::Array(array) => array.length,
            _ => None,
        };
        let (written, read) = (length(&self.from, w), length(&self.to, r));
        if let (Some(writer), Some(reader)) = (written, read)
            && writer != reader
        {
            return Err(ResolveError::Length { at: self.at(), writer, reader });
        }
        let item = self.part("[]", from, to)?;
        let least = self.writer.least_bytes(from);
        // A property of the writer's schema need not be checked again.
        let length = read.filter(|_| written.is_none());
        Ok(Op::Array { item, from: w.index(), least, length })
    }

    /// A union reads the writer's type as its best branch: the same type, else the first that can
    /// read it.
    fn reader_union(&mut self, w: NodeId, branches: &[NodeId], r: NodeId) -> Compiled<Op> {
        let score =
            |branch: &NodeId| matches(self.writer, w, self.reader, *branch, MATCH_DEPTH) as usize;
        let best = (0..branches.len()).rev().max_by_key(|i| score(&branches[*i]));
        match best.filter(|i| score(&branches[*i]) > 0) {
            Some(branch) => Ok(Op::Branch(branch, self.pair(w, branches[branch])?)),
            None => Err(self.types(w, r)),
        }
    }

    /// Each of the writer's branches is resolved separately. At least one besides null must be
    /// readable. A branch of the right type with an error inside is an error.
    fn writer_union(&mut self, w: NodeId, branches: &[NodeId], r: NodeId) -> Compiled<Op> {
        let mut ops = Vec::with_capacity(branches.len());
        let mut first = None;
        let mut readable = branches.len() == 1;
        for branch in branches {
            let kind = &self.writer.node(*branch).kind;
            let depth = self.path.len();
            match self.pair(*branch, r) {
                Ok(op) => {
                    readable |= *kind != Type::Null;
                    ops.push(op);
                }
                Err(ResolveError::Types { at, .. } | ResolveError::Names { at, .. })
                    if at == self.at() =>
                {
                    self.path.truncate(depth);
                    let error = self.types(*branch, r);
                    if *kind != Type::Null {
                        first = first.or(Some(error));
                    }
                    self.caution(format!("the writer's {kind} cannot be read"));
                    let place = self.reserve();
                    self.ops[place] = Op::Fail(kind.to_string());
                    ops.push(place);
                }
                Err(error) => return Err(error),
            }
        }
        match first {
            Some(error) if !readable => Err(error),
            None if !readable => Err(self.types(w, r)),
            _ => Ok(Op::Branches { branches: ops, from: w.index() }),
        }
    }

    fn record(&mut self, w: NodeId, from: &Record, r: NodeId, to: &Record) -> Compiled<Op> {
        let places = sources(from, to);
        let mut used = vec![false; from.fields.len()];
        let mut parts = Vec::with_capacity(to.fields.len());
        for (i, (field, place)) in to.fields.iter().zip(places).enumerate() {
            self.path.push(field.name.clone());
            parts.push(match place {
                Some(place) => {
                    used[place] = true;
                    let written = &from.fields[place];
                    self.check_field(written, field)?;
                    Part::Field(place, self.pair(written.kind, field.kind)?)
                }
                None => Part::Default(self.default(r, i)?),
            });
            self.path.pop();
        }
        let from = w.index();
        match in_order(&parts, &used) {
            Some(parts) => Ok(Op::Record { parts, from }),
            None => Ok(Op::Reordered { parts, from }),
        }
    }

    fn default(&self, record: NodeId, place: usize) -> Compiled<Vec<u8>> {
        let Type::Record(of) = &self.reader.node(record).kind else { return Ok(Vec::new()) };
        if of.fields[place].default.is_none() {
            return Err(ResolveError::Missing { at: self.at() });
        }
        let wrong = |problem: String| ResolveError::Default { at: self.at(), problem };
        let mut bytes = Vec::new();
        let put = self.to.put_default(record.index(), place, &mut bytes);
        put.map_err(|error| wrong(error.to_string()))?;
        if bytes.len() > MAX_DEFAULT_BYTES {
            return Err(wrong(format!("it has more than {MAX_DEFAULT_BYTES} bytes")));
        }
        Ok(bytes)
    }

    /// Compares units, and the numbers of equal labels.
    fn check_field(&mut self, from: &Field, to: &Field) -> Compiled<()> {
        if let (Some(writer), Some(reader)) = (&from.units, &to.units)
            && writer != reader
        {
            let (writer, reader) = (writer.clone(), reader.clone());
            if self.options.units == UnitsPolicy::Refuse {
                return Err(ResolveError::Units { at: self.at(), writer, reader });
            }
            self.caution(format!("the writer's unit is {writer:?}, the reader's {reader:?}"));
        }
        let known: HashMap<&String, &i64> =
            to.enumeration.iter().flatten().map(|(label, number)| (label, number)).collect();
        for (label, number) in from.enumeration.iter().flatten() {
            if let Some(other) = known.get(label).filter(|other| **other != number) {
                self.caution(format!("{label} is {number} at the writer, {other} at the reader"));
            }
        }
        Ok(())
    }
}

/// Returns the writer's field for each of the reader's: by name, else by an alias that no other
/// field of the reader has as its name. None is read twice.
pub(crate) fn sources(from: &Record, to: &Record) -> Vec<Option<usize>> {
    let mut places: HashMap<&str, usize> =
        from.fields.iter().enumerate().map(|(i, field)| (field.name.as_str(), i)).collect();
    let mut out: Vec<_> =
        to.fields.iter().map(|field| places.remove(field.name.as_str())).collect();
    for (field, place) in to.fields.iter().zip(&mut out) {
        if place.is_none() {
            *place = field.aliases.iter().find_map(|alias| places.remove(alias.as_str()));
        }
    }
    out
}

/// Returns the parts, with the writer's other fields skipped, if the orders agree.
fn in_order(parts: &[Part], used: &[bool]) -> Option<Vec<Part>> {
    let mut out = Vec::with_capacity(parts.len());
    let mut next = 0;
    for part in parts {
        if let Part::Field(place, _) = part {
            if *place < next || used[next..*place].iter().any(|used| *used) {
                return None;
            }
            out.extend((next..*place).map(Part::Skip));
            next = place + 1;
        }
        out.push(part.clone());
    }
    out.extend((next..used.len()).map(Part::Skip));
    Some(out)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    No,
    /// By promotion, or by a plain name in another namespace.
    Roughly,
    Exactly,
}

/// The limit of nesting at which arrays and maps are compared to choose a branch.
const MATCH_DEPTH: usize = 8;

/// Returns whether a reader's type can match a writer's, without a comparison of records' fields.
fn matches(writer: &Schema, w: NodeId, reader: &Schema, r: NodeId, depth: usize) -> Answer {
    let (from, to) = (&writer.node(w).kind, &reader.node(r).kind);
    match (from, to) {
        (Type::Array(from), Type::Array(to)) | (Type::Map(from), Type::Map(to)) if depth > 0 => {
            matches(writer, *from, reader, *to, depth - 1)
        }
        (Type::Union(_), _) | (_, Type::Union(_)) => Answer::Exactly,
        (Type::Fixed(a), Type::Fixed(b)) if a.size != b.size => Answer::No,
        (Type::Record(_), Type::Record(_))
        | (Type::Enum(_), Type::Enum(_))
        | (Type::Fixed(_), Type::Fixed(_)) => answers(to, from),
        (Type::Int, Type::Long | Type::Float | Type::Double)
        | (Type::Long, Type::Float | Type::Double)
        | (Type::Float, Type::Double)
        | (Type::String, Type::Bytes)
        | (Type::Bytes, Type::String) => Answer::Roughly,
        (from, to) if from.word() == to.word() => Answer::Exactly,
        _ => Answer::No,
    }
}

/// Returns whether the reader's named type has the writer's name or alias. Namespaces are ignored,
/// as in the specification, but a union prefers the full name.
pub(crate) fn answers(to: &Type, from: &Type) -> Answer {
    let (Some(reads), Some(wrote)) = (to.name(), from.name()) else { return Answer::No };
    let plain = |name: &str| name.rsplit('.').next().map(str::to_owned);
    let mut names = std::iter::once(reads).chain(to.aliases().iter().map(String::as_str));
    if names.clone().any(|name| name == wrote) {
        Answer::Exactly
    } else if names.any(|name| plain(name) == plain(wrote)) {
        Answer::Roughly
    } else {
        Answer::No
    }
}

struct Run<'a> {
    of: &'a Resolution,
    out: &'a mut Vec<u8>,
    /// The remaining limit of bytes of defaults.
    defaults: usize,
}

type Done = Result<(), DecodeError>;

impl Run<'_> {
    fn copy(&mut self, step: usize, reader: &mut Reader<'_>, depth: usize) -> Done {
        let all = reader.rest();
        self.of.writer.pass(step, reader, depth, Care::Skip)?;
        let size = all.len() - reader.rest().len();
        self.out.extend_from_slice(&all[..size]);
        Ok(())
    }

    fn op(&mut self, op: usize, reader: &mut Reader<'_>, depth: usize) -> Done {
        let of = self.of;
        let operation = &of.ops[op];
        if of.same[op] {
            return self.copy(source(operation), reader, depth);
        }
        match operation {
            Op::Copy(step) => self.copy(*step, reader, depth)?,
            Op::IntToFloat => self.out.extend((reader.int()? as f32).to_le_bytes()),
            Op::IntToDouble => self.out.extend(f64::from(reader.int()?).to_le_bytes()),
            Op::LongToFloat => self.out.extend((reader.long()? as f32).to_le_bytes()),
            Op::LongToDouble => self.out.extend((reader.long()? as f64).to_le_bytes()),
            Op::UintToFloat => self.out.extend((reader.long()? as u64 as f32).to_le_bytes()),
            Op::UintToDouble => self.out.extend((reader.long()? as u64 as f64).to_le_bytes()),
            Op::Integer { bits, to } => {
                let number = reader.long()?;
                if !to.holds(if *bits { i128::from(number as u64) } else { number.into() }) {
                    return Err(DecodeProblem::Range { number, dtype: *to }.into());
                }
                put_long(self.out, number);
            }
            Op::NdArray(array) => put_bytes(self.out, check_decoded(*array, reader.bytes()?)?),
            Op::FloatToDouble => self.out.extend(f64::from(reader.float()?).to_le_bytes()),
            Op::Text => {
                let text = reader.string()?;
                put_length(self.out, text.len());
                self.out.extend_from_slice(text.as_bytes());
            }
            Op::Enum(symbols) => {
                let symbol = reader.symbol(symbols.places.len())?;
                let lost =
                    || DecodeProblem::NoCounterpart(format!("symbol {}", symbols.names[symbol]));
                put_long(self.out, symbols.places[symbol].ok_or_else(lost)? as i64);
            }
            Op::Array { item, least, length, .. } => {
                deeper(depth)?;
                let all =
                    self.blocks(*least, reader, |this, reader| this.op(*item, reader, depth + 1))?;
                check_length(*length, all)?;
            }
            Op::Map { value, least, .. } => {
                deeper(depth)?;
                self.blocks(*least, reader, |this, reader| {
                    let key = reader.bytes()?;
                    put_length(this.out, key.len());
                    this.out.extend_from_slice(key);
                    this.op(*value, reader, depth + 1)
                })?;
            }
            Op::Branches { branches, .. } => {
                deeper(depth)?;
                let branch = reader.branch(branches.len())?;
                self.op(branches[branch], reader, depth + 1)?;
            }
            Op::Branch(branch, op) => {
                put_length(self.out, *branch);
                self.op(*op, reader, depth)?;
            }
            Op::Record { parts, from } => self.record(parts, *from, reader, depth)?,
            Op::Reordered { parts, from } => self.reordered(parts, *from, reader, depth)?,
            Op::Fail(kind) => {
                return Err(DecodeError::new(DecodeProblem::NoCounterpart(kind.clone())));
            }
        }
        Ok(())
    }

    /// Reads the blocks of an array or map, writes one block, and returns the number of elements.
    fn blocks<'b>(
        &mut self,
        least: usize,
        reader: &mut Reader<'b>,
        mut element: impl FnMut(&mut Self, &mut Reader<'b>) -> Done,
    ) -> Result<usize, DecodeError> {
        let start = self.out.len();
        let mut all = 0;
        while let Some(block) = reader.block(least)? {
            let left = reader.rest().len();
            for i in 0..block.count {
                element(self, reader).map_err(|error| error.in_element(all + i))?;
            }
            reader.end_block(block, left)?;
            all += block.count;
        }
        close_block(self.out, Blocks::Sized, all, start);
        Ok(all)
    }

    fn default(&mut self, bytes: &[u8]) -> Done {
        let left = self.defaults.checked_sub(bytes.len());
        self.defaults = left.ok_or(WireError::Budget)?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn record(
        &mut self,
        parts: &[Part],
        from: usize,
        reader: &mut Reader<'_>,
        depth: usize,
    ) -> Done {
        let of = self.of;
        let Step::Record(record) = &of.writer.plan[from] else { return Ok(()) };
        enter(record, reader, depth)?;
        let steps = &record.fields;
        for part in parts {
            let (place, done) = match part {
                Part::Field(place, op) => (*place, self.op(*op, reader, depth + 1)),
                Part::Skip(place) => {
                    (*place, of.writer.pass(steps[*place], reader, depth + 1, Care::Skip))
                }
                Part::Default(bytes) => (0, self.default(bytes)),
            };
            done.map_err(|error| error.in_field(of.writer.field_name(from, place)))?;
        }
        Ok(())
    }

    fn reordered(
        &mut self,
        parts: &[Part],
        from: usize,
        reader: &mut Reader<'_>,
        depth: usize,
    ) -> Done {
        let of = self.of;
        let Step::Record(record) = &of.writer.plan[from] else { return Ok(()) };
        enter(record, reader, depth)?;
        let steps = &record.fields;
        let mut starts = Vec::with_capacity(steps.len());
        for (place, step) in steps.iter().enumerate() {
            starts.push(reader.clone());
            of.writer
                .pass(*step, reader, depth + 1, Care::Skip)
                .map_err(|error| error.in_field(of.writer.field_name(from, place)))?;
        }
        for part in parts {
            match part {
                Part::Field(place, op) => {
                    self.op(*op, &mut starts[*place], depth + 1)
                        .map_err(|error| error.in_field(of.writer.field_name(from, *place)))?;
                }
                Part::Default(bytes) => self.default(bytes)?,
                Part::Skip(_) => {}
            }
        }
        Ok(())
    }
}

/// Returns the writer's type of a copying operation.
fn source(op: &Op) -> usize {
    match op {
        Op::Copy(from)
        | Op::Array { from, .. }
        | Op::Map { from, .. }
        | Op::Branches { from, .. }
        | Op::Record { from, .. }
        | Op::Reordered { from, .. } => *from,
        Op::Enum(symbols) => symbols.from,
        _ => 0,
    }
}
