//! Who sent a sample, whatever else is in it.
//!
//! The private fields are the first ones in every version of an interface, so they can be read
//! where the others cannot.

use helio_core::codec::Reader;

use crate::interface::{Private, Shape};

/// What the private fields of a sample say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sender<'a> {
    /// 0 where there is none.
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

    /// The same, where it is known whether they begin with `salIndex`.
    pub(crate) fn read(indexed: bool, payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let index = if indexed { reader.int().ok()? } else { 0 };
        let sent_s = reader.double().ok()?;
        for _ in Private::RcvStamp as usize..Private::SeqNum as usize {
            reader.double().ok()?;
        }
        let seq_num = reader.int().ok()?;
        reader.string().ok()?; // the revision code
        let identity = reader.string().ok()?;
        let origin = reader.int().ok()?;
        Some(Self { index, sent_s, seq_num, identity, origin })
    }
}
