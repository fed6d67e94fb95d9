//! Frames: the layout of a record in a segment. Pure: bytes in, bytes out.
//!
//! A frame is 8-aligned: a header of [`FRAME_HEADER_BYTES`] bytes, trace (16 bytes, if flagged),
//! headers (after their length in 2 bytes, if flagged), key, payload, padding of zero to seven
//! bytes. A *padded* frame has up to 63 zero bytes before its payload, which then begins at a
//! multiple of [`PAYLOAD_ALIGNMENT`] bytes of the segment's file. The checksum (CRC-32C) covers the
//! body first and the header last, because the body is known before the lock is taken, and header
//! and padding are not. It ends with the segment's id, so that bytes of a former use of a recycled
//! file never pass. `docs/formats/journal.md` has the byte table.

use helio_core::headers::MAX_HEADERS_BYTES;
use helio_core::{HeadersRef, SchemaId, Tai, TraceId};

/// Bytes of a frame before its body.
pub(crate) const FRAME_HEADER_BYTES: usize = 64;
/// The limit of key and payload together: a frame must fit in a segment, and a segment in a map.
pub const MAX_RECORD_BYTES: usize = 64 << 20;
/// The limit of a key's bytes: its length has 16 bits.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;

const TRACE_BYTES: usize = 16;
/// Bytes of the headers' length.
const HEADERS_LENGTH_BYTES: usize = 2;
const FLAG_TRACE: u8 = 1;
const FLAG_HEADERS: u8 = 2;
const FLAG_PADDED: u8 = 4;
/// The multiple of bytes of a segment's file at which a padded frame's payload begins: a cache
/// line, and the widest vector registers.
pub const PAYLOAD_ALIGNMENT: usize = 64;
/// The longest valid frame.
const MAX_FRAME_BYTES: usize = FRAME_HEADER_BYTES
    + TRACE_BYTES
    + HEADERS_LENGTH_BYTES
    + MAX_HEADERS_BYTES
    + MAX_RECORD_BYTES
    + PAYLOAD_ALIGNMENT
    - 1;

/// A parsed frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Bytes of the frame, with its header and without padding.
    pub len: u32,
    pub crc: u32,
    pub offset: u64,
    pub time: Tai,
    pub sequence: u64,
    pub schema: SchemaId,
    pub incarnation: u64,
    /// Position of the same key's frame before this one; 0 for none.
    pub link: u64,
    pub producer: u32,
    pub key_len: u16,
    pub level: u8,
    pub flags: u8,
    /// Zero bytes before the payload.
    pub pad: u8,
}

/// Returns the oldest version of segments that may have frames with these flags.
pub(crate) fn version(flags: u8) -> u32 {
    match flags {
        _ if flags & FLAG_PADDED != 0 => 3,
        _ if flags & FLAG_HEADERS != 0 => 2,
        _ => 1,
    }
}

fn word(bytes: &[u8; FRAME_HEADER_BYTES], at: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(out)
}

fn half(bytes: &[u8; FRAME_HEADER_BYTES], at: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(out)
}

impl FrameHeader {
    /// Parses a header; `None` if its lengths are impossible.
    #[inline]
    pub(crate) fn parse(bytes: &[u8; FRAME_HEADER_BYTES]) -> Option<Self> {
        let padded = bytes[63] & FLAG_PADDED != 0;
        // Producers' numbers have 16 bits.
        let (producer, pad) = match padded {
            true => (half(bytes, 56) & 0xffff, bytes[59]),
            false => (half(bytes, 56), 0),
        };
        let header = Self {
            len: half(bytes, 0),
            crc: half(bytes, 4),
            offset: word(bytes, 8),
            time: Tai::from_nanos(word(bytes, 16) as i64),
            sequence: word(bytes, 24),
            schema: SchemaId(word(bytes, 32)),
            incarnation: word(bytes, 40),
            link: word(bytes, 48),
            producer,
            key_len: u16::from_le_bytes([bytes[60], bytes[61]]),
            level: bytes[62],
            flags: bytes[63],
            pad,
        };
        let len = header.len as usize;
        let fits = header.flags & !(FLAG_TRACE | FLAG_HEADERS | FLAG_PADDED) == 0
            && usize::from(pad) < PAYLOAD_ALIGNMENT
            && header.offset < u64::MAX
            && len <= MAX_FRAME_BYTES
            && len >= header.least_len();
        fits.then_some(header)
    }

