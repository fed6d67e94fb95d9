//! The sender of a sample, read from the private fields.
//!
//! The private fields come first in every version of an interface, so they can be read even if the
//! others cannot.

use helio_core::codec::Reader;

use crate::interface::{PrivateField, Shape};

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

impl<'a> Sender<'a> {
    /// Reads the private fields of a sample of any version of a topic.
    pub(crate) fn of(shape: &Shape, payload: &'a [u8]) -> Option<Self> {
        Self::read(shape.topic().indexed(), payload)
    }

    /// Like [`of`](Self::of), if it is known whether they begin with `salIndex`.
    pub(crate) fn read(indexed: bool, payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let index = if indexed { reader.int().ok()? } else { 0 };
        let sent_s = reader.double().ok()?;
        for _ in PrivateField::RcvStamp as usize..PrivateField::SeqNum as usize {
            reader.double().ok()?;
        }
        let seq_num = reader.int().ok()?;
        reader.string().ok()?; // the revision code
        let identity = reader.string().ok()?;
        let origin = reader.int().ok()?;
        Some(Self { index, sent_s, seq_num, identity, origin })
    }
}
