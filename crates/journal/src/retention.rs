//! Retention and compaction, and the reuse of retired files.
//!
//! Constraints: whole segments are retired, the oldest first, never the current one. If the newest
//! record of each key is retained for ever, one *compacted* segment with just those records,
//! verbatim, replaces the retired ones. It has the number of the last one that it replaces, and its
//! positions lie within their range. So positions and offsets stay in order, and a reader reads it
//! like any other.
//!
//! Operation: the compacted file is written and synced under a temporary name. Under the lock, it
//! is renamed into place, then the index gets the new positions, then the first segment's number
//! changes. Meanwhile `compacting` has the segment's number, so that the successor of a dead holder
//! continues. A retired file is reused, while its pages are warm, unless a reader has it pinned.

use std::fs;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, PoisonError};

use crate::control::{Beginning, Taken};
use crate::error::IoContext;
use crate::frame::{self, Body, FRAME_HEADER_BYTES};
use crate::locks::{Held, Operation};
use crate::partition::{FrameDemand, Guard, Partition};
use crate::segment::{self, Head, Seal, Segment, SegmentHold, Unused};
use crate::{JournalError, SyncPolicy};

/// The limit of log behind the newest snapshot of the keys index, which recovery replays.
const SNAPSHOT_INTERVAL_BYTES: u64 = 32 << 20;
/// The room that must be free on the disk before a segment is prepared, in segments of its size.
const SPARE_ROOM: u64 = 4;
/// The smallest segment that is prepared ahead of its use; smaller ones are created at once.
pub(crate) const MIN_PREPARED_SEGMENT_BYTES: u64 = 1 << 20;

/// The number of times in a retention age that a segment with records is closed, at least.
const CLOSINGS_PER_AGE: u64 = 10;

/// Records that compaction retains: their positions in ascending order, the first one's offset, and
/// their bytes. They are copied one by one, because they may not fit in memory.
#[derive(Default)]
struct RetainedRecords {
    places: Vec<u64>,
    offset: u64,
    bytes: u64,
    /// Those that it does not retain.
    dropped: Taken,
}

impl Partition {
    /// Serves a writer's request to the keeper.
    pub(crate) fn prepare(&self) -> Result<(), JournalError> {
        if !self.wants_keeper.swap(false, Relaxed) {
            return Ok(());
        }
        self.settle_retention()?;
        self.prepare_spare()
    }

    /// Applies retention if this process has closed a segment since it last did, or waits until
    /// another thread of it has. A process that lives for a moment calls it before it ends.
    pub(crate) fn settle_retention(&self) -> Result<(), JournalError> {
        let _one = self.retiring.lock().unwrap_or_else(PoisonError::into_inner);
        match self.owes_retention.swap(false, Relaxed) {
            true => self.retire().inspect_err(|_| self.owes_retention.store(true, Relaxed)),
            false => Ok(()),
        }
    }

    /// Applies retention, and saves the keys index to keep recovery short.
    pub(crate) fn keep(&self) -> Result<(), JournalError> {
        self.check_present()?;
        self.limits.refresh();
        if !self.swept.swap(true, Relaxed) {
            self.sweep()?;
        }
        self.owes_retention.store(true, Relaxed);
        self.settle_retention()?;
        let upto = self.control.keys_upto().load(Acquire);
        if upto > self.control.snap_pos().load(Acquire).saturating_add(SNAPSHOT_INTERVAL_BYTES) {
            self.save_keys()?;
        }
        Ok(())
    }

