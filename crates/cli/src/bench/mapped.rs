//! A bare shared-memory log for `bench floor`: one writer appends to a mapped file and wakes one
//! reader by futex. It has no checksum, key, lock, recovery or retention.
//!
//! Format: a head of 4,096 bytes (the tail's offset at 0, the word to sleep on at 128, "a reader
//! sleeps" at 132), then records, each a length and a stamp (8 bytes each), the payload, and
//! padding to eight bytes. Only this module of the program has `unsafe` code.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;
use rustix::time::Timespec;

const HEAD_BYTES: usize = 4096;
const RECORD_HEAD_BYTES: usize = 16;
const PAGE_BYTES: usize = 4096;
const WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

#[repr(C)]
struct Head {
    tail: AtomicU64,
    _a: [u64; 15],
    wake: AtomicU32,
    sleeping: AtomicU32,
}

/// Whether a record always wakes the reader, or only a sleeping one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    Always,
    Sleepers,
}

/// The mapped file.
pub(crate) struct Mapped {
    base: NonNull<u8>,
    bytes: usize,
}

impl Mapped {
    /// The bytes of a log of `count` records of `payload_bytes`.
    pub(crate) fn bytes_for(payload_bytes: usize, count: usize) -> usize {
        HEAD_BYTES + (payload_bytes + RECORD_HEAD_BYTES + 8) * count + PAGE_BYTES
    }

    /// Creates the file with `bytes` untouched bytes.
    pub(crate) fn create(path: &Path, bytes: usize) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        Self::map(&file, bytes)
    }

    /// Opens the file of another process.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if bytes < HEAD_BYTES {
            return Err(io::Error::other("the file is too short"));
        }
        Self::map(&file, bytes)
    }

    fn map(file: &File, bytes: usize) -> io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours; the
        // file has `bytes` bytes (just allocated or just measured) and nobody shortens it while a
        // bench runs.
        let base = unsafe { mmap(ptr::null_mut(), bytes, prot, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { base, bytes })
    }

    /// Writes to each page once, so that appends use warm pages.
    pub(crate) fn touch(&self) {
        for at in (0..self.bytes).step_by(PAGE_BYTES) {
            // SAFETY: `at` lies inside the mapping, which is writable and private to this bench.
            unsafe { self.base.add(at).write_volatile(0) };
        }
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping is page-aligned, longer than the head (checked on opening), and all
        // that the head shares is atomic.
        unsafe { self.base.cast::<Head>().as_ref() }
    }

    /// Offsets count from behind the head; a record must end inside the mapping.
    fn record(&self, at: u64, payload_bytes: usize) -> (*mut u8, u64) {
        let padded = (payload_bytes + 7) & !7;
        let next = at + (RECORD_HEAD_BYTES + padded) as u64;
        assert!(HEAD_BYTES as u64 + next <= self.bytes as u64, "the record ends outside the log");
        // SAFETY: just checked to lie inside the mapping.
        (unsafe { self.base.as_ptr().add(HEAD_BYTES + at as usize) }, next)
    }

    /// Appends a record and returns the offset behind it.
    #[inline]
    pub(crate) fn append(&self, at: u64, stamp: u64, payload: &[u8], wake: Wake) -> u64 {
        let (record, next) = self.record(at, payload.len());
        // SAFETY: the record lies inside the mapping at a multiple of eight, and readers do not
        // look there before the tail says so.
        unsafe {
            record.cast::<u64>().write(payload.len() as u64);
            record.cast::<u64>().add(1).write(stamp);
            let to = record.add(RECORD_HEAD_BYTES);
            ptr::copy_nonoverlapping(payload.as_ptr(), to, payload.len());
        }
        let head = self.head();
        head.tail.store(next, Ordering::SeqCst);
        if wake == Wake::Always || head.sleeping.load(Ordering::SeqCst) != 0 {
            head.wake.fetch_add(1, Ordering::SeqCst);
            // A failed wake-up costs the reader at most its time-out.
            let _ = futex::wake(&head.wake, futex::Flags::empty(), 1);
        }
        next
    }

    /// Waits for the record at `at`, sleeping after `spins` polls, and copies its payload to `out`.
    /// Returns its stamp and the offset behind it.
    #[inline]
    pub(crate) fn take(&self, at: u64, out: &mut [u8], spins: u32) -> (u64, u64) {
        self.wait(at, spins);
        let (record, _) = self.record(at, 0);
        // SAFETY: the tail is beyond `at` and was read with acquire order: the record is whole. Its
        // length is checked against the mapping and against `out` before it is used.
        let (length, stamp) =
            unsafe { (record.cast::<u64>().read() as usize, record.cast::<u64>().add(1).read()) };
        let (_, next) = self.record(at, length);
        let out = &mut out[..length];
        // SAFETY: as above; `out` is memory of ours, apart from the mapping.
        unsafe {
            ptr::copy_nonoverlapping(record.add(RECORD_HEAD_BYTES), out.as_mut_ptr(), length);
        }
        (stamp, next)
    }

    fn wait(&self, at: u64, spins: u32) {
        let head = self.head();
        for _ in 0..spins {
            if head.tail.load(Ordering::Acquire) != at {
                return;
            }
            std::hint::spin_loop();
        }
        while head.tail.load(Ordering::Acquire) == at {
            let seen = head.wake.load(Ordering::SeqCst);
            head.sleeping.store(1, Ordering::SeqCst);
            if head.tail.load(Ordering::SeqCst) == at {
                // Woken, interrupted or timed out: the loop reads the tail again.
                let _ = futex::wait(&head.wake, futex::Flags::empty(), seen, Some(&WAIT));
            }
            head.sleeping.store(0, Ordering::SeqCst);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_as_they_went_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Mapped::create(&path, Mapped::bytes_for(10, 3)).unwrap();
        log.touch();
        let reader = std::thread::spawn(move || {
            let log = Mapped::open(&path).unwrap();
            let (mut at, mut out, mut seen) = (0, [0; 10], vec![]);
            for _ in 0..3 {
                let (stamp, next) = log.take(at, &mut out, 0);
                at = next;
                seen.push((stamp, out[0]));
            }
            seen
        });
        let mut at = 0;
        for i in 1..=3u8 {
            at = log.append(at, u64::from(i), &[i; 10], Wake::Sleepers);
        }
        assert_eq!(reader.join().unwrap(), [(1, 1), (2, 2), (3, 3)]);
    }
}
