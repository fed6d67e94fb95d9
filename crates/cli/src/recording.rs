//! Writing an Avro container file, which gets its name when it is complete.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};

use helio_core::container::{Compression, Writer};
use helio_core::schema::Schema;

use crate::error::{CliError, CliResult};

/// A file that is being recorded. Dropping it before `finish` removes the partial file.
pub(crate) struct Recording {
    path: PathBuf,
    partial: PathBuf,
    file: File,
    /// `None` once the file is complete.
    writer: Option<Writer>,
    datums: u64,
    bytes: u64,
}

impl Recording {
    /// Creates a file, which is named `NAME.partial` until it is complete.
    pub(crate) fn create(path: &Path, schema: &Schema, codec: Compression) -> CliResult<Self> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).map_err(|e| CliError::file(&partial, &e))?;
        Ok(Self {
            path: path.to_owned(),
            partial,
            file,
            writer: Some(Writer::new(schema, codec, marker())),
            datums: 0,
            bytes: 0,
        })
    }

    /// Appends a datum.
    pub(crate) fn append(&mut self, datum: &[u8]) -> CliResult {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.append(datum);
        self.datums += 1;
        let ended = writer.take();
        self.put(&ended)
    }

    /// Bytes in the file so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Datums so far.
    pub(crate) fn datums(&self) -> u64 {
        self.datums
    }

    /// Completes, syncs and renames the file; returns its size in bytes.
    pub(crate) fn finish(mut self) -> CliResult<u64> {
        let rest = self.writer.take().map(Writer::finish).unwrap_or_default();
        let named = self.put(&rest).and_then(|()| {
            let synced = self.file.sync_all();
            let named = synced.and_then(|()| std::fs::rename(&self.partial, &self.path));
            named.map_err(|e| CliError::file(&self.path, &e))
        });
        if named.is_err() {
            self.discard();
        }
        named.map(|()| self.bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> CliResult {
        self.file.write_all(bytes).map_err(|e| CliError::file(&self.partial, &e))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn discard(&self) {
        // Best effort: the name shows that it is incomplete.
        let _ = std::fs::remove_file(&self.partial);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.discard();
        }
    }
}

/// A unique marker: sixteen random bytes.
fn marker() -> [u8; 16] {
    let mut marker = [0; 16];
    for half in marker.chunks_mut(8) {
        half.copy_from_slice(&RandomState::new().hash_one(std::process::id()).to_le_bytes());
    }
    marker
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_core::container::Container;

    #[test]
    fn a_file_takes_its_name_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let schema = Schema::parse(r#""string""#).unwrap();
        let path = dir.path().join("a.avro");
        let mut recording = Recording::create(&path, &schema, Compression::Snappy).unwrap();
        for _ in 0..100_000 {
            recording.append(b"\x0ahello").unwrap();
        }
        assert!(recording.bytes() > 0, "blocks go out as they end");
        assert!(!path.exists());
        let bytes = recording.finish().unwrap();
        let file = std::fs::read(&path).unwrap();
        assert_eq!(file.len() as u64, bytes);
        let mut container = Container::open(&file).unwrap();
        let mut datums = 0;
        while container.next_datum().unwrap().is_some() {
            datums += 1;
        }
        assert_eq!(datums, 100_000);
        drop(Recording::create(&dir.path().join("b.avro"), &schema, Compression::Null).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }
}
