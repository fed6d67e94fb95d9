//! The environment of an open journal: its folder, its options, this process's identity.
//!
//! It knows neither topics nor partitions, so every other module may hold it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use helio_core::Tai;

use crate::doorbells::Doorbells;
use crate::error::IoContext;
use crate::hash::{mix, random};
use crate::locks::{self, Held, Locks, LocksOf, Operation};
use crate::map::{Map, Mode};
use crate::process::{BootId, Token};
use crate::running_time;
use crate::signal::Signal;
use crate::{Access, JournalError, JournalOptions, PidNamespaces};

/// Prefix of the names of unfinished files.
pub(crate) const TEMPORARY_PREFIX: &str = ".tmp-";

/// The limit by which a sample's time may be ahead of the time of day and still move seeks by time.
const MAX_LEAD: Duration = Duration::from_secs(10);

/// An open journal's environment. The housekeeping threads end when it is dropped.
pub(crate) struct Env {
    pub(crate) dir: PathBuf,
    pub(crate) options: JournalOptions,
    pub(crate) boot: BootId,
    pub(crate) token: Token,
    pub(crate) doorbells: Doorbells,
    pub(crate) syncer: Arc<Signal>,
    pub(crate) keeper: Arc<Signal>,
    /// The file of locks, and what it is for; `None` without write access.
    locks: Option<(LocksOf, Mutex<Arc<Locks>>)>,
    number: AtomicU64,
    /// The latest plausible time of a sample, in nanoseconds, when the clock was last read.
    horizon: AtomicI64,
    /// The number of journals that this process had opened before.
    opened: u64,
}

impl Drop for Env {
    fn drop(&mut self) {
        self.syncer.end();
        self.keeper.end();
    }
}

impl Env {
    /// Opens the environment of a journal whose own file is in place.
    ///
    /// # Errors
    /// [`JournalError::OtherNamespace`] and others that refuse this process.
    pub(crate) fn open(
        dir: PathBuf,
        options: JournalOptions,
        boot: BootId,
        doorbells: Doorbells,
    ) -> Result<Self, JournalError> {
        // A process may have a journal open several times.
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let namespace = locks::namespace(&options)?;
        let token = match options.pid_namespaces {
            PidNamespaces::One => Token::own(boot),
            PidNamespaces::Any => Token::random(),
        };
        let locks = match options.access {
            Access::ReadOnly => None,
            Access::ReadWrite => {
                let name = format!("{TEMPORARY_PREFIX}{:016x}-{:x}", token.0, random());
                let (dir, temporary) = (dir.clone(), dir.join(name));
                let of = LocksOf { dir, boot, namespace, token, temporary };
                let opened = Mutex::new(Arc::new(of.open(options.lock_timeout)?));
                Some((of, opened))
            }
        };
        Ok(Self {
            dir,
            options,
            boot,
            token,
            doorbells,
            syncer: Arc::default(),
            keeper: Arc::default(),
            locks,
            number: AtomicU64::new(0),
            horizon: AtomicI64::new(i64::MIN),
            opened: OPENED.fetch_add(1, Relaxed),
        })
    }

    /// Takes the lock of an operation on a file or folder of the journal.
    ///
    /// # Errors
    /// [`JournalError::Stuck`]; [`JournalError::ReadOnly`].
    pub(crate) fn lock(&self, operation: Operation, path: &Path) -> Result<Held, JournalError> {
        loop {
            let locks = self.locks()?;
            let held = locks.lock(operation, self.relative(path), self.options.lock_timeout)?;
            if locks.is_current() {
                return Ok(held);
            }
            self.reopen_locks()?;
        }
    }

    /// The same without waiting; `None` if it is held.
    pub(crate) fn try_lock(
        &self,
        operation: Operation,
        path: &Path,
    ) -> Result<Option<Held>, JournalError> {
        let locks = self.locks()?;
        let held = locks.try_lock(operation, self.relative(path))?;
        if locks.is_current() {
            return Ok(held);
        }
        self.reopen_locks().map(|()| None)
    }

