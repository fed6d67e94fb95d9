//! Packets from arrays: a column of numbers for each field, as pipelines have them.
//!
//! Constraints. Columns are named by the paths of their fields, as those that readers select:
//! `diaSource.snr`, `prvDiaSources[].psfFlux`. A list has a column of offsets under its own name
//! (`prvDiaSources`): alert `i` has its elements from `offsets[i]` to before `offsets[i + 1]`. A
//! field without column is null, or has the schema's default, or is an error. No number is changed.
//!
//! Operation. [`Encoder::new`] binds the columns to the schema's fields once, and checks their
//! lengths; fields without column become constants. [`Encoder::put`] then writes an alert without
//! looking up anything. Lists are written as *sized* blocks.

use std::collections::HashMap;

use helio_core::codec::Codec;
use helio_core::codec::wire::{Blocks, close_block, put_bytes, put_length, put_long};
use helio_core::schema::{NodeId, Schema, Type};
use thiserror::Error;

use crate::fits::{self, Header, Pixels, Size};

/// The deepest nesting of records and lists: those of surveys have three levels.
const MAX_DEPTH: usize = 16;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `boolean`.
    Booleans,
    /// `int` and `long`.
    Longs,
    /// `float`.
    Floats,
    /// `double`.
    Doubles,
    /// `string`.
    Texts,
    /// `bytes`: files of stamps, or images of which these are made.
    Bytes,
    /// Of a list: the offsets of each alert's elements, and the end.
    Offsets,
    /// Of a record that may be null: whether it is there.
    Presence,
}

/// The values of a column.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// Of a `boolean`, or the presence of a record.
    Booleans(&'a [bool]),
    /// Of an `int` or a `long`, or the offsets of a list.
    Longs(&'a [i64]),
    /// Of a `float`.
    Floats(&'a [f32]),
    /// Of a `double`.
    Doubles(&'a [f64]),
    /// Of a `string`; `None` is null.
    Texts(&'a [Option<&'a str>]),
    /// Of `bytes`; `None` is null.
    Bytes(&'a [Option<&'a [u8]>]),
    /// Of `bytes`: images of which FITS files are made.
    Images(Images<'a>),
}

/// Images of equal size, of one stamp of all alerts.
#[derive(Debug, Clone, Copy)]
pub struct Images<'a> {
    /// Columns and rows of an image.
    pub size: Size,
    /// The pixels, image by image, row by row.
    pub pixels: &'a [f32],
    /// The variances of the pixels.
    pub variances: Option<&'a [f32]>,
    /// The point spread function of all of them, row by row, and its size.
    pub psf: Option<(&'a [f64], Size)>,
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    /// The values.
    pub values: Values<'a>,
    /// Which values are null.
    pub nulls: Option<&'a [bool]>,
}

impl<'a> From<Values<'a>> for Column<'a> {
    fn from(values: Values<'a>) -> Self {
        Self { values, nulls: None }
    }
}

/// Why columns are not packets of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ArraysError {
    /// A field has no column, and may be neither null nor left out.
    #[error("the column {0} is missing: the field may not be null and has no default")]
    Missing(String),
    /// A column is of no field.
    #[error("the schema has no field for the column {0}")]
    Unknown(String),
    /// A column is of another type than the field.
    #[error("the column {path}: {expected} are expected, not {found}")]
    Type {
        /// The column.
        path: String,
        /// The field's type.
        expected: &'static str,
        /// The column's type.
        found: &'static str,
    },
    /// A field's type has no column: a union, a map, an enumeration.
    #[error("the column {0}: a field of this type cannot be given as an array")]
    Unsupported(String),
    /// A column has another length than the others.
    #[error("the column {path} has {found} values where {expected} are expected")]
    Length {
        /// The column.
        path: String,
        /// The number that the others have.
        expected: usize,
        /// Its number.
        found: usize,
    },
    /// Offsets go backward, or begin below 0.
    #[error("the offsets {path} are not in order at {index}")]
    Offsets {
        /// The list.
        path: String,
        /// The place of the first wrong one.
        index: usize,
    },
    /// A number is beyond the field's 32 bits.
    #[error("the column {path}: {value} does not fit 32 bits")]
    Range {
        /// The column.
        path: String,
        /// The number.
        value: i64,
    },
    /// A value is null, and the field may not be.
    #[error("the column {path} has a null at {index}, and the field may not be null")]
    Null {
        /// The column.
        path: String,
        /// The place of the first null.
        index: usize,
    },
    /// The images' pixels are not those of whole images.
    #[error("the column {0}: the pixels are not those of images of its size")]
    Pixels(String),
}

