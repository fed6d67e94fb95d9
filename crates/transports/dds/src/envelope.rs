//! The sample on the wire: `helio::Envelope`, a header of ours and the payload's octets.
//!
//! ```idl
//! module helio {
//!   @final struct Header {
//!     unsigned long long incarnation;
//!     unsigned long long sequence;   // 0: written by others than a bus
//!     unsigned long long previous;   // 0: none
//!     long long time;                // nanoseconds of TAI since 1970
//!     unsigned long long schema;     // 0 is bytes
//!     unsigned long partition;
//!     octet level;
//!     octet flags;                   // bits 0: sent again, 1: none older is due, 2: elsewhere,
//!                                    // 4: of history with holes
//!     string producer;
//!     sequence<octet> trace;         // 16, or none
//!     @key sequence<octet> key;
//!     sequence<octet> headers;       // as in the journal
//!   };
//!   @final struct Envelope { @key Header helio; sequence<octet> payload; };
//! };
//! ```
//!
//! Values are plain CDR of XCDR2, little-endian. The payload comes last, so that it is given to
//! Cyclone from where it lies, and read from where Cyclone has it.

use std::io::IoSlice;
use std::sync::Arc;

use helio_bus::transport::Record;
use helio_core::idl::{Head, TopicType};
use helio_core::{HeadersRef, Producer, SchemaId, Tai, TraceId};

use crate::dynamic_types::runtime_type;
use crate::entity::Struct;

/// XCDR2, plain, little-endian.
const ENCAPSULATION: [u8; 2] = [0, 7];
/// The same with the size in front, for appendable types.
const SIZED: [u8; 2] = [0, 9];
/// The sample was sent again: readers that have it skip it.
pub const RESENT: u8 = 1;
/// Its writer has no older sample that a durability service has not acknowledged.
pub const OLDEST_UNACKED: u8 = 2;
/// The sample numbered `previous` was written to the other one of its topic's two DDS topics.
pub const OTHER_TOPIC: u8 = 4;
/// No sample before it had to be stored: durability services miss nothing there.
pub const FIRST_STORED: u8 = 8;
/// In a page of history: retention removed samples before it, so the missing numbers are not lost.
pub const RETENTION_GAP: u8 = 16;

/// A sample without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The producer's name.
    pub producer: &'a str,
    /// The producer's incarnation.
    pub incarnation: u64,
    /// Its number among the producer's samples of that partition; 0 if a foreign writer wrote it.
    pub sequence: u64,
    /// The number that its writer wrote before it, because numbers may have holes; 0 if unknown.
    pub previous: u64,
    /// When it was published.
    pub time: Tai,
    /// The payload's schema.
    pub schema: SchemaId,
    /// The partition.
    pub partition: u32,
    /// The routing byte.
    pub level: u8,
    /// [`RESENT`], [`OLDEST_UNACKED`], [`OTHER_TOPIC`], [`RETENTION_GAP`].
    pub flags: u8,
    /// The trace that it belongs to.
    pub trace: Option<TraceId>,
    /// The key; empty is none.
    pub key: &'a [u8],
    /// Named values beside the payload, in their own encoding.
    pub headers: HeadersRef<'a>,
}

impl<'a> Header<'a> {
    /// The header of a record that a producer publishes.
    #[must_use]
    pub fn of(record: &Record<'a>, producer: &'a Producer, partition: u32, sequence: u64) -> Self {
        Self {
            producer: producer.name.as_str(),
            incarnation: producer.incarnation,
            sequence,
            previous: 0,
            time: record.time,
            schema: record.schema,
            partition,
            level: record.level,
            flags: 0,
            trace: record.trace,
            key: record.key,
            headers: record.headers,
        }
    }

    /// The header of a session's own message with that number.
    #[must_use]
    pub(crate) fn of_session(session: &'a str, number: u64, key: &'a [u8]) -> Self {
        Self {
            producer: session,
            incarnation: 1,
            sequence: number,
            previous: 0,
            time: Tai::from_nanos(0),
            schema: SchemaId::BYTES,
            partition: 0,
            level: 0,
            flags: 0,
            trace: None,
            key,
            headers: HeadersRef::EMPTY,
        }
    }

