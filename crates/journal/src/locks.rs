//! The locks of a journal's rare operations: creation and deletion of topics, recovery, retention.
//!
//! Constraints: whoever may only read the folder cannot hold up writers, so nothing is locked that
//! needs only reading (`flock`). Processes without write access never open the file. Every wait has
//! a limit, and its error names the holder. All processes with write access use one file; those of
//! another PID namespace would not see each other, so they are refused.
//!
//! Format: one file for each boot and PID namespace: a page with magic, version, boot, inodes and
//! namespace, then [`SLOTS`] slots of [`SLOT_BYTES`] bytes, each a robust mutex and the time of its
//! last acquisition. Slot 0 is for creation and deletion; the others are chosen by the hash of the
//! locked path, so some are shared by chance. A thread holds at most slot 0 and one other.
//!
//! Operation: the file is created under a temporary name and linked, so there is no step at which a
//! stopped process stops others. A process locks a byte of it (see `presence`), and *then* checks
//! that the file still has its name, and that no process has a byte of a file of another namespace.
//! Two that start together thus both see the other, or one of them does. Files without processes
//! are removed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::error::IoContext;
use crate::file_id::FileId;
use crate::hash::{mix, random};
use crate::lock::{self, LOCK_BYTES, LockFailure};
use crate::map::{Map, Mode, reserve};
use crate::options::uptime;
use crate::presence::{self, Bytes};
use crate::process::{BootId, Token, pid_namespace};
use crate::{Access, JournalError, JournalOptions, PidNamespaces};

/// Beginning of the files' names.
const PREFIX: &str = "locks.";
const MAGIC: &[u8; 8] = b"HELIOLCK";
const VERSION: u32 = 1;
const BOOT: usize = 16;
const INODE: usize = 32;
const JOURNAL: usize = 40;
const NAMESPACE: usize = 48;
const CHECK: usize = 56;
const HEADER_BYTES: usize = 4096;
const SLOTS: usize = 128;
const SLOT_BYTES: usize = 128;
const SINCE: usize = LOCK_BYTES;
const FILE_BYTES: usize = HEADER_BYTES + SLOTS * SLOT_BYTES;
const HEAD_BYTES: usize = CHECK + 8;
/// Half of the slots is for operations that others wait for, half for those that they skip.
const WAITED_SLOTS: u64 = SLOTS as u64 / 2;

/// The time for which a process of another namespace may take to end, for example when a container
/// is restarted.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The file's namespace for [`PidNamespaces::Any`].
const ANY_NAMESPACE: u64 = 0;

/// The operations that exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Creation, change and deletion of topics.
    Topics,
    /// Recovery of a file after a boot or damage.
    Recovery,
    /// Retention of a partition.
    Retention,
}

impl Operation {
    /// The limit of a wait, in multiples of the journal's.
    fn patience(self) -> u32 {
        match self {
            // A long log takes its time, and nothing can be done before.
            Self::Recovery => 12,
            Self::Topics | Self::Retention => 1,
        }
    }

    fn slot(self, path: &Path) -> usize {
        let bytes = path.as_os_str().as_encoded_bytes();
        let hash = bytes.iter().fold(0, |hash, byte| mix(hash ^ u64::from(*byte)));
        let slot = match self {
            Self::Topics => 0,
            Self::Recovery => 1 + hash % (WAITED_SLOTS - 1),
            Self::Retention => WAITED_SLOTS + hash % WAITED_SLOTS,
        };
        HEADER_BYTES + slot as usize * SLOT_BYTES
    }
}

/// What the file of locks is for.
#[derive(Debug, Clone)]
pub(crate) struct LocksOf {
    pub(crate) dir: PathBuf,
    pub(crate) boot: BootId,
    pub(crate) namespace: u64,
    pub(crate) token: Token,
    /// The file's name until it is linked, which no other process has.
    pub(crate) temporary: PathBuf,
}

/// The file of locks that this process uses.
pub(crate) struct Locks {
    file: File,
    map: Map,
    id: FileId,
    path: PathBuf,
}

/// A lock, held by this thread.
pub(crate) struct Held {
    locks: Arc<Locks>,
    at: usize,
    // The C library's locks belong to threads.
    _not_send: PhantomData<*const ()>,
}

impl Drop for Held {
    fn drop(&mut self) {
        lock::unlock(&self.locks.map, self.at);
    }
}

/// Whether other processes see that this one has the journal open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Unseen,
    Entered,
}

/// The words of a file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    boot: BootId,
    inode: u64,
    journal: u64,
    namespace: u64,
}

impl Header {
    fn check(self) -> u64 {
        let boot = u128::from_le_bytes(self.boot.0);
        let words = [boot as u64, (boot >> 64) as u64, self.inode, self.journal, self.namespace];
        words.into_iter().fold(0, |check, word| mix(check ^ word)) | 1
    }

