//! A partition's control page: the log's end, its waiters, its durable position.
//!
//! Constraints: one page, mapped by every process. Its first 64 bytes are fixed and have a
//! checksum. The rest are words that change; none of them is trusted after power loss (see
//! `recovery`).
//!
//! Format: the constants below; `docs/formats/journal.md` has them as a table.
//!
//! Operation: the log's end is a pair, the tail (a byte position) and the end offset. A writer
//! stores the new pair in the slot that does not belong to the current tail, then stores the tail.
//! So the pair changes in one step, for readers and for the successor of a dead writer.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use helio_core::Tai;

use crate::JournalError;
use crate::map::Map;
use crate::mark::Mark;
use crate::process::BootId;

pub(crate) const CONTROL_BYTES: usize = 4096;
/// The position of a partition's first frame; 0 means none.
pub(crate) const FIRST_POS: u64 = 4096;
/// The latest time of a log without records.
pub(crate) const NO_TIME: Tai = Tai::from_nanos(i64::MIN);
const MAGIC: &[u8; 8] = b"HELIOPAR";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 60;
const SEED: usize = 16;

const MARK: usize = 64;
pub(crate) const LOCK: usize = 128;
const MAX_TIME: usize = 200;
const TAIL: usize = 256;
const SLOT_A: usize = 264;
const SLOT_B: usize = 288;
const SEQ: usize = 312;
pub(crate) const SUMMARY: usize = 320;
pub(crate) const BITMAP: usize = 384;
const DURABLE_POS: usize = 896;
const DURABLE_END: usize = 904;
const DURABLE_SEQ: usize = 912;
const DURABLE_CHECK: usize = 920;
const SYNC_ERROR: usize = 928;
pub(crate) const SYNC_LOCK: usize = 960;
const FIRST_SEQ: usize = 1088;
const FIRST_OFFSET: usize = 1096;
const FIRST_BASE: usize = 1104;
const SPARE: usize = 1112;
const SPARE_BYTES: usize = 1120;
const DIRTY: usize = 1128;
const COMPACTING: usize = 1136;
const KEYS_GEN: usize = 1152;
const KEYS_UPTO: usize = 1160;
const SNAP_POS: usize = 1168;
const CHECKPOINTS: usize = 1216;
const CHECKPOINT_BYTES: usize = 48;
const RECOVERED: usize = 1344;
// Of version 3 of the journal; zero before.
const LOG_ID: usize = 1408;
const BEGINNING: usize = 1440;
const TAKEN: usize = 1472;
const GONE: usize = 1496;
const FLOOR: usize = 1504;
const FORMER_LOG: usize = 1544;
const MISSING: usize = 1576;
const BORN: usize = 1608;
const POWER_LOSS: usize = 1640;
/// The word at [`GONE`] of a partition that was deleted; any other one means nothing.
const GONE_MARK: u64 = u64::from_le_bytes(*b"GONE\0\0\0\x01");

/// A position in the log up to which everything is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Checkpoint {
    pub seq: u64,
    pub pos: u64,
    pub end: u64,
    pub time: i64,
}

/// The last recovery of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryReport {
    /// The number of recoveries of this partition.
    pub count: u64,
    /// The number of records that are proven to have been in the log and cannot be read. Their
    /// offsets are not assigned again; readers get them as gaps.
    pub missing: u64,
    /// The first of them.
    pub missing_from: u64,
    /// The number of records that were stored and not durable when the power was lost, and that
    /// are not there any more. Readers get them as gaps, too.
    pub cut: u64,
}

impl RecoveryReport {
    /// Keeps what a former recovery has found missing, until retention has passed it or an operator
    /// has discarded it.
    pub(crate) fn merged(self, before: Self, first_offset: u64) -> Self {
        let stays = before.missing > self.missing && before.missing_from >= first_offset;
        let kept = if stays { before } else { self };
        Self { missing: kept.missing, missing_from: kept.missing_from, ..self }
    }

    /// Whether it has losses that the report of the recovery before does not have.
    pub(crate) fn has_more_than(self, before: Self) -> bool {
        let losses = (self.missing, self.missing_from);
        self.cut > 0 || self.missing > 0 && losses != (before.missing, before.missing_from)
    }
}

