//! Avro object container files, in memory: no file is opened here.
//!
//! Format (Avro specification 1.11, "Object Container Files"): the header is `Obj` 1, a map of
//! metadata (`avro.schema`, `avro.codec`) and a sync marker of 16 bytes; each block is its number
//! of datums, its size in bytes, the datums (compressed), and the sync marker again. Compression is
//! `null`, `deflate` (RFC 1951) or `snappy` (with the CRC-32 of the datums behind it, big-endian).
//!
//! Datums are returned as bytes; they are skipped, not decoded.

use std::borrow::Cow;
use std::ops::Range;

use miniz_oxide::{deflate, inflate};
use thiserror::Error;

use crate::codec::wire::{put_bytes, put_length};
use crate::codec::{Codec, DecodeError, Reader, WireError};
use crate::schema::{Schema, SchemaError};

/// The limit of a block's decompressed bytes: other libraries write 16 kB to 1 MB, and a few
/// hostile bytes must not fill the memory.
pub const MAX_BLOCK_BYTES: usize = 64 << 20;
/// Bytes of datums after which a writer ends a block, as in other libraries.
pub const BLOCK_BYTES: usize = 64 << 10;

const MAGIC: &[u8; 4] = b"Obj\x01";

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// None.
    #[default]
    Null,
    /// Deflate, RFC 1951.
    Deflate,
    /// Snappy with a CRC-32.
    Snappy,
}

impl Compression {
    /// Its name in files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Deflate => "deflate",
            Self::Snappy => "snappy",
        }
    }

    /// Returns the compression of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Null, Self::Deflate, Self::Snappy].into_iter().find(|c| c.as_str() == name)
    }
}

/// Why bytes are not a container file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ContainerError {
    /// The magic bytes are wrong.
    #[error("no Avro object container file: it does not begin with \"Obj\" and 1")]
    Magic,
    /// The header has no schema.
    #[error("the header names no schema (avro.schema)")]
    NoSchema,
    /// The header's schema is invalid.
    #[error("the schema in the header: {0}")]
    Schema(#[from] SchemaError),
    /// The compression is unknown.
    #[error("the compression {0:?} is not supported; write the file with null, deflate or snappy")]
    Compression(String),
    /// The bytes end, or are damaged.
    #[error("at byte {offset}: {error}")]
    Wire {
        /// Position in the file.
        offset: usize,
        /// The cause.
        error: WireError,
    },
    /// A block does not end with the file's sync marker.
    #[error("at byte {offset}: the block does not end with the file's sync marker: damaged")]
    Sync {
        /// Position in the file.
        offset: usize,
    },
    /// A block cannot be decompressed.
    #[error("at byte {offset}: the block cannot be decompressed ({problem}): damaged")]
    Compressed {
        /// Position in the file.
        offset: usize,
        /// The cause.
        problem: String,
    },
    /// A block is larger than [`MAX_BLOCK_BYTES`].
    #[error("at byte {offset}: the block has more than {MAX_BLOCK_BYTES} bytes of datums")]
    Size {
        /// Position in the file.
        offset: usize,
    },
    /// A block's datums do not match the file's schema.
    #[error("in the block at byte {offset}, datum {index}: {error}")]
    Datum {
        /// Position of the block.
        offset: usize,
        /// The datum's index in the block.
        index: usize,
        /// The cause.
        error: DecodeError,
    },
}

/// A reader of a container file.
///
/// ```
/// use helio_core::Schema;
/// use helio_core::container::{Compression, Container, Writer};
///
/// let schema = Schema::parse("\"string\"")?;
/// let mut writer = Writer::new(&schema, Compression::Deflate, [7; 16]);
/// writer.append(b"\x02a");
/// writer.append(b"\x02b");
/// let bytes = writer.finish();
///
/// let mut file = Container::open(&bytes)?;
/// let mut datums = Vec::new();
/// while let Some(datum) = file.next_datum()? {
///     datums.push(datum.to_vec());
/// }
/// assert_eq!(datums, [b"\x02a", b"\x02b"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Container<'a> {
    bytes: &'a [u8],
    codec: Codec,
    compression: Compression,
    metadata: Vec<(String, &'a [u8])>,
    sync: [u8; 16],
    /// The position of the next block.
    next: usize,
    block: Block<'a>,
}

/// The schema of the last file of many, by its text.
#[derive(Debug, Default)]
pub struct SchemaCache(Option<(String, Codec)>);

impl SchemaCache {
    fn codec(&mut self, text: &str) -> Result<Codec, SchemaError> {
        match &self.0 {
            Some((known, codec)) if known == text => Ok(codec.clone()),
            _ => {
                let codec = Codec::new(&Schema::parse(text)?);
                self.0 = Some((text.to_owned(), codec.clone()));
                Ok(codec)
            }
        }
    }
}