    /// Reads a file's header; `None` if it is damaged or the file is short.
    fn read(file: &File) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD_BYTES];
        let whole = file.metadata()?.len() >= FILE_BYTES as u64;
        if !whole || file.read_exact_at(&mut head, 0).is_err() {
            return Ok(None);
        }
        let word = |at: usize| head[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let mut boot = BootId([0; 16]);
        boot.0.copy_from_slice(&head[BOOT..BOOT + 16]);
        let (journal, namespace) = (word(JOURNAL), word(NAMESPACE));
        let header = Self { boot, inode: word(INODE), journal, namespace };
        Ok((head == header.bytes()).then_some(header))
    }

    fn bytes(self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(BOOT, &self.boot.0);
        let words = [self.inode, self.journal, self.namespace, self.check()];
        for (at, word) in [INODE, JOURNAL, NAMESPACE, CHECK].into_iter().zip(words) {
            put(at, &word.to_le_bytes());
        }
        head
    }
}

/// Returns the namespace in which a journal is opened.
///
/// # Errors
/// [`JournalError::NoProcesses`] if it cannot be known, and this process is to write.
pub(crate) fn namespace(options: &JournalOptions) -> Result<u64, JournalError> {
    match (options.pid_namespaces, pid_namespace()) {
        (PidNamespaces::Any, _) => {
            lock::allow_foreign_holders();
            Ok(ANY_NAMESPACE)
        }
        (PidNamespaces::One, Some(namespace)) => Ok(namespace),
        (PidNamespaces::One, None) if options.access == Access::ReadOnly => Ok(ANY_NAMESPACE),
        (PidNamespaces::One, None) => Err(JournalError::NoProcesses),
    }
}

/// Names a PID namespace as the system does.
fn named(namespace: u64) -> String {
    match namespace {
        ANY_NAMESPACE => "any".to_owned(),
        inode => format!("pid:[{inode}]"),
    }
}

impl LocksOf {
    /// Opens the file of locks, creates it if there is none, and enters this process.
    ///
    /// # Errors
    /// [`JournalError::OtherNamespace`].
    pub(crate) fn open(&self, limit: Duration) -> Result<Locks, JournalError> {
        let journal = fs::metadata(self.dir.join("journal.hj")).at("look at", &self.dir)?;
        let (begin, limit) = (Instant::now(), limit.min(LEAVE_TIMEOUT));
        loop {
            // Asked first, so that a process that is refused is never seen by others.
            let rival = match self.rival(journal.ino(), Sight::Unseen)? {
                None => self.enter(&journal)?,
                rival => Err(rival),
            };
            match rival {
                Ok(locks) => return Ok(locks),
                Err(Some(theirs)) if begin.elapsed() >= limit => {
                    let (own, theirs) = (named(self.namespace), named(theirs));
                    return Err(JournalError::OtherNamespace {
                        path: self.dir.clone(),
                        own,
                        theirs,
                    });
                }
                Err(None) => {}
                // Two that start together do not try again together.
                Err(Some(_)) => std::thread::sleep(Duration::from_millis(5 + random() % 20)),
            }
        }
    }