    /// The same for [`TopicType::to_cdr`].
    #[must_use]
    pub fn head(&self) -> Head<'_> {
        Head {
            incarnation: self.incarnation,
            sequence: self.sequence,
            previous: self.previous,
            time: self.time.nanos(),
            schema: self.schema.0,
            partition: self.partition,
            level: self.level,
            flags: self.flags,
            producer: self.producer,
            trace: self.trace.as_ref().map_or(&[], |trace| &trace.0),
            key: self.key,
            headers: self.headers.as_bytes(),
        }
    }

    /// The order of one producer's samples.
    #[must_use]
    pub fn order(&self) -> (u64, u64) {
        (self.incarnation, self.sequence)
    }
}

/// The envelope's type: the one that `helio schema idl` prints.
#[must_use]
pub fn envelope_type() -> Struct {
    Arc::unwrap_or_clone(runtime_type(&TopicType::envelope()))
}

/// Replaces the contents of `into` by everything before the payload; [`pieces`] adds the rest.
pub fn write_head(header: &Header<'_>, payload: usize, into: &mut Vec<u8>) {
    into.clear();
    let padding = padding(payload);
    into.extend_from_slice(&ENCAPSULATION);
    into.extend_from_slice(&[0, padding as u8]);
    write_header(header, into);
    length(payload, into);
}

/// Writes a header behind a CDR header of four bytes.
pub fn write_header(header: &Header<'_>, into: &mut Vec<u8>) {
    into.extend_from_slice(&header.incarnation.to_le_bytes());
    into.extend_from_slice(&header.sequence.to_le_bytes());
    into.extend_from_slice(&header.previous.to_le_bytes());
    into.extend_from_slice(&header.time.nanos().to_le_bytes());
    into.extend_from_slice(&header.schema.0.to_le_bytes());
    into.extend_from_slice(&header.partition.to_le_bytes());
    into.extend_from_slice(&[header.level, header.flags]);
    align(into);
    length(header.producer.len() + 1, into);
    into.extend_from_slice(header.producer.as_bytes());
    into.push(0);
    octets(header.trace.as_ref().map_or(&[], |trace| &trace.0), into);
    octets(header.key, into);
    octets(header.headers.as_bytes(), into);
    align(into);
}

/// The pieces of a sample: the output of [`write_head`], the payload, and padding to four bytes.
#[must_use]
pub fn pieces<'a>(head: &'a [u8], payload: &'a [u8]) -> [IoSlice<'a>; 3] {
    [IoSlice::new(head), IoSlice::new(payload), IoSlice::new(&[0; 3][..padding(payload.len())])]
}

fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() % 4
}

fn align(into: &mut Vec<u8>) {
    into.resize(into.len() + padding(into.len()), 0);
}

fn length(bytes: usize, into: &mut Vec<u8>) {
    into.extend_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
}

fn octets(bytes: &[u8], into: &mut Vec<u8>) {
    align(into);
    length(bytes.len(), into);
    into.extend_from_slice(bytes);
}

/// Reads a sample; `None` if it is not an envelope.
#[must_use]
pub fn parse(cdr: &[u8]) -> Option<(Header<'_>, &[u8])> {
    if cdr.get(..2)? != ENCAPSULATION {
        return None;
    }
    let mut at = Cursor { bytes: cdr, at: 4 };
    let header = at.header()?;
    let payload = at.octets()?;
    Some((header, payload))
}

/// The header at the beginning of a sample of any of our types; `None` if there is none.
#[must_use]
pub fn header(cdr: &[u8]) -> Option<Header<'_>> {
    let at = match cdr.get(..2)? {
        id if id == ENCAPSULATION => 4,
        id if id == SIZED => 8,
        _ => return None,
    };
    Cursor { bytes: cdr, at }.header()
}