    /// Removes the left-overs of processes that died during maintenance.
    fn sweep(&self) -> Result<(), JournalError> {
        let Some(_turn) = self.housekeeping_turn()? else { return Ok(()) };
        self.env.remove_orphans(&self.dir)?;
        // Where the beginning is not on record, an unreadable segment may only seem to be retired.
        let first = self.control.beginning().map_or(0, |begin| begin.seq);
        let first = first.min(self.control.first_seq());
        for seq in self.files()?.into_iter().filter(|seq| *seq < first) {
            let path = segment::path(&self.dir, seq);
            fs::remove_file(&path).at("remove", &path)?;
        }
        let _guard = self.lock()?;
        let spare = self.spare_path(self.control.spare().0);
        for entry in fs::read_dir(&self.dir).at("list", &self.dir)? {
            let path = entry.at("list", &self.dir)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("spare.") && path != spare {
                fs::remove_file(&path).at("remove", &path)?;
            }
        }
        Ok(())
    }

    /// Creates the next segment's file ahead of its use, so that no writer waits for the disk. The
    /// writer populates its pages; otherwise they would be faulted in and written to the disk
    /// twice.
    fn prepare_spare(&self) -> Result<(), JournalError> {
        let (first, last) = self.segments();
        if last < first || self.control.spare().0 != 0 {
            return Ok(());
        }
        let Some(current) = self.segment(last)? else { return Ok(()) };
        let capacity = self.next_capacity(current.head.capacity);
        if capacity < MIN_PREPARED_SEGMENT_BYTES {
            return Ok(());
        }
        // The last room on the disk belongs to writers, which take less where it is scarce.
        let disk = rustix::fs::statvfs(&self.dir).at("look at", &self.dir)?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < capacity.saturating_mul(SPARE_ROOM) {
            return Ok(());
        }
        let temporary = self.temporary();
        let file = segment::allocate(&temporary, capacity)?;
        let blank = Head { id: 1, seq: 0, base_pos: 0, capacity, ..current.head };
        let made = Segment::create(&file, blank, &temporary)?;
        made.retire();
        let _guard = self.lock()?;
        self.offer_spare(&temporary, capacity)
    }

    /// Offers a file for the next roll; removes it if there is one already. Under the lock.
    fn offer_spare(&self, file: &std::path::Path, capacity: u64) -> Result<(), JournalError> {
        if self.control.spare().0 != 0 {
            return fs::remove_file(file).at("remove", file);
        }
        let number = self.env.random() | 1;
        let spare = self.spare_path(number);
        fs::rename(file, &spare).at("name", &spare)?;
        self.control.set_spare(number, capacity);
        Ok(())
    }

    pub(crate) fn spare_path(&self, number: u64) -> std::path::PathBuf {
        self.dir.join(format!("spare.{number:016x}"))
    }

    /// Returns the last of the segments that must be retired; `None` if all may stay.
    fn due(&self) -> Result<Option<u64>, JournalError> {
        let (bytes, age) = (self.limits.bytes(), self.limits.age());
        let (first, last) = self.segments();
        if bytes.is_none() && age.is_none() || first >= last {
            return Ok(None);
        }
        let (tail, now) = (self.tail(), self.env.running_time());
        let stays = |seal: &Seal| {
            let too_many = bytes.is_some_and(|b| tail - seal.end.min(tail) >= b);
            let too_old = age.is_some_and(|age| now.saturating_sub(seal.closed) > age);
            !too_many && !too_old
        };
        let mut oldest_seal = self.oldest_seal.lock().unwrap_or_else(PoisonError::into_inner);
        if oldest_seal.as_ref().is_some_and(|(seq, seal)| *seq == first && stays(seal)) {
            return Ok(None);
        }
        let mut due = None;
        for seq in first..last {
            let Some(segment) = self.segment(seq)? else { continue };
            // One whose seal is lost goes with the next.
            let Ok(Some(seal)) = segment.sealed() else { continue };
            if seq == first {
                *oldest_seal = Some((first, seal));
            }
            if stays(&seal) {
                break;
            }
            // A compacted segment alone has nothing to drop.
            due = if segment.head.compacted { due } else { Some(seq) };
        }
        Ok(due)
    }

    /// Closes the current segment if it is due, trims closed segments, and drops those that are
    /// beyond the limits.
    fn retire(&self) -> Result<(), JournalError> {
        self.close_old()?;
        self.trim()?;
        match self.due()? {
            Some(last) => self.retire_upto(last, CompactionPolicy::Enough),
            None => Ok(()),
        }
    }

