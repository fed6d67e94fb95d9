//! Why an archive cannot be opened, filled or searched.

use std::io;
use std::path::{Path, PathBuf};

use helio_logging::ReaderError;
use thiserror::Error;

/// Why an archive cannot be opened, filled or searched.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file, or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process fills this archive.
    #[error("{}: another process fills this archive; name another folder, or end it", .0.display())]
    Locked(PathBuf),
    /// There is no archive.
    #[error("{}: there is no archive of log records; check the path", .0.display())]
    Missing(PathBuf),
    /// A file is not of the archive, or of a newer version.
    #[error("{}: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The cause and the remedy.
        what: &'static str,
    },
    /// The archive was filled from another bus, or from topics of another prefix.
    #[error(
        "{}: the archive's records are those of another bus, or of topics of another prefix; name \
         another folder, or say where to begin",
        .0.display()
    )]
    OtherBus(PathBuf),
    /// The bus cannot be read.
    #[error(transparent)]
    Reader(#[from] ReaderError),
}

impl ArchiveError {
    /// Whether a full disk is the cause.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        let full = |kind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        matches!(self, Self::File { source, .. } if full(source.kind()))
    }
}

/// Adds the file to an error.
pub(crate) trait AtPath<T> {
    fn at(self, path: &Path) -> Result<T, ArchiveError>;
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, ArchiveError> {
        self.map_err(|source| ArchiveError::File { path: path.to_owned(), source })
    }
}
