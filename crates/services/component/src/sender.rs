//! Who sent a sample, whatever else is in it.
//!
//! The private fields are the first ones in every version of an interface, so they can be read
//! where the others cannot.

use helio_core::codec::Reader;

use crate::interface::{Private, Shape};

/// What the private fields of a sample say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sender {
    pub seq_num: i32,
    pub identity: String,
    pub origin: i32,
}

impl Sender {
    /// Reads the private fields of a sample of any version of a topic.
    pub(crate) fn of(shape: &Shape, payload: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        if shape.topic().indexed() {
            reader.int().ok()?;
        }
        for _ in Private::SndStamp as usize..Private::SeqNum as usize {
            reader.double().ok()?;
        }
        let seq_num = reader.int().ok()?;
        reader.string().ok()?; // the revision code
        let identity = reader.string().ok()?.to_owned();
        let origin = reader.int().ok()?;
        Some(Self { seq_num, identity, origin })
    }
}
