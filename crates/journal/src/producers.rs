//! A topic's producers: names, incarnations, and the claims to them.
//!
//! Constraints: an incarnation is assigned only once: it is on the disk before it is used. A writer
//! whose incarnation is not its name's newest cannot append (checked under the partition's lock).
//! So no reader gets an older incarnation's sample after a newer one's. A claim may have a lease:
//! then it ends if its holder does not renew it in time, as it ends with the holder's process. A
//! new exclusive claim, under any name, fences a former holder that still runs. Incarnations may
//! also come from elsewhere, with the samples of a producer that publishes to another log. Those
//! assigned here afterwards are newer.
//!
//! Format: a file with one header of [`ENTRY_BYTES`] bytes (magic, version, lock, count) and one
//! entry of the same size for each name: name, incarnation, claim, checksum over the name. A
//! producer's id is the index of its entry. The file grows by doubling; entries never move.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use helio_core::{Producer, ProducerName, Tai};

use crate::env::Env;
use crate::error::IoContext;
use crate::hash::mix;
use crate::lock;
use crate::locks::Operation;
use crate::map::{Map, Mode, reserve};
use crate::mark::Mark;
use crate::process::Token;
use crate::rebuild;
use crate::{AppendError, JournalError};

/// Bytes of the header and of each entry.
const ENTRY_BYTES: usize = 256;
/// The limit of producer names of a topic: a claim scans them all.
pub(crate) const MAX_PRODUCERS: usize = 65_535;
const MAGIC: &[u8; 8] = b"HELIOPRO";
const VERSION: u32 = 1;
const COUNT: usize = 16;
/// A number below all incarnations of names that are new in this file: a former file was lost.
const LEAST_INCARNATION: usize = 24;
const LOCK: usize = 64;
const MARK: usize = 136;
const INCARNATION: usize = 0;
const CLAIM: usize = 8;
const EXCLUSIVE: usize = 16;
const NAME_CRC: usize = 24;
const NAME_LEN: usize = 28;
const NAME: usize = 32;
/// Time of the last renewal by a claim's holder: TAI ns, 0 for never.
const SEEN: usize = 232;
/// The same by the machine's uptime, in ns, from which the lease's end is computed.
const ASSERTED: usize = 240;
/// The claim's lease: ms in the lower half (0: none), the lower half of its incarnation in the
/// upper. Programs without leases leave this word alone, so the incarnation then differs.
const LEASE: usize = 248;
/// Set in an incarnation whose claim was taken over by another name: its writers are fenced.
const FENCED: u64 = 1 << 63;
/// In the word of [`EXCLUSIVE`]: the claim is exclusive.
const EXCLUSIVE_CLAIM: u64 = 1;
/// In the word of [`EXCLUSIVE`]: the newest incarnation was assigned elsewhere.
const FORWARDED_CLAIM: u64 = 2;
/// The upper half of the word of [`EXCLUSIVE`] has a check of the incarnation; 0 for none, as
/// versions before 3 left it.
const CHECK_SHIFT: u32 = 32;

/// Whether a claim admits other producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Producers of other names may write; a new claim of the same name fences the former one.
    Shared,
    /// No other producer may have a live claim.
    Exclusive,
}

/// How to write to a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterOptions {
    /// The producer's name, stable over its restarts.
    pub producer: ProducerName,
    /// Whether other producers are admitted.
    pub ownership: Ownership,
}

/// A producer of a topic, as [`Topic::producers`](crate::Topic::producers) lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerInfo {
    /// Its name.
    pub name: ProducerName,
    /// Its newest incarnation.
    pub incarnation: u64,
    /// The process that has the claim, if it is alive.
    pub pid: Option<u32>,
    /// Whether that process is alive, and has renewed the claim's lease in time if it has one.
    pub in_lease: bool,
    /// Time of the last renewal, if the claim has a lease.
    pub seen: Option<Tai>,
}

