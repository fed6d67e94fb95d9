//! Avro's single-object encoding: the bytes before a datum that name its schema (Avro specification
//! 1.11, "Single object encoding").

/// The first bytes.
const MARKER: [u8; 2] = [0xc3, 0x01];
/// The bytes before a framed datum: the marker, and the schema's
/// [fingerprint](crate::Schema::fingerprint), little-endian.
pub const FRAME_BYTES: usize = 10;

/// Writes a payload behind its schema's fingerprint; replaces the contents of `into`.
pub fn frame(fingerprint: u64, payload: &[u8], into: &mut Vec<u8>) {
    into.clear();
    into.reserve(FRAME_BYTES + payload.len());
    into.extend_from_slice(&MARKER);
    into.extend_from_slice(&fingerprint.to_le_bytes());
    into.extend_from_slice(payload);
}

/// Returns the schema's fingerprint and the datum of a framed payload; `None` if it is not framed.
#[must_use]
pub fn unframe(payload: &[u8]) -> Option<(u64, &[u8])> {
    let rest = payload.strip_prefix(&MARKER)?;
    let (fingerprint, datum) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*fingerprint), datum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    #[test]
    fn a_frame_is_the_marker_and_the_fingerprint() {
        // The fingerprint of "int" in the specification's notation, and thus reversed here.
        let print = Schema::parse("\"int\"").unwrap().fingerprint();
        assert_eq!(print, 0x7275_d51a_3f39_5c8f);
        let mut framed = vec![9];
        frame(print, b"datum", &mut framed);
        assert_eq!(framed, b"\xc3\x01\x8f\x5c\x39\x3f\x1a\xd5\x75\x72datum");
        assert_eq!(unframe(&framed), Some((print, &b"datum"[..])));
        assert_eq!((unframe(&framed[..9]), unframe(b"\xc3\x02\0\0\0\0\0\0\0\0")), (None, None));
    }
}