/// The current block.
#[derive(Debug, Default)]
struct Block<'a> {
    offset: usize,
    datums: Cow<'a, [u8]>,
    /// The number of bytes read of `datums`.
    at: usize,
    index: usize,
    count: usize,
    /// Datums without bytes so far.
    empty: usize,
}

/// The limit of datums without bytes in one block: more are hostile.
const MAX_EMPTY_DATUMS: usize = 1 << 16;

impl<'a> Container<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`ContainerError`] if it is no header, or if schema or compression are invalid.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ContainerError> {
        Self::open_cached(bytes, &mut SchemaCache::default())
    }

    /// Reads the header of one of many files, whose schema is parsed only if it is not that of the
    /// last one.
    ///
    /// # Errors
    /// As [`Container::open`].
    pub fn open_cached(bytes: &'a [u8], last: &mut SchemaCache) -> Result<Self, ContainerError> {
        Self::open_with(bytes, |text| last.codec(text))
    }

    /// Reads the header, and takes the codec of the schema's text from a function.
    ///
    /// # Errors
    /// As [`Container::open`].
    pub fn open_with(
        bytes: &'a [u8],
        codec: impl FnOnce(&str) -> Result<Codec, SchemaError>,
    ) -> Result<Self, ContainerError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(ContainerError::Magic)?;
        let mut reader = Reader::new(rest);
        let header = header(&mut reader);
        let next = bytes.len() - reader.rest().len();
        let (metadata, sync) =
            header.map_err(|error| ContainerError::Wire { offset: next, error })?;
        let value = |name: &str| {
            let value = metadata.iter().rev().find(|(key, _)| key == name);
            value.map(|(_, value)| *value)
        };
        let name = String::from_utf8_lossy(value("avro.codec").unwrap_or(b"null"));
        let compression = Compression::named(&name)
            .ok_or_else(|| ContainerError::Compression(name.into_owned()))?;
        let text = value("avro.schema").ok_or(ContainerError::NoSchema)?;
        let codec = codec(&String::from_utf8_lossy(text))?;
        Ok(Self { bytes, codec, compression, metadata, sync, next, block: Block::default() })
    }

    /// The schema of the datums.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        self.codec.schema()
    }

    /// Returns the file's compression.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// The header's entries, `avro.schema` and `avro.codec` among them.
    #[must_use]
    pub fn metadata(&self) -> &[(String, &'a [u8])] {
        &self.metadata
    }

    /// Returns the next datum's bytes; `None` at the end of the file.
    ///
    /// # Errors
    /// [`ContainerError`] if the file is damaged; the rest is not read.
    pub fn next_datum(&mut self) -> Result<Option<&[u8]>, ContainerError> {
        match self.advance() {
            Ok(Some(range)) => Ok(Some(&self.block.datums[range])),
            Ok(None) => Ok(None),
            Err(error) => {
                self.next = self.bytes.len();
                self.block = Block::default();
                Err(error)
            }
        }
    }

    fn advance(&mut self) -> Result<Option<Range<usize>>, ContainerError> {
        while self.block.index == self.block.count {
            let offset = self.block.offset;
            let left = self.block.datums.len() - self.block.at;
            if left > 0 {
                return Err(ContainerError::Wire { offset, error: WireError::Trailing(left) });
            }
            if self.next >= self.bytes.len() {
                return Ok(None);
            }
            self.block = self.read_block()?;
        }
        let Block { offset, index, .. } = self.block;
        let wrong = |error| ContainerError::Datum { offset, index, error };
        let mut reader = Reader::new(&self.block.datums[self.block.at..]);
        self.codec.skip(&mut reader).map_err(wrong)?;
        let end = self.block.datums.len() - reader.rest().len();
        let datum = self.block.at..end;
        if datum.is_empty() {
            self.block.empty += 1;
            if self.block.empty > MAX_EMPTY_DATUMS {
                return Err(wrong(WireError::Budget.into()));
            }
        }
        self.block.at = end;
        self.block.index += 1;
        Ok(Some(datum))
    }

    fn read_block(&mut self) -> Result<Block<'a>, ContainerError> {
        let offset = self.next;
        let wire = |error| ContainerError::Wire { offset, error };
        let mut reader = Reader::new(&self.bytes[offset..]);
        let count = reader.long().map_err(wire)?;
        let count = usize::try_from(count).map_err(|_| wire(WireError::Negative))?;
        let packed = reader.bytes().map_err(wire)?;
        if reader.take(16).map_err(wire)? != self.sync {
            return Err(ContainerError::Sync { offset });
        }
        self.next = self.bytes.len() - reader.rest().len();
        let datums = unpack(self.compression, packed, offset)?;
        Ok(Block { offset, datums, at: 0, index: 0, count, empty: 0 })
    }
}

