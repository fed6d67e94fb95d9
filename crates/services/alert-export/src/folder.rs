//! The target folder: finished files, the manifest, and nothing half-written under a final name.
//!
//! Operation. A file is written under its name and [`TEMPORARY`], synced, renamed, and only then
//! named in the manifest, which is replaced in the same way. Files that no manifest names are left
//! by a process that was killed, and are removed.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::ExportError;
use crate::error::AtPath;
use crate::manifest::{FILE_NAME, Manifest, Part};
use crate::options::Format;

/// The suffix of a file that is not finished.
const TEMPORARY: &str = ".tmp";
/// How the names of files with alerts begin.
const PREFIX: &str = "alerts-";
/// Bytes of a file that are read at once.
const READ_BYTES: usize = 1 << 20;

/// A target that no other process exports into.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The folder, locked.
    lock: File,
}

/// A file in the making.
pub(crate) struct PartFile {
    name: String,
    temporary: PathBuf,
    file: File,
    hash: Xxh3,
    bytes: u64,
}

/// A file on the disk, under its temporary name.
pub(crate) struct Written {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) xxh3: String,
}

impl Folder {
    /// Opens or creates a folder, and reads its manifest.
    pub(crate) fn open(path: &Path) -> Result<(Self, Option<Manifest>), ExportError> {
        fs::create_dir_all(path).at(path)?;
        let lock = File::open(path).at(path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ExportError::Locked(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(error).at(path),
        }
        let folder = Self { path: path.to_owned(), lock };
        let manifest = folder.load()?;
        if manifest.is_none() && folder.names()?.iter().any(|name| !is_temporary(name)) {
            return Err(ExportError::Foreign(path.to_owned()));
        }
        Ok((folder, manifest))
    }

    fn load(&self) -> Result<Option<Manifest>, ExportError> {
        let path = self.path.join(FILE_NAME);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            text => Manifest::parse(&text.at(&path)?)
                .map(Some)
                .map_err(|cause| ExportError::Manifest { path, cause }),
        }
    }

    /// Replaces the manifest, durably.
    pub(crate) fn store(&self, manifest: &Manifest) -> Result<(), ExportError> {
        let temporary = self.path.join(format!("{FILE_NAME}{TEMPORARY}"));
        let mut file = File::create(&temporary).at(&temporary)?;
        file.write_all(&manifest.to_bytes()).and_then(|()| file.sync_all()).at(&temporary)?;
        let path = self.path.join(FILE_NAME);
        fs::rename(&temporary, &path).at(&path)?;
        self.lock.sync_all().at(&self.path)
    }

    /// Removes the files that a killed process has left.
    pub(crate) fn clean(&self, manifest: &Manifest) -> Result<(), ExportError> {
        let known = |name: &str| manifest.parts.iter().any(|part| part.file == name);
        for name in self.names()? {
            if is_temporary(&name) || (is_part(&name) && !known(&name)) {
                let path = self.path.join(name);
                fs::remove_file(&path).at(&path)?;
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>, ExportError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).at(&self.path)? {
            let name = entry.at(&self.path)?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        Ok(names)
    }

    /// Starts the file of a number.
    pub(crate) fn create(&self, number: usize, format: Format) -> Result<PartFile, ExportError> {
        let name = format!("{PREFIX}{number:05}.{}", format.as_str());
        let temporary = self.path.join(format!("{name}{TEMPORARY}"));
        let file = File::create(&temporary).at(&temporary)?;
        Ok(PartFile { name, temporary, file, hash: Xxh3::new(), bytes: 0 })
    }

    /// Gives files their final names, durably.
    pub(crate) fn publish<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<(), ExportError> {
        for name in names {
            let path = self.path.join(name);
            fs::rename(self.path.join(format!("{name}{TEMPORARY}")), &path).at(&path)?;
        }
        self.lock.sync_all().at(&self.path)
    }

    /// Checks that a finished file is there and has its size.
    pub(crate) fn check_size(&self, part: &Part) -> Result<(), ExportError> {
        let path = self.path.join(&part.file);
        let found = fs::metadata(&path).at(&path)?.len();
        if found == part.bytes {
            return Ok(());
        }
        let cause = format!("the file has {found} bytes, not the {} that were written", part.bytes);
        Err(ExportError::Damaged { path, cause })
    }

    /// Reads a finished file and compares its hash. The function gets the number of bytes read, and
    /// may end it.
    pub(crate) fn check_content(
        &self,
        part: &Part,
        read: &mut dyn FnMut(u64) -> std::ops::ControlFlow<()>,
    ) -> Result<(), ExportError> {
        let path = self.path.join(&part.file);
        let mut file = File::open(&path).at(&path)?;
        let mut buffer = vec![0; READ_BYTES];
        let mut hash = Xxh3::new();
        loop {
            let bytes = file.read(&mut buffer).at(&path)?;
            if bytes == 0 {
                break;
            }
            hash.update(&buffer[..bytes]);
            if read(bytes as u64).is_break() {
                return Ok(());
            }
        }
        if hex(&hash) == part.xxh3 {
            return Ok(());
        }
        let cause = "the file is damaged: its hash is another".to_owned();
        Err(ExportError::Damaged { path, cause })
    }
}

fn hex(hash: &Xxh3) -> String {
    format!("{:032x}", hash.digest128())
}

/// Whether a name is that of a file with alerts.
fn is_part(name: &str) -> bool {
    let number = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.'));
    number.is_some_and(|(number, extension)| {
        let is_number = number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number && extension.parse::<Format>().is_ok()
    })
}

/// Whether a name is that of a file in the making.
fn is_temporary(name: &str) -> bool {
    name.strip_suffix(TEMPORARY).is_some_and(|name| name == FILE_NAME || is_part(name))
}

impl PartFile {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its path while it is written.
    pub(crate) fn path(&self) -> &Path {
        &self.temporary
    }

    /// The bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts the file on the disk.
    pub(crate) fn finish(self) -> Result<Written, ExportError> {
        self.file.sync_all().at(&self.temporary)?;
        Ok(Written { name: self.name, bytes: self.bytes, xxh3: hex(&self.hash) })
    }
}

impl Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ours() {
        assert!(is_part("alerts-00001.parquet") && is_part("alerts-123456.avro"));
        for other in ["alerts-1.parquet", "alerts-0000a.avro", "alerts-00001.csv", "alerts-00001"] {
            assert!(!is_part(other), "{other}");
        }
        assert!(is_temporary("export.json.tmp") && is_temporary("alerts-00001.avro.tmp"));
        assert!(!is_temporary("notes.tmp") && !is_temporary("alerts-00001.avro"));
    }
}