    /// Enters this process; `Err` with a rival's namespace, or with nothing to try again.
    fn enter(&self, journal: &fs::Metadata) -> Result<Result<Locks, Option<u64>>, JournalError> {
        // The file's own inode is not known before it is there.
        let key = self.header(0, journal.ino()).check();
        let path = self.dir.join(format!("{PREFIX}{key:016x}"));
        let file = match open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.create(&path, journal)?;
                return Ok(Err(None));
            }
            other => other.at("open", &path)?,
        };
        let data = file.metadata().at("look at", &path)?;
        let header = self.header(data.ino(), journal.ino());
        if Header::read(&file).at("read", &path)? != Some(header) {
            if presence::is_present(&file, Bytes::All) {
                return Err(JournalError::damaged(&path, "locks in use"));
            }
            // A copy, or damaged, and nobody uses it. Another process may have replaced it.
            if FileId::of(&data).is_at(&path) {
                remove(&path)?;
            }
            return Ok(Err(None));
        }
        let map = Map::of(&file, FILE_BYTES, Mode::Write).at("map", &path)?;
        presence::enter(&file, self.token.0).at("lock", &path)?;
        let locks = Locks { file, map, id: FileId::of(&data), path };
        Ok(match self.rival(journal.ino(), Sight::Entered)? {
            _ if !locks.id.is_at(&locks.path) => Err(None),
            None => Ok(locks),
            rival => Err(rival),
        })
    }

    fn header(&self, inode: u64, journal: u64) -> Header {
        Header { boot: self.boot, inode, journal, namespace: self.namespace }
    }

    /// Creates the file, unless another process is first. It admits those who may write to the
    /// journal's own file.
    fn create(&self, path: &Path, journal: &fs::Metadata) -> Result<(), JournalError> {
        let temporary = &self.temporary;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(temporary);
        let file = file.at("create", temporary)?;
        let made = self.fill(&file, journal).at("prepare", temporary);
        let linked = made.and_then(|()| match fs::hard_link(temporary, path) {
            // Another process was first; or it took this one for dead, and removed its file.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.dir.exists() => Ok(()),
            other => other.at("name", path),
        });
        // A left-over would only take space.
        let _ = fs::remove_file(temporary);
        linked
    }

    fn fill(&self, file: &File, journal: &fs::Metadata) -> io::Result<()> {
        reserve(file, FILE_BYTES as u64)?;
        let map = Map::of(file, FILE_BYTES, Mode::Write)?;
        for slot in 0..SLOTS {
            lock::init(&map, HEADER_BYTES + slot * SLOT_BYTES)?;
        }
        let data = file.metadata()?;
        map.write(0, &self.header(data.ino(), journal.ino()).bytes());
        if (data.uid(), data.gid()) != (journal.uid(), journal.gid()) {
            // Root gives it to the journal's owner, others to its group if it is theirs.
            let (user, group) = (Some(journal.uid()), Some(journal.gid()));
            let given = fchown(file, user, group);
            // Where this fails too, users of other groups are refused by the system.
            let _ = given.or_else(|_| fchown(file, None, group));
        }
        // Whoever may write may read, and nobody else.
        let writers = journal.mode() & 0o222;
        file.set_permissions(fs::Permissions::from_mode(0o600 | writers | writers << 1))
    }

    /// Returns the namespace of processes that have the journal open in another one. Removes files
    /// that nobody uses: those of other boots, and, once others see this process, those of ended
    /// namespaces and copies. (A process that enters one of these then finds this one.)
    fn rival(&self, journal: u64, sight: Sight) -> Result<Option<u64>, JournalError> {
        for entry in fs::read_dir(&self.dir).at("list", &self.dir)? {
            let entry = entry.at("list", &self.dir)?;
            if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
                continue;
            }
            let path = entry.path();
            let file = match open(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.at("open", &path)?,
            };
            let data = file.metadata().at("look at", &path)?;
            let header = Header::read(&file).at("read", &path)?;
            let is_used = || presence::is_present(&file, Bytes::All);
            match header {
                Some(header) if header == self.header(data.ino(), journal) => {}
                Some(header) if header.boot == self.boot && is_used() => {
                    if header.namespace == self.namespace {
                        let file = self.dir.join("journal.hj");
                        return Err(JournalError::damaged(&file, "replaced while in use"));
                    }
                    return Ok(Some(header.namespace));
                }
                _ if is_used() => {}
                Some(header) if header.boot != self.boot => remove(&path)?,
                _ if sight == Sight::Entered => remove(&path)?,
                _ => {}
            }
        }
        Ok(None)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

fn remove(path: &Path) -> Result<(), JournalError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at("remove", path),
    }
}

impl Locks {
    /// Returns whether the file still has its name. If not, the next process would use another one.
    pub(crate) fn is_current(&self) -> bool {
        self.id.is_at(&self.path)
    }

    /// Returns whether a process has this file open.
    pub(crate) fn is_present(&self, process: Token) -> bool {
        presence::is_present(&self.file, Bytes::Of(process.0))
    }

    /// Takes the lock of an operation on a path, relative to the journal; waits at most `limit`,
    /// or longer for operations that may take their time.
    pub(crate) fn lock(
        self: &Arc<Self>,
        operation: Operation,
        path: &Path,
        limit: Duration,
    ) -> Result<Held, JournalError> {
        let limit = limit.saturating_mul(operation.patience());
        let at = operation.slot(path);
        match self.acquire(at, limit) {
            Ok(held) => Ok(held),
            Err(failure) => {
                let path = self.path.with_file_name(path);
                let mut error = JournalError::not_locked(failure, path, limit);
                if let JournalError::Stuck { held, .. } = &mut error {
                    let since = Duration::from_nanos(self.map.u64(at + SINCE).load(Relaxed));
                    *held = uptime().saturating_sub(since).max(*held);
                }
                Err(error)
            }
        }
    }

    /// The same without waiting; `None` if it is held.
    pub(crate) fn try_lock(
        self: &Arc<Self>,
        operation: Operation,
        path: &Path,
    ) -> Result<Option<Held>, JournalError> {
        match self.acquire(operation.slot(path), Duration::ZERO) {
            Ok(held) => Ok(Some(held)),
            Err(LockFailure::TimedOut(_)) => Ok(None),
            Err(LockFailure::Broken(e)) => Err(JournalError::io("lock", &self.path, e)),
        }
    }

    fn acquire(self: &Arc<Self>, at: usize, limit: Duration) -> Result<Held, LockFailure> {
        // Each of these operations is repeated or completed after its process died.
        lock::lock(&self.map, at, limit)?;
        let held = Held { locks: Arc::clone(self), at, _not_send: PhantomData };
        let now = u64::try_from(uptime().as_nanos()).unwrap_or(u64::MAX);
        self.map.u64(at + SINCE).store(now, Relaxed);
        Ok(held)
    }
}
