//! Threads that are other users: only root can have them.
#![allow(unsafe_code, reason = "a thread with a umask of its own")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::Mode;
use rustix::process::{Gid, Uid};
use rustix::thread::UnshareFlags;

/// The user and group of those who may only read.
pub(crate) const NOBODY: u32 = 65_534;

/// Whether this process may be other users, and mount; says so if not.
pub(crate) fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("{test}: skipped, it needs root");
    }
    root
}

/// A folder that everybody may enter.
pub(crate) fn open_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Makes the calling thread one of another user, with a group of the same number, for ever.
pub(crate) fn become_user(id: u32) {
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_res_gid(group, group, group).unwrap();
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
}

/// Runs as another user.
pub(crate) fn as_user<T: Send>(id: u32, run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            become_user(id);
            run()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs in a thread with a umask of its own, which its own threads share.
pub(crate) fn with_umask<T: Send>(umask: u32, run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: no descriptor is concerned: folders and umask only.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }.unwrap();
            rustix::process::umask(Mode::from_raw_mode(umask));
            run()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