/// A power loss, as the recovery after it has found it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PowerLoss {
    /// The offset below which records were durable.
    pub durable: u64,
    /// From the first record that was cut off to the end of the log; empty if none was. They lie
    /// below the durable offset since then, and were never promised.
    pub cut: Range<u64>,
}

/// A log's identity, and the file that it belongs to: a copy is another log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LogId {
    /// Random; 0 for none.
    pub id: u64,
    /// The control page's file system and inode.
    pub file_system: u64,
    pub inode: u64,
    /// The birth of its file; 0 where the system does not tell it.
    pub born: u64,
}

impl LogId {
    /// Whether both belong to one file. An unknown birth is no other one: it depends on the
    /// program whether it is known.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        let same_birth = self.born == other.born || self.born == 0 || other.born == 0;
        same_birth && (self.file_system, self.inode) == (other.file_system, other.inode)
    }
}

/// What retention has removed from a partition since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Records.
    pub samples: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// The beginning of the log: retention has taken everything before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Beginning {
    /// The first segment; 0 for unknown.
    pub seq: u64,
    pub pos: u64,
    pub offset: u64,
}

/// The limit of reads of a pair of words that a writer may be changing; only damage reaches it.
const MAX_PAIR_READS: u32 = 100_000;

/// A check word over other words, to detect damage.
#[inline]
fn check(words: [u64; 3]) -> u64 {
    let [a, b, c] = words;
    let sum = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (sum ^ c.wrapping_mul(0x1656_67b1_9e37_79f9)) | 1
}

/// Reads words of a control page that is not mapped; `None` if the file is missing or damaged.
fn peek<const N: usize>(path: &Path, at: [usize; N]) -> Option<[u64; N]> {
    let mut page = [0; CONTROL_BYTES];
    File::open(path).and_then(|file| file.read_exact_at(&mut page, 0)).ok()?;
    if !Control::is_head(&page) {
        return None;
    }
    let word = |at: usize| page[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    Some(at.map(word))
}

/// Returns whether the partition with this control page was ever synced.
pub(crate) fn was_synced(path: &Path) -> bool {
    let words = peek(path, [DURABLE_POS, DURABLE_END, DURABLE_SEQ, DURABLE_CHECK]);
    words.is_some_and(|[pos, end, seq, found]| seq != 0 && found == check([pos, end, seq]))
}

/// Returns the offset below which writers had made the partition with this control page durable:
/// a recovery since then moved the durable offset behind all that it found, and what was cut off.
pub(crate) fn durable_at(path: &Path) -> Option<u64> {
    let [pos, end, seq, found] =
        peek(path, [DURABLE_POS, DURABLE_END, DURABLE_SEQ, DURABLE_CHECK])?;
    let [durable, from, to, sum] = peek(path, [0, 8, 16, 24].map(|n| POWER_LOSS + n))?;
    let is_recovered = sum == check([durable, from, to]) && to == end;
    (found == check([pos, end, seq])).then_some(if is_recovered { durable } else { end })
}

/// Returns the seed of a control page's partition, which no other one has, and whether its topic
/// was deleted.
pub(crate) fn identity(path: &Path) -> Option<(u64, bool)> {
    peek(path, [SEED, GONE]).map(|[seed, mark]| (seed, mark == GONE_MARK))
}

/// A mapped control page.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) map: Map,
}

impl Control {
    /// Fills a new control page that no other process has mapped.
    pub(crate) fn create(map: Map, seed: u64, log: LogId) -> std::io::Result<Self> {
        map.write(0, &Self::head(seed));
        let control = Self { map };
        control.reset_locks()?;
        control.set_log(FIRST_POS, 0, NO_TIME);
        control.set_durable(FIRST_POS, 0, 0);
        control.word(KEYS_UPTO).store(FIRST_POS, Relaxed);
        control.set_first(1, FIRST_POS, 0);
        control.set_log_id(log);
        Ok(control)
    }

    /// Bytes of the fixed part, with its checksum.
    pub(crate) const HEAD_BYTES: usize = FIXED_BYTES + 4;