    fn locks(&self) -> Result<Arc<Locks>, JournalError> {
        let (_, locks) = self.locks.as_ref().ok_or(JournalError::ReadOnly)?;
        Ok(Arc::clone(&locks.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Opens the file of locks again, after it was removed by hand.
    fn reopen_locks(&self) -> Result<(), JournalError> {
        let (of, locks) = self.locks.as_ref().ok_or(JournalError::ReadOnly)?;
        let mut locks = locks.lock().unwrap_or_else(PoisonError::into_inner);
        if !locks.is_current() {
            *locks = Arc::new(of.open(self.options.lock_timeout)?);
        }
        Ok(())
    }

    fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.dir).unwrap_or(path)
    }

    /// The calling process, which may be a fork of the one that opened the journal.
    pub(crate) fn own_token(&self) -> Token {
        match self.options.pid_namespaces {
            PidNamespaces::One => Token::own(self.boot),
            PidNamespaces::Any => self.token,
        }
    }

    /// Returns whether a process still runs.
    pub(crate) fn is_alive(&self, process: Token) -> bool {
        match self.options.pid_namespaces {
            PidNamespaces::One => process.alive(self.boot),
            _ if process == Token::NOBODY => false,
            // Without write access nobody can be judged; leases still end.
            PidNamespaces::Any => {
                process == self.token
                    || self.locks().map_or(true, |locks| locks.is_present(process))
            }
        }
    }

    pub(crate) fn writable(&self) -> bool {
        self.options.access == Access::ReadWrite
    }

    pub(crate) fn mode(&self) -> Mode {
        if self.writable() { Mode::Write } else { Mode::Guarded }
    }

    /// Returns the journal's running time, in nanoseconds.
    pub(crate) fn running_time(&self) -> u64 {
        let map = &self.doorbells.map;
        match self.writable() {
            true => running_time::advance(map, self.boot, (self.options.uptime)()),
            false => running_time::stored(map),
        }
    }

    /// Returns whether a sample's time is at most [`MAX_LEAD`] ahead of the time of day. The clock
    /// is read at most once in that time while samples are not ahead of it.
    #[inline]
    pub(crate) fn is_plausible(&self, time: Tai) -> bool {
        time.nanos() <= self.horizon.load(Relaxed) || self.is_near(time)
    }

    #[cold]
    fn is_near(&self, time: Tai) -> bool {
        let lead = i64::try_from(MAX_LEAD.as_nanos()).unwrap_or(i64::MAX);
        let horizon = (self.options.clock)().nanos().saturating_add(lead);
        self.horizon.store(horizon, Relaxed);
        time.nanos() <= horizon
    }

    pub(crate) fn file_path(&self) -> PathBuf {
        self.dir.join("journal.hj")
    }

    /// Returns a number that this process has not used yet, for temporary names.
    fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Relaxed)
    }

    /// Returns a random word; with a seed in the options, the next word of a reproducible sequence.
    pub(crate) fn random(&self) -> u64 {
        self.options.seed.map_or_else(random, |seed| mix(seed ^ self.next_number()))
    }

    /// Calls the sync hook for a file that is about to be synced.
    pub(crate) fn about_to_sync(&self, path: &Path) -> Result<(), JournalError> {
        self.options.sync_hook.as_ref().map_or(Ok(()), |hook| hook(path)).at("sync", path)
    }

    /// Writes a file's contents to the disk.
    pub(crate) fn sync_file(&self, path: &Path) -> Result<(), JournalError> {
        let file = File::open(path).at("open", path)?;
        self.about_to_sync(path)?;
        file.sync_data().at("sync", path)
    }

    /// Writes a mapped file to the disk. The path is for the hook and the error: the file may have
    /// lost its name.
    pub(crate) fn sync_map(&self, map: &Map, path: &Path) -> Result<(), JournalError> {
        self.about_to_sync(path)?;
        map.sync().at("sync", path)
    }

    /// Writes a folder's entries to the disk.
    pub(crate) fn sync_dir(&self, path: &Path) -> Result<(), JournalError> {
        let folder = File::open(path).at("open", path)?;
        self.about_to_sync(path)?;
        folder.sync_all().at("sync", path)
    }

    /// Writes a file atomically: temporary file, sync, rename, sync of the folder.
    pub(crate) fn publish(&self, path: &Path, contents: &[u8]) -> Result<(), JournalError> {
        let temporary = self.temporary(path.parent().unwrap_or(path));
        let mut file = File::create_new(&temporary).at("create", &temporary)?;
        file.write_all(contents).at("write", &temporary)?;
        file.sync_data().at("sync", &temporary)?;
        fs::rename(&temporary, path).at("name", path)?;
        self.about_to_sync(path)?;
        path.parent().map_or(Ok(()), |parent| self.sync_dir(parent))
    }

    /// Returns a unique name in a folder for an unfinished file.
    pub(crate) fn temporary(&self, folder: &Path) -> PathBuf {
        let (token, number) = (self.token.0, self.next_number());
        folder.join(format!("{TEMPORARY_PREFIX}{token:016x}-{}-{number}", self.opened))
    }

    /// Removes the unfinished files of dead processes from a folder.
    pub(crate) fn remove_orphans(&self, folder: &Path) -> Result<(), JournalError> {
        for entry in fs::read_dir(folder).at("list", folder)? {
            let path = entry.at("list", folder)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let maker = name.strip_prefix(TEMPORARY_PREFIX).and_then(|rest| rest.split_once('-'));
            let token = maker.and_then(|(token, _)| u64::from_str_radix(token, 16).ok());
            if token.is_some_and(|token| !self.is_alive(Token(token))) {
                let removed = match path.is_dir() {
                    true => fs::remove_dir_all(&path),
                    false => fs::remove_file(&path),
                };
                removed.at("remove", &path)?;
            }
        }
        Ok(())
    }
}