impl Values<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Booleans(_) => "booleans",
            Self::Longs(_) => "whole numbers",
            Self::Floats(_) => "numbers of 32 bits",
            Self::Doubles(_) => "numbers of 64 bits",
            Self::Texts(_) => "texts",
            Self::Bytes(_) => "bytes",
            Self::Images(_) => "images",
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Booleans(values) => values.len(),
            Self::Longs(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Doubles(values) => values.len(),
            Self::Texts(values) => values.len(),
            Self::Bytes(values) => values.len(),
            Self::Images(images) => images.pixels.len() / images.size.pixels().max(1),
        }
    }
}

/// The kinds of all columns that a schema can have, by their paths.
#[must_use]
pub fn columns(schema: &Schema) -> Vec<(String, Kind)> {
    let mut all = Vec::new();
    if let Some(root) = root(schema) {
        list_columns(schema, root, "", 0, &mut all);
    }
    all
}

/// The record of the packets.
fn root(schema: &Schema) -> Option<NodeId> {
    schema.root().kind.name().and_then(|name| schema.named(name))
}

fn list_columns(
    schema: &Schema,
    node: NodeId,
    path: &str,
    depth: usize,
    all: &mut Vec<(String, Kind)>,
) {
    if depth > MAX_DEPTH {
        return;
    }
    let (inner, nullable) = schema.nullable(node).map_or((node, None), |(i, null)| (i, Some(null)));
    let mut add = |kind| all.push((path.to_owned(), kind));
    match &schema.node(inner).kind {
        Type::Boolean => add(Kind::Booleans),
        Type::Int | Type::Long => add(Kind::Longs),
        Type::Float => add(Kind::Floats),
        Type::Double => add(Kind::Doubles),
        Type::String => add(Kind::Texts),
        Type::Bytes => add(Kind::Bytes),
        Type::Array(items) => {
            add(Kind::Offsets);
            list_columns(schema, *items, &format!("{path}[]"), depth + 1, all);
        }
        Type::Record(record) => {
            if nullable.is_some() {
                add(Kind::Presence);
            }
            for field in &record.fields {
                list_columns(schema, field.kind, &member(path, &field.name), depth + 1, all);
            }
        }
        _ => {}
    }
}