    /// Returns the header's bytes, with the checksum over body, header and segment id.
    #[inline]
    pub(crate) fn seal(&self, body_crc: u32, segment: u64) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = [0; FRAME_HEADER_BYTES];
        out[0..4].copy_from_slice(&self.len.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..24].copy_from_slice(&self.time.nanos().to_le_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.schema.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.incarnation.to_le_bytes());
        out[48..56].copy_from_slice(&self.link.to_le_bytes());
        out[56..60].copy_from_slice(&self.producer.to_le_bytes());
        if self.flags & FLAG_PADDED != 0 {
            out[59] = self.pad;
        }
        out[60..62].copy_from_slice(&self.key_len.to_le_bytes());
        out[62] = self.level;
        out[63] = self.flags;
        let crc = header_crc(&out, body_crc, segment);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn trace_len(&self) -> usize {
        usize::from(self.flags & FLAG_TRACE) * TRACE_BYTES
    }

    fn has_headers(&self) -> bool {
        self.flags & FLAG_HEADERS != 0
    }

    /// The least number of bytes of a body before its key.
    fn fixed_len(&self) -> usize {
        self.trace_len() + usize::from(self.has_headers()) * HEADERS_LENGTH_BYTES
    }

    /// The least number of bytes of a frame.
    fn least_len(&self) -> usize {
        FRAME_HEADER_BYTES + self.fixed_len() + usize::from(self.key_len) + usize::from(self.pad)
    }

    /// Adds the padding that lets the last `rest` bytes, all or some of the payload's, begin at a
    /// multiple of [`PAYLOAD_ALIGNMENT`], for a frame at this byte of its segment's file.
    pub(crate) fn align(&mut self, at: u64, rest: usize) {
        let begin = at as usize % PAYLOAD_ALIGNMENT + self.len as usize - rest;
        self.pad = (begin.next_multiple_of(PAYLOAD_ALIGNMENT) - begin) as u8;
        self.len += u32::from(self.pad);
        self.flags |= FLAG_PADDED;
    }

    /// Returns the bytes from this frame's start to the next one's.
    #[inline]
    pub(crate) fn stride(&self) -> usize {
        stride(self.len as usize)
    }
}

/// Rounds a frame's length up to the next frame's start.
#[inline]
pub(crate) fn stride(len: usize) -> usize {
    (len + 7) & !7
}

/// The body of a frame, behind its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Body<'a> {
    pub trace: Option<TraceId>,
    pub headers: HeadersRef<'a>,
    pub key: &'a [u8],
    pub payload: &'a [u8],
    /// Zero bytes before the payload; the checksum leaves them out.
    pub pad: u8,
}

impl<'a> Body<'a> {
    fn trace(&self) -> &[u8] {
        self.trace.as_ref().map_or(&[], |trace| &trace.0)
    }

    /// Returns whether it is a null, which deletes its key's last value.
    #[inline]
    pub(crate) fn is_null(&self) -> bool {
        self.payload.is_empty() && self.headers.mark_null()
    }

    fn headers_length(&self) -> [u8; HEADERS_LENGTH_BYTES] {
        // Headers are checked to be shorter than that.
        (self.headers.as_bytes().len() as u16).to_le_bytes()
    }

    /// Returns the checksum over the parts in their order.
    #[inline]
    pub(crate) fn crc(&self) -> u32 {
        let crc = self.trace.as_ref().map_or(0, |trace| crc32c::crc32c(&trace.0));
        let crc = if self.headers.is_empty() { crc } else { self.headers_crc(crc) };
        let crc = if self.key.is_empty() { crc } else { crc32c::crc32c_append(crc, self.key) };
        crc32c::crc32c_append(crc, self.payload)
    }

    fn headers_crc(&self, crc: u32) -> u32 {
        let crc = crc32c::crc32c_append(crc, &self.headers_length());
        crc32c::crc32c_append(crc, self.headers.as_bytes())
    }

    /// Passes the parts to `write` in their order.
    #[inline]
    pub(crate) fn write(&self, mut write: impl FnMut(&[u8])) {
        write(self.trace());
        if !self.headers.is_empty() {
            write(&self.headers_length());
            write(self.headers.as_bytes());
        }
        write(self.key);
        if self.pad != 0 {
            write(&[0; PAYLOAD_ALIGNMENT][..usize::from(self.pad)]);
        }
        write(self.payload);
    }

