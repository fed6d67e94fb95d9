//! Recovery, after power loss or in a copy of a journal: finds the end of the log.
//!
//! Constraints: pages reach the disk in any order, so nothing that changes is trusted: neither the
//! control page's words nor the seals. Records that were reported durable are complete; recovery
//! never cuts below them, and never serves records that it cut.
//!
//! Operation: from the newest checkpoint on, frames are checked in order, by checksum and by
//! offset, from segment to segment. The log ends at the first invalid one. The segment is sealed
//! there, and later records go into a new one: old frames behind the cut can never follow new ones.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::Ordering::Release;

use helio_core::Tai;
use rustix::fs::{FlockOperation, flock};

use crate::JournalError;
use crate::control::{Checkpoint, FIRST_POS, RecoveryReport};
use crate::env::TEMPORARY_PREFIX;
use crate::error::IoContext;
use crate::groups;
use crate::partition::{Guard, Partition};
use crate::process::BootId;
use crate::segment::{self, Seal, Segment, SegmentHold};

/// Extension of a segment's file that recovery has cut off; it stays until the next recovery.
const CUT_EXTENSION: &str = "cut";

/// The number of checks by a reader without write access, before it takes an inconsistency for
/// damage.
const READ_ONLY_MAX_ATTEMPTS: u32 = 20;

/// The end of the log as a scan found it.
#[derive(Debug, Clone, Copy)]
struct LogEnd {
    /// The last segment; 0 if there is none.
    seq: u64,
    pos: u64,
    end: u64,
    time: Tai,
}

impl Partition {
    /// Recovers if the page was last used under another boot, is another file, or is inconsistent.
    pub(crate) fn recover_if_needed(
        &mut self,
        file: &File,
        path: &Path,
        mark: (BootId, u64),
    ) -> Result<(), JournalError> {
        if self.control.marked(mark) && self.is_consistent()? {
            return Ok(());
        }
        if !self.env.writable() {
            // Without the lock, repeated checks distinguish damage from a roll of a writer.
            for _ in 0..READ_ONLY_MAX_ATTEMPTS {
                if self.control.marked(mark) && self.is_consistent()? {
                    return Ok(());
                }
                std::thread::yield_now();
            }
            let found = self.scan()?;
            self.recovered_view = Some((found.pos, found.end));
            return Ok(());
        }
        // Released when `file` is closed; the next holder then finds the page marked.
        flock(file, FlockOperation::LockExclusive).at("lock", path)?;
        let marked = self.control.marked(mark);
        if !marked {
            self.control.reset_locks().at("prepare", path)?;
            self.control.dirty().store(0, Release);
            self.control.compacting().store(0, Release);
        }
        let guard = self.lock()?;
        if marked && self.is_consistent()? {
            return Ok(());
        }
        self.recover(&guard)?;
        drop(guard);
        self.control.set_mark(mark);
        self.sync_control()
    }

    /// Returns whether the control page agrees with the first and the last segment.
    fn is_consistent(&self) -> Result<bool, JournalError> {
        let control = &self.control;
        if !control.is_sound() {
            return Ok(false);
        }
        let (first, last) = self.segments();
        if first > last {
            let nothing = control.first_pos() == control.tail();
            return Ok(nothing && self.files()?.is_empty());
        }
        let (Some(oldest), Some(newest)) = (self.segment(first)?, self.segment(last)?) else {
            return Ok(false);
        };
        let inside = (newest.head.base_pos..=newest.head.end()).contains(&control.tail());
        let begins = oldest.head.base_pos == control.first_pos()
            && oldest.head.base_offset == control.first_offset();
        Ok(inside && begins)
    }

    fn recover(&self, guard: &Guard<'_>) -> Result<(), JournalError> {
        let control = &self.control;
        let before = control.recovered();
        let had = control.tail();
        let found = self.scan()?;
        let first = self.drop_strays(found.seq)?;
        control.set_log(found.pos, found.end, found.time);
        control.set_seq(found.seq);
        control.set_spare(0, 0);
        match &first {
            Some(s) => control.set_first(s.head.seq, s.head.base_pos, s.head.base_offset),
            None => control.set_first(found.seq + 1, found.pos, found.end),
        }
        if found.seq != 0
            && let Some(last) =
                Segment::open(&self.dir, found.seq, self.env.mode(), SegmentHold::Loose)?
        {
            last.forget_index(found.pos);
            let (end, offset, time) = (found.pos, found.end, found.time);
            last.seal(Seal { end, offset, time, closed: self.env.running_time() });
        }
        self.restore_seals(first.as_ref().map_or(found.seq, |s| s.head.seq), found.seq)?;
        control.set_recovered(RecoveryReport {
            count: before.count + 1,
            cut_at: found.end,
            cut_bytes: had.saturating_sub(found.pos),
            ..RecoveryReport::default()
        });
        if self.keeps_last() {
            self.recover_keys(guard)?;
        }
        self.cut_groups(found.end)?;
        control.sync_error().store(0, Release);
        for seq in first.map_or(found.seq + 1, |s| s.head.seq)..=found.seq {
            // In a copy of a journal the segments may not be on the disk yet; after a boot this
            // costs nothing.
            self.env.sync_file(&segment::path(&self.dir, seq))?;
        }
        control.set_durable(found.pos, found.end, found.seq);
        let (seq, pos, end) = (found.seq, found.pos, found.end);
        if seq != 0 {
            control.reset_checkpoints(Checkpoint { seq, pos, end, time: found.time.nanos() });
        }
        self.env.sync_dir(&self.dir)
    }

