//! The newest records of each key, for late joiners: found by the index, sorted, read in place.
//!
//! Operation: the keys index has the position of each key's newest record, complete up to a
//! position. Each frame links to the same key's frame before it. All positions are sorted, which is
//! also the order of offsets, and read one by one. Then the reader continues at the index's
//! position, so no record is repeated or missing.

use std::collections::VecDeque;

use crate::cursor::{Gap, GapCause};
use crate::error::JournalError;
use crate::frame::{self, FrameHeader};
use crate::hash::KeyHash;
use crate::keys::DELETED;
use crate::partition::Partition;
use crate::segment::{FrameFault, Segment};

/// The positions that are not read yet.
pub(crate) struct LatestByKey {
    places: VecDeque<IndexedRecord>,
    upto: u64,
    at: SegmentAccess,
}

/// The position of one of a key's newest records when the index was read.
#[derive(Clone, Copy)]
struct IndexedRecord {
    pos: u64,
    hash: KeyHash,
    /// Whether it was the key's newest one.
    newest: bool,
}

/// An open segment, for reading frames at any position.
#[derive(Default)]
struct SegmentAccess {
    segment: Option<Segment>,
    scratch: Vec<u8>,
}

/// The next of the newest records, or a gap in its place.
pub(crate) enum LatestStep {
    Frame(u64, FrameHeader),
    Gap(Gap),
}

impl SegmentAccess {
    /// Checks the frame at a position, in any segment.
    fn check(
        &mut self,
        partition: &Partition,
        pos: u64,
        limit: u64,
    ) -> Result<Result<FrameHeader, FrameFault>, JournalError> {
        let holds = |s: &Segment| (s.head.base_pos..s.head.end()).contains(&pos) && s.is_live();
        let held = self.segment.as_ref().is_some_and(holds);
        // The next segment's first position may lie within this one's capacity.
        let ended = |s: &Segment| matches!(s.sealed(), Ok(Some(seal)) if pos >= seal.end);
        if !held || self.segment.as_ref().is_some_and(ended) {
            self.segment = partition.segment_at(pos)?;
        }
        let mut found = self.look(pos, limit);
        if found.is_err() && held {
            // A seal may be missing: then the position seems to lie in the segment before.
            self.segment = partition.segment_at(pos)?;
            found = self.look(pos, limit);
        }
        Ok(found)
    }

    fn look(&mut self, pos: u64, limit: u64) -> Result<FrameHeader, FrameFault> {
        let Some(segment) = &self.segment else { return Err(FrameFault::Gone) };
        segment.check(pos, limit, &mut self.scratch)
    }

    fn body(&self, pos: u64, header: &FrameHeader) -> &[u8] {
        self.segment.as_ref().map_or(&[], |s| s.body(pos, header, &self.scratch))
    }
}

impl LatestByKey {
    /// Finds the newest `n` records of each key.
    pub(crate) fn collect(partition: &Partition, n: usize) -> Result<Self, JournalError> {
        let indexed = match partition.last_values()? {
            Some((last, upto)) if all_inside(partition, &last, upto) => Some((last, upto)),
            _ => None,
        };
        let place =
            |(hash, pos): &(KeyHash, u64)| IndexedRecord { pos: *pos, hash: *hash, newest: true };
        let (mut places, upto) = match indexed {
            Some((last, upto)) => {
                let mut places: Vec<_> = last.iter().map(place).collect();
                if n > 1 {
                    for (hash, pos) in last {
                        chain(partition, hash, pos, n - 1, upto, &mut places)?;
                    }
                }
                (places, upto)
            }
            None => {
                let (last, upto) = partition.scan_last_values(n)?;
                (last.iter().map(place).collect(), upto)
            }
        };
        places.sort_unstable_by_key(|place| place.pos);
        if n == 0 {
            places.clear();
        }
        Ok(Self { places: places.into(), upto, at: SegmentAccess::default() })
    }

    /// Returns the position at which the reader continues.
    pub(crate) fn upto(&self) -> u64 {
        self.upto
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn body(&self, pos: u64, header: &FrameHeader) -> &[u8] {
        self.at.body(pos, header)
    }

    /// Returns the next record; `None` when all have been read.
    pub(crate) fn next(
        &mut self,
        partition: &Partition,
    ) -> Result<Option<LatestStep>, JournalError> {
        while let Some(entry) = self.places.pop_front() {
            match self.at.check(partition, entry.pos, self.upto)? {
                Ok(header) if self.has_key(partition, entry.pos, &header, entry.hash) => {
                    return Ok(Some(LatestStep::Frame(entry.pos, header)));
                }
                found => {
                    let gone = matches!(found, Err(FrameFault::Gone));
                    if let Some(gap) = self.missed(partition, entry, gone)? {
                        return Ok(Some(LatestStep::Gap(gap)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Handles a record that is not at its position any more. Returns a gap if it is lost.
    #[cold]
    fn missed(
        &mut self,
        partition: &Partition,
        entry: IndexedRecord,
        gone: bool,
    ) -> Result<Option<Gap>, JournalError> {
        let compacted = self.at.segment.as_ref().is_some_and(|s| s.head.compacted);
        let kept = if entry.newest { partition.moved(entry.hash)? } else { None };
        match kept {
            // A null has deleted it: it is read from the log.
            Some(DELETED) => Ok(None),
            // Compaction has moved it, and the index has the new position.
            Some(pos) if pos < self.upto && pos != entry.pos => {
                self.places.push_front(IndexedRecord { pos, ..entry });
                Ok(None)
            }
            // A newer one was appended: it is read from the log.
            Some(pos) if pos >= self.upto => Ok(None),
            // Compaction retains only the newest of a key.
            None if compacted && !entry.newest => Ok(None),
            _ if gone || entry.pos < partition.first().pos => Ok(None),
            _ => Ok(self.gap()),
        }
    }

    fn has_key(
        &self,
        partition: &Partition,
        pos: u64,
        header: &FrameHeader,
        hash: KeyHash,
    ) -> bool {
        let key = frame::split(header, self.at.body(pos, header)).key;
        partition.hash(key) == hash
    }

    /// Returns a gap for a damaged record. Its offset is unknown, so the gap is at its segment's
    /// start.
    fn gap(&self) -> Option<Gap> {
        let from = self.at.segment.as_ref().map(|s| s.head.base_offset)?;
        Some(Gap { from, to: from + 1, cause: GapCause::Damaged })
    }
}

/// Returns whether the index's positions are plausible. Each is checked when it is read.
fn all_inside(partition: &Partition, last: &[(KeyHash, u64)], upto: u64) -> bool {
    let (tail, first) = (partition.log_end().0, partition.first().pos);
    upto <= tail && last.iter().all(|(_, pos)| *pos >= first && *pos < tail)
}

/// Follows a key's links back from its newest frame.
fn chain(
    partition: &Partition,
    hash: KeyHash,
    newest: u64,
    more: usize,
    upto: u64,
    out: &mut Vec<IndexedRecord>,
) -> Result<(), JournalError> {
    let mut place = SegmentAccess::default();
    let mut pos = newest;
    for step in 0..=more {
        let Ok(header) = place.check(partition, pos, upto)? else { return Ok(()) };
        let key = frame::split(&header, place.body(pos, &header)).key;
        if partition.hash(key) != hash {
            return Ok(());
        }
        if step > 0 {
            out.push(IndexedRecord { pos, hash, newest: false });
        }
        if header.link == 0 || header.link >= pos || header.link < partition.first().pos {
            return Ok(());
        }
        pos = header.link;
    }
    Ok(())
}