/// How long a claim is valid without a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    /// The duration, rounded up to a millisecond.
    pub time: Duration,
    /// The current uptime, by a clock that all processes of the machine share and that also runs
    /// while it sleeps (`CLOCK_BOOTTIME`).
    pub now: Duration,
}

/// The file of a topic's producers.
pub(crate) struct Producers {
    env: Arc<Env>,
    path: PathBuf,
    topic: String,
    map: RwLock<Arc<Map>>,
    names: Mutex<HashMap<u32, ProducerName>>,
    /// Whether the file's name is known to be on the disk.
    is_named: AtomicBool,
}

/// A producer's right to write. Its incarnation is the newest of its name until another claim.
pub(crate) struct Claim {
    pub(crate) producer: Producer,
    pub(crate) id: u32,
    /// The name's incarnation while the claim is valid. It grows for a claim for another log's
    /// samples.
    newest: AtomicU64,
    producers: Arc<Producers>,
    map: Mutex<Arc<Map>>,
    token: Token,
    leased: bool,
    pub(crate) adopted: bool,
    /// The last sequence number that this claim used, by partition.
    pub(crate) sequences: Mutex<HashMap<u32, u64>>,
}

fn entry(id: u32) -> usize {
    (id as usize + 1) * ENTRY_BYTES
}

/// Creates the file of a topic that is not in place yet.
pub(crate) fn create(path: &Path) -> Result<(), JournalError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path).at("create", path)?;
    reserve(&file, 4096).at("allocate", path)?;
    let map = Map::of(&file, 4096, Mode::Write).at("map", path)?;
    map.write(0, MAGIC);
    map.write(8, &VERSION.to_le_bytes());
    lock::init(&map, LOCK).at("prepare", path)
}

/// Creates the file of a topic whose file is missing. The names are lost: the numbers that records
/// carry are not assigned again, and neither are incarnations.
fn recreate(env: &Env, path: &Path) -> Result<(), JournalError> {
    let temporary = env.temporary(path.parent().unwrap_or(path));
    create(&temporary)?;
    set_used_up(env, &temporary, path.parent().unwrap_or(path))?;
    rebuild::link(&temporary, path)
}

/// Skips the numbers and incarnations that a topic's records carry.
fn set_used_up(env: &Env, path: &Path, topic: &Path) -> Result<(), JournalError> {
    let used = rebuild::used_numbers(topic)?;
    let len = entry(used.producers + 1).next_power_of_two().max(4096);
    let file = OpenOptions::new().read(true).write(true).open(path).at("open", path)?;
    reserve(&file, len as u64).at("allocate", path)?;
    let map = Map::of(&file, len, Mode::Write).at("map", path)?;
    map.u32(COUNT).fetch_max(used.producers, AcqRel);
    map.u64(LEAST_INCARNATION).fetch_max(used.incarnation.max(seconds(env)), AcqRel);
    Ok(())
}

/// Returns a number that is higher than incarnations that were counted from 1.
fn seconds(env: &Env) -> u64 {
    (env.options.clock)().nanos().max(0) as u64 / 1_000_000_000
}

/// Puts the file in order, so that it can be mapped: recreates a missing one, and rebuilds a
/// damaged header. Damaged entries are left alone: their names are unknown.
fn restore(env: &Env, path: &Path) -> Result<(), JournalError> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return recreate(env, path),
        other => other.at("open", path)?,
    };
    let mut head = [0; 12];
    let len = file.metadata().at("look at", path)?.len();
    let version = VERSION.to_le_bytes();
    let is_whole = len >= 4096 && file.read_exact_at(&mut head, 0).is_ok();
    if is_whole && &head[..8] == MAGIC && head[8..] == version {
        return Ok(());
    }
    rebuild::preserve(path, rebuild::DAMAGED_EXTENSION, len as usize, env)?;
    file.write_all_at(&[&MAGIC[..], &version].concat(), 0).at("write", path)?;
    if is_whole { Ok(()) } else { set_used_up(env, path, path.parent().unwrap_or(path)) }
}

