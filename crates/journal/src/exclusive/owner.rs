//! The holder of an exclusive log: a lock of a file that has its process and name.
//!
//! Constraints: the kernel releases the lock when the holder dies. Nobody else keeps the file
//! locked: who is refused only reads it, and other users can't open it. A holder that ends unlocks
//! it: a child that another thread is starting has a copy of the file until its program begins.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::JournalError;
use crate::error::IoContext;
use crate::location;
use crate::process::process_of;

/// The longest name of a holder, as reported to others, in bytes.
const MAX_NAME_BYTES: u64 = 256;

pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("owner")
}

/// The lock, held until it is dropped.
pub(super) struct Owner {
    file: File,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Closing, which follows, unlocks as well if no child has a copy.
        let _ = self.file.unlock();
    }
}

impl Owner {
    pub(super) fn acquire(folder: &Path, name: &str) -> Result<Self, JournalError> {
        let path = path(folder);
        location::check_no_link(&path)?;
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.at("open", &path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(file, path)),
            Err(TryLockError::Error(error)) => return Err(JournalError::io("lock", &path, error)),
        }
        let name: String = name.chars().filter(|c| !c.is_control()).collect();
        let text = format!("{}\n{name}\n", std::process::id());
        file.set_len(0).at("write", &path)?;
        file.write_all_at(text.as_bytes(), 0).at("write", &path)?;
        Ok(Self { file })
    }
}

fn held(file: File, path: PathBuf) -> JournalError {
    let mut text = String::new();
    // A holder that has not written its name yet is refused all the same.
    let _ = file.take(MAX_NAME_BYTES).read_to_string(&mut text);
    let (pid, owner) = text.split_once('\n').unwrap_or_default();
    let pid = pid.parse().unwrap_or(0);
    let process = if pid == 0 { String::new() } else { process_of(pid).1 };
    JournalError::Held { path, owner: owner.trim_end().to_owned(), pid, process }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_ends_unlocks_also_for_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let first = Owner::acquire(folder.path(), "first").unwrap();
        let of_child = first.file.try_clone().unwrap();
        assert!(matches!(Owner::acquire(folder.path(), "b"), Err(JournalError::Held { .. })));
        drop(first);
        Owner::acquire(folder.path(), "second").unwrap();
        drop(of_child);
    }
}