fn member(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The bytes of a union's branches: a value, null.
#[derive(Debug, Clone, Copy)]
struct Branch {
    value: u8,
    null: u8,
}

/// A field's writing.
#[derive(Debug)]
enum Step<'a> {
    Constant(Vec<u8>),
    Booleans(Cells<'a, bool>),
    Longs(Cells<'a, i64>),
    Floats(Cells<'a, f32>),
    Doubles(Cells<'a, f64>),
    Texts(Cells<'a, Option<&'a str>>),
    Bytes(Cells<'a, Option<&'a [u8]>>),
    Stamps { branch: Option<Branch>, nulls: Option<&'a [bool]>, stamps: Stamps<'a> },
    Record { branch: Option<(Branch, &'a [bool])>, steps: Vec<Step<'a>> },
    List { branch: Option<Branch>, offsets: &'a [i64], steps: Vec<Step<'a>> },
}

/// A column's values, as a field has them.
#[derive(Debug)]
struct Cells<'a, T> {
    branch: Option<Branch>,
    values: &'a [T],
    nulls: Option<&'a [bool]>,
}

impl<T: Copy> Cells<'_, T> {
    /// Writes the branch, and the value unless it is null.
    #[inline]
    fn put(&self, row: usize, out: &mut Vec<u8>, put: impl Fn(T, &mut Vec<u8>)) {
        if let Some(branch) = self.branch {
            if self.nulls.is_some_and(|nulls| nulls[row]) {
                return out.push(branch.null);
            }
            out.push(branch.value);
        }
        put(self.values[row], out);
    }
}

impl<T: Copy> Cells<'_, T> {
    /// Writes a value of `N` bytes, at most 8, with its branch at once.
    #[inline]
    fn put_wide<const N: usize>(
        &self,
        row: usize,
        out: &mut Vec<u8>,
        bytes: impl Fn(T) -> [u8; N],
    ) {
        let value = bytes(self.values[row]);
        let Some(branch) = self.branch else { return out.extend_from_slice(&value) };
        if self.nulls.is_some_and(|nulls| nulls[row]) {
            return out.push(branch.null);
        }
        let mut both = [branch.value; 9];
        both[1..=N].copy_from_slice(&value);
        out.extend_from_slice(&both[..=N]);
    }
}

impl<T: Copy> Cells<'_, Option<T>> {
    /// The same of values that may be null by themselves.
    fn put_some(&self, row: usize, out: &mut Vec<u8>, put: impl Fn(T, &mut Vec<u8>)) {
        let value = self.values[row].filter(|_| !self.nulls.is_some_and(|nulls| nulls[row]));
        match (value, self.branch) {
            (Some(value), branch) => {
                out.extend(branch.map(|branch| branch.value));
                put(value, out);
            }
            (None, Some(branch)) => out.push(branch.null),
            // Binding has checked that there is none.
            (None, None) => out.push(0),
        }
    }
}

/// Images to be written as FITS files: difference, variance, PSF, as Rubin's have them.
#[derive(Debug)]
struct Stamps<'a> {
    images: Images<'a>,
    header: Vec<u8>,
    variance_header: Vec<u8>,
    psf: Vec<u8>,
    bytes: usize,
}

impl<'a> Stamps<'a> {
    fn new(images: Images<'a>) -> Self {
        let mut header = Vec::new();
        Header::primary(Pixels::Floats, images.size).put(&mut header);
        let (mut variance_header, mut psf) = (Vec::new(), Vec::new());
        if images.variances.is_some() {
            let mut cards = Header::extension("UNCERT", Pixels::Floats, images.size);
            cards.text("UTYPE", "VarianceUncertainty", "");
            cards.put(&mut variance_header);
        }
        if let Some((pixels, size)) = images.psf {
            Header::extension("PSFIMAGE", Pixels::Doubles, size).put(&mut psf);
            fits::put_doubles(&mut psf, pixels);
        }
        let data = (images.size.pixels() * 4).next_multiple_of(fits::BLOCK_BYTES);
        let variance = if images.variances.is_some() { variance_header.len() + data } else { 0 };
        let bytes = header.len() + data + variance + psf.len();
        Self { images, header, variance_header, psf, bytes }
    }

    fn put(&self, row: usize, out: &mut Vec<u8>) {
        let pixels = self.images.size.pixels();
        let image = |all: &'a [f32]| &all[row * pixels..(row + 1) * pixels];
        put_length(out, self.bytes);
        out.extend_from_slice(&self.header);
        fits::put_floats(out, image(self.images.pixels));
        if let Some(variances) = self.images.variances {
            out.extend_from_slice(&self.variance_header);
            fits::put_floats(out, image(variances));
        }
        out.extend_from_slice(&self.psf);
    }
}

/// Columns that are bound to a schema's fields.
#[derive(Debug)]
pub struct Encoder<'a> {
    steps: Vec<Step<'a>>,
    rows: usize,
}

/// The columns on their way to the fields.
struct Binder<'a, 'b> {
    schema: &'b Schema,
    codec: &'b Codec,
    /// The columns that no field has taken.
    columns: HashMap<&'b str, Column<'a>>,
}

