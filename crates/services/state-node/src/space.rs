//! What a full disk needs: the alarm's file, which is changed in place, and room in reserve.
//!
//! Operation: the reserve is a file without contents that holds blocks. A full disk takes it away,
//! so that deletions, compactions and the end of the alarm find room in the log. It is put back
//! while the alarm is not raised, as soon as the disk has room.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use helio_state::AlarmState;
use rustix::fs::FallocateFlags;

use crate::locked;

/// The file of the alarm, which a full disk still lets change.
pub(crate) const NO_SPACE_FILE: &str = "nospace";
/// The file that holds room.
const RESERVE_FILE: &str = "reserve";

/// The alarm's file: one byte, written in place.
#[derive(Debug)]
pub(crate) struct NoSpaceFile(File);

impl NoSpaceFile {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        let path = folder.join(NO_SPACE_FILE);
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() == 0 {
            file.write_all_at(b"0", 0)?;
            file.sync_all()?;
        }
        Ok(Self(file))
    }

    pub(crate) fn is_set(&self) -> bool {
        let mut byte = [0];
        self.0.read_exact_at(&mut byte, 0).is_ok() && byte == *b"1"
    }

    pub(crate) fn set(&self, state: AlarmState) {
        let byte = if state == AlarmState::Raised { b"1" } else { b"0" };
        // The alarm itself stands; only its survival of a restart is at stake here.
        let _ = self.0.write_all_at(byte, 0).and_then(|()| self.0.sync_data());
    }
}

/// Room on the disk for what a full disk must not refuse.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    bytes: u64,
    is_held: Mutex<bool>,
}

impl Reserve {
    /// A reserve that is not held yet.
    pub(crate) fn new(folder: &Path, bytes: u64) -> Self {
        Self { path: folder.join(RESERVE_FILE), bytes, is_held: Mutex::new(false) }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.bytes == 0 || *locked(&self.is_held)
    }

    /// Takes room from the disk, if it has enough, and the file system can.
    pub(crate) fn hold(&self) {
        let mut is_held = locked(&self.is_held);
        if *is_held {
            return;
        }
        let allocated = File::create(&self.path).and_then(|file| {
            Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.bytes)?)
        });
        *is_held = allocated.is_ok();
        if !*is_held {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Gives the room to whoever needs it.
    pub(crate) fn release(&self) {
        let mut is_held = locked(&self.is_held);
        *is_held = false;
        let _ = fs::remove_file(&self.path);
    }
}
