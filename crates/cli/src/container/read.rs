//! Reading a container file, block by block.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use helio_core::codec::{Codec, wire};
use helio_core::schema::Schema;

use super::{BLOCK_BYTES_MAX, Compression, HEADER_BYTES_MAX, MAGIC, SYNC_BYTES};
use crate::error::{CliError, CliResult};

/// An open container file.
pub(crate) struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    codec: Codec,
    compression: Compression,
    sync: [u8; SYNC_BYTES],
    block: Vec<u8>,
    at: usize,
    left: u64,
    blocks: u64,
}

impl Reader {
    /// Opens a file and reads its header.
    pub(crate) fn open(path: &Path) -> CliResult<Self> {
        let file = File::open(path).map_err(|e| CliError::file(path, &e))?;
        let mut file = BufReader::new(file);
        let header = Header::read(&mut file);
        let header = header.map_err(|what| wrong(path, "its header", &what))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            codec: Codec::new(&header.schema),
            compression: header.compression,
            sync: header.sync,
            block: Vec::new(),
            at: 0,
            left: 0,
            blocks: 0,
        })
    }

    /// The schema of its datums.
    pub(crate) fn schema(&self) -> &Schema {
        self.codec.schema()
    }

    /// The next datum's bytes; `None` at the end.
    pub(crate) fn next(&mut self) -> CliResult<Option<&[u8]>> {
        while self.left == 0 {
            let place = format!("block {}", self.blocks + 1);
            if self.at < self.block.len() {
                let text = format!("{} bytes are left over", self.block.len() - self.at);
                return Err(wrong(&self.path, &place, &text));
            }
            if !self.fill().map_err(|what| wrong(&self.path, &place, &what))? {
                return Ok(None);
            }
            self.blocks += 1;
        }
        let rest = &self.block[self.at..];
        let mut reader = wire::Reader::new(rest);
        let place = || format!("block {}", self.blocks);
        self.codec.skip(&mut reader).map_err(|e| wrong(&self.path, &place(), &e.to_string()))?;
        let bytes = rest.len() - reader.rest().len();
        self.at += bytes;
        self.left -= 1;
        Ok(Some(&self.block[self.at - bytes..self.at]))
    }

    /// Reads the next block; false at the end of the file.
    fn fill(&mut self) -> Result<bool, String> {
        let Some(count) = long_or_end(&mut self.file)? else { return Ok(false) };
        let count = u64::try_from(count).map_err(|_| "a negative number of datums")?;
        let size = long_or_end(&mut self.file)?.ok_or("it ends in a block's head")?;
        let size = usize::try_from(size).ok().filter(|size| *size <= BLOCK_BYTES_MAX);
        let size = size.ok_or_else(|| format!("more than {BLOCK_BYTES_MAX} bytes"))?;
        let packed = exactly(&mut self.file, size)?;
        let sync = exactly(&mut self.file, SYNC_BYTES)?;
        if sync != self.sync {
            return Err("the marker behind it is wrong".to_owned());
        }
        self.block = self.compression.unpack(packed)?;
        // A datum of no bytes is possible (null), but not so many that nobody can have meant them.
        if count > self.block.len() as u64 + wire::FREE_VALUES as u64 {
            return Err(format!("{count} datums cannot be in {} bytes", self.block.len()));
        }
        (self.at, self.left) = (0, count);
        Ok(true)
    }
}

fn wrong(path: &Path, place: &str, what: &str) -> CliError {
    let path = path.display();
    CliError::Failure(format!(
        "{path} is damaged in {place}: {what}; only what is before it counts"
    ))
}

struct Header {
    schema: Schema,
    compression: Compression,
    sync: [u8; SYNC_BYTES],
}

impl Header {
    fn read(file: &mut impl Read) -> Result<Self, String> {
        if exactly(file, MAGIC.len())? != MAGIC {
            return Err("it is no Avro container file".to_owned());
        }
        let (mut schema, mut codec) = (None, "null".to_owned());
        let mut budget = HEADER_BYTES_MAX;
        loop {
            let count = long_or_end(file)?.ok_or("it ends in its metadata")?;
            if count == 0 {
                break;
            }
            if count < 0 {
                // A sized block of the map; the size is of no use here.
                long_or_end(file)?.ok_or("it ends in its metadata")?;
            }
            for _ in 0..count.unsigned_abs() {
                let key = text(file, &mut budget)?;
                let value = text(file, &mut budget)?;
                match key.as_slice() {
                    b"avro.schema" => schema = Some(value),
                    b"avro.codec" => codec = String::from_utf8_lossy(&value).into_owned(),
                    _ => {}
                }
            }
        }
        let schema = schema.ok_or("it has no schema")?;
        let schema = String::from_utf8(schema).map_err(|_| "its schema is no text")?;
        let schema = Schema::parse(&schema).map_err(|e| e.to_string())?;
        let compression = Compression::of(&codec).ok_or_else(|| {
            format!("its codec {codec:?} is not one of null, deflate and snappy; convert it")
        })?;
        let sync = exactly(file, SYNC_BYTES)?;
        let sync = sync.try_into().map_err(|_| "it has no marker")?;
        Ok(Self { schema, compression, sync })
    }
}

fn text(file: &mut impl Read, budget: &mut usize) -> Result<Vec<u8>, String> {
    let size = long_or_end(file)?.ok_or("it ends in its metadata")?;
    let size = usize::try_from(size).ok().filter(|size| *size <= *budget);
    let size = size.ok_or_else(|| format!("more than {HEADER_BYTES_MAX} bytes of metadata"))?;
    // An entry of no bytes costs too, so that a great number of them ends.
    *budget = budget.saturating_sub(size + 1);
    exactly(file, size)
}

/// Reads so many bytes; allocates as they come, not as they are announced.
fn exactly(file: &mut impl Read, size: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(size as u64).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    match bytes.len() == size {
        true => Ok(bytes),
        false => Err(format!("it ends {} bytes too early", size - bytes.len())),
    }
}

/// Reads a zigzag number; `None` where the file ends before it.
fn long_or_end(file: &mut impl Read) -> Result<Option<i64>, String> {
    let (mut bits, mut byte) = (0u64, [0u8]);
    for i in 0..10 {
        match file.read_exact(&mut byte) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::UnexpectedEof && i == 0 => return Ok(None),
            Err(e) => return Err(e.to_string()),
        }
        bits |= u64::from(byte[0] & 0x7f) << (7 * i);
        if byte[0] & 0x80 == 0 {
            return Ok(Some((bits >> 1) as i64 ^ -((bits & 1) as i64)));
        }
    }
    Err("a number has more than 64 bits".to_owned())
}