    /// Returns the fixed part of a control page.
    pub(crate) fn head(seed: u64) -> [u8; Self::HEAD_BYTES] {
        let mut fixed = [0; FIXED_BYTES + 4];
        fixed[..8].copy_from_slice(MAGIC);
        fixed[8..12].copy_from_slice(&VERSION.to_le_bytes());
        fixed[12..16].copy_from_slice(&(CONTROL_BYTES as u32).to_le_bytes());
        fixed[SEED..SEED + 8].copy_from_slice(&seed.to_le_bytes());
        let crc = crc32c::crc32c(&fixed[..FIXED_BYTES]);
        fixed[FIXED_BYTES..].copy_from_slice(&crc.to_le_bytes());
        fixed
    }

    /// Returns whether a page begins with an intact head, of this version or a newer one.
    pub(crate) fn is_head(page: &[u8]) -> bool {
        page.get(..8) == Some(MAGIC)
            && crc32c::crc32c(&page[..FIXED_BYTES]).to_le_bytes() == page[FIXED_BYTES..64]
    }

    /// Returns whether a page was last used in a boot.
    pub(crate) fn is_marked(page: &[u8; CONTROL_BYTES], boot: BootId) -> bool {
        page[MARK..MARK + 16] == boot.0
    }

    /// Checks a control page's fixed part.
    pub(crate) fn attach(map: Map, path: &Path) -> Result<Self, JournalError> {
        let fixed: [u8; FIXED_BYTES + 4] = map.array(0);
        let half = |at: usize| {
            u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        if &fixed[..8] != MAGIC {
            return Err(JournalError::damaged(path, "partition's control page"));
        }
        if half(8) > VERSION {
            let path = path.to_owned();
            return Err(JournalError::Version { path, found: half(8), known: VERSION });
        }
        if half(FIXED_BYTES) != crc32c::crc32c(&fixed[..FIXED_BYTES]) {
            return Err(JournalError::damaged(path, "partition's control page"));
        }
        Ok(Self { map })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        self.map.u64(at)
    }

    /// Recreates the locks: after a boot they have no holders.
    pub(crate) fn reset_locks(&self) -> std::io::Result<()> {
        crate::lock::init(&self.map, LOCK)?;
        crate::lock::init(&self.map, SYNC_LOCK)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.word(SEED).load(Relaxed)
    }

    /// Returns whether the changing words are valid for this boot and file.
    pub(crate) fn marked(&self, mark: Mark) -> bool {
        mark.is_in(&self.map, MARK)
    }

    pub(crate) fn set_mark(&self, mark: Mark) {
        mark.store(&self.map, MARK);
    }

    /// Returns the committed tail: all bytes before it are whole frames.
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.word(TAIL).load(Acquire)
    }

    /// Returns the tail and the end offset of one moment.
    #[inline]
    pub(crate) fn log_end(&self) -> (u64, u64) {
        for _ in 0..MAX_PAIR_READS {
            if let Some(end) = self.try_log_end() {
                return end;
            }
            std::hint::spin_loop();
        }
        // Only damage leads here: no slot belongs to the tail.
        self.committed().max().unwrap_or((self.first_pos(), self.first_offset()))
    }

    /// Returns the tail and the end offset for an append; `None` if they are damaged. Under the
    /// lock.
    #[inline]
    pub(crate) fn certain_log_end(&self) -> Option<(u64, u64)> {
        self.try_log_end()
    }

    /// Returns the log's ends in whole slots: the current one, and the one before it.
    pub(crate) fn committed(&self) -> impl Iterator<Item = (u64, u64)> {
        let slot = |at: usize| {
            let words = [0, 8, 16].map(|n| self.word(at + n).load(Acquire));
            (words[2] == check([words[0], words[1], 0])).then_some((words[0], words[1]))
        };
        [SLOT_A, SLOT_B].into_iter().filter_map(slot)
    }

    #[inline]
    fn try_log_end(&self) -> Option<(u64, u64)> {
        let tail = self.tail();
        let slot = if self.word(SLOT_A).load(Acquire) == tail { SLOT_A } else { SLOT_B };
        let found = self.word(slot).load(Acquire);
        let end = self.word(slot + 8).load(Acquire);
        let sum = self.word(slot + 16).load(Acquire);
        fence(Acquire);
        let whole = found == tail && sum == check([tail, end, 0]);
        (whole && self.tail() == tail).then_some((tail, end))
    }

