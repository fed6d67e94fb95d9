//! A place in a partition's log, and how it moves: over frames, segments, holes and damage.
//!
//! Constraints: every offset from the start on comes out once and in order, as a frame or in a gap.
//! Bytes at or above the committed tail are never looked at. Whatever the files hold, each step
//! either moves on or says that there is nothing.

use helio_core::Tai;

use crate::error::JournalError;
use crate::frame::FrameHeader;
use crate::partition::Partition;
use crate::segment::{FrameFault, Segment};

/// How far ahead of a sleeping reader pages are made present.
const PREFAULT_BYTES: u64 = 64 << 10;

/// Why a reader did not get records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapCause {
    /// They were older, or more, than the topic keeps.
    Retention,
    /// Their bytes are damaged.
    Damaged,
    /// They were lost with the power, before they were durable.
    Cut,
}

/// Offsets that a reader does not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first missing offset.
    pub from: u64,
    /// The first offset behind the gap.
    pub to: u64,
    /// Why.
    pub cause: GapCause,
}

/// What a step found.
pub(crate) enum CursorStep {
    /// A checked frame, at this position of the cursor's segment.
    Frame(u64, FrameHeader),
    Gap(Gap),
    Nothing,
}

/// A position in the log, with what is known around it.
pub(crate) struct Cursor {
    segment: Option<Segment>,
    /// The next frame's position.
    pub(crate) pos: u64,
    /// The next frame's offset, as far as it is known.
    pub(crate) next: u64,
    /// Up to here frames are known to lie in this segment, and the offset of what follows.
    limit: (u64, u64),
    /// Holes in compacted segments below this offset are nobody's loss: they were there at the
    /// start.
    promised: u64,
    /// Up to here pages were made present before they were needed.
    warmed: u64,
    /// A gap to tell before going on.
    pending: Option<Gap>,
    scratch: Vec<u8>,
}

impl Cursor {
    /// Behind the newest record.
    pub(crate) fn at_end(partition: &Partition) -> Self {
        let (pos, next) = partition.log_end();
        Self::at(pos, next)
    }