/// Where a field is: its path, the number of its values, its depth.
#[derive(Clone, Copy)]
struct Place<'p> {
    path: &'p str,
    rows: usize,
    depth: usize,
}

impl<'a> Encoder<'a> {
    /// Binds the columns of `rows` alerts.
    ///
    /// # Errors
    /// [`ArraysError`] names the column.
    pub fn new(
        codec: &Codec,
        rows: usize,
        columns: &[(String, Column<'a>)],
    ) -> Result<Self, ArraysError> {
        let schema = codec.schema();
        let columns = columns.iter().map(|(path, column)| (path.as_str(), *column)).collect();
        let mut binder = Binder { schema, codec, columns };
        let place = Place { path: "", rows, depth: 0 };
        let root = root(schema).ok_or_else(|| ArraysError::Unsupported(String::new()))?;
        let steps = binder.fields(root, place)?;
        binder.check_taken()?;
        Ok(Self { steps, rows })
    }

    /// The number of alerts.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Appends the datum of an alert to `out`.
    ///
    /// # Panics
    /// If there are not so many alerts.
    pub fn put(&self, row: usize, out: &mut Vec<u8>) {
        assert!(row < self.rows, "alert {row} of {}", self.rows);
        self.steps.iter().for_each(|step| step.put(row, out));
    }
}

impl Step<'_> {
    fn put(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            Self::Constant(bytes) => out.extend_from_slice(bytes),
            Self::Booleans(cells) => cells.put(row, out, |value, out| out.push(value.into())),
            Self::Longs(cells) => cells.put(row, out, |value, out| put_long(out, value)),
            Self::Floats(cells) => cells.put_wide(row, out, f32::to_le_bytes),
            Self::Doubles(cells) => cells.put_wide(row, out, f64::to_le_bytes),
            Self::Texts(cells) => {
                cells.put_some(row, out, |value, out| put_bytes(out, value.as_bytes()));
            }
            Self::Bytes(cells) => cells.put_some(row, out, |value, out| put_bytes(out, value)),
            Self::Stamps { branch, nulls, stamps } => match (nulls, branch) {
                (Some(nulls), Some(branch)) if nulls[row] => out.push(branch.null),
                (_, branch) => {
                    out.extend(branch.map(|branch| branch.value));
                    stamps.put(row, out);
                }
            },
            Self::Record { branch: Some((branch, presence)), .. } if !presence[row] => {
                out.push(branch.null);
            }
            Self::Record { branch, steps } => {
                out.extend(branch.map(|(branch, _)| branch.value));
                steps.iter().for_each(|step| step.put(row, out));
            }
            Self::List { branch, offsets, steps } => {
                out.extend(branch.map(|branch| branch.value));
                let (from, to) = (offsets[row] as usize, offsets[row + 1] as usize);
                let start = out.len();
                for element in from..to {
                    steps.iter().for_each(|step| step.put(element, out));
                }
                close_block(out, Blocks::Sized, to - from, start);
            }
        }
    }
}