type Header<'a> = (Vec<(String, &'a [u8])>, [u8; 16]);

fn header<'a>(reader: &mut Reader<'a>) -> Result<Header<'a>, WireError> {
    let mut metadata = Vec::new();
    while let Some(block) = reader.block(2)? {
        for _ in 0..block.count {
            metadata.push((reader.string()?.to_owned(), reader.bytes()?));
        }
    }
    let mut sync = [0; 16];
    sync.copy_from_slice(reader.take(16)?);
    Ok((metadata, sync))
}

fn unpack(
    compression: Compression,
    packed: &[u8],
    offset: usize,
) -> Result<Cow<'_, [u8]>, ContainerError> {
    let damaged = |problem: String| ContainerError::Compressed { offset, problem };
    match compression {
        Compression::Null => Ok(Cow::Borrowed(packed)),
        Compression::Deflate => {
            match inflate::decompress_to_vec_with_limit(packed, MAX_BLOCK_BYTES) {
                Ok(datums) => Ok(Cow::Owned(datums)),
                Err(error) if error.status == inflate::TINFLStatus::HasMoreOutput => {
                    Err(ContainerError::Size { offset })
                }
                Err(error) => Err(damaged(format!("{:?}", error.status))),
            }
        }
        Compression::Snappy => {
            let short = || damaged("no checksum".to_owned());
            let (packed, sum) = packed.split_last_chunk::<4>().ok_or_else(short)?;
            let size = snap::raw::decompress_len(packed).map_err(|e| damaged(e.to_string()))?;
            // Snappy expands 3 bytes to at most 64; a larger length is false.
            if size > MAX_BLOCK_BYTES || size / 32 > packed.len() {
                return Err(ContainerError::Size { offset });
            }
            let datums = snap::raw::Decoder::new().decompress_vec(packed);
            let datums = datums.map_err(|error| damaged(error.to_string()))?;
            if crc32(&datums) != u32::from_be_bytes(*sum) {
                return Err(damaged("the checksum is another".to_owned()));
            }
            Ok(Cow::Owned(datums))
        }
    }
}

/// A writer of a container file. Finished blocks can be [taken](Writer::take) at any time.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
    block: Vec<u8>,
    count: usize,
    compression: Compression,
    sync: [u8; 16],
}

impl Writer {
    /// Starts with the header. `sync` is the marker between blocks: random bytes.
    #[must_use]
    pub fn new(schema: &Schema, compression: Compression, sync: [u8; 16]) -> Self {
        let mut out = MAGIC.to_vec();
        put_length(&mut out, 2);
        put_bytes(&mut out, b"avro.schema");
        put_bytes(&mut out, schema.to_string().as_bytes());
        put_bytes(&mut out, b"avro.codec");
        put_bytes(&mut out, compression.as_str().as_bytes());
        out.push(0);
        out.extend_from_slice(&sync);
        Self { out, block: Vec::new(), count: 0, compression, sync }
    }

    /// Adds the bytes of one datum of the schema (unchecked). A block ends automatically after
    /// [`BLOCK_BYTES`].
    pub fn append(&mut self, datum: &[u8]) {
        self.block.extend_from_slice(datum);
        self.count += 1;
        if self.block.len() >= BLOCK_BYTES {
            self.end_block();
        }
    }

    /// Ends the block, so that [`Writer::take`] returns all datums so far.
    pub fn end_block(&mut self) {
        if self.count == 0 {
            return;
        }
        put_length(&mut self.out, self.count);
        put_bytes(&mut self.out, &pack(self.compression, &self.block));
        self.out.extend_from_slice(&self.sync);
        self.block.clear();
        self.count = 0;
    }

    /// Takes the new bytes of the header and of all ended blocks, to be appended to the file.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Ends the file, and returns the bytes that were not taken before.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.end_block();
        self.out
    }
}

fn pack(compression: Compression, datums: &[u8]) -> Cow<'_, [u8]> {
    match compression {
        Compression::Null => Cow::Borrowed(datums),
        Compression::Deflate => Cow::Owned(deflate::compress_to_vec(datums, 6)),
        Compression::Snappy => {
            let mut packed = vec![0; snap::raw::max_compress_len(datums.len())];
            let size = snap::raw::Encoder::new().compress(datums, &mut packed);
            packed.truncate(size.expect("the buffer has the size that snappy asks for"));
            packed.extend(crc32(datums).to_be_bytes());
            Cow::Owned(packed)
        }
    }
}

