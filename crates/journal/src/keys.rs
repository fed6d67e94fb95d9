//! The keys index: the position of each key's newest record.
//!
//! Constraints: it is derived from the log and can always be rebuilt. Appends update it under the
//! partition's lock; `keys_upto` is the position up to which it is complete, from which the
//! successor of a dead writer continues. After power loss the table is discarded: a *snapshot*,
//! written atomically and synced, is loaded, and the log behind it is replayed.
//!
//! Format: a table file `keys.N` is a header of 64 bytes and a power of two of 32-byte slots, open
//! addressing, linear probing: hash (16 bytes), position (8 bytes, 0 for free, 1 for a key that a
//! null has deleted), 8 bytes unused. A slot's hash never changes; its position changes in one
//! store. A larger table is a new file with the next N, without deleted keys.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::JournalError;
use crate::error::IoContext;
use crate::frame::{self, FrameHeader};
use crate::hash::KeyHash;
use crate::map::{Map, Mode, reserve};
use crate::partition::{Guard, Partition};

const MAGIC: &[u8; 8] = b"HELIOKEY";
const SNAP_MAGIC: &[u8; 8] = b"HELIOKSN";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const SLOTS_AT: usize = 16;
const USED_AT: usize = 24;
const SLOT_BYTES: usize = 32;
/// The position of a key whose newest record is a null: it has no last value. No frame lies there.
pub(crate) const DELETED: u64 = 1;
/// Slots of a partition's first table, which fills one page.
const FIRST_SLOTS: u64 = 126;
/// The limit of a table's slots: 32 million slots, for 20 million keys, are a gigabyte.
const MAX_SLOTS: u64 = 1 << 25;

/// The limit of generations, which only damage exceeds.
const MAX_GENERATION: u64 = 1 << 48;

/// A mapped table.
#[derive(Debug)]
pub(crate) struct Keys {
    map: Map,
    slots: u64,
    pub(crate) generation: u64,
}

pub(crate) fn path(dir: &Path, generation: u64) -> PathBuf {
    dir.join(format!("keys.{generation}"))
}

fn snapshot_path(dir: &Path) -> PathBuf {
    dir.join("keys.snap")
}

impl Keys {
    fn create(path: &Path, slots: u64, generation: u64) -> Result<Self, JournalError> {
        let len = HEADER_BYTES + slots as usize * SLOT_BYTES;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path).at("create", path)?;
        reserve(&file, len as u64).at("allocate", path)?;
        let map = Map::of(&file, len, Mode::Write).at("map", path)?;
        map.write(8, &VERSION.to_le_bytes());
        map.u64(SLOTS_AT).store(slots, Relaxed);
        map.write(0, MAGIC);
        Ok(Self { map, slots, generation })
    }

    fn open(dir: &Path, generation: u64, mode: Mode) -> Result<Self, JournalError> {
        let path = path(dir, generation);
        let file = OpenOptions::new().read(true).write(mode == Mode::Write).open(&path);
        let file = file.at("open", &path)?;
        let len = file.metadata().at("look at", &path)?.len() as usize;
        let map = Map::of(&file, len.max(HEADER_BYTES), mode).at("map", &path)?;
        let slots = map.u64(SLOTS_AT).load(Relaxed);
        let fits =
            slots > 0 && slots <= MAX_SLOTS && len == HEADER_BYTES + slots as usize * SLOT_BYTES;
        if &map.array::<8>(0) != MAGIC || !fits {
            return Err(JournalError::damaged(&path, "keys index"));
        }
        Ok(Self { map, slots, generation })
    }

    fn used(&self) -> u64 {
        self.map.u64(USED_AT).load(Acquire)
    }

    fn is_full(&self) -> bool {
        self.used() >= self.slots / 8 * 5
    }

    fn slot(&self, at: usize) -> (KeyHash, u64) {
        let pos = self.map.u64(at + 16).load(Acquire);
        let (high, low) = (self.map.u64(at).load(Relaxed), self.map.u64(at + 8).load(Relaxed));
        (KeyHash { high, low }, pos)
    }

    /// Returns the slot of a key, or the free one for it.
    fn find(&self, hash: KeyHash) -> Option<(usize, u64)> {
        let start = hash.high % self.slots;
        for i in 0..self.slots {
            let at = HEADER_BYTES + ((start + i) % self.slots) as usize * SLOT_BYTES;
            let (found, pos) = self.slot(at);
            if pos == 0 || found == hash {
                return Some((at, pos));
            }
        }
        None
    }

    pub(crate) fn get(&self, hash: KeyHash) -> Option<u64> {
        self.find(hash).map(|(_, pos)| pos).filter(|pos| *pos > DELETED)
    }

    /// Stores the position of a key's newest record, or [`DELETED`]. The caller holds the lock and
    /// has checked that there is room.
    pub(crate) fn put(&self, hash: KeyHash, pos: u64) {
        let Some((at, old)) = self.find(hash) else { return };
        if old == 0 && pos == DELETED {
            return;
        }
        if old == 0 {
            self.map.u64(at).store(hash.high, Relaxed);
            self.map.u64(at + 8).store(hash.low, Relaxed);
        }
        self.map.u64(at + 16).store(pos, Release);
        if old == 0 {
            // Last: a table with fewer entries than its count would be taken for damaged for ever.
            self.map.u64(USED_AT).store(self.used() + 1, Release);
        }
    }

    /// Iterates over the hashes and positions of all keys, deleted ones included.
    fn entries(&self) -> impl Iterator<Item = (KeyHash, u64)> {
        let slots = (0..self.slots as usize).map(|i| self.slot(HEADER_BYTES + i * SLOT_BYTES));
        slots.filter(|(_, pos)| *pos != 0)
    }

    /// Iterates over the hashes and positions of all keys that have a last value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyHash, u64)> {
        self.entries().filter(|(_, pos)| *pos != DELETED)
    }
}

