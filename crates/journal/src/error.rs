//! What may go wrong, with cause and remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::frame::{MAX_KEY_BYTES, MAX_RECORD_BYTES};

/// Why a journal, a topic or a part of them cannot be used.
#[derive(Debug, Clone, Error)]
pub enum JournalError {
    /// The system refused.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The user may not write there.
    #[error(
        "{}: no permission to write; use Access::ReadOnly, or ask its owner for access",
        path.display()
    )]
    NotPermitted {
        /// The file or folder.
        path: PathBuf,
    },
    /// The disk or the quota is full.
    #[error("{}: no room on the disk; free some, or lower the topics' retention", path.display())]
    NoRoom {
        /// The file that was to grow.
        path: PathBuf,
    },
    /// The file is none of ours.
    #[error("{}: not a journal; give an empty or new folder", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is of a version that this program does not know.
    #[error(
        "{}: format version {found}, this program knows up to {known}; use a newer program, \
         nothing was changed",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that is known here.
        known: u32,
    },
    /// The file's contents contradict themselves.
    #[error("{}: damaged ({what}); restore it from a copy, or remove it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: &'static str,
    },
    /// The system does not say which boot this is, so nobody could tell whether power was lost.
    #[error(
        "/proc/sys/kernel/random/boot_id cannot be read, so nobody could tell whether power was \
         lost; mount /proc, or use Access::ReadOnly"
    )]
    NoBootId,
    /// The journal was opened for reading only.
    #[error("the journal is open for reading only; open it with Access::ReadWrite to write")]
    ReadOnly,
    /// The topic exists with another configuration.
    #[error(
        "topic {topic} exists with {field} = {existing}, asked for {asked}; use the existing value"
    )]
    Mismatch {
        /// The topic.
        topic: String,
        /// The field that differs.
        field: &'static str,
        /// What the topic has.
        existing: String,
        /// What was asked for.
        asked: String,
    },
    /// A configuration is beyond a limit.
    #[error("{field} = {value} is outside {limits}")]
    Limit {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        limits: String,
    },
    /// There is no such partition.
    #[error("topic {topic} has {partitions} partitions, there is no partition {partition}")]
    NoPartition {
        /// The topic.
        topic: String,
        /// What was asked for.
        partition: u32,
        /// What there is.
        partitions: u32,
    },
    /// A lock's holder is stopped: alive, but it does not go on.
    #[error(
        "{}: process {holder} holds the lock for over {waited:?}; continue or kill it",
        path.display()
    )]
    Stuck {
        /// The locked file.
        path: PathBuf,
        /// The process that holds it.
        holder: u32,
        /// How long was waited.
        waited: Duration,
    },
    /// Another live producer has the claim.
    #[error(
        "topic {topic} has the live producer {producer:?} (incarnation {incarnation}, process \
         {pid}) and takes one at a time; stop that one first"
    )]
    Claimed {
        /// The topic.
        topic: String,
        /// The live producer's name.
        producer: String,
        /// Its incarnation.
        incarnation: u64,
        /// Its process.
        pid: u32,
    },
    /// A producer of elsewhere has a newer incarnation of its own here.
    #[error(
        "the producer {producer:?} has the incarnation {newer} here, which does not come from \
         elsewhere: {own} is not newer"
    )]
    Newer {
        /// Its name.
        producer: String,
        /// Its incarnation elsewhere.
        own: u64,
        /// Its incarnation here.
        newer: u64,
    },
    /// A table has no free place.
    #[error("{}: all {limit} places for {what} are taken", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Writing back to the disk failed, so nothing later can be promised.
    #[error(
        "{}: writing to the disk failed ({reason}); check the disk, then restart all users",
        path.display()
    )]
    SyncFailed {
        /// The partition.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The wait ended first.
    #[error("not durable within {waited:?}; the disk is slow or the process that syncs is stopped")]
    TimedOut {
        /// How long was waited.
        waited: Duration,
    },
    /// A member of a group was told of partitions that it no longer has.
    #[error(
        "group {group}: partition {partition} is not this member's; ask for its partitions again"
    )]
    NotAssigned {
        /// The group.
        group: String,
        /// The partition.
        partition: u32,
    },
}

impl JournalError {
    /// Puts a name to a system error, telling apart those with a remedy of their own.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoRoom { path },
            // A file size limit (RLIMIT_FSIZE) is a kind of full disk.
            io::ErrorKind::FileTooLarge => Self::NoRoom { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotPermitted { path }
            }
            _ => Self::Io { action, path, source: Arc::new(source) },
        }
    }

    pub(crate) fn damaged(path: &Path, what: &'static str) -> Self {
        Self::Damaged { path: path.to_owned(), what }
    }
}

/// Why a record was not appended. Nothing of it is in the log then.
#[derive(Debug, Clone, Error)]
pub enum AppendError {
    /// A newer incarnation of the producer has taken over, or another producer of an exclusive
    /// topic on which this one had let its lease run out.
    #[error(
        "producer {producer} has the newer incarnation {newer}, this one is {own}: another \
         process took over; stop this one"
    )]
    Fenced {
        /// The producer's name.
        producer: String,
        /// The writer's own incarnation.
        own: u64,
        /// The newest incarnation.
        newer: u64,
    },
    /// The record is too long.
    #[error("the record has {0} bytes, the limit is {MAX_RECORD_BYTES}; split it")]
    TooLong(usize),
    /// The key is too long.
    #[error("the key has {0} bytes, the limit is {MAX_KEY_BYTES}; hash it")]
    KeyTooLong(usize),
    /// The journal cannot take it.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Names the file in a system error.
pub(crate) trait IoContext<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, JournalError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, JournalError> {
        self.map_err(|e| JournalError::io(action, path, e))
    }
}
impl<T> IoContext<T> for Result<T, rustix::io::Errno> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, JournalError> {
        self.map_err(|e| JournalError::io(action, path, e.into()))
    }
}