impl<'a> Binder<'a, '_> {
    /// The steps of a record's fields; constants that follow each other are one.
    fn fields(&mut self, node: NodeId, at: Place<'_>) -> Result<Vec<Step<'a>>, ArraysError> {
        let schema = self.schema;
        let Type::Record(record) = &schema.node(node).kind else {
            return Err(ArraysError::Unsupported(at.path.to_owned()));
        };
        if at.depth > MAX_DEPTH {
            return Err(ArraysError::Unsupported(at.path.to_owned()));
        }
        let mut steps: Vec<Step<'a>> = Vec::with_capacity(record.fields.len());
        for (number, field) in record.fields.iter().enumerate() {
            let path = member(at.path, &field.name);
            let step = match self.node(field.kind, Place { path: &path, ..at })? {
                Some(step) => step,
                None => self.constant(node, number, field.kind, &path)?,
            };
            match (steps.last_mut(), step) {
                (Some(Step::Constant(before)), Step::Constant(bytes)) => before.extend(bytes),
                (_, step) => steps.push(step),
            }
        }
        Ok(steps)
    }

    /// Of a field without column: null, or its default.
    fn constant(
        &self,
        record: NodeId,
        number: usize,
        kind: NodeId,
        path: &str,
    ) -> Result<Step<'a>, ArraysError> {
        let missing = || ArraysError::Missing(path.to_owned());
        if let Some((_, null)) = self.schema.nullable(kind) {
            return Ok(Step::Constant(vec![2 * null as u8]));
        }
        let mut bytes = Vec::new();
        let default = self.codec.encode_default(record, number, &mut bytes);
        default.map(|()| Step::Constant(bytes)).map_err(|_| missing())
    }

    /// The step of a field; `None` without a column.
    fn node(&mut self, node: NodeId, at: Place<'_>) -> Result<Option<Step<'a>>, ArraysError> {
        let schema = self.schema;
        let (inner, branch) = match schema.nullable(node) {
            Some((inner, null)) => {
                let (value, null) = (2 - 2 * null as u8, 2 * null as u8);
                (inner, Some(Branch { value, null }))
            }
            None => (node, None),
        };
        match &schema.node(inner).kind {
            Type::Record(_) => self.record(inner, branch, at),
            Type::Array(items) => self.list(*items, branch, at),
            kind => match self.take(at.path) {
                Some(column) => cells(kind, branch, column, at).map(Some),
                None => Ok(None),
            },
        }
    }

    fn take(&mut self, path: &str) -> Option<Column<'a>> {
        self.columns.remove(path)
    }

    fn record(
        &mut self,
        node: NodeId,
        branch: Option<Branch>,
        at: Place<'_>,
    ) -> Result<Option<Step<'a>>, ArraysError> {
        let presence = match self.take(at.path) {
            Some(Column { values: Values::Booleans(presence), nulls: None })
                if branch.is_some() =>
            {
                Some(checked(presence, at)?)
            }
            Some(column) => return Err(wrong(at, "booleans", &column)),
            None => None,
        };
        let begin = format!("{}.", at.path);
        let is_given = self.columns.keys().any(|path| path.starts_with(&begin));
        if branch.is_some() && !is_given && presence.is_none() {
            return Ok(None);
        }
        let mut steps = self.fields(node, Place { depth: at.depth + 1, ..at })?;
        let branch = match (branch, presence) {
            (Some(branch), Some(presence)) => Some((branch, presence)),
            (Some(branch), None) => {
                steps.insert(0, Step::Constant(vec![branch.value]));
                None
            }
            (None, _) => None,
        };
        Ok(Some(Step::Record { branch, steps }))
    }

    fn list(
        &mut self,
        items: NodeId,
        branch: Option<Branch>,
        at: Place<'_>,
    ) -> Result<Option<Step<'a>>, ArraysError> {
        let offsets = match self.take(at.path) {
            Some(Column { values: Values::Longs(offsets), nulls: None }) => offsets,
            Some(column) => return Err(wrong(at, "offsets", &column)),
            None => return Ok(None),
        };
        let (path, expected, found) = (at.path.to_owned(), at.rows + 1, offsets.len());
        if found != expected {
            return Err(ArraysError::Length { path, expected, found });
        }
        let in_order = |pair: &[i64]| pair[0] >= 0 && pair[0] <= pair[1];
        if let Some(index) = offsets.windows(2).position(|pair| !in_order(pair)) {
            return Err(ArraysError::Offsets { path, index: index + 1 });
        }
        let rows = offsets.last().and_then(|end| usize::try_from(*end).ok()).unwrap_or_default();
        let path = format!("{}[]", at.path);
        let inner = Place { path: &path, rows, depth: at.depth + 1 };
        let steps = match &self.schema.node(items).kind {
            Type::Record(_) => self.fields(items, inner)?,
            _ => {
                let step = self.node(items, inner)?;
                vec![step.ok_or_else(|| ArraysError::Missing(path.clone()))?]
            }
        };
        Ok(Some(Step::List { branch, offsets, steps }))
    }

    /// Rejects columns that no field has taken.
    fn check_taken(&self) -> Result<(), ArraysError> {
        let first = self.columns.keys().min();
        first.map_or(Ok(()), |path| Err(ArraysError::Unknown((*path).to_owned())))
    }
}