/// Recreates the lock in a file that was last used under another boot, or is a copy: it has no
/// holder.
fn refresh_lock(env: &Env, path: &Path) -> Result<(), JournalError> {
    let file = OpenOptions::new().read(true).write(true).open(path).at("open", path)?;
    let map = Map::of(&file, ENTRY_BYTES, Mode::Write).at("map", path)?;
    let mark = Mark::of(env.boot, &file).at("look at", path)?;
    if !mark.is_in(&map, MARK) {
        // The next holder finds the mark.
        let _lock = env.lock(Operation::Recovery, path)?;
        if !mark.is_in(&map, MARK) {
            lock::init(&map, LOCK).at("prepare", path)?;
            mark.store(&map, MARK);
        }
    }
    Ok(())
}

impl Producers {
    pub(crate) fn open(env: &Arc<Env>, path: PathBuf, topic: &str) -> Result<Self, JournalError> {
        if env.writable() {
            restore(env, &path)?;
            refresh_lock(env, &path)?;
        }
        let map = RwLock::new(Arc::new(open_map(env, &path)?));
        let (env, topic) = (Arc::clone(env), topic.to_owned());
        let (names, is_named) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { env, path, topic, map, names, is_named })
    }

    fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn remap(&self) -> Result<Arc<Map>, JournalError> {
        let map = Arc::new(open_map(&self.env, &self.path)?);
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&map);
        Ok(map)
    }

    /// Returns a map with all entries; remaps only if the file has grown.
    fn whole(&self) -> Result<Arc<Map>, JournalError> {
        let map = self.map();
        let entries = map.u32(COUNT).load(Acquire);
        if entry(entries) > map.len() { self.remap() } else { Ok(map) }
    }

    /// Returns the name of a producer id, as samples carry it.
    pub(crate) fn name(&self, id: u32) -> Option<ProducerName> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.get(&id) {
            return Some(name.clone());
        }
        let mut map = self.map();
        if entry(id) + ENTRY_BYTES > map.len() {
            map = self.remap().ok()?;
        }
        let name = read_name(&map, id)?;
        names.insert(id, name.clone());
        Some(name)
    }

    /// Lists all names with their newest incarnation, and the state of their claims at an uptime.
    pub(crate) fn list(&self, now: Duration) -> Vec<ProducerInfo> {
        let Ok(map) = self.whole() else { return Vec::new() };
        let all = (0..count(&map)).filter_map(|id| {
            let at = entry(id);
            let pid = self.holder(&map, id);
            let seen = map.u64(at + SEEN).load(Relaxed) as i64;
            Some(ProducerInfo {
                name: read_name(&map, id)?,
                incarnation: incarnation(&map, id),
                pid,
                in_lease: pid.is_some() && !expired(&map, id, now),
                seen: (seen != 0).then_some(Tai::from_nanos(seen)),
            })
        });
        all.collect()
    }

    /// Returns the process that has a claim, if it is alive.
    fn holder(&self, map: &Map, id: u32) -> Option<u32> {
        let claim = Token(map.u64(entry(id) + CLAIM).load(Acquire));
        // A process need not query itself.
        let alive = claim == self.env.token || self.env.is_alive(claim);
        alive.then(|| claim.pid())
    }

    fn locked<T>(
        &self,
        work: impl FnOnce(Arc<Map>) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let map = self.remap()?;
        let waited = self.env.options.lock_timeout;
        // A claim is one store of the incarnation, so a dead holder leaves nothing to repair.
        let locked = lock::lock(&map, LOCK, waited);
        locked.map_err(|failure| JournalError::not_locked(failure, self.path.clone(), waited))?;
        let result = self.remap().and_then(work);
        lock::unlock(&map, LOCK);
        result
    }

    /// Claims a name for the calling process, with its next incarnation or the one that it has
    /// elsewhere.
    pub(crate) fn claim(
        self: &Arc<Self>,
        WriterOptions { producer: name, ownership }: &WriterOptions,
        lease: Option<Lease>,
        elsewhere: Option<u64>,
    ) -> Result<Claim, JournalError> {
        let ownership = *ownership;
        if !self.env.writable() {
            return Err(JournalError::ReadOnly);
        }
        self.locked(|map| {
            let expired = self.refuse_second(&map, ownership, lease)?;
            let found = (0..count(&map)).find(|id| read_name(&map, *id).as_ref() == Some(name));
            let (map, id) = match found {
                Some(id) => (map, id),
                None => self.add(map, name)?,
            };
            self.fence(&map, &expired, lease)?;
            let at = entry(id);
            let incarnation = match elsewhere {
                None => self.next_incarnation(&map, id),
                Some(wanted) => self.adopt(&map, id, (wanted, lease))?,
            };
            let token = self.env.own_token();
            for id in expired {
                map.u64(entry(id) + CLAIM).store(0, Release);
            }
            // Readers see the lease before the claim that it belongs to.
            lease.unwrap_or_default().store(&map, at, incarnation);
            let alone = if ownership == Ownership::Exclusive { EXCLUSIVE_CLAIM } else { 0 };
            let elsewhere = if elsewhere.is_some() { FORWARDED_CLAIM } else { 0 };
            let check = incarnation_check(&map, id, incarnation) << CHECK_SHIFT;
            map.u64(at + EXCLUSIVE).store(alone | elsewhere | check, Release);
            map.u64(at + INCARNATION).store(incarnation, Release);
            map.u64(at + CLAIM).store(token.0, Release);
            if let Err(e) = self.sync(&map) {
                // Released, so that the next attempt meets no live claim.
                map.u64(at + CLAIM).store(0, Release);
                return Err(e);
            }
            let producer = Producer { name: name.clone(), incarnation };
            let (producers, map) = (Arc::clone(self), Mutex::new(map));
            let (leased, sequences) = (lease.is_some(), Mutex::default());
            let (newest, adopted) = (AtomicU64::new(incarnation), elsewhere != 0);
            Ok(Claim { producer, id, newest, producers, map, token, leased, adopted, sequences })
        })
    }

    /// Writes a claim to the disk; the first one of this handle with the file's name, without which
    /// a power cut would take the incarnation.
    fn sync(&self, map: &Map) -> Result<(), JournalError> {
        self.env.sync_map(map, &self.path)?;
        if !self.is_named.load(Relaxed) {
            self.path.parent().map_or(Ok(()), |topic| self.env.sync_dir(topic))?;
            self.is_named.store(true, Relaxed);
        }
        Ok(())
    }

    /// Returns a name's next incarnation. A damaged one is not continued: readers would drop what
    /// follows as an older incarnation's samples.
    fn next_incarnation(&self, map: &Map, id: u32) -> u64 {
        let newest = newest_incarnation(map, id);
        let check = map.u64(entry(id) + EXCLUSIVE).load(Acquire) >> CHECK_SHIFT;
        let whole = check == 0 || incarnation_check(map, id, newest) == check;
        let least = map.u64(LEAST_INCARNATION).load(Acquire) & !FENCED;
        let least = if whole { least } else { least.max(seconds(&self.env)) };
        // A new name may be that of a damaged entry.
        let nameless = (0..count(map)).filter(|other| read_name(map, *other).is_none());
        let used = nameless.map(|other| incarnation(map, other)).max().filter(|_| newest == 0);
        let least = least.max(used.unwrap_or(0));
        newest.max(least) + 1
    }

    /// Returns the incarnation of a claim for another log's samples. If the name's newest one came
    /// from elsewhere, the claim continues it, unless another process does. One that was assigned
    /// here must be older.
    fn adopt(
        &self,
        map: &Map,
        id: u32,
        (wanted, lease): (u64, Option<Lease>),
    ) -> Result<u64, JournalError> {
        let newest = newest_incarnation(map, id);
        if map.u64(entry(id) + EXCLUSIVE).load(Acquire) & FORWARDED_CLAIM == 0 {
            let producer = || read_name(map, id).map_or_else(String::new, |name| name.to_string());
            return match wanted > newest {
                true => Ok(wanted),
                false => {
                    Err(JournalError::Newer { producer: producer(), own: wanted, newer: newest })
                }
            };
        }
        let over = lease.is_some_and(|lease| expired(map, id, lease.now));
        match self.holder(map, id).filter(|_| !over) {
            Some(pid) => Err(self.claimed(map, id, pid)),
            None => Ok(newest.max(wanted)),
        }
    }

    /// Refuses an exclusive claim beside a live one, and any claim beside a live exclusive one.
    /// Returns the claims whose process is alive and whose lease has expired.
    fn refuse_second(
        &self,
        map: &Map,
        ownership: Ownership,
        lease: Option<Lease>,
    ) -> Result<Vec<u32>, JournalError> {
        let mut over = Vec::new();
        for id in 0..count(map) {
            let exclusive = map.u64(entry(id) + EXCLUSIVE).load(Acquire) & EXCLUSIVE_CLAIM != 0;
            let matters = ownership == Ownership::Exclusive || exclusive;
            let Some(pid) = matters.then(|| self.holder(map, id)).flatten() else { continue };
            if lease.is_some_and(|lease| expired(map, id, lease.now)) {
                over.push(id);
                continue;
            }
            return Err(self.claimed(map, id, pid));
        }
        Ok(over)
    }

    fn claimed(&self, map: &Map, id: u32, pid: u32) -> JournalError {
        let (topic, incarnation) = (self.topic.clone(), incarnation(map, id));
        let producer = read_name(map, id).map_or_else(String::new, |name| name.to_string());
        JournalError::Claimed { topic, producer, incarnation, pid }
    }

    /// Fences holders with expired leases, or none of them if one has renewed meanwhile. A holder
    /// stores its uptime, then reads the fence; here the fence is stored, then the uptime is read.
    /// Both sides have a full fence in between, so at least one sees the other, and never do both
    /// continue. Possibly neither continues: the holder's lease has expired, and the claim can be
    /// retried.
    fn fence(&self, map: &Map, over: &[u32], lease: Option<Lease>) -> Result<(), JournalError> {
        let word = |id: u32| map.u64(entry(id) + INCARNATION);
        for id in over {
            word(*id).fetch_or(FENCED, AcqRel);
        }
        fence(SeqCst);
        let back = |id: &&u32| lease.is_some_and(|lease| !expired(map, **id, lease.now));
        let Some(back) = over.iter().find(back) else { return Ok(()) };
        for id in over {
            word(*id).fetch_and(!FENCED, AcqRel);
        }
        let pid = self.holder(map, *back).unwrap_or_default();
        Err(self.claimed(map, *back, pid))
    }

    fn add(&self, map: Arc<Map>, name: &ProducerName) -> Result<(Arc<Map>, u32), JournalError> {
        let id = count(&map);
        if id as usize >= MAX_PRODUCERS {
            let (path, limit) = (self.path.clone(), MAX_PRODUCERS);
            return Err(JournalError::TooMany { path, what: "producers", limit });
        }
        let map = if entry(id) + ENTRY_BYTES > map.len() { self.grow(map.len() * 2)? } else { map };
        let (at, bytes) = (entry(id), name.as_str().as_bytes());
        map.write(at, &[0; ENTRY_BYTES]);
        map.write(at + NAME, bytes);
        map.u32(at + NAME_LEN).store(bytes.len() as u32, Relaxed);
        map.u32(at + NAME_CRC).store(crc32c::crc32c(bytes), Relaxed);
        map.u32(COUNT).store(id + 1, Release);
        Ok((map, id))
    }

    fn grow(&self, len: usize) -> Result<Arc<Map>, JournalError> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path);
        let file = file.at("open", &self.path)?;
        reserve(&file, len as u64).at("allocate", &self.path)?;
        drop(file);
        self.remap()
    }
}