    /// Returns length and flags of the frame; `None` if it is too long.
    #[inline]
    pub(crate) fn plan(&self) -> Option<(u32, u8)> {
        let (key, payload) = (self.key.len(), self.payload.len());
        let record = key.checked_add(payload).filter(|n| *n <= MAX_RECORD_BYTES)?;
        let (headers, flag) = match self.headers.as_bytes().len() {
            0 => (0, 0),
            length => (HEADERS_LENGTH_BYTES + length, FLAG_HEADERS),
        };
        let flags = flag | if self.trace.is_some() { FLAG_TRACE } else { 0 };
        let len = FRAME_HEADER_BYTES + self.trace().len() + headers + record;
        Some((u32::try_from(len).ok()?, flags))
    }

    /// Parses a body by its header; `None` if they do not match.
    #[inline]
    pub(crate) fn parse(header: &FrameHeader, body: &'a [u8]) -> Option<Self> {
        let (trace, mut rest) = body.split_at_checked(header.trace_len())?;
        let mut headers = HeadersRef::EMPTY;
        if header.has_headers() {
            let (length, behind) = rest.split_first_chunk::<HEADERS_LENGTH_BYTES>()?;
            let length = usize::from(u16::from_le_bytes(*length));
            let (bytes, behind) = behind.split_at_checked(length)?;
            headers = HeadersRef::parse(bytes).ok()?;
            rest = behind;
        }
        let (key, rest) = rest.split_at_checked(usize::from(header.key_len))?;
        let (_, payload) = rest.split_at_checked(usize::from(header.pad))?;
        let (trace, pad) = (trace.try_into().ok().map(TraceId), header.pad);
        Some(Self { trace, headers, key, payload, pad })
    }
}

#[inline]
fn header_crc(header: &[u8; FRAME_HEADER_BYTES], body_crc: u32, segment: u64) -> u32 {
    let mut tail = [0; 72];
    tail[..4].copy_from_slice(&header[..4]);
    tail[8..64].copy_from_slice(&header[8..]);
    tail[64..].copy_from_slice(&segment.to_le_bytes());
    crc32c::crc32c_append(body_crc, &tail)
}

/// Returns whether a frame's bytes are those that were written to that segment, and well-formed.
#[inline]
pub(crate) fn verify(
    header: &[u8; FRAME_HEADER_BYTES],
    parsed: &FrameHeader,
    body: &[u8],
    segment: u64,
) -> bool {
    // Without headers any body fits a header that was parsed.
    body_crc(parsed, body).is_some_and(|crc| header_crc(header, crc, segment) == half(header, 4))
        && (!parsed.has_headers() || Body::parse(parsed, body).is_some())
}

/// Returns the checksum over a body as it lies in a frame; `None` if they do not match.
#[inline]
pub(crate) fn body_crc(header: &FrameHeader, body: &[u8]) -> Option<u32> {
    match header.pad {
        0 => Some(crc32c::crc32c(body)),
        _ => Body::parse(header, body).map(|body| body.crc()),
    }
}

