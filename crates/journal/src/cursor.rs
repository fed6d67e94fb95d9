//! A position in a partition's log, and its moves over frames, segments, holes and damage.
//!
//! Constraints: every offset from the start on is returned once and in order, as a frame or in a
//! gap. Bytes at or above the committed tail are never read. Whatever the files contain, each step
//! either advances or returns [`CursorStep::Nothing`].

use std::sync::Arc;

use helio_core::Tai;

use crate::error::JournalError;
use crate::frame::FrameHeader;
use crate::partition::Partition;
use crate::segment::{FrameFault, Segment};

/// Bytes that are made present ahead of a sleeping reader.
const PREFAULT_BYTES: u64 = 64 << 10;

/// The cause of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapCause {
    /// Retention dropped them.
    Retention,
    /// Their bytes are damaged.
    Damaged,
    /// A power loss cut them off before they were durable.
    Cut,
}

/// Missing offsets of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first missing offset.
    pub from: u64,
    /// The first offset behind the gap.
    pub to: u64,
    /// The cause.
    pub cause: GapCause,
}

/// The result of a step.
pub(crate) enum CursorStep {
    /// A checked frame, at this position of the cursor's segment.
    Frame(u64, FrameHeader),
    Gap(Gap),
    Nothing,
}

/// A position in the log, with its segment.
pub(crate) struct Cursor {
    segment: Option<Arc<Segment>>,
    /// The next frame's position.
    pub(crate) pos: u64,
    /// The next frame's offset, as far as known.
    pub(crate) next: u64,
    /// The end of the known frames in this segment, and the offset behind it.
    limit: (u64, u64),
    /// Holes in compacted segments below this offset are not reported: they existed at the start.
    promised: u64,
    /// The position up to which pages were made present.
    warmed: u64,
    /// A gap to return before the next frame.
    pending: Option<Gap>,
    scratch: Vec<u8>,
}

impl Cursor {
    /// Behind the newest record.
    pub(crate) fn at_end(partition: &Partition) -> Self {
        let (pos, next) = partition.log_end();
        Self::at(pos, next)
    }

    /// At a known position.
    pub(crate) fn at(pos: u64, next: u64) -> Self {
        let (segment, pending, scratch) = (None, None, Vec::new());
        let (limit, promised, warmed) = ((pos, next), next, 0);
        Self { segment, pos, next, limit, promised, warmed, pending, scratch }
    }

    /// Before the frame at a position, or at the end.
    pub(crate) fn at_frame(partition: &Partition, pos: u64) -> Result<Self, JournalError> {
        let (tail, end) = partition.log_end();
        if pos >= tail {
            return Ok(Self::at(tail, end));
        }
        let Some(segment) = partition.segment_at(pos)? else { return Ok(Self::at(tail, end)) };
        let mut cursor = Self::at(pos.max(segment.head.base_pos), 0);
        let found = segment.check(cursor.pos, tail, &mut cursor.scratch);
        // If no frame can be read, the segment's start is the best estimate.
        let next = found.map_or(segment.head.base_offset, |header| header.offset);
        (cursor.next, cursor.promised) = (next, next);
        cursor.limit.1 = next;
        cursor.segment = Some(Arc::new(segment));
        Ok(cursor)
    }

    /// Returns whether an item is available without a new append.
    pub(crate) fn has_more(&self) -> bool {
        self.pending.is_some()
    }

    /// Makes the pages of the next frames present before the thread sleeps, so that it need not
    /// fault once it is woken.
    pub(crate) fn warm(&mut self) {
        let Some(segment) = &self.segment else { return };
        if self.pos + PREFAULT_BYTES / 2 > self.warmed
            || self.pos + 2 * PREFAULT_BYTES < self.warmed
        {
            segment.populate_read(self.pos, PREFAULT_BYTES);
            self.warmed = self.pos + PREFAULT_BYTES;
        }
    }

    /// Returns the body of the last step's frame.
    #[inline]
    pub(crate) fn body(&self, pos: u64, header: &FrameHeader) -> &[u8] {
        self.segment.as_ref().map_or(&[], |s| s.body(pos, header, &self.scratch))
    }

    /// Returns the segment of the last step's frame.
    pub(crate) fn segment(&self) -> Option<&Arc<Segment>> {
        self.segment.as_ref()
    }

    /// Moves to the oldest retained record.
    pub(crate) fn rewind(&mut self, partition: &Partition) -> Result<(), JournalError> {
        let first = partition.first();
        let found = partition.first_segment()?;
        let missing = match &found {
            Some(segment) => segment.head.base_offset > first.offset,
            None => partition.log_end().1 > first.offset,
        };
        if missing && partition.first() == first {
            // The oldest records are missing: reading from there on reports them.
            *self = Self::at(first.pos, first.offset);
            return Ok(());
        }
        let Some(segment) = found else {
            *self = Self::at_end(partition);
            return Ok(());
        };
        let head = segment.head;
        *self = Self::at(head.base_pos, head.base_offset);
        if let (true, Ok(Some(seal))) = (head.compacted, segment.sealed()) {
            self.promised = seal.offset;
        }
        self.segment = Some(Arc::new(segment));
        Ok(())
    }

