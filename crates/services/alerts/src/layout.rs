//! A packet's schema, compiled: where its identifiers and its stamps are.
//!
//! Constraints. Stamps are `bytes`, possibly in a record with texts, possibly null, in fields of
//! the packet's record whose names begin with `cutout`, one after the other. Rubin's and ZTF's
//! schemas are of this kind.
//!
//! Operation. [`Layout::split`] takes the stamps out, and leaves a valid datum of the same schema,
//! with null or no bytes in their place. [`Layout::join`] puts them back: the datum is the same,
//! byte for byte. Nothing else of a datum is decoded.

use helio_core::Schema;
use helio_core::codec::wire::{Reader, long_size, put_bytes, put_length};
use helio_core::codec::{Codec, DecodeError, WireError};
use helio_core::schema::{NodeId, Type};
use thiserror::Error;

/// Names of the field with an alert's identifier.
const ID_FIELDS: &[&str] = &["diaSourceId", "candid"];
/// How the names of fields with stamps begin.
const STAMP_PREFIX: &str = "cutout";

/// A compiled schema of packets.
#[derive(Debug, Clone)]
pub struct Layout {
    codec: Codec,
    id: Option<usize>,
    source: Option<SourceField>,
    /// The number of fields before the first stamp.
    before: usize,
    stamps: Vec<StampField>,
}

/// The field with the new detection, which names exposure and detector.
#[derive(Debug, Clone, Copy)]
struct SourceField {
    place: usize,
    visit: usize,
    detector: usize,
}

/// A field with a stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StampField {
    name: String,
    nullable: Option<Nullable>,
    /// Texts of the record before and after the stamp; zeros without a record.
    texts_before: usize,
    texts_after: usize,
}

/// The branches of a union with null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Nullable {
    null: usize,
    value: usize,
}

/// The exposure and detector of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ccd {
    /// The exposure.
    pub visit: i64,
    /// The detector's number.
    pub detector: i32,
}

/// Why stamps cannot be taken out or put back.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SplitError {
    /// The bytes are no datum of the schema.
    #[error("{0}")]
    Datum(#[from] DecodeError),
    /// The writer used more bytes for a length than needed, so that it could not be restored.
    #[error("the length of {0} is not in its shortest form; leave the packet whole")]
    Length(String),
    /// The number of stamps is not the schema's.
    #[error("{found} stamps where the schema has {expected}")]
    Count {
        /// The schema's number.
        expected: usize,
        /// The number found.
        found: usize,
    },
    /// The metadata have a stamp already.
    #[error("{0} has a stamp already")]
    Occupied(String),
}

impl From<WireError> for SplitError {
    fn from(error: WireError) -> Self {
        Self::Datum(error.into())
    }
}

/// A value of a stamp's field: the bytes before the stamp's length, the stamp, the bytes after it.
struct Found<'a> {
    head: &'a [u8],
    stamp: Option<&'a [u8]>,
    tail: &'a [u8],
}

impl Layout {
    /// Compiles a schema.
    #[must_use]
    pub fn new(schema: &Schema) -> Self {
        let fields = schema.fields();
        let id = fields.iter().position(|field| {
            ID_FIELDS.contains(&field.name.as_str()) && schema.node(field.kind).kind == Type::Long
        });
        let is_stamp = |name: &str| name.starts_with(STAMP_PREFIX);
        let before = fields.iter().position(|f| is_stamp(&f.name)).unwrap_or(fields.len());
        let stamps = fields[before..].iter().map_while(|field| {
            is_stamp(&field.name).then(|| stamp_field(schema, &field.name, field.kind)).flatten()
        });
        let stamps = stamps.collect();
        Self { codec: Codec::new(schema), id, source: source_field(schema), before, stamps }
    }

