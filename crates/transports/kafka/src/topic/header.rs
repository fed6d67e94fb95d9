//! The bus's metadata of a sample, in the Kafka header `helio` of its record.
//!
//! Format (version 1, little-endian). Key, payload and the sample's own headers are Kafka's: plain
//! clients read them without this. A record's Kafka timestamp is the sample's time in UTC,
//! truncated to milliseconds; the nanoseconds are here.
//!
//! | bytes | contents |
//! | --- | --- |
//! | 0 | version: 1 |
//! | 1 | flags, below |
//! | 2 | level |
//! | 3 | 0 |
//! | 4–11 | incarnation |
//! | 12–19 | sequence |
//! | 20–27 | time, nanoseconds of TAI since 1970 |
//! | 28–35 | schema |
//! | 16 more, by the flag | trace |
//! | the rest | the producer's name |
//!
//! Flags: bit 0, there is a trace. Bit 1, the payload is framed: Confluent's five bytes precede the
//! sample's own, a zero and the schema's number in a registry. Bit 2, the record's key is SAL's,
//! and the sample's key is the number at the start of its datum, `salIndex`. Bit 3, the record's
//! key is SAL's, and the sample has none. Others are 0.

use helio_bus::transport::Record;
use helio_core::headers::{MAX_HEADERS_BYTES, NULL_HEADER, REFUSED_HEADER};
use helio_core::{Headers, Producer, SchemaId, Tai, TraceId};
use rdkafka::message::{Header, OwnedHeaders};

/// The header's name.
pub(crate) const HEADER_NAME: &str = "helio";

const VERSION: u8 = 1;
const TRACED: u8 = 1;
const FRAMED: u8 = 2;
const INDEXED: u8 = 4;
const KEYLESS: u8 = 8;
const KNOWN_FLAGS: u8 = TRACED | FRAMED | INDEXED | KEYLESS;
const FIXED_BYTES: usize = 36;
const TRACE_BYTES: usize = 16;

/// The fields of a header, borrowed from a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader<'a> {
    pub(crate) producer: &'a str,
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
    pub(crate) time: Tai,
    pub(crate) schema: SchemaId,
    pub(crate) level: u8,
    pub(crate) trace: Option<TraceId>,
    pub(crate) frame: Frame,
    pub(crate) key: KeySource,
}

/// Where a sample's key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// It is the record's key.
    Own,
    /// The datum begins with it; the record's key is SAL's.
    Index,
    /// There is none; the record's key is SAL's.
    Without,
}

/// The bytes that precede a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Nothing.
    Plain,
    /// The schema's number in a registry.
    Framed,
}

impl<'a> RecordHeader<'a> {
    /// Parses a header; `None` if it has another format.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        if fixed[0] != VERSION || fixed[1] & !KNOWN_FLAGS != 0 {
            return None;
        }
        let word = |at: usize| -> [u8; 8] { std::array::from_fn(|n| fixed[at + n]) };
        let (trace, name) = if fixed[1] & TRACED == 0 {
            (None, rest)
        } else {
            let (trace, name) = rest.split_first_chunk::<TRACE_BYTES>()?;
            (Some(TraceId(*trace)), name)
        };
        Some(Self {
            producer: std::str::from_utf8(name).ok()?,
            incarnation: u64::from_le_bytes(word(4)),
            sequence: u64::from_le_bytes(word(12)),
            time: Tai::from_nanos(i64::from_le_bytes(word(20))),
            schema: SchemaId(u64::from_le_bytes(word(28))),
            level: fixed[2],
            trace,
            frame: if fixed[1] & FRAMED == 0 { Frame::Plain } else { Frame::Framed },
            key: match fixed[1] & (INDEXED | KEYLESS) {
                0 => KeySource::Own,
                INDEXED => KeySource::Index,
                _ => KeySource::Without,
            },
        })
    }
}

/// Writes a sample's header, replacing the contents of `into`.
pub(crate) fn write(
    record: &Record<'_>,
    (frame, key): (Frame, KeySource),
    (producer, sequence): (&Producer, u64),
    into: &mut Vec<u8>,
) {
    into.clear();
    let traced = if record.trace.is_some() { TRACED } else { 0 };
    let framed = if frame == Frame::Framed { FRAMED } else { 0 };
    let keyed = match key {
        KeySource::Own => 0,
        KeySource::Index => INDEXED,
        KeySource::Without => KEYLESS,
    };
    let flags = traced | framed | keyed;
    into.extend_from_slice(&[VERSION, flags, record.level, 0]);
    into.extend_from_slice(&producer.incarnation.to_le_bytes());
    into.extend_from_slice(&sequence.to_le_bytes());
    into.extend_from_slice(&record.time.nanos().to_le_bytes());
    into.extend_from_slice(&record.schema.0.to_le_bytes());
    if let Some(trace) = record.trace {
        into.extend_from_slice(&trace.0);
    }
    into.extend_from_slice(producer.name.as_str().as_bytes());
}

