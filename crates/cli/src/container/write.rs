//! Writing a container file.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};

use helio_core::codec::wire::{put_bytes, put_long};
use helio_core::schema::Schema;

use super::{Compression, MAGIC, SYNC_BYTES};
use crate::error::{CliError, CliResult};

/// A block is written when it has this many bytes: what the reference library takes.
const BLOCK_BYTES: usize = 64_000;

/// A container file on its way. Dropped unfinished it leaves nothing.
pub(crate) struct Writer {
    path: PathBuf,
    partial: PathBuf,
    file: Option<File>,
    compression: Compression,
    sync: [u8; SYNC_BYTES],
    block: Vec<u8>,
    in_block: u64,
    datums: u64,
    bytes: u64,
}

impl Writer {
    /// Begins a file; it lies beside its place, as `NAME.partial`, until it is whole.
    pub(crate) fn create(
        path: &Path,
        schema: &Schema,
        compression: Compression,
    ) -> CliResult<Self> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).map_err(|e| CliError::file(&partial, &e))?;
        let mut writer = Self {
            path: path.to_owned(),
            partial,
            file: Some(file),
            compression,
            sync: marker(),
            block: Vec::with_capacity(BLOCK_BYTES * 2),
            in_block: 0,
            datums: 0,
            bytes: 0,
        };
        let mut head = MAGIC.to_vec();
        put_long(&mut head, 2);
        put_bytes(&mut head, b"avro.schema");
        put_bytes(&mut head, schema.to_json().to_string().as_bytes());
        put_bytes(&mut head, b"avro.codec");
        put_bytes(&mut head, compression.name().as_bytes());
        put_long(&mut head, 0);
        head.extend_from_slice(&writer.sync);
        writer.put(&head)?;
        Ok(writer)
    }

    /// Appends a datum.
    pub(crate) fn append(&mut self, datum: &[u8]) -> CliResult {
        self.block.extend_from_slice(datum);
        self.in_block += 1;
        self.datums += 1;
        if self.block.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    /// Bytes in the file so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Datums so far.
    pub(crate) fn datums(&self) -> u64 {
        self.datums
    }

    /// Ends the file, makes it durable, and gives it its name; gives its size in bytes.
    pub(crate) fn finish(mut self) -> CliResult<u64> {
        self.flush()?;
        let failed = |e: std::io::Error| CliError::file(&self.path, &e);
        if let Some(file) = self.file.take() {
            file.sync_all().map_err(failed)?;
        }
        std::fs::rename(&self.partial, &self.path).map_err(failed)?;
        Ok(self.bytes)
    }

    fn flush(&mut self) -> CliResult {
        if self.in_block == 0 {
            return Ok(());
        }
        let packed = self.compression.pack(&self.block);
        let packed = packed.map_err(|e| CliError::Failure(format!("compression: {e}")))?;
        let mut head = Vec::with_capacity(20);
        put_long(&mut head, self.in_block as i64);
        put_long(&mut head, packed.len() as i64);
        self.put(&head)?;
        self.put(&packed)?;
        let sync = self.sync;
        self.put(&sync)?;
        self.block.clear();
        self.in_block = 0;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> CliResult {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes).map_err(|e| CliError::file(&self.partial, &e))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Best effort: the name says that it is not whole.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

/// A marker that no other file has: sixteen bytes of the system's randomness.
fn marker() -> [u8; SYNC_BYTES] {
    let mut marker = [0; SYNC_BYTES];
    for half in marker.chunks_mut(8) {
        half.copy_from_slice(&RandomState::new().hash_one(std::process::id()).to_le_bytes());
    }
    marker
}