    /// Closes the current segment a tenth of the retention age after its creation, if it has
    /// records: their age counts from then on.
    fn close_old(&self) -> Result<(), JournalError> {
        let Some(age) = self.limits.age() else { return Ok(()) };
        let Some((seq, begin, created)) = self.current_begin()? else { return Ok(()) };
        let old = self.env.running_time().saturating_sub(created) > age / CLOSINGS_PER_AGE;
        if !old || self.tail() <= begin {
            return Ok(());
        }
        let guard = self.lock()?;
        if self.control.seq() == seq {
            let mut seen = None;
            let segment = self.room(&guard, &mut seen, FrameDemand::default())?;
            if segment.head.seq == seq {
                self.roll(&guard, Some(&segment), FrameDemand::default())?;
            }
        }
        Ok(())
    }

    /// Returns number, first position and creation of the current segment.
    fn current_begin(&self) -> Result<Option<(u64, u64, u64)>, JournalError> {
        let seq = self.control.seq();
        let mut known = self.current_begin.lock().unwrap_or_else(PoisonError::into_inner);
        if seq != 0 && known.is_none_or(|known| known.0 != seq) {
            let head = self.segment(seq)?.map(|segment| segment.head);
            *known = head.map(|head| (seq, head.base_pos, head.created));
        }
        Ok(known.filter(|known| known.0 == seq))
    }

    /// Gives back the unused room of the segments that this process has closed.
    fn trim(&self) -> Result<(), JournalError> {
        let closed = std::mem::take(&mut *self.untrimmed());
        for (seq, recovered) in closed {
            if let Some(segment) = self.segment(seq)? {
                segment.trim(&self.dir, if recovered { Unused::Zeros } else { Unused::All })?;
            }
        }
        Ok(())
    }

    /// Drops everything below an offset, to within a segment, except the newest record of each key.
    pub(crate) fn compact_below(&self, offset: u64) -> Result<(), JournalError> {
        let (first, last) = self.segments();
        let mut due = None;
        for seq in first..last {
            let Some(segment) = self.segment(seq)? else { continue };
            match segment.sealed() {
                Ok(Some(seal)) if seal.offset <= offset => due = Some((seq, segment.head)),
                Ok(Some(_)) => break,
                // One whose seal is lost goes with the next.
                _ => {}
            }
        }
        match due {
            Some((seq, head)) if !(head.compacted && seq == first) => {
                self.retire_upto(seq, CompactionPolicy::Always)
            }
            _ => Ok(()),
        }
    }

    fn retire_upto(&self, last: u64, worth: CompactionPolicy) -> Result<(), JournalError> {
        // One process at a time; the others try again at their next turn.
        let Some(_turn) = self.housekeeping_turn()? else { return Ok(()) };
        let first = self.control.first_seq();
        if first > last {
            return Ok(());
        }
        let mut kept = RetainedRecords::default();
        if self.keeps_last() {
            let Some(found) = self.still_last(first, last, worth)? else { return Ok(()) };
            kept = found;
        }
        let Some(end) = self.seal_of(last)? else { return Ok(()) };
        let promised = self.config.sync == SyncPolicy::Background || self.control.durable().2 != 0;
        let begin = Beginning { seq: last + 1, pos: end.end, offset: end.offset };
        if promised || !kept.places.is_empty() {
            // The record that supersedes another must be on the disk before that one is dropped.
            self.secure_behind(last, kept.places.is_empty().then_some(begin))?;
        } else {
            // Otherwise recovery would take the retired segments for missing ones.
            self.control.set_beginning(begin);
            self.sync_control()?;
        }
        if kept.places.is_empty() {
            let guard = self.lock()?;
            if !self.keeps_last() {
                let control = &self.control;
                kept.dropped = Taken {
                    samples: end.offset.saturating_sub(control.first_offset()),
                    bytes: end.end.saturating_sub(control.first_pos()),
                };
            }
            self.control.set_first(last + 1, end.end, end.offset);
            self.control.add_taken(kept.dropped);
            drop(guard);
            return self.dispose(first..=last);
        }
        self.compact(first, last, end, &kept)
    }