    /// The codec of the packets.
    #[must_use]
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// The schema of the packets.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        self.codec.schema()
    }

    /// The names of the stamps' fields, in order.
    pub fn stamps(&self) -> impl ExactSizeIterator<Item = &str> {
        self.stamps.iter().map(|field| field.name.as_str())
    }

    /// Returns the identifier of an alert; `None` if the schema has none.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes do not begin with the fields before it.
    pub fn alert_id(&self, datum: &[u8]) -> Result<Option<i64>, DecodeError> {
        let Some(place) = self.id else { return Ok(None) };
        let mut reader = Reader::new(datum);
        self.codec.skip_fields(place, &mut reader)?;
        Ok(Some(reader.long()?))
    }

    /// Returns the exposure and detector of an alert; `None` if the schema does not have them as
    /// Rubin's has.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes do not begin with the fields before them.
    pub fn ccd(&self, datum: &[u8]) -> Result<Option<Ccd>, DecodeError> {
        let Some(source) = self.source else { return Ok(None) };
        let mut reader = Reader::new(datum);
        self.codec.skip_fields(source.place, &mut reader)?;
        let mut ccd = Ccd { visit: 0, detector: 0 };
        for place in 0..=source.visit.max(source.detector) {
            let number = reader.long()?;
            if place == source.visit {
                ccd.visit = number;
            } else if place == source.detector {
                ccd.detector = i32::try_from(number).map_err(|_| WireError::Number)?;
            }
        }
        Ok(Some(ccd))
    }

    /// Takes the stamps out of a datum, in the order of [`Layout::stamps`], and appends the rest, a
    /// datum of the same schema, to `metadata`. After an error, `metadata` is unchanged.
    ///
    /// # Errors
    /// [`SplitError`] if the bytes are no datum, or could not be restored exactly.
    pub fn split<'a>(
        &self,
        datum: &'a [u8],
        metadata: &mut Vec<u8>,
    ) -> Result<Vec<Option<&'a [u8]>>, SplitError> {
        let start = metadata.len();
        self.take_out(datum, metadata).inspect_err(|_| metadata.truncate(start))
    }

    fn take_out<'a>(
        &self,
        datum: &'a [u8],
        metadata: &mut Vec<u8>,
    ) -> Result<Vec<Option<&'a [u8]>>, SplitError> {
        let mut reader = Reader::new(datum);
        self.codec.skip_fields(self.before, &mut reader)?;
        metadata.extend_from_slice(&datum[..datum.len() - reader.rest().len()]);
        let mut stamps = Vec::with_capacity(self.stamps.len());
        for field in &self.stamps {
            let found = field.read(&mut reader)?;
            match (field.null(), found.stamp) {
                (Some(null), _) => put_length(metadata, null),
                (None, Some(_)) => {
                    metadata.extend_from_slice(found.head);
                    metadata.push(0);
                    metadata.extend_from_slice(found.tail);
                }
                (None, None) => metadata.extend_from_slice(found.head),
            }
            stamps.push(found.stamp);
        }
        metadata.extend_from_slice(reader.rest());
        Ok(stamps)
    }

    /// Puts stamps back into the metadata from which [`Layout::split`] took them, and appends the
    /// datum to `out`. After an error, `out` is unchanged.
    ///
    /// # Errors
    /// [`SplitError`] if the metadata are no datum, or the stamps not theirs.
    pub fn join(
        &self,
        metadata: &[u8],
        stamps: &[Option<&[u8]>],
        out: &mut Vec<u8>,
    ) -> Result<(), SplitError> {
        let start = out.len();
        self.put_back(metadata, stamps, out).inspect_err(|_| out.truncate(start))
    }

    fn put_back(
        &self,
        metadata: &[u8],
        stamps: &[Option<&[u8]>],
        out: &mut Vec<u8>,
    ) -> Result<(), SplitError> {
        let (expected, found) = (self.stamps.len(), stamps.len());
        if expected != found {
            return Err(SplitError::Count { expected, found });
        }
        let mut reader = Reader::new(metadata);
        self.codec.skip_fields(self.before, &mut reader)?;
        out.extend_from_slice(&metadata[..metadata.len() - reader.rest().len()]);
        for (field, stamp) in self.stamps.iter().zip(stamps) {
            let found = field.read(&mut reader)?;
            if found.stamp.is_some_and(|there| !there.is_empty()) {
                return Err(SplitError::Occupied(field.name.clone()));
            }
            match (*stamp, field.nullable.filter(|_| field.is_bare())) {
                (Some(stamp), Some(nullable)) => {
                    put_length(out, nullable.value);
                    put_bytes(out, stamp);
                }
                (stamp, _) => {
                    out.extend_from_slice(found.head);
                    if found.stamp.is_some() {
                        put_bytes(out, stamp.unwrap_or_default());
                    }
                    out.extend_from_slice(found.tail);
                }
            }
        }
        out.extend_from_slice(reader.rest());
        Ok(())
    }
}

