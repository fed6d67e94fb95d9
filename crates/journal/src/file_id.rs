//! The identity of a file, to notice that its name was removed or names another file.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Returns the birth of a file in nanoseconds since 1970; 0 where the system does not tell it. A
/// copy in the place of a removed file often gets its inode, and never its birth.
pub(crate) fn birth(data: &Metadata) -> u64 {
    let born = data.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    born.and_then(|at| u64::try_from(at.as_nanos()).ok()).unwrap_or(0)
}

/// A file's device and inode. While the file is open or mapped, no other file has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(data: &Metadata) -> Self {
        Self { device: data.dev(), inode: data.ino() }
    }

    /// Returns whether a path names this file. An error of the system other than *not found* says
    /// nothing about the file, and counts as yes.
    pub(crate) fn is_at(self, path: &Path) -> bool {
        match fs::metadata(path) {
            Ok(data) => Self::of(&data) == self,
            Err(e) => !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }
}