/// Maps the file. Each name has its own checksum, so a damaged header does not matter to readers,
/// and where the file is missing they know no names.
fn open_map(env: &Env, path: &Path) -> Result<Map, JournalError> {
    let blank = || Map::blank(ENTRY_BYTES * 2).at("map", path);
    let file = match OpenOptions::new().read(true).write(env.writable()).open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !env.writable() => return blank(),
        other => other.at("open", path)?,
    };
    let len = file.metadata().at("look at", path)?.len() as usize;
    match len {
        _ if len >= ENTRY_BYTES * 2 => Map::of(&file, len, env.mode()).at("map", path),
        _ if !env.writable() => blank(),
        _ => Err(JournalError::damaged(path, "producers file shorter than its header")),
    }
}

/// Returns the number of entries: those that were counted, and all that are not blank.
fn count(map: &Map) -> u32 {
    let room = (map.len() / ENTRY_BYTES - 1) as u32;
    let counted = map.u32(COUNT).load(Acquire).min(room);
    let is_blank = |id: u32| {
        let at = entry(id);
        map.u64(at + NAME_CRC).load(Relaxed) == 0 && map.u64(at + INCARNATION).load(Relaxed) == 0
    };
    let blank = (counted..room).rev().take_while(|id| is_blank(*id)).count() as u32;
    room - blank
}