    /// Moves to an offset; missing records from there on become a gap.
    pub(crate) fn seek_offset(
        &mut self,
        partition: &Partition,
        offset: u64,
    ) -> Result<(), JournalError> {
        *self = Self::at_end(partition);
        if offset > self.next {
            // The offset is behind the end: the records were cut off after power loss.
            let (from, to) = (self.next, offset);
            self.pending = Some(Gap { from, to, cause: GapCause::Cut });
        } else if offset < self.next {
            self.seek(partition, |o, _| o <= offset)?;
            self.skip_while(partition, |f| f.offset < offset)?;
            self.promised = offset;
            self.next = offset;
        }
        Ok(())
    }

    /// Moves to the first record with that time or a later one (by the latest time so far: a clock
    /// that was stepped back does not hide records). A record whose time was far ahead of the time
    /// of day, and still is later than all others, is skipped.
    pub(crate) fn seek_time(
        &mut self,
        partition: &Partition,
        time: Tai,
    ) -> Result<(), JournalError> {
        let (end, newest) = (partition.log_end().1, partition.newest_time());
        self.seek(partition, |_, t| t < time)?;
        let is_ahead = |f: &FrameHeader| f.offset < end && f.time > newest;
        self.skip_while(partition, |f| f.time < time || is_ahead(f))?;
        Ok(())
    }

    /// Moves to a frame at or before the first one for which `before` is false.
    fn seek(
        &mut self,
        partition: &Partition,
        before: impl Fn(u64, Tai) -> bool,
    ) -> Result<(), JournalError> {
        let found = partition.last_before(|head| before(head.base_offset, head.base_time))?;
        let Some(segment) = found else { return self.rewind(partition) };
        let pos = segment.seek(partition.log_end().0, before);
        *self = Self::at(pos, segment.head.base_offset);
        self.segment = Some(Arc::new(segment));
        Ok(())
    }

    fn skip_while(
        &mut self,
        partition: &Partition,
        skip: impl Fn(&FrameHeader) -> bool,
    ) -> Result<(), JournalError> {
        loop {
            let (pos, next) = (self.pos, self.next);
            match self.step(partition)? {
                CursorStep::Frame(at, header) if !skip(&header) => {
                    (self.pos, self.next) = (at, header.offset);
                    return Ok(());
                }
                CursorStep::Frame(..) => {}
                CursorStep::Gap(gap) if self.pos == pos && next == self.next => {
                    self.pending = Some(gap);
                    return Ok(());
                }
                CursorStep::Gap(_) => {}
                CursorStep::Nothing => return Ok(()),
            }
        }
    }

    /// Advances over the next frame or gap.
    #[inline]
    pub(crate) fn step(&mut self, partition: &Partition) -> Result<CursorStep, JournalError> {
        loop {
            if let Some(gap) = self.pending.take() {
                return Ok(CursorStep::Gap(gap));
            }
            if self.pos >= self.limit.0 {
                if !self.refresh(partition)? {
                    return Ok(CursorStep::Nothing);
                }
                continue;
            }
            let Some(segment) = &self.segment else { continue };
            match segment.check(self.pos, self.limit.0, &mut self.scratch) {
                Ok(header) => {
                    if header.offset == self.next || self.accept(partition, &header) {
                        let at = self.pos;
                        self.pos += header.stride() as u64;
                        self.next = header.offset + 1;
                        return Ok(CursorStep::Frame(at, header));
                    }
                }
                Err(FrameFault::Damaged) => self.skip_damage(),
                Err(FrameFault::Gone) => self.relocate(partition, 0)?,
            }
        }
    }

    /// Handles a frame whose offset is not the next one. Returns true if it is to be returned.
    #[cold]
    fn accept(&mut self, partition: &Partition, header: &FrameHeader) -> bool {
        if header.offset < self.next {
            self.pos += header.stride() as u64;
            return false;
        }
        let from = self.next.max(self.promised);
        self.next = header.offset;
        if from >= header.offset {
            return true;
        }
        let first = partition.first().seq;
        let dropped =
            |s: &Segment| s.head.compacted || s.head.base_pos == self.pos && s.head.seq <= first;
        let retention = self.segment.as_deref().is_some_and(dropped);
        let cause = if retention { GapCause::Retention } else { GapCause::Damaged };
        self.pending = Some(Gap { from, to: header.offset, cause });
        false
    }

    /// Skips damage: continues at the next valid frame that the index knows.
    #[cold]
    fn skip_damage(&mut self) {
        let segment = self.segment.as_ref();
        let resume = segment.and_then(|s| s.resume(self.pos, self.limit.0, Some(self.next)));
        let (pos, offset) = resume.unwrap_or(self.limit);
        self.pos = pos.max(self.pos + 8);
        self.lose(offset, GapCause::Damaged);
    }