    /// Drops the segments up to one, for the journal's budget. The current one stays.
    pub(crate) fn shorten(&self, last: u64) -> Result<(), JournalError> {
        match self.control.seq() {
            0 => Ok(()),
            current => self.retire_upto(last.min(current - 1), CompactionPolicy::Enough),
        }
    }

    fn seal_of(&self, seq: u64) -> Result<Option<Seal>, JournalError> {
        Ok(self.segment(seq)?.and_then(|s| s.sealed().ok().flatten()))
    }

    /// Takes the maintenance lock, across processes: half of the work is done outside the
    /// partition's lock.
    fn housekeeping_turn(&self) -> Result<Option<Held>, JournalError> {
        self.env.try_lock(Operation::Retention, &self.dir)
    }

    /// Returns the records of some segments that are the newest of their keys. `None` if copying is
    /// not worth it yet: at least as much as was retained must have been appended since.
    fn still_last(
        &self,
        first: u64,
        last: u64,
        worth: CompactionPolicy,
    ) -> Result<Option<RetainedRecords>, JournalError> {
        // The oldest ones may be unreadable.
        let mut start = self.segment(first)?;
        for seq in first + 1..=last {
            start = if start.is_none() { self.segment(seq)? } else { start };
        }
        let (Some(start), Some(end)) = (start, self.seal_of(last)?) else {
            return Ok(None);
        };
        let compacted = match start.sealed() {
            Ok(Some(seal)) if start.head.compacted => seal.end - start.head.base_pos,
            _ => 0,
        };
        let fresh = (end.end - start.head.base_pos).saturating_sub(compacted);
        if worth == CompactionPolicy::Enough && fresh < compacted {
            return Ok(None);
        }
        let Some((places, upto)) = self.last_values()? else { return Ok(None) };
        if upto < end.end {
            return Ok(None);
        }
        let newest: std::collections::HashMap<_, _> = places.into_iter().collect();
        let mut kept = RetainedRecords::default();
        self.walk(start.head.base_pos, end.end, |pos, header, body| {
            let hash = self.hash(frame::split(header, body).key);
            let bytes = header.stride() as u64;
            if newest.get(&hash) == Some(&pos) {
                kept.offset = if kept.places.is_empty() { header.offset } else { kept.offset };
                kept.places.push(pos);
                kept.bytes += bytes;
            } else {
                kept.dropped.samples += 1;
                kept.dropped.bytes += bytes;
            }
        })?;
        Ok(Some(kept))
    }

    fn compact(
        &self,
        first: u64,
        last: u64,
        end: Seal,
        kept: &RetainedRecords,
    ) -> Result<(), JournalError> {
        let Some(old) = self.segment(last)? else { return Ok(()) };
        let head = Head {
            id: self.env.random() | 1,
            base_pos: end.end - kept.bytes,
            base_offset: kept.offset,
            capacity: kept.bytes.div_ceil(4096) * 4096,
            compacted: true,
            version: segment::VERSION,
            created: self.env.running_time(),
            ..old.head
        };
        let temporary = self.temporary();
        let file = segment::allocate(&temporary, head.capacity)?;
        let segment = Segment::create(&file, head, &temporary)?;
        if !self.copy(kept, end.end, &segment)? {
            // Damaged or retired between the two walks: tried again later.
            return fs::remove_file(&temporary).at("remove", &temporary);
        }
        segment.seal(end);
        self.env.sync_file(&temporary)?;
        let guard = self.lock()?;
        self.control.compacting().store(last, Release);
        let target = segment::path(&self.dir, last);
        if let Err(e) = fs::rename(&temporary, &target) {
            self.control.compacting().store(0, Release);
            return Err(JournalError::io("name", &target, e));
        }
        self.finish_compaction(&guard)?;
        self.control.add_taken(kept.dropped);
        drop(guard);
        self.env.about_to_sync(&target)?;
        self.env.sync_dir(&self.dir)?;
        // Not before: the segments that it replaces may still be the ones on the disk.
        let (pos, offset) = (segment.head.base_pos, segment.head.base_offset);
        self.control.set_beginning(Beginning { seq: last, pos, offset });
        drop(old);
        self.dispose(first..=last - 1)
    }