/// Returns the newest incarnation that may be in use: a claim stores the check first, so a check of
/// the next incarnation is that of a holder that died in between, or of a damaged incarnation.
fn newest_incarnation(map: &Map, id: u32) -> u64 {
    let newest = incarnation(map, id);
    let check = map.u64(entry(id) + EXCLUSIVE).load(Acquire) >> CHECK_SHIFT;
    let fits = |word: u64| incarnation_check(map, id, word) == check;
    let next = newest.wrapping_add(1);
    if check != 0 && !fits(newest) && fits(next) { next } else { newest }
}

/// Returns a check of a name's incarnation, which is not 0.
fn incarnation_check(map: &Map, id: u32, incarnation: u64) -> u64 {
    let name = u64::from(map.u32(entry(id) + NAME_CRC).load(Relaxed));
    mix(incarnation ^ mix(name)) >> 32 | 1
}

/// Returns the newest incarnation of a name, fenced or not.
fn incarnation(map: &Map, id: u32) -> u64 {
    map.u64(entry(id) + INCARNATION).load(Acquire) & !FENCED
}

/// Returns whether a claim's lease has expired; a claim without a lease never expires.
fn expired(map: &Map, id: u32, now: Duration) -> bool {
    let word = map.u64(entry(id) + LEASE).load(Acquire);
    let (lease, of) = (Duration::from_millis(word & LOWER_HALF), word >> 32);
    if lease.is_zero() || of != incarnation(map, id) & LOWER_HALF {
        return false;
    }
    let asserted = Duration::from_nanos(map.u64(entry(id) + ASSERTED).load(Acquire));
    now.saturating_sub(asserted) > lease
}