    fn lose(&mut self, to: u64, cause: GapCause) {
        let from = self.next.max(self.promised);
        if to > from {
            self.pending = Some(Gap { from, to, cause });
        }
        self.next = self.next.max(to);
    }

    /// Updates the readable limit. Returns false at the end of the log.
    fn refresh(&mut self, partition: &Partition) -> Result<bool, JournalError> {
        partition.check_gone()?;
        let (tail, end) = partition.log_end();
        if self.pos >= tail {
            if self.pos > tail {
                self.return_to(tail, end);
            }
            return Ok(self.pending.is_some());
        }
        let Some(segment) = &self.segment else {
            self.relocate(partition, 0)?;
            return Ok(true);
        };
        match segment.sealed() {
            Ok(Some(seal)) if self.pos < seal.end => self.limit = (seal.end, seal.offset),
            Ok(Some(seal)) => {
                let next = segment.head.seq + 1;
                let dropped = segment.head.compacted;
                let cause = if dropped { GapCause::Retention } else { GapCause::Damaged };
                self.lose(seal.offset, cause);
                self.enter(partition, next)?;
            }
            Ok(None) if tail <= segment.head.end() => self.limit = (tail, end),
            // A damaged seal of the last segment: it is not closed, or the log ends with it.
            Err(FrameFault::Damaged)
                if segment.head.seq == partition.segments().1 && tail <= segment.head.end() =>
            {
                self.limit = (tail, end);
            }
            Err(FrameFault::Gone) => self.relocate(partition, 0)?,
            // The seal is damaged or missing: the next segment begins where this one ends.
            Ok(None) | Err(FrameFault::Damaged) => {
                let next = segment.head.seq + 1;
                match partition.segment(next)? {
                    Some(n) if self.pos < n.head.base_pos => {
                        self.limit = (n.head.base_pos, n.head.base_offset);
                    }
                    None if self.reads_on() => {}
                    _ => self.enter(partition, next)?,
                }
            }
        }
        Ok(true)
    }

    /// Updates the limit to the end of the next valid frames of a segment whose end is not known:
    /// its seal and the segment behind it are missing. Returns false if it has no further ones. A
    /// damaged seal may have hidden frames behind a hole, which a recovery had cut off and whose
    /// offsets were assigned again.
    #[cold]
    fn reads_on(&mut self) -> bool {
        let Some(segment) = &self.segment else { return false };
        let frames = segment.end_of_frames_from(self.pos, self.next);
        if frames.end > self.pos {
            self.limit = (frames.end, frames.offset);
            return true;
        }
        if !segment.is_open() {
            return false;
        }
        let resume = segment.resume(self.pos, segment.head.end(), Some(self.next));
        let Some((pos, offset)) = resume else { return false };
        (self.pos, self.limit) = (pos, (pos, offset));
        self.lose(offset, GapCause::Damaged);
        true
    }

    /// Moves back to the log's end, after recovery cut off what this reader has read or skipped.
    #[cold]
    fn return_to(&mut self, tail: u64, end: u64) {
        if self.next > end {
            self.pending = Some(Gap { from: end, to: self.next, cause: GapCause::Cut });
        }
        (self.pos, self.next, self.promised, self.segment) = (tail, end, end, None);
        self.limit = (tail, end);
    }

    /// Moves to a segment's start.
    fn enter(&mut self, partition: &Partition, seq: u64) -> Result<(), JournalError> {
        match partition.segment(seq)? {
            Some(segment) => {
                self.land(partition, segment);
                Ok(())
            }
            None => self.relocate(partition, seq + 1),
        }
    }

    fn land(&mut self, partition: &Partition, segment: Segment) {
        let head = segment.head;
        self.pos = self.pos.max(head.base_pos);
        if head.compacted {
            // Its frames may have any offsets: all are read, those before `next` are skipped.
            self.pos = head.base_pos;
        } else {
            let first = head.seq <= partition.first().seq;
            let cause = if first { GapCause::Retention } else { GapCause::Damaged };
            self.lose(head.base_offset, cause);
        }
        self.limit = (self.pos, self.next);
        self.segment = Some(Arc::new(segment));
    }

    /// Finds the segment of the position if the current one is gone, or there is none.
    #[cold]
    fn relocate(&mut self, partition: &Partition, least: u64) -> Result<(), JournalError> {
        partition.check_gone()?;
        self.segment = None;
        // If the next line fails, the next step searches again.
        self.limit = (self.pos, self.next);
        match partition.segment_from(self.pos, least)? {
            Some(segment) => self.land(partition, segment),
            // No valid segment is left: only the log's end is known.
            None => {
                let (tail, end) = partition.log_end();
                self.pos = tail;
                self.lose(end, GapCause::Damaged);
                self.limit = (self.pos, self.next);
            }
        }
        Ok(())
    }
}
