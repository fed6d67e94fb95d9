//! Frames: one sample as it lies in a segment. Pure: bytes in, bytes out.
//!
//! A frame is 8-aligned and starts with a header of [`HEADER`] bytes, then trace (16 bytes, if
//! flagged), key, payload, and zero to seven bytes that do not count. The checksum (CRC-32C) runs
//! over the body first and the header last, because the body is known before the lock is taken and
//! the header is not. It ends with the segment's id, so that bytes left over from a former use of a
//! recycled file never pass. `docs/formats/journal.md` has the byte table.

use helio_core::{SchemaId, Tai, TraceId};

/// Bytes of a frame before its body.
pub(crate) const HEADER: usize = 64;
/// The most bytes of key and payload together: a frame must fit a segment, and a segment a map.
pub const MAX_RECORD_BYTES: usize = 64 << 20;
/// The most bytes of a key: its length has 16 bits.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;

const TRACE: usize = 16;
const FLAG_TRACE: u8 = 1;
/// The longest frame that is believed.
const MAX_LEN: usize = HEADER + TRACE + MAX_RECORD_BYTES;

/// A frame's header, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Bytes of the frame, header included, padding not.
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
}

fn word(bytes: &[u8; HEADER], at: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(out)
}

fn half(bytes: &[u8; HEADER], at: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(out)
}

impl FrameHeader {
    /// Takes a header apart; `None` where its lengths cannot be true.
    #[inline]
    pub(crate) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let header = Self {
            len: half(bytes, 0),
            crc: half(bytes, 4),
            offset: word(bytes, 8),
            time: Tai::from_nanos(word(bytes, 16) as i64),
            sequence: word(bytes, 24),
            schema: SchemaId(word(bytes, 32)),
            incarnation: word(bytes, 40),
            link: word(bytes, 48),
            producer: half(bytes, 56),
            key_len: u16::from_le_bytes([bytes[60], bytes[61]]),
            level: bytes[62],
            flags: bytes[63],
        };
        let len = header.len as usize;
        let fits = header.flags & !FLAG_TRACE == 0
            && header.offset < u64::MAX
            && len <= MAX_LEN
            && len >= HEADER + header.trace_len() + usize::from(header.key_len);
        fits.then_some(header)
    }

    /// The header as bytes, with the checksum that belongs to a body's and a segment's id.
    #[inline]
    pub(crate) fn seal(&self, body_crc: u32, segment: u64) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[0..4].copy_from_slice(&self.len.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..24].copy_from_slice(&self.time.nanos().to_le_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.schema.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.incarnation.to_le_bytes());
        out[48..56].copy_from_slice(&self.link.to_le_bytes());
        out[56..60].copy_from_slice(&self.producer.to_le_bytes());
        out[60..62].copy_from_slice(&self.key_len.to_le_bytes());
        out[62] = self.level;
        out[63] = self.flags;
        let crc = header_crc(&out, body_crc, segment);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn trace_len(&self) -> usize {
        usize::from(self.flags & FLAG_TRACE) * TRACE
    }

    /// Bytes from this frame's start to the next one's.
    #[inline]
    pub(crate) fn stride(&self) -> usize {
        stride(self.len as usize)
    }
}

/// Rounds a frame's length up to where the next frame starts.
#[inline]
pub(crate) fn stride(len: usize) -> usize {
    (len + 7) & !7
}

/// The checksum over the body's parts in their order.
#[inline]
pub(crate) fn body_crc(trace: Option<&TraceId>, key: &[u8], payload: &[u8]) -> u32 {
    let crc = trace.map_or(0, |t| crc32c::crc32c(&t.0));
    let crc = if key.is_empty() { crc } else { crc32c::crc32c_append(crc, key) };
    crc32c::crc32c_append(crc, payload)
}

#[inline]
fn header_crc(header: &[u8; HEADER], body_crc: u32, segment: u64) -> u32 {
    let mut tail = [0; 72];
    tail[..4].copy_from_slice(&header[..4]);
    tail[8..64].copy_from_slice(&header[8..]);
    tail[64..].copy_from_slice(&segment.to_le_bytes());
    crc32c::crc32c_append(body_crc, &tail)
}