const LOWER_HALF: u64 = u32::MAX as u64;

impl Lease {
    fn store(self, map: &Map, at: usize, incarnation: u64) {
        // Rounded up, so that none is 0; the maximum is about 49 days.
        let ms = self.time.as_nanos().div_ceil(1_000_000).min(u128::from(LOWER_HALF)) as u64;
        map.u64(at + ASSERTED).store(nanos(self.now), Release);
        map.u64(at + LEASE).store((incarnation & LOWER_HALF) << 32 | ms, Release);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn read_name(map: &Map, id: u32) -> Option<ProducerName> {
    let at = entry(id);
    if at + ENTRY_BYTES > map.len() {
        return None;
    }
    let len = map.u32(at + NAME_LEN).load(Relaxed) as usize;
    let mut bytes = vec![0; len.min(ENTRY_BYTES - NAME)];
    map.read(at + NAME, &mut bytes);
    let whole = crc32c::crc32c(&bytes) == map.u32(at + NAME_CRC).load(Relaxed);
    std::str::from_utf8(&bytes).ok().filter(|_| whole).and_then(|s| ProducerName::new(s).ok())
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.release();
    }
}

impl Claim {
    pub(crate) fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the last sequence number used in a partition.
    pub(crate) fn sequence(&self, partition: u32) -> u64 {
        let sequences = self.sequences.lock().unwrap_or_else(PoisonError::into_inner);
        sequences.get(&partition).copied().unwrap_or(0)
    }

