//! The header of our samples on DDS: the first member of every type of ours.

use super::cdr::{CdrError, Input, Output};
use super::{Integer, Kind, Member, Struct, StructPlace};

/// The header's type.
pub(super) const HEADER: &str = "helio::Header";
/// The member's name.
pub(super) const MEMBER: &str = "helio";

/// A sample's header, borrowed. A foreign writer leaves it empty, with sequence 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head<'a> {
    /// The producer's incarnation.
    pub incarnation: u64,
    /// The sample's number, from 1; 0 for a foreign writer.
    pub sequence: u64,
    /// The producer's previous number; 0 if there is none.
    pub previous: u64,
    /// Its time of publication: nanoseconds of TAI since 1970.
    pub time: i64,
    /// The payload's schema; 0 for bytes.
    pub schema: u64,
    /// The partition.
    pub partition: u32,
    /// The routing byte.
    pub level: u8,
    /// Flags of the transport.
    pub flags: u8,
    /// The producer's name.
    pub producer: &'a str,
    /// The trace: none or 16 bytes.
    pub trace: &'a [u8],
    /// The key.
    pub key: &'a [u8],
    /// Headers, in the format of [`crate::headers`].
    pub headers: &'a [u8],
}

impl<'a> Head<'a> {
    pub(super) fn put(&self, out: &mut Output<'_>) -> Result<(), CdrError> {
        let Self { incarnation, sequence, previous, .. } = *self;
        for number in [incarnation, sequence, previous, self.time as u64, self.schema] {
            out.number(number.to_le_bytes());
        }
        out.number(self.partition.to_le_bytes());
        out.number([self.level]);
        out.number([self.flags]);
        out.text(self.producer.as_bytes(), None)?;
        for octets in [self.trace, self.key, self.headers] {
            out.octets(octets)?;
        }
        Ok(())
    }

    pub(super) fn get(input: &mut Input<'a>) -> Result<Self, CdrError> {
        Ok(Self {
            incarnation: u64::from_le_bytes(input.number()?),
            sequence: u64::from_le_bytes(input.number()?),
            previous: u64::from_le_bytes(input.number()?),
            time: i64::from_le_bytes(input.number()?),
            schema: u64::from_le_bytes(input.number()?),
            partition: u32::from_le_bytes(input.number()?),
            level: input.number::<1>()?[0],
            flags: input.number::<1>()?[0],
            producer: input.text()?,
            trace: input.octets()?,
            key: input.octets()?,
            headers: input.octets()?,
        })
    }
}

/// The header as a struct of the model. It is final, so that its layout is fixed.
pub(super) fn model() -> Struct {
    let number = |name, integer, text| Member::new(name, Kind::Integer(integer), text);
    let octets = |name, text| Member::new(name, Kind::Bytes, text);
    let producer = "Who published; empty: a foreign writer.";
    let key = octets("key", "The key, where no field of the payload is.");
    let members = vec![
        number("incarnation", Integer::Uint64, "Grows at each start of the producer."),
        number("sequence", Integer::Uint64, "From 1, without holes; 0: a foreign writer."),
        number("previous", Integer::Uint64, "The number that was written before; 0: none."),
        number("time", Integer::Int64, "ns of TAI since 1970-01-01T00:00:00 TAI."),
        number("schema", Integer::Uint64, "The identity of the payload's schema."),
        number("partition", Integer::Uint32, "The bus's partition."),
        number("level", Integer::Octet, "The routing byte."),
        number("flags", Integer::Octet, "1: served again by a durability service."),
        Member::new("producer", Kind::String(None), producer),
        octets("trace", "A W3C trace id of 16 octets, or nothing."),
        Member { key: true, ..key },
        octets("headers", "Named values beside the payload."),
    ];
    let text = "What is beside the payload. Foreign writers leave all of it empty.";
    Struct::new(HEADER.to_owned(), members, false, text)
}

/// The header as a member; `key`: whether it holds the topic's key.
pub(super) fn member(place: StructPlace, key: bool) -> Member {
    Member { key, ..Member::new(MEMBER, Kind::Struct(place), "") }
}
