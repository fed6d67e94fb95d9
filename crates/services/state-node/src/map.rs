//! A file mapped for reading, as bytes that keep the mapping alive.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use bytes::Bytes;
use rustix::mm::{MapFlags, ProtFlags};

struct Mapped {
    start: *mut std::ffi::c_void,
    length: usize,
}

// SAFETY: the mapping is read-only and not tied to a thread.
unsafe impl Send for Mapped {}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping of `length` bytes lives as long as `self`; snapshots are never
        // changed nor cut after they got their name, and only one process owns their folder.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.length) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: made by `mmap` with this length, and no slice outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.start, self.length) };
    }
}

/// Maps a whole file.
pub(crate) fn map(file: &File) -> io::Result<Bytes> {
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    if length == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0)
    }?;
    Ok(Bytes::from_owner(Mapped { start, length }))
}
