//! Mapped files: the only module that accesses bytes shared with other processes.
//!
//! Constraints: no `&mut`, and no plain `&[u8]` over bytes that another process may still write, is
//! ever formed here. Words are accessed as atomics; bytes are copied in and out through raw
//! pointers. Only [`Map::stable`] returns a plain slice; its caller guarantees that the bytes no
//! longer change.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use thiserror::Error;

use crate::sigbus;
use crate::waiters::SharedWord;

/// Bytes of a memory page, the unit of populating and writing back.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Whether a map may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    /// Read-only, in a process that does not write: a file that is cut short reads as zeros.
    Guarded,
    Write,
}

/// The share of the kernel's limit of maps that this process may use: the rest is for the program
/// itself, whose allocator would fail.
const MAX_MAPS_PERCENT: usize = 80;
/// The kernel's default limit.
const DEFAULT_MAX_MAPS: usize = 65_530;
/// The number of this process's maps.
static MAPS: AtomicUsize = AtomicUsize::new(0);

/// The limit of maps is reached.
#[derive(Debug, Error)]
#[error("{0} files are mapped")]
pub(crate) struct TooManyMaps(pub(crate) usize);

/// Returns the limit of this process's maps.
fn max_maps() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        let limit = text.ok().and_then(|text| text.trim().parse().ok());
        limit.unwrap_or(DEFAULT_MAX_MAPS) / 100 * MAX_MAPS_PERCENT
    })
}

/// A shared map of the first bytes of a file.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    len: usize,
    mode: Mode,
    /// Its entry among the guarded maps.
    guarded: Option<usize>,
}