/// Parses a body by a header that was [verified](verify) to match it.
#[inline]
pub(crate) fn split<'a>(header: &FrameHeader, body: &'a [u8]) -> Body<'a> {
    Body::parse(header, body).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_core::Headers;
    use proptest::prelude::*;

    fn header(body: &Body<'_>) -> FrameHeader {
        let (len, flags) = body.plan().unwrap();
        let schema = SchemaId(5);
        let time = Tai::from_nanos(-3);
        let key_len = body.key.len() as u16;
        let (offset, sequence, incarnation, link, producer, level) = (9, 8, 7, 6, 4, 3);
        let (crc, pad) = (0, 0);
        #[rustfmt::skip]
        let header = FrameHeader {
            len, crc, offset, time, sequence, schema, incarnation, link, producer, key_len, level,
            flags, pad,
        };
        header
    }

    fn bytes(body: &Body<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        body.write(|part| bytes.extend_from_slice(part));
        bytes
    }

    proptest! {
        #[test]
        fn a_frame_comes_out_as_it_went_in(
            trace in any::<Option<[u8; 16]>>(), value in any::<Option<Vec<u8>>>(), key: Vec<u8>,
            payload: Vec<u8>, segment: u64, at: Option<u16>, aligned: prop::sample::Index,
        ) {
            let headers = value.map_or(Headers::new(), |v| Headers::new().with("n", v).unwrap());
            let (headers, key, payload) = (headers.as_ref(), &key[..], &payload[..]);
            let mut body = Body { trace: trace.map(TraceId), headers, key, payload, pad: 0 };
            let mut header = header(&body);
            if let Some(at) = at {
                let rest = aligned.index(payload.len() + 1);
                header.align(at.into(), rest);
                body.pad = header.pad;
                let begin = usize::from(at) + header.len as usize - rest;
                prop_assert!(begin.is_multiple_of(PAYLOAD_ALIGNMENT));
            }
            let head = header.seal(body.crc(), segment);
            let bytes = bytes(&body);
            prop_assert_eq!(header.len as usize, FRAME_HEADER_BYTES + bytes.len());
            let back = FrameHeader::parse(&head).unwrap();
            prop_assert_eq!(FrameHeader { crc: 0, ..back }, header);
            prop_assert!(verify(&head, &back, &bytes, segment));
            prop_assert!(!verify(&head, &back, &bytes, segment.wrapping_add(1)));
            prop_assert_eq!(split(&back, &bytes), body);
        }

        #[test]
        fn any_bytes_parse_or_do_not(bytes: [u8; 32], flags: u8, key_len in 0_u16..40) {
            let mut header = [0; FRAME_HEADER_BYTES];
            header[..32].copy_from_slice(&bytes);
            header[..4].copy_from_slice(&(FRAME_HEADER_BYTES as u32 + 32).to_le_bytes());
            header[60..62].copy_from_slice(&key_len.to_le_bytes());
            header[63] = flags;
            if let Some(h) = FrameHeader::parse(&header) {
                prop_assert!(h.len as usize >= FRAME_HEADER_BYTES);
                // A valid checksum does not imply valid lengths.
                let head = h.seal(crc32c::crc32c(&bytes), 77);
                let head = match body_crc(&h, &bytes) {
                    Some(crc) => h.seal(crc, 77),
                    None => head,
                };
                let whole = verify(&head, &h, &bytes, 77);
                prop_assert_eq!(whole, Body::parse(&h, &bytes).is_some());
                prop_assert!(whole || flags & FLAG_HEADERS != 0);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let headers = Headers::new().with("name", b"value").unwrap();
        let (headers, key, payload) = (headers.as_ref(), &b"key"[..], &b"payload"[..]);
        for headers in [HeadersRef::EMPTY, headers] {
            let body = Body { headers, key, payload, ..Body::default() };
            let header = header(&body);
            let mut frame = header.seal(body.crc(), 77).to_vec();
            frame.extend(bytes(&body));
            for bit in 0..frame.len() * 8 {
                frame[bit / 8] ^= 1 << (bit % 8);
                let (head, body) = frame.split_at(FRAME_HEADER_BYTES);
                assert!(!verify(head.try_into().unwrap(), &header, body, 77), "bit {bit}");
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn headers_that_do_not_fit_their_frame_are_damage() {
        let wrong: [&[u8]; 4] = [b"\x01\x00", b"\xff\xffab", b"\x04\x00\x01A\x00\x00", b"\x00\x00"];
        for (n, bytes) in wrong.into_iter().enumerate() {
            let body = Body { payload: bytes, ..Body::default() };
            let header = FrameHeader { flags: FLAG_HEADERS, ..header(&body) };
            let head = header.seal(crc32c::crc32c(bytes), 77);
            // An empty block is valid, if wasteful.
            assert_eq!(verify(&head, &header, bytes, 77), n == 3, "{bytes:?}");
        }
    }

    #[test]
    fn too_long_a_record_is_refused() {
        let payload = vec![0; MAX_RECORD_BYTES + 1];
        assert_eq!(Body { payload: &payload, ..Body::default() }.plan(), None);
        let headers = Headers::new().with("n", vec![0; MAX_HEADERS_BYTES - 4]).unwrap();
        let (trace, headers, payload) = (Some(TraceId([1; 16])), headers.as_ref(), &payload[1..]);
        let body = Body { trace, headers, payload, ..Body::default() };
        let mut header = header(&body);
        header.align(1, payload.len());
        assert!((header.len as usize) <= MAX_FRAME_BYTES, "{}", header.len);
        assert!(FrameHeader::parse(&header.seal(body.crc(), 1)).is_some());
    }
}
