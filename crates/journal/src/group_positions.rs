//! Committed positions in a group's file, each with the identity of the log that it belongs to.
//!
//! Format: 64 bytes a partition: two slots {number, offset, check}, of which the valid one with the
//! higher number counts, the owner's member number, and the log's identity; 0 is unknown.
//!
//! Constraints: a position is never taken for one of another log. A commit stores its slot before
//! the identity, and a process may die in between: the position then counts as one of the former
//! log, and records are repeated.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::JournalError;
use crate::env::Env;
use crate::error::IoContext;
use crate::hash::mix;
use crate::map::{Map, Mode};

/// Bytes before the members' entries.
pub(crate) const HEADER_BYTES: usize = 256;
/// Where the number of changes lies.
pub(crate) const CHANGES: usize = 40;
/// The limit of members of a group at one time.
pub const MAX_MEMBERS: usize = 256;
pub(crate) const MEMBER_BYTES: usize = 128;
pub(crate) const PARTITION_BYTES: usize = 64;
const OWNER: usize = 48;
const LOG: usize = 56;

/// A position as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredPosition {
    number: u64,
    pub(crate) offset: u64,
    /// The log's identity; 0 is unknown.
    pub(crate) log_id: u64,
}

/// A log's new identity, or the same one after a recovery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogChange {
    /// The identity before; 0 if it was lost, or there was none.
    pub(crate) former: u64,
    pub(crate) id: u64,
    /// The end of the log, at which the new identity begins.
    pub(crate) end: u64,
}

fn place(partition: u32) -> usize {
    HEADER_BYTES + MAX_MEMBERS * MEMBER_BYTES + partition as usize * PARTITION_BYTES
}

/// The size of a group's file.
pub(crate) fn file_bytes(partitions: u32) -> usize {
    place(partitions)
}

/// The word of a partition's owner.
pub(crate) fn owner(map: &Map, partition: u32) -> &AtomicU64 {
    map.u64(place(partition) + OWNER)
}

/// Returns a partition's newest valid position.
pub(crate) fn read(map: &Map, partition: u32) -> Option<StoredPosition> {
    let slot = |i: usize| {
        let at = place(partition) + i * 24;
        let word = |n: usize| map.u64(at + n * 8).load(Acquire);
        let (number, offset) = (word(0), word(1));
        (number != 0 && word(2) == check(number, offset)).then_some((number, offset))
    };
    // First: if it changes meanwhile, the position counts as one of the former log.
    let log_id = map.u64(place(partition) + LOG).load(Acquire);
    let (number, offset) = [slot(0), slot(1)].into_iter().flatten().max()?;
    Some(StoredPosition { number, offset, log_id })
}

/// Stores a position of a log.
pub(crate) fn store(map: &Map, partition: u32, offset: u64, log_id: u64) {
    let number = read(map, partition).map_or(0, |found| found.number).wrapping_add(1).max(1);
    // The slot that holds the newest valid position has the other parity.
    let at = place(partition) + (number % 2) as usize * 24;
    map.u64(at + 16).store(0, Release);
    map.u64(at).store(number, Release);
    map.u64(at + 8).store(offset, Release);
    map.u64(at + 16).store(check(number, offset), Release);
    set_log(map, partition, log_id);
}

fn set_log(map: &Map, partition: u32, log_id: u64) {
    map.u64(place(partition) + LOG).store(log_id, Release);
    map.u64(CHANGES).fetch_add(1, Release);
}

fn check(number: u64, offset: u64) -> u64 {
    mix(number ^ mix(offset)) | 1
}

/// What a position is to a log's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carried {
    /// It stays as it is: its identity is the log's, or its owner is to be notified.
    No,
    /// It has got the log's identity.
    Yes,
    /// It lies above the end, and has the log's identity already.
    Above,
}

/// Gives all groups' positions that fit the log its identity. Those behind the place where another
/// log begins keep the former one, so that their owner gets *Replaced*; those without an identity
/// move to the log's end. Returns whether a position with the log's identity lies above its end:
/// the log has lost records, and must get another identity.
pub(crate) fn carry(
    env: &Env,
    folder: &Path,
    partition: u32,
    log: LogChange,
) -> Result<bool, JournalError> {
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        other => other.at("list", folder)?,
    };
    let mut is_above = false;
    for entry in entries {
        let path = entry.at("list", folder)?.path();
        let file = OpenOptions::new().read(true).write(true).open(&path).at("open", &path)?;
        let len = file.metadata().at("look at", &path)?.len() as usize;
        if len < place(partition) + PARTITION_BYTES {
            // Incomplete on the disk; opening the group reports it.
            continue;
        }
        let map = Map::of(&file, len, Mode::Write).at("map", &path)?;
        match carry_one(&map, partition, log) {
            Carried::No => {}
            Carried::Yes => env.sync_map(&map, &path)?,
            Carried::Above => is_above = true,
        }
    }
    Ok(is_above)
}

fn carry_one(map: &Map, partition: u32, log: LogChange) -> Carried {
    let Some(found) = read(map, partition) else { return Carried::No };
    let unknown = found.log_id == 0;
    // Where the former identity was lost with the control page, nothing was appended since.
    if !unknown && log.former != 0 && found.log_id != log.former {
        return Carried::No;
    }
    match found.offset <= log.end {
        true if found.log_id == log.id => Carried::No,
        true => {
            set_log(map, partition, log.id);
            Carried::Yes
        }
        false if unknown => {
            store(map, partition, log.end, log.id);
            Carried::Yes
        }
        false if found.log_id == log.id => Carried::Above,
        false => Carried::No,
    }
}
