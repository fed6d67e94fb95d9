//! The presence of processes, as locks of single bytes of a file that only writers may open.
//!
//! Constraints: the kernel releases a byte when its holder closes the file or dies, in whatever PID
//! namespace it is. The locks belong to the open file (`F_OFD_SETLK`): a process may open a journal
//! several times. A child that was forked while the journal was open, and has not called `exec`,
//! shares its parent's locks.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Which bytes are queried.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bytes {
    /// The byte of one process.
    Of(u64),
    /// All.
    All,
}

fn range(kind: libc::c_int, bytes: Bytes) -> libc::flock {
    let (start, len) = match bytes {
        Bytes::Of(number) => (i64::try_from(number).unwrap_or(i64::MAX - 1), 1),
        Bytes::All => (0, 0),
    };
    // The constants fit: they are 0 to 2.
    let (kind, whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    libc::flock { l_type: kind, l_whence: whence, l_start: start, l_len: len, l_pid: 0 }
}

fn call(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: an open descriptor and a structure of this frame, which the kernel fills.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Locks the byte of this process until the file is closed.
pub(crate) fn enter(file: &File, number: u64) -> io::Result<()> {
    // Shared: the process may have the journal open several times.
    call(file, libc::F_OFD_SETLK, &mut range(libc::F_RDLCK, Bytes::Of(number)))
}

/// Returns whether an open file other than this one has locked any of the bytes. An error of the
/// system counts as yes.
pub(crate) fn is_present(file: &File, bytes: Bytes) -> bool {
    let mut found = range(libc::F_WRLCK, bytes);
    let queried = call(file, libc::F_OFD_GETLK, &mut found);
    queried.is_err() || libc::c_int::from(found.l_type) != libc::F_UNLCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_present_until_its_file_is_closed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let (own, other) = (open(), open());
        let token = (4_194_304 << 32) | u64::from(u32::MAX);
        enter(&own, token).unwrap();
        enter(&other, token).unwrap();
        drop(own);
        assert!(!is_present(&other, Bytes::All), "the own lock does not count");
        let third = open();
        assert!(is_present(&third, Bytes::All) && is_present(&third, Bytes::Of(token)));
        assert!(!is_present(&third, Bytes::Of(token - 1)));
        drop(other);
        assert!(!is_present(&third, Bytes::All));
    }
}
