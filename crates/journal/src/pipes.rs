//! Wake-ups for event loops: one named pipe per doorbell, which `epoll` and its like can watch.
//!
//! Constraints: waking never blocks, and never raises a signal. A pipe may be impossible to create
//! or open (a file system without pipes, no write permission). That costs the writer nothing and
//! the sleeper at most the sweep interval.
//!
//! Format: `bells/N` in the journal's folder is the pipe of doorbell N. It is created on first use
//! and kept for the doorbell's next owner. Its contents have no meaning.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mknodat, open};

/// The limit of pipes that a process keeps open to wake others. Beyond it, each ring opens one.
const MAX_CACHED_PIPES: usize = 64;

/// The pipes of a journal's doorbells. Caches those that this process opened to wake others.
pub(crate) struct Pipes {
    dir: PathBuf,
    opened: Mutex<HashMap<usize, OwnedFd>>,
}

fn path(dir: &Path, slot: usize) -> PathBuf {
    dir.join("bells").join(slot.to_string())
}

/// Opens both ends of a doorbell's pipe. A pipe without a reader would raise SIGPIPE at a write.
fn attach(dir: &Path, slot: usize) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let pipe = open(path(dir, slot), flags, Mode::empty()).ok()?;
    let is_pipe = FileType::from_raw_mode(fstat(&pipe).ok()?.st_mode) == FileType::Fifo;
    is_pipe.then_some(pipe)
}

/// Makes a pipe readable. A full pipe is readable already.
pub(crate) fn poke(pipe: impl AsFd) {
    let _ = rustix::io::write(pipe, &[1]);
}

/// Empties a pipe, apart from concurrent writes.
pub(crate) fn drain(pipe: impl AsFd) {
    let _ = rustix::io::read(pipe, &mut [0_u8; 4096]);
}

impl Pipes {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, opened: Mutex::default() }
    }

    /// Opens the pipe for the owner of a doorbell; `None` if the folder cannot have one.
    pub(crate) fn make(&self, slot: usize) -> Option<OwnedFd> {
        let dir = &self.dir;
        if let Some(pipe) = attach(dir, slot) {
            return Some(pipe);
        }
        fs::create_dir_all(dir.join("bells")).ok()?;
        // If this fails, or the file is no pipe, `attach` returns `None`.
        let _ = mknodat(CWD, path(dir, slot), FileType::Fifo, Mode::from_raw_mode(0o660), 0);
        attach(dir, slot)
    }

    /// Wakes the owner of a doorbell.
    pub(crate) fn wake(&self, slot: usize) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = opened.get(&slot) {
            poke(pipe);
        } else if let Some(pipe) = attach(&self.dir, slot) {
            poke(&pipe);
            if opened.len() < MAX_CACHED_PIPES {
                opened.insert(slot, pipe);
            }
        }
    }
}
