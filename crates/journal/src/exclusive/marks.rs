//! The offsets of an exclusive log that outlive its process: dropped and committed.
//!
//! Format: `HELIOXLG`, version (4 at 8), 0 to byte 4,096, but for two slots, at 512 and 1,024:
//! number of the store (8), first offset (8), committed offset (8), CRC of these (8). The valid
//! slot with the higher number counts. A store writes the other one.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::JournalError;
use crate::env::Env;
use crate::error::IoContext;
use crate::location;

const MAGIC: &[u8; 8] = b"HELIOXLG";
const VERSION: u32 = 1;
const FILE_BYTES: usize = 4096;
/// In different sectors of a disk: one write tears one slot.
const SLOTS: [usize; 2] = [512, 1024];
const SLOT_BYTES: usize = 32;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Slot {
    number: u64,
    first: u64,
    committed: u64,
}

impl Slot {
    fn bytes(self) -> [u8; SLOT_BYTES] {
        let mut out = [0; SLOT_BYTES];
        for (at, word) in [self.number, self.first, self.committed].into_iter().enumerate() {
            out[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        let crc = u64::from(crc32c::crc32c(&out[..24]));
        out[24..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| bytes.get(at..)?.first_chunk().map(|w| u64::from_le_bytes(*w));
        let slot = Self { number: word(0)?, first: word(8)?, committed: word(16)? };
        (slot.bytes()[..] == bytes[..SLOT_BYTES] && slot.number > 0).then_some(slot)
    }
}

pub(super) struct Marks {
    file: File,
    path: PathBuf,
    now: Slot,
}

impl Marks {
    /// Opens the file; creates it, on the disk, if there is none. Returns whether it did.
    pub(super) fn open(folder: &Path, env: &Env) -> Result<(Self, bool), JournalError> {
        let path = folder.join("marks");
        location::check_no_link(&path)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.at("open", &path)?;
        let mut page = [0; FILE_BYTES];
        let fresh = file.metadata().at("look at", &path)?.len() < FILE_BYTES as u64;
        if !fresh {
            file.read_exact_at(&mut page, 0).at("read", &path)?;
        }
        // A power loss during the creation leaves no bytes, or zeros.
        let fresh = fresh || page.iter().all(|byte| *byte == 0);
        if fresh {
            page[..8].copy_from_slice(MAGIC);
            page[8..12].copy_from_slice(&VERSION.to_le_bytes());
            file.write_all_at(&page, 0).at("write", &path)?;
            env.sync_file(&path)?;
        }
        let version = page[8..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        if &page[..8] != MAGIC {
            return Err(JournalError::damaged(&path, "marks of an exclusive log"));
        }
        if version > VERSION {
            return Err(JournalError::Version { path, found: version, known: VERSION });
        }
        let slots = SLOTS.into_iter().filter_map(|at| Slot::parse(&page[at..at + SLOT_BYTES]));
        let now = slots.max_by_key(|slot| slot.number).unwrap_or_default();
        Ok((Self { file, path, now }, fresh))
    }

    pub(super) fn first(&self) -> u64 {
        self.now.first
    }

    pub(super) fn committed(&self) -> u64 {
        self.now.committed
    }

    pub(super) fn store(&mut self, first: u64, committed: u64) -> Result<(), JournalError> {
        let next = Slot { number: self.now.number + 1, first, committed };
        let at = SLOTS[(next.number % 2) as usize] as u64;
        self.file.write_all_at(&next.bytes(), at).at("write", &self.path)?;
        self.now = next;
        Ok(())
    }

    pub(super) fn sync(&self, env: &Env) -> Result<(), JournalError> {
        env.sync_file(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_damaged_slot_is_noticed() {
        let slot = Slot { number: 3, first: 4, committed: 5 };
        assert_eq!(Slot::parse(&slot.bytes()), Some(slot));
        assert_eq!(Slot::parse(&[0; SLOT_BYTES]), None);
        for bit in 0..SLOT_BYTES * 8 {
            let mut bytes = slot.bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Slot::parse(&bytes), None, "bit {bit}");
        }
    }
}