    fn cut_groups(&self, end: u64) -> Result<(), JournalError> {
        let number = self.dir.file_name().and_then(|n| n.to_str()?.parse().ok());
        match (self.dir.parent(), number) {
            (Some(topic), Some(n)) => groups::cut(&self.env, &topic.join("groups"), n, end),
            _ => Ok(()),
        }
    }

    /// Seals segments whose seal was lost: they end where the next one begins.
    fn restore_seals(&self, first: u64, last: u64) -> Result<(), JournalError> {
        for seq in first..last {
            let next = segment::peek(&segment::path(&self.dir, seq + 1));
            let (Some(segment), Some(next)) = (self.segment(seq)?, next) else { continue };
            let inside = (segment.head.base_pos..=segment.head.end()).contains(&next.base_pos);
            if !matches!(segment.sealed(), Ok(Some(_))) && inside && next.seq == seq + 1 {
                let (end, offset, time) = (next.base_pos, next.base_offset, next.base_time);
                // When it was closed is not known: its age begins now.
                let closed = self.env.running_time();
                segment.seal(Seal { end, offset, time, closed });
            }
        }
        Ok(())
    }

    /// Returns the numbers of the segments' files, in order.
    pub(crate) fn files(&self) -> Result<Vec<u64>, JournalError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir).at("list", &self.dir)? {
            let name = entry.at("list", &self.dir)?.file_name();
            let number = name.to_str().and_then(|n| n.strip_suffix(".seg"));
            found.extend(number.and_then(|n| n.parse::<u64>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Finds the log's end without changing any file.
    fn scan(&self) -> Result<LogEnd, JournalError> {
        let files = self.files()?;
        let Some((mut segment, mut found)) = self.start(&files)? else {
            // No segment is left. Durable offsets must not be assigned twice.
            let c = self.control.checkpoint().unwrap_or_default();
            let (pos, time) = (c.pos.max(FIRST_POS), Tai::from_nanos(i64::MIN));
            return Ok(LogEnd { seq: 0, pos, end: c.end, time });
        };
        loop {
            self.scan_segment(&segment, &mut found);
            match self.segment(segment.head.seq + 1)? {
                Some(next) if follows(&next, &segment, &found) => {
                    found.seq = next.head.seq;
                    segment = next;
                }
                _ => return Ok(found),
            }
        }
    }

    /// Returns the start of the scan: the newest plausible checkpoint, else the log's beginning.
    fn start(&self, files: &[u64]) -> Result<Option<(Segment, LogEnd)>, JournalError> {
        // Segments before a compacted one are left-overs, even if a checkpoint names them.
        let oldest = self.compacted(files);
        let mut marked = false;
        for c in self.control.checkpoints() {
            marked = true;
            if files.contains(&c.seq)
                && c.seq >= oldest
                && let Some(start) = self.start_at(c)?
            {
                return Ok(Some(start));
            }
        }
        let start = self.start_first(files)?;
        // Segments are retired only after a checkpoint is on the disk. Without one, the log begins
        // at its very first position, or its beginning is lost.
        Ok(start.filter(|(segment, _)| marked || segment.head.base_pos == FIRST_POS))
    }

    fn start_at(&self, c: Checkpoint) -> Result<Option<(Segment, LogEnd)>, JournalError> {
        let Some(segment) = self.segment(c.seq)? else { return Ok(None) };
        // Compaction has moved the records there: then the whole segment is scanned.
        let moved = segment.head.compacted
            && segment.sealed().ok().flatten().is_none_or(|s| s.end != c.pos);
        let inside = !moved && (segment.head.base_pos..=segment.head.end()).contains(&c.pos);
        let time = Tai::from_nanos(c.time);
        let found = LogEnd { seq: c.seq, pos: c.pos, end: c.end, time };
        Ok(inside.then_some((segment, found)))
    }

    /// Returns the number of the newest compacted segment; 0 for none.
    fn compacted(&self, files: &[u64]) -> u64 {
        let head = |seq: &u64| segment::peek(&segment::path(&self.dir, *seq));
        let is_one = |seq: &u64| head(seq).is_some_and(|h| h.compacted && h.seq == *seq);
        files.iter().rev().copied().find(|seq| is_one(seq)).unwrap_or(0)
    }

    /// Returns the start of the whole log: the newest compacted segment, or the first valid one.
    fn start_first(&self, files: &[u64]) -> Result<Option<(Segment, LogEnd)>, JournalError> {
        let mut first = None;
        for seq in files.iter().rev() {
            let Some(segment) = self.segment(*seq)? else { continue };
            let head = segment.head;
            let (pos, end, time) = (head.base_pos, head.base_offset, head.base_time);
            first = Some((segment, LogEnd { seq: *seq, pos, end, time }));
            if head.compacted {
                break;
            }
        }
        Ok(first)
    }

    /// Advances `found` over a segment's valid frames.
    fn scan_segment(&self, segment: &Segment, found: &mut LogEnd) {
        let mut scratch = Vec::new();
        let seal = segment.sealed().ok().flatten();
        let limit = segment.head.end();
        loop {
            if seal.is_some_and(|seal| found.pos == seal.end) {
                found.end = found.end.max(seal.map_or(0, |s| s.offset));
                return;
            }
            let Ok(header) = segment.check(found.pos, limit, &mut scratch) else { return };
            let fits =
                header.offset == found.end || segment.head.compacted && header.offset > found.end;
            if !fits {
                return;
            }
            found.pos += header.stride() as u64;
            found.end = header.offset + 1;
            found.time = found.time.max(header.time);
        }
    }

    /// Renames segments behind the log's end, and removes retired ones before its beginning.
    /// Returns the first that stays.
    fn drop_strays(&self, last: u64) -> Result<Option<Segment>, JournalError> {
        self.remove_leftovers()?;
        let files = self.files()?;
        let first = self.start_first(unbroken(&files, last))?.map(|(segment, _)| segment);
        let from = first.as_ref().map_or(last + 1, |s| s.head.seq);
        for seq in files {
            let path = segment::path(&self.dir, seq);
            if seq > last {
                // Kept for inspection, in case that damage cut the log here.
                fs::rename(&path, path.with_extension(CUT_EXTENSION)).at("put aside", &path)?;
            } else if seq < from {
                fs::remove_file(&path).at("remove", &path)?;
            }
        }
        Ok(first)
    }

    /// Removes unfinished files, and those that the last recovery cut off.
    fn remove_leftovers(&self) -> Result<(), JournalError> {
        for entry in fs::read_dir(&self.dir).at("list", &self.dir)? {
            let entry = entry.at("list", &self.dir)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let cut = entry.path().extension().is_some_and(|e| e == CUT_EXTENSION);
            if cut || name.starts_with(TEMPORARY_PREFIX) || name.starts_with("spare.") {
                fs::remove_file(entry.path()).at("remove", &entry.path())?;
            }
        }
        Ok(())
    }
}

/// Returns the last run of numbers up to `last` without a hole. Segments before a hole were
/// retired, and their removal did not reach the disk.
fn unbroken(files: &[u64], last: u64) -> &[u64] {
    let upto = &files[..files.partition_point(|seq| *seq <= last)];
    let joined = upto.windows(2).rev().take_while(|pair| pair[0] + 1 == pair[1]).count();
    &upto[upto.len().saturating_sub(joined + 1)..]
}

/// Returns whether a segment begins at the end that was found so far.
fn follows(next: &Segment, segment: &Segment, found: &LogEnd) -> bool {
    next.head.base_pos == found.pos
        && next.head.base_offset == found.end
        && (next.head.prev_id == segment.head.id || segment.head.compacted)
}

impl Partition {
    /// Calls `each` for every valid frame between two positions, in order; skips damage.
    pub(crate) fn walk(
        &self,
        from: u64,
        to: u64,
        mut each: impl FnMut(u64, &crate::frame::FrameHeader, &[u8]),
    ) -> Result<(), JournalError> {
        let mut scratch = Vec::new();
        let (mut at, mut least) = (from, 0);
        while at < to {
            let Some(segment) = self.segment_from(at, least)? else { return Ok(()) };
            least = segment.head.seq + 1;
            // In a compacted segment, a position from before the compaction is no frame's start.
            at = if segment.head.compacted { segment.head.base_pos } else { at };
            at = at.max(segment.head.base_pos);
            let end = match segment.sealed() {
                Ok(Some(seal)) => seal.end,
                _ => match self.segment(segment.head.seq + 1)? {
                    Some(next) => next.head.base_pos,
                    None => to,
                },
            };
            let limit = end.min(to);
            while at < limit {
                match segment.check(at, limit, &mut scratch) {
                    Ok(header) => {
                        if at >= from {
                            each(at, &header, segment.body(at, &header, &scratch));
                        }
                        at += header.stride() as u64;
                    }
                    Err(_) => at = segment.resume(at, limit).map_or(limit, |r| r.0),
                }
            }
            at = at.max(end);
        }
        Ok(())
    }

    /// Returns the log's end by this reader's own scan, if the journal was not recovered since.
    pub(crate) fn recovered_view(&self) -> Option<(u64, u64)> {
        let view = self.recovered_view?;
        let recovered = self.control.recovered().count != self.opened_at_recovery;
        (!recovered).then_some(view)
    }

    /// Stores the number of recoveries of this partition at its opening.
    pub(crate) fn note_recoveries(&mut self) {
        self.opened_at_recovery = self.control.recovered().count;
    }
}