fn wrong(at: Place<'_>, expected: &'static str, column: &Column<'_>) -> ArraysError {
    let (path, found) = (at.path.to_owned(), column.values.kind());
    ArraysError::Type { path, expected, found }
}

/// The values, if there are as many as the others have.
fn checked<'a, T>(values: &'a [T], at: Place<'_>) -> Result<&'a [T], ArraysError> {
    let (path, expected, found) = (at.path.to_owned(), at.rows, values.len());
    if found == expected { Ok(values) } else { Err(ArraysError::Length { path, expected, found }) }
}

/// The step of a field that is no record and no list.
fn cells<'a>(
    kind: &Type,
    branch: Option<Branch>,
    column: Column<'a>,
    at: Place<'_>,
) -> Result<Step<'a>, ArraysError> {
    let (found, nulls) = (column.values.len(), column.nulls);
    if found != at.rows {
        return Err(ArraysError::Length { path: at.path.to_owned(), expected: at.rows, found });
    }
    let nulls = nulls.map(|nulls| checked(nulls, at)).transpose()?;
    let first_null = match column.values {
        Values::Texts(texts) => texts.iter().position(Option::is_none),
        Values::Bytes(all) => all.iter().position(Option::is_none),
        _ => None,
    };
    let first_null = first_null.or(nulls.and_then(|nulls| nulls.iter().position(|null| *null)));
    if let (None, Some(index)) = (branch, first_null) {
        return Err(ArraysError::Null { path: at.path.to_owned(), index });
    }
    Ok(match (kind, column.values) {
        (Type::Boolean, Values::Booleans(values)) => {
            Step::Booleans(Cells { branch, values, nulls })
        }
        (Type::Int, Values::Longs(values)) => {
            let is_narrow = |value: &&i64| i32::try_from(**value).is_err();
            if let Some(value) = values.iter().find(is_narrow) {
                return Err(ArraysError::Range { path: at.path.to_owned(), value: *value });
            }
            Step::Longs(Cells { branch, values, nulls })
        }
        (Type::Long, Values::Longs(values)) => Step::Longs(Cells { branch, values, nulls }),
        (Type::Float, Values::Floats(values)) => Step::Floats(Cells { branch, values, nulls }),
        (Type::Double, Values::Doubles(values)) => Step::Doubles(Cells { branch, values, nulls }),
        (Type::String, Values::Texts(values)) => Step::Texts(Cells { branch, values, nulls }),
        (Type::Bytes, Values::Bytes(values)) => Step::Bytes(Cells { branch, values, nulls }),
        (Type::Bytes, Values::Images(images)) => {
            if !images.is_whole(at.rows) {
                return Err(ArraysError::Pixels(at.path.to_owned()));
            }
            Step::Stamps { branch, nulls, stamps: Stamps::new(images) }
        }
        (Type::Boolean, _) => return Err(wrong(at, "booleans", &column)),
        (Type::Int | Type::Long, _) => return Err(wrong(at, "whole numbers", &column)),
        (Type::Float, _) => return Err(wrong(at, "numbers of 32 bits", &column)),
        (Type::Double, _) => return Err(wrong(at, "numbers of 64 bits", &column)),
        (Type::String, _) => return Err(wrong(at, "texts", &column)),
        (Type::Bytes, _) => return Err(wrong(at, "bytes or images", &column)),
        _ => return Err(ArraysError::Unsupported(at.path.to_owned())),
    })
}

impl Images<'_> {
    /// Whether there are as many pixels as so many images have.
    fn is_whole(&self, count: usize) -> bool {
        let all = count.checked_mul(self.size.pixels());
        Some(self.pixels.len()) == all
            && self.variances.is_none_or(|variances| variances.len() == self.pixels.len())
            && self.psf.is_none_or(|(pixels, size)| pixels.len() == size.pixels())
    }
}
