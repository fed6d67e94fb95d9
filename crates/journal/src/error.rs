//! Errors, each with cause and remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use helio_core::{SchemaError, SchemaId};
use thiserror::Error;

use crate::frame::{MAX_KEY_BYTES, MAX_RECORD_BYTES};
use crate::lock::{self, LockFailure};
use crate::map::TooManyMaps;
use crate::process::process_of;

/// The error of an operation on a journal or its topics.
#[derive(Debug, Clone, Error)]
pub enum JournalError {
    /// A system call failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The user has no write permission.
    #[error(
        "{}: no permission to write; open it for reading (access=read in a URL, Access::ReadOnly), \
         or ask its owner for access",
        path.display()
    )]
    NotPermitted {
        /// The file or folder.
        path: PathBuf,
    },
    /// The user has no read permission.
    #[error(
        "{}: no permission to read; ask the owner for it (`helio topic grant`)",
        path.display()
    )]
    NotReadable {
        /// The file or folder.
        path: PathBuf,
    },
    /// Only the owner of files can let others read them.
    #[error(
        "{}: only the owner of its files, or root, can change who may read it; run this as the \
         user who writes the journal",
        path.display()
    )]
    NotOwner {
        /// The file or folder.
        path: PathBuf,
    },
    /// The file system cannot store who may read a file.
    #[error(
        "{}: the file system has no access control lists; use one that has (ext4, XFS, Btrfs, \
         tmpfs)",
        path.display()
    )]
    NoAccessLists {
        /// The file or folder.
        path: PathBuf,
    },
    /// The machine has no such user.
    #[error("this machine has no user {user:?}; name one by its name or number")]
    NoUser {
        /// The name or number.
        user: String,
    },
    /// The disk or the quota is full.
    #[error("{}: no room on the disk; free some, or lower the topics' retention", path.display())]
    NoRoom {
        /// The file that was to grow.
        path: PathBuf,
    },
    /// The file or folder is not a journal's.
    #[error("{}: not a journal; give an empty or new folder", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The journal is being created, or its creator was ended midway.
    #[error(
        "{}: the journal is not complete: its creator is stopped, slow, or was ended; open it for \
         writing, which completes it",
        path.display()
    )]
    Unfinished {
        /// The folder.
        path: PathBuf,
    },
    /// The file has a newer format version than this program supports.
    #[error(
        "{}: format version {found}, this program supports up to {known}; use a newer program, \
         nothing was changed",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that this program supports.
        known: u32,
    },
    /// The file's contents contradict themselves.
    #[error("{}: damaged ({what}); restore it from a copy, or remove it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The inconsistent part.
        what: &'static str,
    },
    /// The limit of bytes that was chosen for a topic does not fit into the journal's budget.
    #[error(
        "{wanted} bytes in all partitions exceed the journal's budget of {budget}; choose a lower \
         limit, or a larger budget"
    )]
    OverBudget {
        /// The limit of all partitions together.
        wanted: u64,
        /// The budget.
        budget: u64,
    },
    /// A topic's description does not match its check.
    #[error(
        "{}: was edited or damaged, its check differs; undo the edit: `helio topic alter` changes \
         a topic",
        path.display()
    )]
    Edited {
        /// The file.
        path: PathBuf,
    },
    /// A schema's text was edited or damaged: it is no schema of its file's name.
    #[error(
        "{}: was edited or damaged, it is not the schema {id}; undo the edit, or open a publisher \
         with that schema: it stores the text again",
        path.display()
    )]
    SchemaEdited {
        /// The file.
        path: PathBuf,
        /// The identity in its name.
        id: SchemaId,
    },
    /// A text that is no schema was to be stored as one. Each later read would report it as edited.
    #[error("the text of the schema {id} cannot be stored: {cause}")]
    SchemaText {
        /// The schema.
        id: SchemaId,
        /// The parser's message.
        cause: SchemaError,
    },
    /// A schema's text was to be stored under another schema's identity.
    #[error("the schema {found} cannot be stored as {id}; store it under its own identity")]
    SchemaIdentity {
        /// The identity that was named.
        id: SchemaId,
        /// The text's own.
        found: SchemaId,
    },
    /// The system's boot id is unavailable, so a power loss could not be detected.
    #[error(
        "/proc/sys/kernel/random/boot_id cannot be read, so a power loss could not be detected; \
         mount /proc, or open it for reading (access=read in a URL, Access::ReadOnly)"
    )]
    NoBootId,
    /// The topic was deleted or purged, or its folder was removed or replaced.
    #[error("the topic {topic} was deleted, purged or recreated; open it again")]
    TopicGone {
        /// The topic.
        topic: String,
    },
    /// The journal is open for reading only.
    #[error(
        "the journal is open for reading only; open it for writing (no access=read in a URL, \
         Access::ReadWrite)"
    )]
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
        /// The topic's value.
        existing: String,
        /// The requested one.
        asked: String,
    },
    /// A value is outside its limits.
    #[error("{field} = {value} is outside {limits}")]
    Limit {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The allowed range.
        limits: String,
    },
    /// The topic has no such partition.
    #[error("topic {topic} has {partitions} partitions, there is no partition {partition}")]
    NoPartition {
        /// The topic.
        topic: String,
        /// The requested one.
        partition: u32,
        /// The number of its partitions.
        partitions: u32,
    },
    /// A lock's holder is alive, but does not release it: the process may be stopped.
    #[error(
        "{}: process {holder} ({process}) holds the lock for {held:.1?} or longer, waited \
         {waited:.1?}; continue or kill it",
        path.display()
    )]
    Stuck {
        /// The locked file.
        path: PathBuf,
        /// The process that holds it.
        holder: u32,
        /// Its name, and whether it is stopped, as far as the system shows it.
        process: String,
        /// The time for which it has held the lock at least.
        held: Duration,
        /// The time waited.
        waited: Duration,
    },
    /// The journal is in use by processes of another PID namespace. Neither side could tell whether
    /// the other's processes live.
    #[error(
        "{}: in use by processes of another PID namespace ({theirs}; this process is in {own}); \
         run all of them in one PID namespace, or open the journal in all of them with \
         PidNamespaces::Any (URL: ?pid_namespaces=any)",
        path.display()
    )]
    OtherNamespace {
        /// The journal.
        path: PathBuf,
        /// This process's PID namespace, as `/proc/self/ns/pid` names it, or `any`.
        own: String,
        /// The PID namespace of the processes that have the journal open, or `any`.
        theirs: String,
    },
    /// `/proc` does not show this process's PID namespace, so live processes could not be told from
    /// dead ones.
    #[error(
        "/proc shows another PID namespace than this process's, so live processes could not be \
         told from dead ones; mount /proc in the namespace (unshare --mount-proc), or use \
         PidNamespaces::Any (URL: ?pid_namespaces=any)"
    )]
    NoProcesses,
    /// The folder lies on a network file system, on which memory is not shared between machines.
    #[error(
        "{}: on the network file system {kind}, where a journal would lose data; use a local \
         folder, and a bridge or another transport between machines",
        path.display()
    )]
    NetworkFileSystem {
        /// The folder.
        path: PathBuf,
        /// The file system's type.
        kind: String,
    },
    /// A folder inside the journal is a symbolic link, behind which anything may be.
    #[error(
        "{}: a symbolic link, which is not followed inside a journal; move the folder here, or \
         use a bind mount",
        path.display()
    )]
    SymbolicLink {
        /// The link.
        path: PathBuf,
    },
    /// The folder belongs to another user, and this one may write to it only because everybody may.
    #[error(
        "{}: belongs to user {owner}, and everybody may write to it; open it as that user, or \
         give the folder to a group that its users share",
        path.display()
    )]
    OtherOwner {
        /// The folder.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
    },
    /// Another handle has the exclusive log open.
    #[error(
        "{}: the exclusive log is held by {owner} (process {pid}, {process}); stop that one first",
        path.display()
    )]
    Held {
        /// The lock's file.
        path: PathBuf,
        /// The holder's name.
        owner: String,
        /// Its process; 0 if it has not said yet.
        pid: u32,
        /// Its program, and whether it is stopped, as far as the system shows it.
        process: String,
    },
    /// The journal is that of an exclusive log, which only its holder writes.
    #[error(
        "{}: the journal of an exclusive log; open it for reading (access=read in a URL, \
         Access::ReadOnly), or the log itself",
        path.display()
    )]
    Exclusive {
        /// The journal's folder.
        path: PathBuf,
    },
    /// The exclusive log was released.
    #[error("{}: the exclusive log was closed; open it again", path.display())]
    Released {
        /// Its folder.
        path: PathBuf,
    },
    /// Another live producer has the claim.
    #[error(
        "topic {topic} has the live producer {producer:?} (incarnation {incarnation}, process \
         {pid}) and allows one at a time; stop that one first"
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
    /// The name of an adopted producer has a newer incarnation of its own here.
    #[error(
        "producer {producer:?} has the incarnation {newer} of its own here; the adopted \
         incarnation {own} is not newer"
    )]
    Newer {
        /// The producer's name.
        producer: String,
        /// The adopted incarnation.
        own: u64,
        /// The incarnation assigned here.
        newer: u64,
    },
    /// A table is full.
    #[error("{}: the limit of {limit} {what} is reached", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// The kind of entry.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The process has mapped as many files as the kernel safely allows.
    #[error(
        "{}: this process has mapped {limit} files, four fifths of vm.max_map_count; raise it \
         (sysctl vm.max_map_count), or open fewer topics in one process",
        path.display()
    )]
    TooManyMaps {
        /// The file that was to be mapped.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// A sync failed, so no later record can become durable.
    #[error(
        "{}: writing to the disk failed ({reason}); check the disk, then restart all users",
        path.display()
    )]
    SyncFailed {
        /// The partition.
        path: PathBuf,
        /// The system's error.
        reason: String,
    },
    /// The timeout passed before the record was durable.
    #[error("not durable within {waited:?}; the disk is slow or the process that syncs is stopped")]
    TimedOut {
        /// The time waited.
        waited: Duration,
    },
    /// The member does not own the partition any more.
    #[error(
        "group {group}: partition {partition} is not this member's; query its partitions again"
    )]
    NotAssigned {
        /// The group.
        group: String,
        /// The partition.
        partition: u32,
    },
}

