//! Recovery, after power loss, in a copy of a journal, or where files contradict each other: finds
//! the end of the log and continues behind it.
//!
//! Constraints: pages reach the disk in any order, so nothing that changes is trusted without its
//! checksum. The end is never set before an offset that a checksum proves (see `log_scan`). No byte
//! of the log is removed: what cannot be read stays where it is, and is reported as missing, until
//! an operator discards it. A step that is interrupted is repeated by the next recovery, with the
//! same result.
//!
//! Operation: damaged headers are rebuilt (see `rebuild`). The last segment is sealed, and later
//! records go into a new one: old frames behind the end can never follow new ones. Records that
//! were never durable may have been cut off without a trace. Then the log gets a new identity, so
//! that cursors of the former one do not match other records.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::JournalError;
use crate::control::{Checkpoint, RecoveryReport};
use crate::env::TEMPORARY_PREFIX;
use crate::error::IoContext;
use crate::locks::Operation;
use crate::log_scan::{LastUse, LogScan};
use crate::mark::Mark;
use crate::options::Recovered;
use crate::partition::{FrameDemand, Guard, Partition};
use crate::segment::{self, Seal, Segment, SegmentHold};

/// The number of checks by a reader without write access, before it takes an inconsistency for
/// damage.
const READ_ONLY_MAX_ATTEMPTS: u32 = 20;