    /// Returns whether the words about the log's end are plausible.
    pub(crate) fn is_sound(&self) -> bool {
        let Some((tail, _)) = (0..MAX_PAIR_READS).find_map(|_| self.try_log_end()) else {
            return false;
        };
        tail >= FIRST_POS
            && tail.is_multiple_of(8)
            && self.first_seq() >= 1
            && self.seq() + 1 >= self.first_seq()
            && self.seq() - self.first_seq().min(self.seq()) < 1 << 32
    }

    /// Moves the log's end: the bytes before it become visible to all readers. Under the lock.
    #[inline]
    pub(crate) fn commit(&self, tail: u64, end: u64) {
        let used = self.word(SLOT_A).load(Relaxed) == self.word(TAIL).load(Relaxed);
        let slot = if used { SLOT_B } else { SLOT_A };
        self.set_slot(slot, tail, end);
        self.word(TAIL).store(tail, Release);
    }

    #[inline]
    fn set_slot(&self, slot: usize, tail: u64, end: u64) {
        // Release: a reader that sees these sees the former tail too, and so reads again.
        self.word(slot).store(tail, Release);
        self.word(slot + 8).store(end, Release);
        self.word(slot + 16).store(check([tail, end, 0]), Release);
    }

    /// Sets the log's end while it has no readers (creation, recovery).
    pub(crate) fn set_log(&self, tail: u64, end: u64, time: Tai) {
        [SLOT_A, SLOT_B].into_iter().for_each(|slot| self.set_slot(slot, tail, end));
        self.word(MAX_TIME).store(time.nanos() as u64, Relaxed);
        self.word(TAIL).store(tail, Release);
    }

    /// Returns the latest time of any frame. Seeks use it, so a clock that was stepped back does no
    /// harm.
    pub(crate) fn max_time(&self) -> Tai {
        Tai::from_nanos(self.word(MAX_TIME).load(Relaxed) as i64)
    }

    #[inline]
    pub(crate) fn advance_time(&self, time: Tai) -> Tai {
        let time = time.max(self.max_time());
        self.word(MAX_TIME).store(time.nanos() as u64, Relaxed);
        time
    }

    /// Returns the current segment's number; 0 before the first.
    #[inline]
    pub(crate) fn seq(&self) -> u64 {
        self.word(SEQ).load(Acquire)
    }

    pub(crate) fn set_seq(&self, seq: u64) {
        self.word(SEQ).store(seq, Release);
    }

    /// Stores the first segment's number, position and offset.
    pub(crate) fn set_first(&self, seq: u64, pos: u64, offset: u64) {
        self.word(FIRST_OFFSET).store(offset, Release);
        self.word(FIRST_BASE).store(pos, Release);
        self.word(FIRST_SEQ).store(seq, Release);
    }

    pub(crate) fn first_seq(&self) -> u64 {
        self.word(FIRST_SEQ).load(Acquire)
    }

    pub(crate) fn first_pos(&self) -> u64 {
        self.word(FIRST_BASE).load(Acquire)
    }

    pub(crate) fn first_offset(&self) -> u64 {
        self.word(FIRST_OFFSET).load(Acquire)
    }

    /// Returns position and offset below which everything is on the disk, and the last synced
    /// segment. All zero if unknown; the next sync stores them.
    pub(crate) fn durable(&self) -> (u64, u64, u64) {
        let word = |at: usize| self.word(at).load(Acquire);
        let found = [word(DURABLE_POS), word(DURABLE_END), word(DURABLE_SEQ)];
        match word(DURABLE_CHECK) == check(found) {
            true => (found[0], found[1], found[2]),
            false => (0, 0, 0),
        }
    }

    pub(crate) fn set_durable(&self, pos: u64, end: u64, seq: u64) {
        // A concurrent reader finds a wrong check, and so nothing durable.
        self.word(DURABLE_CHECK).store(0, Release);
        self.word(DURABLE_POS).store(pos, Release);
        self.word(DURABLE_END).store(end, Release);
        self.word(DURABLE_SEQ).store(seq, Release);
        self.word(DURABLE_CHECK).store(check([pos, end, seq]), Release);
    }

    /// The system's error of a failed sync, stored until the next boot.
    pub(crate) fn sync_error(&self) -> &AtomicU64 {
        self.word(SYNC_ERROR)
    }