// SAFETY: a map is an address range that lives until drop; all access goes through atomics or raw
// copies.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `len` bytes of a file that has at least as many.
    pub(crate) fn of(file: &File, len: usize, mode: Mode) -> io::Result<Self> {
        if len == 0 || file.metadata()?.len() < len as u64 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is too short"));
        }
        let protection = match mode {
            Mode::Read | Mode::Guarded => libc::PROT_READ,
            Mode::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        if MAPS.load(Relaxed) >= max_maps() {
            return Err(io::Error::other(TooManyMaps(max_maps())));
        }
        // SAFETY: a fresh shared mapping of an open file at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        MAPS.fetch_add(1, Relaxed);
        let guarded = match mode {
            Mode::Guarded => sigbus::guard(base.as_ptr() as usize, len),
            Mode::Read | Mode::Write => None,
        };
        Ok(Self { base, len, mode, guarded })
    }

    /// Returns zeros of this process alone, in place of a file that is missing.
    pub(crate) fn blank(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        MAPS.fetch_add(1, Relaxed);
        Ok(Self { base, len, mode: Mode::Read, guarded: None })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    fn at(&self, at: usize, len: usize, align: usize) -> *mut u8 {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(
            inside && at.is_multiple_of(align),
            "byte {at}+{len} of a map of {} bytes",
            self.len
        );
        // SAFETY: just checked to lie within the mapping.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// The 64-bit word at a byte position that is a multiple of eight.
    #[inline]
    pub(crate) fn u64(&self, at: usize) -> &AtomicU64 {
        // SAFETY: inside the mapping, aligned, and only ever accessed atomically while shared.
        unsafe { AtomicU64::from_ptr(self.at(at, 8, 8).cast()) }
    }

    /// The 32-bit word at a byte position that is a multiple of four.
    #[inline]
    pub(crate) fn u32(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as for `u64`.
        unsafe { AtomicU32::from_ptr(self.at(at, 4, 4).cast()) }
    }

    /// Copies bytes in. The caller holds the lock that makes it the only writer of these bytes.
    #[inline]
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        debug_assert_eq!(self.mode, Mode::Write);
        let to = self.at(at, bytes.len(), 1);
        // SAFETY: the target lies within the mapping, and `bytes`, being borrowed, lies elsewhere.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies bytes out. Concurrent writes of another process may give torn contents: check them.
    #[inline]
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) {
        let from = self.at(at, out.len(), 1);
        // SAFETY: the source lies within the mapping; `out` is ours alone. Torn contents are
        // expected.
        unsafe { ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) }
    }

    /// Copies bytes out into an array.
    #[inline]
    pub(crate) fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        self.read(at, &mut out);
        out
    }

    /// Borrows bytes in place.
    ///
    /// # Safety
    /// The bytes must not change while the slice lives: they lie below the committed tail of a
    /// segment that is pinned against recycling.
    #[inline]
    pub(crate) unsafe fn stable(&self, at: usize, len: usize) -> &[u8] {
        let from = self.at(at, len, 1);
        // SAFETY: inside the mapping; stable by the caller's promise.
        unsafe { std::slice::from_raw_parts(from, len) }
    }

    /// The byte of the map at which a slice lies; `None` for a slice that lies elsewhere.
    pub(crate) fn place_of(&self, bytes: &[u8]) -> Option<usize> {
        let at = (bytes.as_ptr() as usize).checked_sub(self.base.as_ptr() as usize)?;
        at.checked_add(bytes.len()).filter(|end| *end <= self.len)?;
        Some(at)
    }

    /// The address of a lock inside the map.
    pub(crate) fn lock_at(&self, at: usize, len: usize) -> *mut u8 {
        self.at(at, len, 8)
    }

    /// Makes the pages present and writable, so that a later write does not fault. Best effort:
    /// without support by the kernel, the first access faults.
    pub(crate) fn populate(&self, at: usize, len: usize) {
        self.advise(
            at,
            len,
            match self.mode {
                Mode::Read | Mode::Guarded => libc::MADV_POPULATE_READ,
                Mode::Write => libc::MADV_POPULATE_WRITE,
            },
        );
    }

    /// Makes the pages present for reading. Best effort, as [`Map::populate`].
    pub(crate) fn populate_read(&self, at: usize, len: usize) {
        self.advise(at, len, libc::MADV_POPULATE_READ);
    }

    /// Writes the file's changed pages to the disk, as `fdatasync` does. It is the mapped file
    /// that is synced, whatever is at its path by now.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping.
        match unsafe { libc::msync(self.base.as_ptr().cast(), self.len, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn advise(&self, at: usize, len: usize, advice: libc::c_int) {
        let from = at / PAGE_BYTES * PAGE_BYTES;
        let end = at.saturating_add(len).min(self.len);
        if from >= end {
            return;
        }
        // SAFETY: the range is page-aligned at its start and lies within the mapping.
        unsafe { libc::madvise(self.at(from, end - from, 1).cast(), end - from, advice) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        MAPS.fetch_sub(1, Relaxed);
        self.guarded.into_iter().for_each(sigbus::release);
        // SAFETY: the mapping was made by `of` and nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Allocates disk space for the whole file, so that a full disk is an error here and not a signal
/// at a later write through a map.
pub(crate) fn reserve(file: &File, len: u64) -> io::Result<()> {
    let len = i64::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    loop {
        // SAFETY: plain call on an open descriptor.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
            0 => return Ok(()),
            libc::EINTR => {}
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// A word of a map, for the protocols of waiters and wake hints.
pub(crate) struct MapWord<'a>(pub(crate) &'a Map, pub(crate) usize);

impl SharedWord for MapWord<'_> {
    fn load(&self) -> u64 {
        self.0.u64(self.1).load(SeqCst)
    }
    fn fetch_or(&self, bits: u64) -> u64 {
        self.0.u64(self.1).fetch_or(bits, SeqCst)
    }
    fn take(&self) -> u64 {
        self.0.u64(self.1).swap(0, SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn words_and_bytes_are_shared_between_two_maps_of_a_file() {
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 8192).unwrap();
        let (a, b) =
            (Map::of(&file, 8192, Mode::Write).unwrap(), Map::of(&file, 8192, Mode::Read).unwrap());
        a.u64(4096).store(7, SeqCst);
        a.write(5000, b"hello");
        a.populate(0, 8192);
        b.populate(100, 1 << 40);
        assert_eq!(b.u64(4096).load(SeqCst), 7);
        assert_eq!(&b.array::<5>(5000), b"hello");
        assert!(Map::of(&file, 8193, Mode::Read).is_err());
    }

    #[test]
    #[should_panic(expected = "of a map of 4096 bytes")]
    fn nothing_is_reached_outside_a_map() {
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 4096).unwrap();
        Map::of(&file, 4096, Mode::Read).unwrap().u64(4096);
    }

    const CHILD: &str = "HELIO_MAPS_CHILD";
    /// A child that ran no test ends with 0.
    const CHILD_PASSED: i32 = 42;

    /// In a process of its own, as the limit is the process's.
    #[test]
    fn the_limit_of_maps_is_an_error_with_a_remedy_and_leaves_room_for_the_program() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "map::tests::child", "--nocapture"]).env(CHILD, "1");
        assert_eq!(child.status().unwrap().code(), Some(CHILD_PASSED));
    }

    #[test]
    fn child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 4096).unwrap();
        let mut maps = Vec::new();
        let error = loop {
            match Map::of(&file, 4096, Mode::Read) {
                Ok(map) => maps.push(map),
                Err(error) => break error,
            }
        };
        assert_eq!(maps.len(), max_maps());
        let error = crate::JournalError::io("map", std::path::Path::new("topics/t"), error);
        assert!(matches!(error, crate::JournalError::TooManyMaps { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("sysctl vm.max_map_count") && text.contains("topics/t"), "{text}");
        // The allocator and new threads need maps, too.
        let threads = (0..64).map(|_| std::thread::spawn(|| vec![1_u8; 16 << 20].len()));
        let threads: Vec<_> = threads.collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap() == 16 << 20));
        drop(maps.pop());
        drop(Map::of(&file, 4096, Mode::Read).unwrap());
        std::process::exit(CHILD_PASSED);
    }
}