    pub(crate) fn set_sequence(&self, partition: u32, sequence: u64) {
        let mut sequences = self.sequences.lock().unwrap_or_else(PoisonError::into_inner);
        sequences.insert(partition, sequence);
    }

    /// Releases the claim before its writers are dropped; they must not append any more.
    pub(crate) fn release(&self) {
        // Only if the words are still this claim's: a newer one has stored its own.
        let at = entry(self.id);
        let own = self.token.0;
        let release = |map: Arc<Map>| {
            if map.u64(at + INCARNATION).load(Acquire) == self.newest.load(Acquire)
                && map.u64(at + CLAIM).load(Acquire) == own
            {
                map.u64(at + CLAIM).store(0, Release);
            }
            Ok(())
        };
        // If the lock cannot be taken, the claim stays until this process ends.
        let _ = self.producers.locked(release);
    }

    /// Renews the lease, at a time and an uptime.
    pub(crate) fn assert_alive(&self, time: Tai, now: Duration) -> Result<(), AppendError> {
        let map = self.map();
        self.check_fence(&map)?;
        let at = entry(self.id);
        if self.leased {
            map.u64(at + SEEN).store(time.nanos() as u64, Relaxed);
            // Never backwards: if this thread was stopped since its check, the word may belong to
            // another incarnation.
            map.u64(at + ASSERTED).fetch_max(nanos(now), AcqRel);
            // The next claim stores its fence, then reads this word.
            fence(SeqCst);
        }
        self.check_fence(&map)
    }

    /// Checks that this holder still has the claim.
    #[inline]
    pub(crate) fn check_fence(&self, map: &Map) -> Result<(), AppendError> {
        let word = map.u64(entry(self.id) + INCARNATION).load(Acquire);
        let own = self.newest.load(Acquire);
        if word == own {
            return Ok(());
        }
        let producer = self.producer.name.to_string();
        Err(AppendError::Fenced { producer, own, newer: word & !FENCED })
    }

    /// Raises the name's incarnation to a newer one that the producer has elsewhere.
    pub(crate) fn raise(&self, incarnation: u64) -> Result<(), AppendError> {
        if incarnation <= self.newest.load(Acquire) {
            return Ok(());
        }
        let raise = |map: Arc<Map>| {
            if let Err(fenced) = self.check_fence(&map) {
                return Ok(Err(fenced));
            }
            let at = entry(self.id);
            let word = map.u64(at + LEASE).load(Acquire);
            map.u64(at + LEASE)
                .store((incarnation & LOWER_HALF) << 32 | word & LOWER_HALF, Release);
            self.newest.store(incarnation, Release);
            let flags = map.u64(at + EXCLUSIVE).load(Acquire) & LOWER_HALF;
            let check = incarnation_check(&map, self.id, incarnation) << CHECK_SHIFT;
            map.u64(at + EXCLUSIVE).store(flags | check, Release);
            map.u64(at + INCARNATION).store(incarnation, Release);
            self.producers.env.sync_map(&map, &self.producers.path).map(Ok)
        };
        self.producers.locked(raise)?
    }
}