/// Positions by key, and the position up to which they are complete.
pub(crate) type LastValues = (Vec<(KeyHash, u64)>, u64);

/// A snapshot of the table, complete up to a position.
struct Snapshot {
    upto: u64,
    entries: Vec<(KeyHash, u64)>,
}

fn encode(upto: u64, entries: &[(KeyHash, u64)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(36 + entries.len() * 24);
    out.extend(SNAP_MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend(upto.to_le_bytes());
    out.extend((entries.len() as u64).to_le_bytes());
    for (hash, pos) in entries {
        out.extend([hash.high, hash.low, *pos].iter().flat_map(|word| word.to_le_bytes()));
    }
    let crc = crc32c::crc32c(&out);
    out.extend(crc.to_le_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<Snapshot> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    let known = body.get(..12)? == [&SNAP_MAGIC[..], &VERSION.to_le_bytes()].concat();
    if !known || u32::from_le_bytes(*crc) != crc32c::crc32c(body) {
        return None;
    }
    let mut words =
        body[12..].chunks_exact(8).filter_map(|c| c.try_into().ok().map(u64::from_le_bytes));
    let (upto, count) = (words.next()?, words.next()?);
    let rest: Vec<u64> = words.collect();
    let entries: Vec<_> =
        rest.chunks_exact(3).map(|c| (KeyHash { high: c[0], low: c[1] }, c[2])).collect();
    (entries.len() as u64 == count).then_some(Snapshot { upto, entries })
}

impl Partition {
    /// Returns the hash of a key in this partition.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        if key.is_empty() { self.unkeyed } else { KeyHash::of(key, self.control.seed()) }
    }

    /// Returns a frame's key, and the key's place in the index while that frame is its newest.
    fn last_place(&self, pos: u64, header: &FrameHeader, body: &[u8]) -> (KeyHash, u64) {
        let body = frame::split(header, body);
        (self.hash(body.key), if body.is_null() { DELETED } else { pos })
    }

    /// Returns the current table, with room for one more key. Under the lock.
    pub(crate) fn keys(
        &self,
        guard: &Guard<'_>,
        seen: &mut Option<Arc<Keys>>,
    ) -> Result<Arc<Keys>, JournalError> {
        let generation = self.control.keys_gen().load(Acquire);
        if let Some(keys) = seen.as_ref().filter(|k| k.generation == generation && !k.is_full()) {
            return Ok(Arc::clone(keys));
        }
        let keys = match generation {
            0 => self.new_table(guard, FIRST_SLOTS, [].into_iter())?,
            _ => match Keys::open(&self.dir, generation, Mode::Write) {
                Ok(keys) if keys.is_full() => {
                    self.new_table(guard, slots_for(keys.iter().count()), keys.iter())?
                }
                Ok(keys) => keys,
                // Damaged or missing: it is derived, so it is rebuilt.
                Err(_) => self.rebuild_keys(guard)?,
            },
        };
        let keys = Arc::new(keys);
        *seen = Some(Arc::clone(&keys));
        Ok(keys)
    }

    /// Creates the next generation's table.
    fn new_table(
        &self,
        _guard: &Guard<'_>,
        slots: u64,
        entries: impl Iterator<Item = (KeyHash, u64)>,
    ) -> Result<Keys, JournalError> {
        if slots > MAX_SLOTS {
            let (path, limit) = (self.dir.clone(), (MAX_SLOTS / 8 * 5) as usize);
            return Err(JournalError::TooMany { path, what: "keys", limit });
        }
        let old = self.control.keys_gen().load(Acquire);
        let (temporary, target) = (self.temporary(), path(&self.dir, old + 1));
        let keys = Keys::create(&temporary, slots, old + 1)?;
        entries.for_each(|(hash, pos)| keys.put(hash, pos));
        fs::rename(&temporary, &target).at("name", &target)?;
        self.control.keys_gen().store(old + 1, Release);
        // Readers that have it mapped may finish with it; a left-over would only take space.
        let _ = fs::remove_file(path(&self.dir, old));
        Ok(keys)
    }

    /// Rebuilds the table from the whole log.
    pub(crate) fn rebuild_keys(&self, guard: &Guard<'_>) -> Result<Keys, JournalError> {
        let upto = self.control.keys_upto().load(Acquire);
        let mut found = HashMap::new();
        self.walk(0, upto, |pos, header, body| {
            let (hash, place) = self.last_place(pos, header, body);
            found.insert(hash, place);
        })?;
        found.retain(|_, place| *place != DELETED);
        self.new_table(guard, slots_for(found.len()), found.into_iter())
    }

    /// Updates the table up to the tail, after a writer died between its commit and its entry.
    pub(crate) fn replay_keys(&self, guard: &Guard<'_>) -> Result<(), JournalError> {
        let from = self.control.keys_upto().load(Acquire);
        let tail = self.tail();
        if from >= tail || !self.keeps_last() {
            return Ok(());
        }
        let mut found: HashMap<KeyHash, u64> = HashMap::new();
        self.walk(from, tail, |pos, header, body| {
            let (hash, place) = self.last_place(pos, header, body);
            found.insert(hash, place);
        })?;
        let mut keys = None;
        for (hash, pos) in found {
            self.keys(guard, &mut keys)?.put(hash, pos);
        }
        self.control.keys_upto().store(tail, Release);
        Ok(())
    }

    /// Writes a snapshot, from which the table is rebuilt after power loss.
    pub(crate) fn save_keys(&self) -> Result<(), JournalError> {
        let upto = self.control.keys_upto().load(Acquire);
        let generation = self.control.keys_gen().load(Acquire);
        if generation == 0 || !self.keeps_last() {
            return Ok(());
        }
        let keys = Keys::open(&self.dir, generation, Mode::Read)?;
        let entries: Vec<_> = keys.iter().collect();
        if self.control.keys_gen().load(Acquire) != generation {
            return Ok(());
        }
        // The records must be on the disk before the snapshot.
        self.sync_present()?;
        self.env.publish(&snapshot_path(&self.dir), &encode(upto, &entries))?;
        self.control.snap_pos().store(upto, Release);
        Ok(())
    }

    /// Rebuilds the table after power loss, from the compacted segment, the snapshot, and the log
    /// behind it.
    pub(crate) fn recover_keys(&self, guard: &Guard<'_>) -> Result<(), JournalError> {
        let (tail, mut from) = (self.tail(), 0);
        let mut found: HashMap<KeyHash, u64> = HashMap::new();
        let first = self.first_segment()?.filter(|s| s.head.compacted);
        let kept_end = first.and_then(|s| s.sealed().ok().flatten()).map_or(0, |seal| seal.end);
        let snapshot = fs::read(snapshot_path(&self.dir)).ok().and_then(|b| decode(&b));
        if let Some(snapshot) = snapshot.filter(|s| s.upto <= tail) {
            let known: HashSet<_> = snapshot.entries.iter().map(|(hash, _)| *hash).collect();
            self.walk(0, kept_end, |pos, header, body| {
                let (hash, place) = self.last_place(pos, header, body);
                found.insert(hash, place);
            })?;
            // A snapshot of later has no keys that were deleted while their records were copied.
            found.retain(|hash, _| snapshot.upto < kept_end || known.contains(hash));
            let valid = snapshot.entries.into_iter().filter(|e| e.1 >= kept_end && e.1 < tail);
            found.extend(valid);
            from = snapshot.upto.max(kept_end);
        }
        self.walk(from, tail, |pos, header, body| {
            let (hash, place) = self.last_place(pos, header, body);
            found.insert(hash, place);
        })?;
        found.retain(|_, place| *place != DELETED);
        self.remove_tables()?;
        // Another generation than any that a live writer has mapped.
        if self.control.keys_gen().load(Acquire) > MAX_GENERATION {
            self.control.keys_gen().store(1, Release);
        }
        if !found.is_empty() {
            self.new_table(guard, slots_for(found.len()), found.into_iter())?;
        } else {
            self.control.keys_gen().store(0, Release);
        }
        self.control.keys_upto().store(tail, Release);
        self.control.snap_pos().store(from, Release);
        Ok(())
    }

    fn remove_tables(&self) -> Result<(), JournalError> {
        for entry in fs::read_dir(&self.dir).at("list", &self.dir)? {
            let entry = entry.at("list", &self.dir)?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|n| n.strip_prefix("keys."));
            if number.is_some_and(|n| n.parse::<u64>().is_ok()) {
                fs::remove_file(entry.path()).at("remove", &entry.path())?;
            }
        }
        Ok(())
    }

    /// Returns the newest record of every key by the index: hash and position, and the position up
    /// to which they are complete. `None` if there is no index, or it is damaged.
    pub(crate) fn last_values(&self) -> Result<Option<LastValues>, JournalError> {
        if self.keeps_last() && self.recovered_view().is_none() {
            for _ in 0..100 {
                let upto = self.control.keys_upto().load(Acquire);
                let generation = self.control.keys_gen().load(Acquire);
                if generation == 0 {
                    break;
                }
                let table = Keys::open(&self.dir, generation, self.env.mode());
                let Ok(keys) = table else {
                    if self.control.keys_gen().load(Acquire) == generation {
                        break;
                    }
                    continue;
                };
                let expected = keys.used();
                let found: Vec<_> = keys.entries().collect();
                let whole = found.len() as u64 >= expected;
                if whole && self.control.keys_gen().load(Acquire) == generation {
                    let live = found.into_iter().filter(|e| e.1 != DELETED && e.1 < upto);
                    return Ok(Some((live.collect(), upto)));
                }
                if !whole && self.control.keys_gen().load(Acquire) == generation {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Returns the newest `n` records of every key since its last null by a scan of the log:
    /// slower, but needs no index.
    pub(crate) fn scan_last_values(&self, n: usize) -> Result<LastValues, JournalError> {
        let tail = self.log_end().0;
        let mut found: HashMap<KeyHash, VecDeque<u64>> = HashMap::new();
        self.walk(0, tail, |pos, header, body| {
            let (hash, place) = self.last_place(pos, header, body);
            if place == DELETED {
                found.remove(&hash);
                return;
            }
            let newest = found.entry(hash).or_default();
            if newest.len() >= n {
                newest.pop_front();
            }
            newest.push_back(pos);
        })?;
        let each =
            found.into_iter().flat_map(|(hash, all)| all.into_iter().map(move |p| (hash, p)));
        Ok((each.collect(), tail))
    }
}

impl Partition {
    /// Returns the current position of a key's newest record by the index, [`DELETED`] if it has no
    /// last value any more; `None` without an index.
    pub(crate) fn moved(&self, hash: KeyHash) -> Result<Option<u64>, JournalError> {
        let generation = self.control.keys_gen().load(Acquire);
        if generation == 0 || !self.keeps_last() {
            return Ok(None);
        }
        let keys = Keys::open(&self.dir, generation, self.env.mode())?;
        Ok(Some(keys.get(hash).unwrap_or(DELETED)))
    }
}

fn slots_for(keys: usize) -> u64 {
    let mut slots = FIRST_SLOTS;
    while slots / 8 * 5 <= keys as u64 + 1 {
        slots *= 2;
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_finds_what_was_put() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::create(&dir.path().join("keys.1"), 126, 1).unwrap();
        let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), 1);
        for i in 0..75 {
            assert!(!keys.is_full());
            keys.put(hash(i), 8 + i);
            keys.put(hash(i), 1000 + i);
        }
        let keys = Keys::open(dir.path(), 1, Mode::Write).unwrap();
        assert!((0..75).all(|i| keys.get(hash(i)) == Some(1000 + i)));
        assert_eq!((keys.get(hash(99)), keys.iter().count()), (None, 75));
        keys.put(hash(7), DELETED);
        keys.put(hash(99), DELETED);
        assert_eq!((keys.get(hash(7)), keys.get(hash(99)), keys.used()), (None, None, 75));
        assert_eq!((keys.iter().count(), keys.entries().count()), (74, 75));
        keys.put(hash(7), 2000);
        assert_eq!((keys.get(hash(7)), keys.used()), (Some(2000), 75));
        assert_eq!(slots_for(73), 126);
        assert_eq!(slots_for(74), 252);
    }

    #[test]
    fn a_damaged_snapshot_is_noticed() {
        let entries =
            vec![(KeyHash { high: 1, low: 3 }, 4096), (KeyHash { high: 5, low: 7 }, 8192)];
        let mut bytes = encode(9000, &entries);
        let back = decode(&bytes).unwrap();
        assert_eq!((back.upto, back.entries), (9000, entries));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_none(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(decode(&[]).is_none());
    }
}