    /// Copies records into a compacted segment. Returns whether all were found.
    fn copy(&self, kept: &RetainedRecords, end: u64, into: &Segment) -> Result<bool, JournalError> {
        let (Some(&first), mut left) = (kept.places.first(), kept.places.iter().peekable()) else {
            return Ok(true);
        };
        let (mut at, limit) = (into.head.base_pos, into.head.base_pos + kept.bytes);
        self.walk(first, end, |pos, header, body| {
            let stride = header.stride() as u64;
            let crc = frame::body_crc(header, body).filter(|_| at + stride <= limit);
            if left.next_if_eq(&&pos).is_some()
                && let Some(crc) = crc
            {
                let raw: [u8; FRAME_HEADER_BYTES] = header.seal(crc, into.head.id);
                into.write(at, &raw, &Body { payload: body, ..Body::default() });
                into.note(header.offset, at, header.time);
                at += stride;
            }
        })?;
        Ok(left.peek().is_none() && at == limit)
    }

    /// Enters a compacted segment that is in place into the index and the control page. Under the
    /// lock.
    pub(crate) fn finish_compaction(&self, guard: &Guard<'_>) -> Result<(), JournalError> {
        let seq = self.control.compacting().load(Acquire);
        let compacted = match seq {
            0 => None,
            seq => self.segment(seq)?.filter(|s| s.head.compacted),
        };
        if let Some(segment) = compacted {
            let end = segment.sealed().ok().flatten().map_or(0, |seal| seal.end);
            let (mut places, mut keys) = (Vec::new(), None::<Arc<_>>);
            self.walk(segment.head.base_pos, end, |pos, header, body| {
                places.push((self.hash(frame::split(header, body).key), pos));
            })?;
            for (hash, pos) in places {
                let keys = self.keys(guard, &mut keys)?;
                // An index entry in the replaced range is this key's retained record.
                if keys.get(hash).is_some_and(|old| old < end) {
                    keys.put(hash, pos);
                }
            }
            let (pos, offset) = (segment.head.base_pos, segment.head.base_offset);
            self.control.set_first(seq, pos, offset);
        }
        self.control.compacting().store(0, Release);
        Ok(())
    }

    /// Offers retired segments' files for reuse, or removes them.
    fn dispose(&self, retired: std::ops::RangeInclusive<u64>) -> Result<(), JournalError> {
        for seq in retired {
            let path = segment::path(&self.dir, seq);
            let mode = self.env.mode();
            let opened = Segment::open(&self.dir, seq, mode, SegmentHold::Loose).ok().flatten();
            // A trimmed file has holes, into which no write may go: the disk may be full.
            let whole = |s: &Segment| matches!(s.sealed(), Ok(Some(seal)) if !s.is_trimmed(seal));
            let reusable = opened.as_ref().is_some_and(whole);
            let free = opened.filter(|s| s.retire() && reusable).map(|s| s.head.capacity);
            let largest = self.largest_segment();
            let fits = free.filter(|c| *c == largest && *c >= MIN_PREPARED_SEGMENT_BYTES);
            let done = match fits {
                Some(capacity) => {
                    let _guard = self.lock()?;
                    self.offer_spare(&path, capacity)
                }
                None => fs::remove_file(&path).at("remove", &path),
            };
            if done.is_err() && path.exists() {
                done?;
            }
        }
        Ok(())
    }
}

/// When to compact.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompactionPolicy {
    /// Only if at least as much is dropped as is copied.
    Enough,
    Always,
}
