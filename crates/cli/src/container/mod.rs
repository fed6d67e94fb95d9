//! Avro object container files (Avro specification 1.11, "Object Container Files").
//!
//! Constraints: sizes that a file announces are checked against the limits here before anything is
//! allocated; a damaged block is an error that names its place, never a skipped sample.
//!
//! Format: the magic `Obj` 1; a map of metadata (`avro.schema`, `avro.codec`); a marker of 16
//! bytes; then blocks, each a number of datums, a number of bytes, the bytes as the codec has them,
//! and the marker again. Codecs: `null`, `deflate` (RFC 1951) and `snappy` (with a CRC-32 behind
//! it).
//!
//! Operation: [`Reader`] goes through a file block by block; [`Writer`] writes to a file beside the
//! final one, which takes its name only when it is whole.

mod read;
mod write;

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;

pub(crate) use read::Reader;
pub(crate) use write::Writer;

/// What a container file begins with.
pub(crate) const MAGIC: [u8; 4] = *b"Obj\x01";
/// The marker between blocks.
const SYNC_BYTES: usize = 16;
/// The largest block as it lies in the file, and as it is unpacked: above what any writer makes.
const BLOCK_BYTES_MAX: usize = 256 << 20;
/// The largest header: a schema and a few words.
const HEADER_BYTES_MAX: usize = 16 << 20;
/// Deflate's usual compromise between speed and size.
const DEFLATE_LEVEL: u8 = 6;

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Not at all.
    Null,
    /// Raw deflate.
    Deflate,
    /// Snappy and a checksum.
    Snappy,
}

impl Compression {
    /// The codec of that name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "null" => Some(Self::Null),
            "deflate" => Some(Self::Deflate),
            "snappy" => Some(Self::Snappy),
            _ => None,
        }
    }

    /// Its name in a file.
    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Deflate => "deflate",
            Self::Snappy => "snappy",
        }
    }

    fn pack(self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Null => Ok(bytes.to_vec()),
            Self::Deflate => Ok(compress_to_vec(bytes, DEFLATE_LEVEL)),
            Self::Snappy => {
                let packed = snap::raw::Encoder::new().compress_vec(bytes);
                let mut packed = packed.map_err(|e| e.to_string())?;
                packed.extend_from_slice(&crc32(bytes).to_be_bytes());
                Ok(packed)
            }
        }
    }

    fn unpack(self, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        match self {
            Self::Null => Ok(bytes),
            Self::Deflate => decompress_to_vec_with_limit(&bytes, BLOCK_BYTES_MAX)
                .map_err(|e| format!("deflate: {e}")),
            Self::Snappy => unsnap(&bytes),
        }
    }
}

fn unsnap(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let (packed, checksum) = bytes.split_last_chunk().ok_or("snappy: no checksum")?;
    let size = snap::raw::decompress_len(packed).map_err(|e| e.to_string())?;
    if size > BLOCK_BYTES_MAX {
        return Err(format!("snappy: {size} bytes, at most {BLOCK_BYTES_MAX} are read"));
    }
    let bytes = snap::raw::Decoder::new().decompress_vec(packed).map_err(|e| e.to_string())?;
    match crc32(&bytes) == u32::from_be_bytes(*checksum) {
        true => Ok(bytes),
        false => Err("snappy: the checksum is wrong".to_owned()),
    }
}

/// CRC-32 as zlib has it (ISO 3309), bit by bit: files are small beside what unpacking costs.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_core::schema::Schema;

    #[test]
    fn the_checksum_is_zlib_s() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let schema = Schema::parse(r#""string""#).unwrap();
        for compression in [Compression::Null, Compression::Deflate, Compression::Snappy] {
            let path = dir.path().join(format!("{}.avro", compression.name()));
            let mut writer = Writer::create(&path, &schema, compression).unwrap();
            let datum = |n: usize| [&[60_u8][..], &[b'a' + (n % 26) as u8; 30]].concat();
            for n in 0..10_000 {
                writer.append(&datum(n)).unwrap();
            }
            assert!(!path.exists(), "it takes its name when it is whole");
            assert_eq!(writer.datums(), 10_000);
            assert_eq!(writer.finish().unwrap(), std::fs::metadata(&path).unwrap().len());
            let mut reader = Reader::open(&path).unwrap();
            assert_eq!(reader.schema(), &schema);
            for n in 0..10_000 {
                assert_eq!(reader.next().unwrap().unwrap(), datum(n));
            }
            assert!(reader.next().unwrap().is_none());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing else is left");
    }

    #[test]
    fn an_abandoned_file_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let schema = Schema::parse(r#""long""#).unwrap();
        let path = dir.path().join("a.avro");
        drop(Writer::create(&path, &schema, Compression::Null).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let schema = Schema::parse(r#""string""#).unwrap();
        let path = dir.path().join("a.avro");
        for compression in [Compression::Null, Compression::Deflate, Compression::Snappy] {
            let mut writer = Writer::create(&path, &schema, compression).unwrap();
            for _ in 0..100 {
                writer.append(b"\x0ahello").unwrap();
            }
            writer.finish().unwrap();
            let whole = std::fs::read(&path).unwrap();
            let read = |bytes: &[u8]| {
                std::fs::write(&path, bytes).unwrap();
                let mut reader = Reader::open(&path)?;
                let mut datums = 0;
                while reader.next()?.is_some() {
                    datums += 1;
                }
                crate::error::CliResult::Ok(datums)
            };
            assert_eq!(read(&whole).unwrap(), 100);
            for cut in 0..whole.len() {
                // A file that ends behind its header is whole, and empty.
                assert!(!read(&whole[..cut]).is_ok_and(|n| n > 0), "cut at {cut}");
            }
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 0x41;
                // Whether it is noticed depends on the place; that it ends without harm does not.
                let _ = read(&damaged);
            }
        }
    }
}