/// A position in CDR. (The CDR header has four bytes, so it does not change the alignment to four.)
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(bytes)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn octets(&mut self) -> Option<&'a [u8]> {
        self.at += padding(self.at);
        let length = u32::from_le_bytes(self.array()?);
        self.take(length as usize)
    }

    fn header(&mut self) -> Option<Header<'a>> {
        let incarnation = u64::from_le_bytes(self.array()?);
        let sequence = u64::from_le_bytes(self.array()?);
        let previous = u64::from_le_bytes(self.array()?);
        let time = Tai::from_nanos(i64::from_le_bytes(self.array()?));
        let schema = SchemaId(u64::from_le_bytes(self.array()?));
        let partition = u32::from_le_bytes(self.array()?);
        let [level, flags] = self.array()?;
        let producer = self.octets()?.split_last()?.1;
        let trace = self.octets()?;
        let (key, headers) = (self.octets()?, self.octets()?);
        Some(Header {
            producer: std::str::from_utf8(producer).ok()?,
            incarnation,
            sequence,
            previous,
            time,
            schema,
            partition,
            level,
            flags,
            trace: trace.try_into().ok().map(TraceId),
            key,
            headers: HeadersRef::parse(headers).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(key: &[u8], trace: Option<TraceId>) -> Header<'_> {
        Header {
            producer: "Script:12",
            incarnation: 0x11,
            sequence: 0x22,
            previous: 0x20,
            time: Tai::from_nanos(-5),
            schema: SchemaId(0x0102_0304_0506_0708),
            partition: 3,
            level: 9,
            flags: RESENT,
            trace,
            key,
            headers: HeadersRef::EMPTY,
        }
    }

    fn written(header: &Header<'_>, payload: &[u8]) -> Vec<u8> {
        let mut head = vec![7; 3];
        write_head(header, payload.len(), &mut head);
        pieces(&head, payload).concat_bytes()
    }

    trait Concat {
        fn concat_bytes(&self) -> Vec<u8>;
    }

    impl Concat for [IoSlice<'_>; 3] {
        fn concat_bytes(&self) -> Vec<u8> {
            self.iter().flat_map(|piece| piece.iter().copied()).collect()
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let golden = b"\0\x07\0\x01\x11\0\0\0\0\0\0\0\x22\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\
            \xfb\xff\xff\xff\xff\xff\xff\xff\x08\x07\x06\x05\x04\x03\x02\x01\
            \x03\0\0\0\x09\x01\0\0\x0a\0\0\0Script:12\0\0\0\
            \0\0\0\0\x01\0\0\0k\0\0\0\0\0\0\0\x03\0\0\0abc\0";
        assert_eq!(written(&header(b"k", None), b"abc"), golden);
    }

    #[test]
    fn the_bytes_are_those_of_the_printed_type() {
        let (of, trace) = (TopicType::envelope(), TraceId([3; 16]));
        let written = written(&header(b"key", Some(trace)), b"payload");
        let (mut payload, mut key, mut again) = (Vec::new(), Vec::new(), Vec::new());
        let head = of.from_cdr(&written, &mut payload, &mut key).unwrap();
        assert_eq!((head.producer, head.partition, head.time), ("Script:12", 3, -5));
        assert_eq!((&payload[..], &key[..]), (&b"payload"[..], &b"key"[..]));
        of.to_cdr(&head, &payload, &mut again).unwrap();
        assert_eq!(again, written);
    }

    #[test]
    fn what_is_written_is_read() {
        for trace in [None, Some(TraceId([3; 16]))] {
            for length in 0..9 {
                let bytes = [5; 9];
                let (header, payload) = (header(&bytes[..length], trace), &bytes[length..]);
                let cdr = written(&header, payload);
                assert_eq!(cdr.len() % 4, 0);
                assert_eq!(parse(&cdr), Some((header, payload)));
            }
        }
    }

    #[test]
    fn foreign_bytes_are_no_envelope() {
        let whole = written(&header(b"key", Some(TraceId([3; 16]))), b"abcd");
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
        for place in 0..whole.len() {
            let mut wrong = whole.clone();
            wrong[place] ^= 0xff;
            let _any = parse(&wrong);
        }
    }
}