impl Partition {
    /// Recovers if the page was last used under another boot, is another file, or is inconsistent.
    pub(crate) fn recover_if_needed(
        &mut self,
        path: &Path,
        mark: Mark,
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
            let marked = self.control.marked(mark);
            let last_use = if marked { LastUse::ThisBoot } else { LastUse::Before };
            self.recovered_view = Some(self.scan(last_use)?);
            self.report_recovery(self.control.recovered());
            return Ok(());
        }
        let before = self.control.recovered();
        if self.recover_under_lock(path, mark)? {
            self.report_recovery(before);
        }
        Ok(())
    }

    /// Returns whether a recovery was needed; it is on the disk then.
    fn recover_under_lock(&self, path: &Path, mark: Mark) -> Result<bool, JournalError> {
        // The next holder finds the page marked.
        let _turn = self.env.lock(Operation::Recovery, path)?;
        let marked = self.control.marked(mark);
        if !marked {
            self.control.reset_locks().at("prepare", path)?;
            self.control.dirty().store(0, Release);
            self.control.compacting().store(0, Release);
        }
        let guard = self.lock()?;
        if marked && self.is_consistent()? {
            return Ok(false);
        }
        self.recover(&guard, if marked { LastUse::ThisBoot } else { LastUse::Before })?;
        drop(guard);
        self.control.set_mark(mark);
        self.ring();
        self.sync_control()?;
        Ok(true)
    }

    /// Calls the hook if more is missing than the recovery before has reported. It may block, and
    /// may panic: no lock is held.
    fn report_recovery(&self, before: RecoveryReport) {
        let (hook, report) = (&self.env.options.recovery_hook, self.recovery());
        if let Some(hook) = hook.as_ref().filter(|_| report.has_more_than(before)) {
            hook(&Recovered { path: self.dir.clone(), report });
        }
    }

    /// Returns whether the control page agrees with itself and with the first and the last segment.
    fn is_consistent(&self) -> Result<bool, JournalError> {
        let control = &self.control;
        if !control.is_sound() {
            return Ok(false);
        }
        let (first, last) = self.segments();
        let words = self.first();
        if first > last {
            let nothing = words.pos == control.tail() || control.beginning() == Some(words);
            return Ok(nothing && self.files()?.is_empty());
        }
        let Some(newest) = self.segment(last)? else { return Ok(false) };
        let inside = (newest.head.base_pos..=newest.head.end()).contains(&control.tail());
        let begins = control.beginning() == Some(words)
            || self.segment(first)?.is_some_and(|oldest| {
                oldest.head.base_pos == words.pos && oldest.head.base_offset == words.offset
            });
        Ok(inside && begins)
    }

    fn recover(&self, guard: &Guard<'_>, last_use: LastUse) -> Result<(), JournalError> {
        let control = &self.control;
        let before = control.recovered();
        // If a step fails, the next holder of the lock completes the keys index.
        control.dirty().store(1, Release);
        let was_durable =
            control.durable().1 == control.committed().map(|c| c.1).max().unwrap_or(0);
        self.remove_leftovers()?;
        let rebuilt = self.rebuild_headers()?;
        let found = self.scan(last_use)?;
        // From here on no recovery ends the log earlier, whatever becomes of the proofs.
        control.set_floor(found.end, found.pos);
        self.remove_retired(&found)?;
        control.set_log(found.pos, found.end, found.time);
        control.set_seq(found.seq);
        control.set_spare(0, 0);
        control.set_first(found.first.seq, found.first.pos, found.first.offset);
        control.set_beginning(found.first);
        if last_use == LastUse::Before || found.ends_behind_its_files() {
            self.seal_last(&found)?;
        }
        self.restore_seals(&found)?;
        let report = RecoveryReport { count: before.count + 1, ..found.report() };
        let merged = report.merged(before, found.whole_from);
        control.set_recovered(if rebuilt { report } else { merged });
        if self.keeps_last() {
            self.recover_keys(guard)?;
        }
        if last_use == LastUse::Before {
            control.sync_error().store(0, Release);
        }
        let may_be_cut =
            last_use == LastUse::Before && (!was_durable || found.end != control.durable().1);
        if may_be_cut || self.carry_positions(control.log_id().id, found.end)? {
            self.begin_new_log(found.end)?;
        }
        if found.ends_behind_its_files() {
            match self.roll(guard, None, FrameDemand::default()) {
                // The next writer tries again.
                Err(JournalError::NoRoom { .. }) => {}
                rolled => drop(rolled?),
            }
        }
        control.dirty().store(0, Release);
        self.sync_recovered(&found, last_use)
    }

    /// Writes the recovered log to the disk, and marks it as durable.
    fn sync_recovered(&self, found: &LogScan, last_use: LastUse) -> Result<(), JournalError> {
        let (control, last) = (&self.control, self.control.seq());
        if control.sync_error().load(Relaxed) != 0 {
            return Ok(());
        }
        for seq in self.files()?.into_iter().filter(|seq| *seq >= found.first.seq) {
            // In a copy of a journal the segments may not be on the disk yet; after a boot this
            // costs nothing.
            self.env.sync_file(&segment::path(&self.dir, seq))?;
        }
        // Before the words that promise it: the power may be lost again in between. Records that
        // were cut off lie below the durable offset from now on, and count as never promised.
        self.env.sync_dir(&self.dir)?;
        control.set_power_loss(&found.power_loss(last_use));
        self.sync_control()?;
        control.set_durable(found.pos, found.end, last);
        if last != 0 {
            let (pos, end, time) = (found.pos, found.end, found.time.nanos());
            control.reset_checkpoints(Checkpoint { seq: last, pos, end, time });
        }
        Ok(())
    }

    /// Seals the last segment at the end of its records.
    fn seal_last(&self, found: &LogScan) -> Result<(), JournalError> {
        let opened = Segment::open(&self.dir, found.last, self.env.mode(), SegmentHold::Loose);
        let Some(last) = opened.ok().flatten() else { return Ok(()) };
        if matches!(last.sealed(), Ok(Some(_))) {
            return Ok(());
        }
        if last.sealed().is_err() {
            self.preserve_header(found.last)?;
        }
        last.forget_index(found.last_end.end);
        last.seal(Seal { closed: self.env.running_time(), ..found.last_end });
        Ok(())
    }

    /// Seals segments whose seal was lost: they end where the next one begins.
    fn restore_seals(&self, found: &LogScan) -> Result<(), JournalError> {
        for seq in self.files()?.into_iter().filter(|seq| *seq >= found.first.seq) {
            let next = segment::peek(&segment::path(&self.dir, seq + 1));
            let (Some(segment), Some(next)) = (self.segment(seq)?, next) else { continue };
            let inside = (segment.head.base_pos..=segment.head.end()).contains(&next.base_pos);
            let sealed = segment.sealed();
            if !matches!(sealed, Ok(Some(_))) && inside && next.seq == seq + 1 {
                if sealed.is_err() {
                    self.preserve_header(seq)?;
                }
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
        segment::files(&self.dir)
    }

    /// Removes segments that retention took, and whose removal did not reach the disk.
    fn remove_retired(&self, found: &LogScan) -> Result<(), JournalError> {
        let retired = |seq: &u64| found.first_is_certain && *seq < found.first.seq;
        for seq in self.files()?.into_iter().filter(retired) {
            let path = segment::path(&self.dir, seq);
            fs::remove_file(&path).at("remove", &path)?;
        }
        Ok(())
    }

    /// Removes unfinished and prepared files.
    fn remove_leftovers(&self) -> Result<(), JournalError> {
        for entry in fs::read_dir(&self.dir).at("list", &self.dir)? {
            let entry = entry.at("list", &self.dir)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(TEMPORARY_PREFIX) || name.starts_with("spare.") {
                fs::remove_file(entry.path()).at("remove", &entry.path())?;
            }
        }
        Ok(())
    }
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
        let (mut at, mut least, mut next) = (from, 0, None);
        while at < to {
            let Some(segment) = self.segment_from(at, least)? else { return Ok(()) };
            least = segment.head.seq + 1;
            // In a compacted segment, a position from before the compaction is no frame's start.
            at = if segment.head.compacted { segment.head.base_pos } else { at };
            at = at.max(segment.head.base_pos);
            if at == segment.head.base_pos {
                // What is missing before it does not count as missing in it.
                next = next.max(Some(segment.head.base_offset));
            }
            let (end, has_holes) = self.walk_end(&segment, at, to)?;
            let limit = end.min(to);
            while at < limit {
                match segment.check(at, limit, &mut scratch) {
                    Ok(header) => {
                        if at >= from {
                            each(at, &header, segment.body(at, &header, &scratch));
                        }
                        next = Some(header.offset + 1);
                        at += header.stride() as u64;
                    }
                    Err(_) if !has_holes => break,
                    Err(_) => at = segment.resume(at, limit, next).map_or(limit, |r| r.0),
                }
            }
            at = at.max(end);
        }
        Ok(())
    }

    /// Returns where the walk leaves a segment, and whether frames behind a hole in it count, as
    /// readers do: without a seal it ends at the latest where the next readable one begins.
    fn walk_end(&self, segment: &Segment, at: u64, to: u64) -> Result<(u64, bool), JournalError> {
        if let Ok(Some(seal)) = segment.sealed() {
            return Ok((seal.end, true));
        }
        let head = &segment.head;
        let next = self.segment_from(at, head.seq + 1)?.map(|next| next.head);
        let is_last = head.seq == self.segments().1 && to <= head.end();
        let is_followed = next.is_some_and(|next| next.seq == head.seq + 1);
        // A damaged seal may have hidden frames that a recovery had cut off.
        let has_holes = segment.is_open() || is_last || is_followed;
        Ok((next.map_or(to, |next| next.base_pos), has_holes))
    }

    /// Returns the log by this reader's own scan, if the journal was not recovered since.
    pub(crate) fn recovered_view(&self) -> Option<&LogScan> {
        let view = self.recovered_view.as_ref()?;
        let recovered = self.control.recovered().count != self.opened_at_recovery;
        (!recovered).then_some(view)
    }

    /// Returns the report of the last recovery, or what this reader's own scan has found.
    pub(crate) fn recovery(&self) -> RecoveryReport {
        let report = self.control.recovered();
        match self.recovered_view() {
            Some(view) => RecoveryReport { count: report.count, ..view.report() },
            None => report,
        }
    }

    /// Stores the number of recoveries of this partition at its opening.
    pub(crate) fn note_recoveries(&mut self) {
        self.opened_at_recovery = self.control.recovered().count;
    }
}