    /// The prepared file for the next segment: its number (0 for none) and capacity.
    pub(crate) fn spare(&self) -> (u64, u64) {
        (self.word(SPARE).load(Acquire), self.word(SPARE_BYTES).load(Acquire))
    }

    pub(crate) fn set_spare(&self, number: u64, capacity: u64) {
        self.word(SPARE_BYTES).store(capacity, Release);
        self.word(SPARE).store(number, Release);
    }

    /// 1 while a dead holder's work is not repaired.
    pub(crate) fn dirty(&self) -> &AtomicU64 {
        self.word(DIRTY)
    }

    /// The number of the compacted segment that is replacing all before it; 0 for none.
    pub(crate) fn compacting(&self) -> &AtomicU64 {
        self.word(COMPACTING)
    }

    /// The generation of the keys index's file; 0 before the first.
    pub(crate) fn keys_gen(&self) -> &AtomicU64 {
        self.word(KEYS_GEN)
    }

    /// The position up to which the keys index is complete.
    pub(crate) fn keys_upto(&self) -> &AtomicU64 {
        self.word(KEYS_UPTO)
    }

    /// The position of the newest snapshot of the keys index.
    pub(crate) fn snap_pos(&self) -> &AtomicU64 {
        self.word(SNAP_POS)
    }