/// CRC-32 as in ISO 3309 and zlib; Avro's snappy blocks end with it.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut sum = i as u32;
            let mut bit = 0;
            while bit < 8 {
                sum = (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
                bit += 1;
            }
            table[i] = sum;
            i += 1;
        }
        table
    };
    let step = |sum: u32, byte: &u8| (sum >> 8) ^ TABLE[usize::from(sum as u8 ^ byte)];
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Vec<u8>>, ContainerError> {
        let mut file = Container::open(bytes)?;
        let mut out = Vec::new();
        while let Some(datum) = file.next_datum()? {
            out.push(datum.to_vec());
        }
        Ok(out)
    }

    fn file(compression: Compression, count: usize) -> Vec<u8> {
        let schema = Schema::parse(r#"{"type": "array", "items": "int"}"#).unwrap();
        let codec = Codec::new(&schema);
        let mut writer = Writer::new(&schema, compression, [9; 16]);
        let mut bytes = Vec::new();
        for i in 0..count {
            let mut datum = Vec::new();
            codec.encode(&vec![i as i32; 100].into(), &mut datum).unwrap();
            writer.append(&datum);
            bytes.extend(writer.take());
        }
        bytes.extend(writer.finish());
        bytes
    }

    #[test]
    fn files_survive_every_compression() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        for compression in [Compression::Null, Compression::Deflate, Compression::Snappy] {
            let bytes = file(compression, 2000);
            let datums = all(&bytes).unwrap();
            assert_eq!(datums.len(), 2000);
            let file = Container::open(&bytes).unwrap();
            assert_eq!(file.compression(), compression);
            let codec = Codec::new(file.schema());
            assert_eq!(codec.decode(&datums[1999]).unwrap(), vec![1999; 100].into());
            assert_eq!(all(&file_of_none(compression)), Ok(vec![]));
        }
    }

    #[test]
    fn the_schema_of_the_last_file_is_kept_and_no_other() {
        let of = |text: &str| {
            Writer::new(&Schema::parse(text).unwrap(), Compression::Null, [9; 16]).finish()
        };
        let (int, long) = (of("\"int\""), of("\"long\""));
        let mut last = SchemaCache::default();
        for bytes in [&int, &int, &long, &int, &long, &long] {
            let cached = Container::open_cached(bytes, &mut last).unwrap();
            assert_eq!(cached.schema(), Container::open(bytes).unwrap().schema());
            assert_eq!(last.0.as_ref().unwrap().1.schema(), cached.schema());
        }
        assert!(Container::open_cached(b"Obj", &mut last).is_err());
    }

    fn file_of_none(compression: Compression) -> Vec<u8> {
        file(compression, 0)
    }

    #[test]
    fn damage_is_found() {
        for compression in [Compression::Null, Compression::Deflate, Compression::Snappy] {
            let bytes = file(compression, 3);
            let header = file_of_none(compression).len();
            for end in 0..bytes.len() {
                assert!(end == header || all(&bytes[..end]).is_err(), "{end}");
            }
            let mut changed = bytes.clone();
            let last = changed.len() - 1;
            changed[last] ^= 1;
            assert_eq!(all(&changed), Err(ContainerError::Sync { offset: header }));
        }
        let mut snappy = file(Compression::Snappy, 3);
        let place = snappy.len() - 17;
        snappy[place] ^= 1;
        assert!(matches!(all(&snappy), Err(ContainerError::Compressed { .. })));
        assert_eq!(all(b"Obj\x02"), Err(ContainerError::Magic));
        assert_eq!(all(&[&b"Obj\x01\0"[..], &[0; 16]].concat()), Err(ContainerError::NoSchema));
    }

    #[test]
    fn a_bomb_does_not_go_off() {
        let schema = Schema::parse("\"bytes\"").unwrap();
        for compression in [Compression::Deflate, Compression::Snappy] {
            let mut bytes = Writer::new(&schema, compression, [9; 16]).finish();
            let packed = pack(compression, &vec![0; MAX_BLOCK_BYTES + 1]).into_owned();
            put_length(&mut bytes, 1);
            put_bytes(&mut bytes, &packed);
            bytes.extend([9; 16]);
            assert!(matches!(all(&bytes), Err(ContainerError::Size { .. })), "{compression:?}");
        }
        let nulls = Schema::parse("\"null\"").unwrap();
        let mut bytes = Writer::new(&nulls, Compression::Null, [9; 16]).finish();
        put_length(&mut bytes, usize::MAX >> 1);
        bytes.push(0);
        bytes.extend([9; 16]);
        assert!(matches!(all(&bytes), Err(ContainerError::Datum { .. })));
    }
}