impl JournalError {
    /// Wraps a system error; those with a remedy of their own get their own variant.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if let Some(TooManyMaps(limit)) = source.get_ref().and_then(|e| e.downcast_ref()) {
            return Self::TooManyMaps { path, limit: *limit };
        }
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoRoom { path },
            // A file size limit (RLIMIT_FSIZE) counts as a full disk.
            io::ErrorKind::FileTooLarge => Self::NoRoom { path },
            io::ErrorKind::PermissionDenied if ["read", "list"].contains(&action) => {
                Self::NotReadable { path }
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotPermitted { path }
            }
            _ => Self::Io { action, path, source: Arc::new(source) },
        }
    }

    /// A lock was not acquired.
    pub(crate) fn not_locked(failure: LockFailure, path: PathBuf, waited: Duration) -> Self {
        match failure {
            LockFailure::TimedOut(thread) => {
                let (holder, process) = match lock::has_foreign_holders() {
                    true => (thread, "as its own PID namespace counts".to_owned()),
                    false => process_of(thread),
                };
                Self::Stuck { path, holder, process, held: waited, waited }
            }
            LockFailure::Broken(e) => Self::io("lock", &path, e),
        }
    }

    /// The topic in a folder was deleted.
    pub(crate) fn gone(topic: &Path) -> Self {
        let name = topic.file_name().unwrap_or_default().to_string_lossy();
        Self::TopicGone { topic: name.replace('+', "/") }
    }

    pub(crate) fn damaged(path: &Path, what: &'static str) -> Self {
        Self::Damaged { path: path.to_owned(), what }
    }
}

/// The error of an append. Nothing of the record is in the log then.
#[derive(Debug, Clone, Error)]
pub enum AppendError {
    /// A newer incarnation of the producer has claimed the name, or this one's lease of an
    /// exclusive topic expired and another producer has claimed the topic.
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
    /// An error of the journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Adds action and file to a system error.
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