    /// Returns the newest valid checkpoint.
    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
        self.checkpoints().next()
    }

    /// Returns the valid checkpoints, the newest first.
    pub(crate) fn checkpoints(&self) -> impl Iterator<Item = Checkpoint> + use<> {
        let mut found = [0, 1].map(|i| self.read_checkpoint(i));
        found.sort_by_key(|c| std::cmp::Reverse(c.map(|c| (c.pos, c.seq))));
        found.into_iter().flatten()
    }

    fn read_checkpoint(&self, i: usize) -> Option<Checkpoint> {
        let bytes: [u8; CHECKPOINT_BYTES] = self.map.array(CHECKPOINTS + i * CHECKPOINT_BYTES);
        let word = |n: usize| {
            let mut out = [0; 8];
            out.copy_from_slice(&bytes[n * 8..n * 8 + 8]);
            u64::from_le_bytes(out)
        };
        let whole = word(4) == u64::from(crc32c::crc32c(&bytes[..32])) && word(0) != 0;
        let c = Checkpoint { seq: word(0), pos: word(1), end: word(2), time: word(3) as i64 };
        whole.then_some(c)
    }

    /// Writes a checkpoint into the older slot. Under the sync lock.
    pub(crate) fn set_checkpoint(&self, c: Checkpoint) {
        let age = |i: usize| self.read_checkpoint(i).map_or((0, 0), |c| (c.pos, c.seq));
        let older = usize::from(age(1) < age(0));
        self.write_checkpoint(older, c);
    }

    /// Writes a checkpoint into both slots: the old ones may not hold any more.
    pub(crate) fn reset_checkpoints(&self, c: Checkpoint) {
        (0..2).for_each(|i| self.write_checkpoint(i, c));
    }

    fn write_checkpoint(&self, i: usize, c: Checkpoint) {
        let mut bytes = [0; CHECKPOINT_BYTES];
        for (i, word) in [c.seq, c.pos, c.end, c.time as u64].into_iter().enumerate() {
            bytes[i * 8..i * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        let crc = u64::from(crc32c::crc32c(&bytes[..32]));
        bytes[32..40].copy_from_slice(&crc.to_le_bytes());
        self.map.write(CHECKPOINTS + i * CHECKPOINT_BYTES, &bytes);
    }

    /// Returns the report of the last recovery.
    pub(crate) fn recovered(&self) -> RecoveryReport {
        let [missing, missing_from, cut] = self.checked(MISSING).unwrap_or_default();
        let count = self.word(RECOVERED).load(Relaxed);
        RecoveryReport { count, missing, missing_from, cut }
    }

    pub(crate) fn set_recovered(&self, report: RecoveryReport) {
        self.word(RECOVERED).store(report.count, Relaxed);
        self.set_checked(MISSING, [report.missing, report.missing_from, report.cut]);
    }

    /// Returns what is known of the newest power loss.
    pub(crate) fn power_loss(&self) -> PowerLoss {
        let [durable, from, to] = self.checked(POWER_LOSS).unwrap_or_default();
        PowerLoss { durable, cut: from..to }
    }

    pub(crate) fn set_power_loss(&self, loss: &PowerLoss) {
        self.set_checked(POWER_LOSS, [loss.durable, loss.cut.start, loss.cut.end]);
    }

    /// Returns three words and their check, if they are whole; zeros are none.
    fn checked(&self, at: usize) -> Option<[u64; 3]> {
        let words = [0, 8, 16].map(|n| self.word(at + n).load(Acquire));
        (self.word(at + 24).load(Acquire) == check(words)).then_some(words)
    }

    fn set_checked(&self, at: usize, words: [u64; 3]) {
        // Torn, they are no words rather than wrong ones.
        self.word(at + 24).store(0, Release);
        for (n, word) in words.into_iter().enumerate() {
            self.word(at + n * 8).store(word, Release);
        }
        self.word(at + 24).store(check(words), Release);
    }

    /// Returns the log's identity; none before version 3, or where it is damaged.
    pub(crate) fn log_id(&self) -> LogId {
        let [id, file_system, inode] = self.checked(LOG_ID).unwrap_or_default();
        // Of another file, it was left by a program that does not know this word.
        let born = self.checked(BORN).filter(|words| words[1..] == [file_system, inode]);
        LogId { id, file_system, inode, born: born.map_or(0, |words| words[0]) }
    }

    pub(crate) fn set_log_id(&self, id: LogId) {
        self.set_checked(LOG_ID, [id.id, id.file_system, id.inode]);
        self.set_checked(BORN, [id.born, id.file_system, id.inode]);
    }

    /// Returns the identity before this one, and the end offset at which this one began.
    pub(crate) fn former_log(&self) -> Option<(u64, u64)> {
        self.checked(FORMER_LOG).map(|words| (words[0], words[1]))
    }

    pub(crate) fn set_former_log(&self, id: u64, end: u64) {
        self.set_checked(FORMER_LOG, [id, end, 0]);
    }

    /// Returns where the log begins, as far as it is recorded.
    pub(crate) fn beginning(&self) -> Option<Beginning> {
        let found = self.checked(BEGINNING).filter(|words| words[0] != 0);
        found.map(|words| Beginning { seq: words[0], pos: words[1], offset: words[2] })
    }

    pub(crate) fn set_beginning(&self, begin: Beginning) {
        self.set_checked(BEGINNING, [begin.seq, begin.pos, begin.offset]);
    }

    /// Returns what retention has taken so far.
    pub(crate) fn taken(&self) -> Taken {
        let words = [0, 8].map(|n| self.word(TAKEN + n).load(Acquire));
        let whole = self.word(TAKEN + 16).load(Acquire) == check([words[0], words[1], 0]);
        let [samples, bytes] = if whole { words } else { [0; 2] };
        Taken { samples, bytes }
    }

    /// Counts what retention takes. Under the lock.
    pub(crate) fn add_taken(&self, more: Taken) {
        let before = self.taken();
        let samples = before.samples.saturating_add(more.samples);
        let bytes = before.bytes.saturating_add(more.bytes);
        self.word(TAKEN + 16).store(0, Release);
        self.word(TAKEN).store(samples, Release);
        self.word(TAKEN + 8).store(bytes, Release);
        self.word(TAKEN + 16).store(check([samples, bytes, 0]), Release);
    }

    /// Returns whether the partition was deleted under its users.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.word(GONE).load(Acquire) == GONE_MARK
    }

    /// Marks the partition as deleted, for ever. Under the lock.
    pub(crate) fn set_gone(&self) {
        self.word(GONE).store(GONE_MARK, Release);
    }

    /// Returns the end below which no recovery has let the log end: offset and position.
    pub(crate) fn floor(&self) -> Option<(u64, u64)> {
        let words = [0, 8].map(|n| self.word(FLOOR + n).load(Acquire));
        let whole = self.word(FLOOR + 16).load(Acquire) == check([words[0], words[1], 0]);
        whole.then_some((words[0], words[1]))
    }

    pub(crate) fn set_floor(&self, end: u64, pos: u64) {
        self.word(FLOOR + 16).store(0, Release);
        self.word(FLOOR).store(end, Release);
        self.word(FLOOR + 8).store(pos, Release);
        self.word(FLOOR + 16).store(check([end, pos, 0]), Release);
    }
}
