//! Errors of an export.

use std::io;
use std::path::{Path, PathBuf};

use helio_alerts::reader::ReaderError;
use helio_bus::{ReadError, TopicError, TransportError};
use helio_core::SchemaError;
use helio_core::projection::ShapeError;
use helio_filter::{CheckError, PlanError, RunError};
use thiserror::Error;

/// Why a night cannot be exported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Options contradict each other.
    #[error("{0}")]
    Options(&'static str),
    /// The filter is not in the language.
    #[error("the filter: {0}")]
    Filter(#[from] CheckError),
    /// The filter cannot be planned.
    #[error("the filter: {0}")]
    Plan(#[from] PlanError),
    /// The filter cannot be run.
    #[error("the filter: {0}")]
    Run(#[from] RunError),
    /// A column is in no schema of the topic.
    #[error("the columns: {0}")]
    Columns(#[from] ShapeError),
    /// A topic cannot be opened or queried.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The bus fails.
    #[error(transparent)]
    Bus(#[from] TransportError),
    /// A topic cannot be read.
    #[error("the topic {topic} cannot be read: {cause}")]
    Read {
        /// The topic.
        topic: String,
        /// The cause.
        cause: ReadError,
    },
    /// Stamps are stored, but cannot be read now.
    #[error("the stamps cannot be read: {0}; run the export again, which continues it")]
    Stamps(ReaderError),
    /// Nothing comes, although it is stored.
    #[error(
        "partition {partition} of the topic {topic} delivers nothing at offset {offset}, although \
         its log ends at {end}; run the export again when the bus is reachable"
    )]
    Stalled {
        /// The topic.
        topic: String,
        /// The partition.
        partition: u32,
        /// The next offset.
        offset: u64,
        /// The end of the log.
        end: u64,
    },
    /// The log is shorter than what was exported of it.
    #[error(
        "partition {partition} of the topic {topic} ends at offset {end}, but this export has read \
         it up to {offset}: the log was replaced or cut; export into another folder"
    )]
    Replaced {
        /// The topic.
        topic: String,
        /// The partition.
        partition: u32,
        /// The position of the export.
        offset: u64,
        /// The end of the log.
        end: u64,
    },
    /// The schema of samples is invalid.
    #[error("the schema {schema}: {cause}")]
    Schema {
        /// Its identity.
        schema: String,
        /// The cause.
        cause: SchemaError,
    },
    /// No visit of the night is known.
    #[error("the topic {topic} has no visit {wanted}")]
    NoVisits {
        /// The control topic.
        topic: String,
        /// The requested value.
        wanted: String,
    },
    /// There are too many visits.
    #[error("{found} visits; one export has at most {limit}: name some of them")]
    TooManyVisits {
        /// The number.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The control topic has lost the end of a visit that is exported in part.
    #[error(
        "the topic {topic} has no closing record of visit {visit} any more, which is exported in \
         part: retention removed it; export into another folder"
    )]
    Forgotten {
        /// The control topic.
        topic: String,
        /// The visit.
        visit: i64,
    },
    /// Too many alerts are of visits that are not read completely.
    #[error(
        "{found} alerts are of visits that are not read completely, more than {limit}: the \
         closing records of this topic do not fit its alerts"
    )]
    OpenAlerts {
        /// The number.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A file of the target cannot be read or written.
    #[error("{}: {error}{}", path.display(), remedy(error))]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The target is in use.
    #[error("{}: another process exports into this folder", .0.display())]
    Locked(PathBuf),
    /// The target has other files.
    #[error(
        "{} has files, but no {}: it is no export; name an empty or new folder",
        .0.display(), crate::manifest::FILE_NAME
    )]
    Foreign(PathBuf),
    /// The manifest is damaged.
    #[error("{}: {cause}; restore the file, or export into another folder", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// A finished file is not as it was written.
    #[error("{}: {cause}; restore the file, or export into another folder", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// The folder has an export with other options.
    #[error(
        "the folder has an export with {field} {stored}, not {asked}; repeat its options, or \
         export into another folder"
    )]
    Other {
        /// The option.
        field: &'static str,
        /// The stored value.
        stored: String,
        /// The value asked for.
        asked: String,
    },
    /// A program's fault.
    #[error("a fault of this program: {0}")]
    Fault(String),
}

/// The remedy of an error of the disk.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space and repeat the command: it continues"
        }
        _ => "",
    }
}

/// Errors of files, with their paths.
pub(crate) trait AtPath<T> {
    fn at(self, path: &Path) -> Result<T, ExportError>;
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, ExportError> {
        self.map_err(|error| ExportError::File { path: path.to_owned(), error })
    }
}
