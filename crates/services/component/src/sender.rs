//! The sender of a sample, read from the private fields.
//!
//! In topics of XML and YAML the private fields come first in every version of an interface, so
//! they can be read even if the others cannot. In topics of `.avsc` files they come last, behind
//! fields that have to be skipped; samples of another version are then recognized by their end.

use helio_core::codec::Reader;
use helio_core::{Codec, Schema};

use crate::interface::{PrivateField, Shape};

/// The first private field.
const FIRST_PRIVATE_FIELD: &str = "private_sndStamp";

/// The private fields of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sender<'a> {
    /// 0 if there is none.
    pub index: i32,
    pub sent_s: f64,
    pub seq_num: i32,
    pub identity: &'a str,
    pub origin: i32,
}

/// Where the private fields of a topic's samples are.
#[derive(Debug, Clone)]
pub(crate) struct PrivatePlace {
    /// Whether samples begin with `salIndex`.
    indexed: bool,
    /// The fields before them, `salIndex` aside, and the codec that skips these.
    behind: Option<(usize, Codec)>,
}

impl PrivatePlace {
    pub(crate) fn of(schema: &Schema) -> Self {
        let indexed = schema.fields().first().is_some_and(|field| field.name == "salIndex");
        let first = schema.fields().iter().position(|field| field.name == FIRST_PRIVATE_FIELD);
        let behind = first.filter(|place| *place > usize::from(indexed));
        Self { indexed, behind: behind.map(|place| (place, Codec::new(schema))) }
    }
}

impl<'a> Sender<'a> {
    /// Reads the private fields of a sample of any version of a topic.
    pub(crate) fn of(shape: &Shape, payload: &'a [u8]) -> Option<Self> {
        Self::read(shape.private_place(), payload)
    }

    /// Like [`of`](Self::of), by their place.
    pub(crate) fn read(place: &PrivatePlace, payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let index = if place.indexed { reader.int().ok()? } else { 0 };
        if let Some((fields, codec)) = &place.behind {
            reader = Reader::new(payload);
            codec.skip_fields(*fields, &mut reader).ok()?;
        }
        let sent_s = reader.double().ok()?;
        for _ in PrivateField::RcvStamp as usize..PrivateField::SeqNum as usize {
            reader.double().ok()?;
        }
        let seq_num = reader.int().ok()?;
        reader.string().ok()?; // the revision code
        let identity = reader.string().ok()?;
        let origin = reader.int().ok()?;
        if place.behind.is_some() {
            // Fields of another version were skipped wrongly if anything follows.
            reader.finish().ok()?;
        }
        Some(Self { index, sent_s, seq_num, identity, origin })
    }
}