impl StampField {
    /// Whether the field is `bytes`, or `bytes` and null, without a record around them.
    fn is_bare(&self) -> bool {
        self.texts_before + self.texts_after == 0
    }

    /// The branch that stands for a stamp that was taken out; `None` where bytes are emptied.
    fn null(&self) -> Option<usize> {
        self.nullable.filter(|_| self.is_bare()).map(|nullable| nullable.null)
    }

    fn read<'a>(&self, reader: &mut Reader<'a>) -> Result<Found<'a>, SplitError> {
        let all = reader.rest();
        let length = |reader: &Reader<'a>| all.len() - reader.rest().len();
        let shortest = |is_it: bool| match is_it {
            true => Ok(()),
            false => Err(SplitError::Length(self.name.clone())),
        };
        if let Some(nullable) = self.nullable {
            let branch = reader.branch(2)?;
            shortest(length(reader) == long_size(branch as i64))?;
            if branch == nullable.null {
                return Ok(Found { head: &all[..length(reader)], stamp: None, tail: &[] });
            }
        }
        (0..self.texts_before).try_for_each(|_| reader.bytes().map(|_| ()))?;
        let head = &all[..length(reader)];
        let stamp = reader.bytes()?;
        let size = length(reader) - head.len() - stamp.len();
        shortest(size == long_size(stamp.len() as i64))?;
        let after = reader.rest();
        (0..self.texts_after).try_for_each(|_| reader.bytes().map(|_| ()))?;
        let tail = &after[..after.len() - reader.rest().len()];
        Ok(Found { head, stamp: Some(stamp), tail })
    }
}

/// The field of a stamp; `None` if it is of another kind.
fn stamp_field(schema: &Schema, name: &str, kind: NodeId) -> Option<StampField> {
    let (kind, nullable) = match schema.nullable(kind) {
        Some((inner, null)) => (inner, Some(Nullable { null, value: 1 - null })),
        None => (kind, None),
    };
    let (texts_before, texts_after) = match &schema.node(kind).kind {
        Type::Bytes => (0, 0),
        Type::Record(record) => {
            let kinds: Vec<_> = record.fields.iter().map(|f| &schema.node(f.kind).kind).collect();
            let before = kinds.iter().position(|kind| **kind == Type::Bytes)?;
            let texts = kinds.iter().filter(|kind| ***kind == Type::String).count();
            // A record of the bytes alone is written as they are.
            (texts + 1 == kinds.len()).then_some((before, kinds.len() - before - 1))?
        }
        _ => return None,
    };
    Some(StampField { name: name.to_owned(), nullable, texts_before, texts_after })
}

/// The place of exposure and detector: among the whole numbers with which the record begins.
fn source_field(schema: &Schema) -> Option<SourceField> {
    let place = schema.fields().iter().position(|field| field.name == "diaSource")?;
    let Type::Record(record) = &schema.node(schema.fields()[place].kind).kind else { return None };
    let is_number = |kind: NodeId| matches!(schema.node(kind).kind, Type::Int | Type::Long);
    let numbers: Vec<_> = record.fields.iter().take_while(|f| is_number(f.kind)).collect();
    let find = |name: &str| numbers.iter().position(|field| field.name == name);
    Some(SourceField { place, visit: find("visit")?, detector: find("detector")? })
}
