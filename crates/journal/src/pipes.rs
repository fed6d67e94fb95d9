//! Waking who sleeps in an event loop: a named pipe a doorbell, which `epoll` and its like can
//! watch.
//!
//! Constraints: waking never blocks, and never raises a signal. A pipe that cannot be made or
//! opened (a file system without pipes, no right to write) costs the waker nothing and the sleeper
//! at most the sweep's time.
//!
//! Format: `bells/N` in the journal's folder is the pipe of doorbell N, made when first needed and
//! then left there for whoever has the doorbell next. What is read from it means nothing.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mknodat, open};

/// The most pipes that a process keeps open to wake others; beyond it, one is opened for each ring.
const MAX_CACHED_PIPES: usize = 64;

/// The pipes of a journal's doorbells, with those that this process has open to wake others.
pub(crate) struct Pipes {
    dir: PathBuf,
    opened: Mutex<HashMap<usize, OwnedFd>>,
}

fn path(dir: &Path, slot: usize) -> PathBuf {
    dir.join("bells").join(slot.to_string())
}

/// Opens a doorbell's pipe. Both ends are opened, so that there is always a reader: writing to a
/// pipe that nobody reads would raise SIGPIPE.
fn attach(dir: &Path, slot: usize) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let pipe = open(path(dir, slot), flags, Mode::empty()).ok()?;
    let is_pipe = FileType::from_raw_mode(fstat(&pipe).ok()?.st_mode) == FileType::Fifo;
    is_pipe.then_some(pipe)
}

/// Makes a pipe readable. It is full only where it is readable already.
pub(crate) fn poke(pipe: impl AsFd) {
    let _ = rustix::io::write(pipe, &[1]);
}

/// Makes a pipe unreadable, but for what comes meanwhile.
pub(crate) fn drain(pipe: impl AsFd) {
    let _ = rustix::io::read(pipe, &mut [0_u8; 4096]);
}

impl Pipes {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, opened: Mutex::default() }
    }

    /// The pipe for the owner of a doorbell; `None` where the folder cannot have it.
    pub(crate) fn make(&self, slot: usize) -> Option<OwnedFd> {
        let dir = &self.dir;
        if let Some(pipe) = attach(dir, slot) {
            return Some(pipe);
        }
        fs::create_dir_all(dir.join("bells")).ok()?;
        // Where it cannot be made, or is something else, opening it says so.
        let _ = mknodat(CWD, path(dir, slot), FileType::Fifo, Mode::from_raw_mode(0o666), 0);
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