    /// At a known place.
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
        // Where no frame can be read, the segment's start is the best that is known.
        let next = found.map_or(segment.head.base_offset, |header| header.offset);
        (cursor.next, cursor.promised) = (next, next);
        cursor.limit.1 = next;
        cursor.segment = Some(segment);
        Ok(cursor)
    }

    /// Whether something is left that needs no new append.
    pub(crate) fn has_more(&self) -> bool {
        self.pending.is_some()
    }

    /// Makes the pages present in which the next frames will lie, before the thread goes to sleep:
    /// when it is woken, someone waits for it.
    pub(crate) fn warm(&mut self) {
        let Some(segment) = &self.segment else { return };
        if self.pos + PREFAULT_BYTES / 2 > self.warmed
            || self.pos + 2 * PREFAULT_BYTES < self.warmed
        {
            segment.populate_read(self.pos, PREFAULT_BYTES);
            self.warmed = self.pos + PREFAULT_BYTES;
        }
    }

    /// The body of the frame that the last step found.
    #[inline]
    pub(crate) fn body(&self, pos: u64, header: &FrameHeader) -> &[u8] {
        self.segment.as_ref().map_or(&[], |s| s.body(pos, header, &self.scratch))
    }

    /// Goes to the oldest record that is kept.
    pub(crate) fn rewind(&mut self, partition: &Partition) -> Result<(), JournalError> {
        let Some(segment) = partition.first_segment()? else {
            *self = Self::at_end(partition);
            return Ok(());
        };
        let head = segment.head;
        *self = Self::at(head.base_pos, head.base_offset);
        if let (true, Ok(Some(seal))) = (head.compacted, segment.sealed()) {
            self.promised = seal.offset;
        }
        self.segment = Some(segment);
        Ok(())
    }

    /// Goes to an offset; what is no longer there is told as a gap.
    pub(crate) fn seek_offset(
        &mut self,
        partition: &Partition,
        offset: u64,
    ) -> Result<(), JournalError> {
        *self = Self::at_end(partition);
        if offset > self.next {
            // Someone remembers more than there is: it was cut off after power loss.
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

    /// Goes to the first record of that time or later (by the latest time so far: a clock that was
    /// stepped back does not hide records).
    pub(crate) fn seek_time(
        &mut self,
        partition: &Partition,
        time: Tai,
    ) -> Result<(), JournalError> {
        self.seek(partition, |_, t| t < time)?;
        self.skip_while(partition, |f| f.time < time)?;
        Ok(())
    }

    /// Goes to a frame that is at or before the first one for which `before` does not hold.
    fn seek(
        &mut self,
        partition: &Partition,
        before: impl Fn(u64, Tai) -> bool,
    ) -> Result<(), JournalError> {
        let (mut low, mut high) = partition.segments();
        let mut found: Option<Segment> = None;
        while low <= high {
            let middle = low + (high - low) / 2;
            match partition.segment(middle)? {
                Some(s) if before(s.head.base_offset, s.head.base_time) => {
                    low = middle + 1;
                    found = Some(s);
                }
                // Not there: it was retired meanwhile, and so was everything before it.
                None => low = middle + 1,
                Some(_) => high = middle - 1,
            }
        }
        let Some(segment) = found else { return self.rewind(partition) };
        let pos = segment.seek(partition.log_end().0, before);
        *self = Self::at(pos, segment.head.base_offset);
        self.segment = Some(segment);
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

    /// Moves over the next frame or gap.
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

    /// Looks at a frame whose offset is not the next one. True where it is to be given.
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
        let first = partition.control.first_seq();
        let dropped =
            |s: &Segment| s.head.compacted || s.head.base_pos == self.pos && s.head.seq <= first;
        let retention = self.segment.as_ref().is_some_and(dropped);
        let cause = if retention { GapCause::Retention } else { GapCause::Damaged };
        self.pending = Some(Gap { from, to: header.offset, cause });
        false
    }

    /// Goes on behind a place where no valid frame lies.
    #[cold]
    fn skip_damage(&mut self) {
        let resume = self.segment.as_ref().and_then(|s| s.resume(self.pos, self.limit.0));
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

    /// Finds out how far one may read. False where there is nothing.
    fn refresh(&mut self, partition: &Partition) -> Result<bool, JournalError> {
        let (tail, end) = partition.log_end();
        if self.pos >= tail {
            return Ok(false);
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
            Err(FrameFault::Gone) => self.relocate(partition, 0)?,
            // The seal is damaged or missing: the next segment tells where this one ends.
            Ok(None) | Err(FrameFault::Damaged) => {
                let next = segment.head.seq + 1;
                match partition.segment(next)? {
                    Some(n) if self.pos < n.head.base_pos => {
                        self.limit = (n.head.base_pos, n.head.base_offset);
                    }
                    _ => self.enter(partition, next)?,
                }
            }
        }
        Ok(true)
    }

    /// Goes to a segment's start.
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
            // Frames may lie anywhere in it: all are looked at, those before `next` are passed
            // over.
            self.pos = head.base_pos;
        } else {
            let first = head.seq <= partition.control.first_seq();
            let cause = if first { GapCause::Retention } else { GapCause::Damaged };
            self.lose(head.base_offset, cause);
        }
        self.limit = (self.pos, self.next);
        self.segment = Some(segment);
    }

    /// Finds the segment in which to go on, when the one at hand is gone or none is.
    #[cold]
    fn relocate(&mut self, partition: &Partition, least: u64) -> Result<(), JournalError> {
        self.segment = None;
        // Where the next line fails, the next step finds its place anew.
        self.limit = (self.pos, self.next);
        match partition.segment_from(self.pos, least)? {
            Some(segment) => self.land(partition, segment),
            // Nothing valid is left there: all that is known is where the log ends.
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
