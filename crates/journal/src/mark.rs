//! The mark of a mapped file: the boot and the file for which its locks and changing words are
//! valid. Under another boot, and in a copy, its locks have no holders.
//!
//! Constraints: a copy in the place of a removed file often gets its inode, and never its birth. A
//! birth that the system does not tell, or that an earlier program has not stored, is not compared.
//!
//! Format: boot id (16), inode (8), and a word (8): a check of both in its lower half, a hash of
//! the birth in its upper half, 0 for unknown. With another check the word belongs to a former
//! mark.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

use crate::file_id::birth;
use crate::hash::mix;
use crate::map::Map;
use crate::process::BootId;

const INODE: usize = 16;
const BIRTH: usize = 24;

/// The boot, and a file's inode and birth; 0 for an unknown birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    boot: BootId,
    inode: u64,
    birth: u64,
}

impl Mark {
    /// Returns the mark of a file in a boot.
    pub(crate) fn of(boot: BootId, file: &File) -> io::Result<Self> {
        let data = file.metadata()?;
        Ok(Self { boot, inode: data.ino(), birth: birth(&data) })
    }

    /// Returns whether a map has this mark at a position.
    pub(crate) fn is_in(self, map: &Map, at: usize) -> bool {
        let inode = map.u64(at + INODE).load(Acquire);
        if map.array::<16>(at) != self.boot.0 || inode != self.inode {
            return false;
        }
        let (known, own) = (map.u64(at + BIRTH).load(Acquire), self.birth_word());
        let [known_hash, own_hash] = [known, own].map(|word| word >> 32);
        known as u32 != own as u32 || known_hash == own_hash || known_hash == 0 || own_hash == 0
    }

    /// Stores it. Under a lock.
    pub(crate) fn store(self, map: &Map, at: usize) {
        map.u64(at + INODE).store(0, SeqCst);
        map.write(at, &self.boot.0);
        map.u64(at + BIRTH).store(self.birth_word(), Release);
        map.u64(at + INODE).store(self.inode, Release);
    }

    fn birth_word(self) -> u64 {
        let check = mix(self.boot.word() ^ self.inode) as u32;
        let hash = if self.birth == 0 { 0 } else { mix(self.birth) as u32 | 1 };
        u64::from(hash) << 32 | u64::from(check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{Mode, reserve};

    #[test]
    fn it_tells_a_copy_with_the_same_inode_and_takes_an_unknown_birth_for_none() {
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 4096).unwrap();
        let map = Map::of(&file, 4096, Mode::Write).unwrap();
        let mark = |boot, inode, birth| Mark { boot: BootId([boot; 16]), inode, birth };
        let own = mark(1, 7, 1_000);
        assert!(!own.is_in(&map, 64));
        own.store(&map, 64);
        assert!(own.is_in(&map, 64) && mark(1, 7, 0).is_in(&map, 64));
        for other in [mark(2, 7, 1_000), mark(1, 8, 1_000), mark(1, 7, 1_001)] {
            assert!(!other.is_in(&map, 64), "{other:?}");
        }
        // An earlier program marks a copy with another inode, and leaves the last word.
        map.u64(64 + INODE).store(8, Release);
        assert!(mark(1, 8, 1_001).is_in(&map, 64));
        mark(1, 7, 0).store(&map, 64);
        assert!(own.is_in(&map, 64));
    }
}