/// All headers of a record: ours first, then the sample's own by their names. The mark of a null is
/// left out, because the record itself is null; where the record's key is SAL's, its value is the
/// sample's key.
pub(crate) fn headers(helio: &[u8], record: &Record<'_>, key: KeySource) -> OwnedHeaders {
    let own = record.headers;
    let helio = Header { key: HEADER_NAME, value: Some(helio) };
    let all = OwnedHeaders::new_with_capacity(1 + own.iter().count()).insert(helio);
    let is_mark = |name: &str| name == NULL_HEADER && record.is_null();
    own.iter().fold(all, |all, (name, value)| match key {
        KeySource::Index if is_mark(name) => {
            all.insert(Header { key: name, value: Some(record.key) })
        }
        _ if is_mark(name) => all,
        _ => all.insert(Header { key: name, value: Some(value) }),
    })
}

/// A sample's own headers, from the rest of a record's. If they exceed the bus's limit, their size
/// is there instead, and the bus refuses the sample.
pub(crate) fn own<'a>(rest: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Headers {
    let (mut own, mut bytes) = (Some(Headers::new()), 0);
    for (name, value) in rest {
        bytes += name.len() + value.len();
        let name = String::from_utf8_lossy(name);
        own = own.and_then(|own| own.with_foreign(&name, value).ok());
    }
    own.unwrap_or_else(|| refused(bytes))
}

fn refused(bytes: usize) -> Headers {
    let size = bytes.to_string();
    Headers::new().with(REFUSED_HEADER, size).expect("the name is valid, the value is short")
}

/// The headers of a null, from those that its record has.
pub(crate) fn of_null(own: Headers) -> Headers {
    let bytes = own.as_ref().as_bytes().len();
    let null = own.null().or_else(|_| refused(bytes).null());
    null.expect("both marks are short")
}

const _: () = assert!(MAX_HEADERS_BYTES < 64 << 10, "they fit beside the largest payload and key");

#[cfg(test)]
mod tests {
    use super::*;
    use helio_core::{HeadersRef, ProducerName};

    fn record(trace: Option<TraceId>) -> Record<'static> {
        Record {
            key: b"k",
            payload: b"p",
            time: Tai::from_nanos(-5),
            schema: SchemaId(0x0102_0304_0506_0708),
            level: 9,
            trace,
            headers: HeadersRef::EMPTY,
        }
    }

    fn written(trace: Option<TraceId>, (frame, key): (Frame, KeySource)) -> Vec<u8> {
        let producer =
            Producer { name: ProducerName::new("Script:12").unwrap(), incarnation: 0x11 };
        let mut bytes = vec![7; 3];
        write(&record(trace), (frame, key), (&producer, 0x22), &mut bytes);
        bytes
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let golden = b"\x01\x01\x09\0\x11\0\0\0\0\0\0\0\x22\0\0\0\0\0\0\0\
            \xfb\xff\xff\xff\xff\xff\xff\xff\x08\x07\x06\x05\x04\x03\x02\x01\
            TTTTTTTTTTTTTTTTScript:12";
        assert_eq!(HEADER_NAME, "helio");
        assert_eq!(written(Some(TraceId([b'T'; 16])), (Frame::Plain, KeySource::Own)), golden);
        assert_eq!(written(None, (Frame::Framed, KeySource::Index))[..4], *b"\x01\x06\x09\0");
        assert_eq!(written(None, (Frame::Plain, KeySource::Without))[..4], *b"\x01\x08\x09\0");
    }

    #[test]
    fn what_is_written_is_read() {
        for (trace, frame, key) in [
            (None, Frame::Framed, KeySource::Own),
            (Some(TraceId([3; 16])), Frame::Plain, KeySource::Index),
            (None, Frame::Framed, KeySource::Without),
        ] {
            let bytes = written(trace, (frame, key));
            let fixed = RecordHeader::parse(&bytes).unwrap();
            let same = RecordHeader {
                producer: "Script:12",
                incarnation: 0x11,
                sequence: 0x22,
                time: Tai::from_nanos(-5),
                schema: SchemaId(0x0102_0304_0506_0708),
                level: 9,
                trace,
                frame,
                key,
            };
            assert_eq!(fixed, same);
        }
    }

    #[test]
    fn foreign_bytes_are_no_header() {
        let bytes = written(None, (Frame::Plain, KeySource::Own));
        for length in 0..FIXED_BYTES {
            assert_eq!(RecordHeader::parse(&bytes[..length]), None);
        }
        assert_eq!(RecordHeader::parse(&[&[2], &bytes[1..]].concat()), None);
        assert_eq!(RecordHeader::parse(&[&bytes[..FIXED_BYTES], &[0xff]].concat()), None);
        assert_eq!(RecordHeader::parse(&[&[1, 16], &bytes[2..]].concat()), None);
        let traced = [&[1, TRACED], &bytes[2..FIXED_BYTES + 5]].concat();
        assert_eq!(RecordHeader::parse(&traced), None);
    }
}