/// Whether a frame's bytes are those that were written to that segment.
#[inline]
pub(crate) fn verify(header: &[u8; HEADER], body: &[u8], segment: u64) -> bool {
    header_crc(header, crc32c::crc32c(body), segment) == half(header, 4)
}

/// The flags and the length of a frame to be, or `None` where it is too long.
pub(crate) fn plan(trace: Option<&TraceId>, key: &[u8], payload: &[u8]) -> Option<(u32, u8)> {
    let flags = if trace.is_some() { FLAG_TRACE } else { 0 };
    let record = key.len().checked_add(payload.len()).filter(|n| *n <= MAX_RECORD_BYTES)?;
    let len = HEADER + usize::from(flags) * TRACE + record;
    Some((u32::try_from(len).ok()?, flags))
}

/// A body taken apart into trace, key and payload, by a header that fits it.
#[inline]
pub(crate) fn split<'a>(
    header: &FrameHeader,
    body: &'a [u8],
) -> (Option<TraceId>, &'a [u8], &'a [u8]) {
    let (trace, rest) = body.split_at(header.trace_len());
    let (key, payload) = rest.split_at(usize::from(header.key_len));
    (trace.try_into().ok().map(TraceId), key, payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(trace: Option<&TraceId>, key: &[u8], payload: &[u8]) -> FrameHeader {
        let (len, flags) = plan(trace, key, payload).unwrap();
        let schema = SchemaId(5);
        let time = Tai::from_nanos(-3);
        let key_len = key.len() as u16;
        let (offset, sequence, incarnation, link, producer, level) = (9, 8, 7, 6, 4, 3);
        let crc = 0;
        #[rustfmt::skip]
        let header = FrameHeader {
            len, crc, offset, time, sequence, schema, incarnation, link, producer, key_len, level,
            flags,
        };
        header
    }

    proptest! {
        #[test]
        fn a_frame_comes_out_as_it_went_in(
            trace in any::<Option<[u8; 16]>>(), key: Vec<u8>, payload: Vec<u8>, segment: u64,
        ) {
            let trace = trace.map(TraceId);
            let header = header(trace.as_ref(), &key, &payload);
            let bytes = header.seal(body_crc(trace.as_ref(), &key, &payload), segment);
            let mut body = trace.map_or(vec![], |t| t.0.to_vec());
            body.extend(&key);
            body.extend(&payload);
            let back = FrameHeader::parse(&bytes).unwrap();
            prop_assert_eq!(FrameHeader { crc: 0, ..back }, header);
            prop_assert!(verify(&bytes, &body, segment));
            prop_assert!(!verify(&bytes, &body, segment.wrapping_add(1)));
            prop_assert_eq!(split(&back, &body), (trace, &key[..], &payload[..]));
        }

        #[test]
        fn any_bytes_parse_or_do_not(bytes: [u8; 32]) {
            let mut header = [0; HEADER];
            header[..32].copy_from_slice(&bytes);
            if let Some(h) = FrameHeader::parse(&header) {
                prop_assert!(h.len as usize >= HEADER);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let header = header(None, b"key", b"payload");
        let bytes = header.seal(body_crc(None, b"key", b"payload"), 77);
        let mut frame = bytes.to_vec();
        frame.extend(b"keypayload");
        for bit in 0..frame.len() * 8 {
            frame[bit / 8] ^= 1 << (bit % 8);
            let (head, body) = frame.split_at(HEADER);
            assert!(!verify(head.try_into().unwrap(), body, 77), "bit {bit}");
            frame[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn too_long_a_record_is_refused() {
        assert_eq!(plan(None, b"", &vec![0; MAX_RECORD_BYTES + 1]), None);
        assert!(plan(None, b"", &vec![0; MAX_RECORD_BYTES]).is_some());
    }
}
