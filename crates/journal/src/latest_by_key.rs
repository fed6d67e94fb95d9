//! The newest records of each key, for a reader that joins late: looked up, put in order, read in
//! place.
//!
//! Operation: the keys index names the newest record of each key, complete up to a position; each
//! frame names its key's frame before it. All places are sorted, which is the order of offsets too,
//! and read one by one; then the reader goes on behind that position, so that nothing comes twice
//! and nothing is missing.

use std::collections::VecDeque;

use crate::cursor::{Gap, GapCause};
use crate::error::JournalError;
use crate::frame::{self, FrameHeader};
use crate::hash::KeyHash;
use crate::partition::Partition;
use crate::segment::{FrameFault, Segment};

/// Places yet to be read.
pub(crate) struct LatestByKey {
    places: VecDeque<IndexedRecord>,
    upto: u64,
    at: SegmentAccess,
}

/// Where one of a key's newest records lay when the index was read.
#[derive(Clone, Copy)]
struct IndexedRecord {
    pos: u64,
    hash: KeyHash,
    /// Whether it was the newest of all.
    newest: bool,
}

/// A segment at hand, for reading frames at any position.
#[derive(Default)]
struct SegmentAccess {
    segment: Option<Segment>,
    scratch: Vec<u8>,
}

/// What a pick turned out to be.
pub(crate) enum LatestStep {
    Frame(u64, FrameHeader),
    Gap(Gap),
}

impl SegmentAccess {
    /// Checks the frame at a position, wherever that is.
    fn check(
        &mut self,
        partition: &Partition,
        pos: u64,
        limit: u64,
    ) -> Result<Result<FrameHeader, FrameFault>, JournalError> {
        let holds = |s: &Segment| (s.head.base_pos..s.head.end()).contains(&pos) && s.is_live();
        let held = self.segment.as_ref().is_some_and(holds);
        // The next segment's first frame lies within this one's capacity too.
        let ended = |s: &Segment| matches!(s.sealed(), Ok(Some(seal)) if pos >= seal.end);
        if !held || self.segment.as_ref().is_some_and(ended) {
            self.segment = partition.segment_at(pos)?;
        }
        let mut found = self.look(pos, limit);
        if found.is_err() && held {
            // A seal may be missing: then the place looks as if it were in the segment before.
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
    /// The places of the newest `n` records of each key.
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

    /// The position behind which the reader goes on.
    pub(crate) fn upto(&self) -> u64 {
        self.upto
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn body(&self, pos: u64, header: &FrameHeader) -> &[u8] {
        self.at.body(pos, header)
    }

    /// The next pick; `None` when all have been read.
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

    /// Finds out what became of a record that is not in its place any more. A gap where it is lost.
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
            // Compaction has moved it, and the index knows where to.
            Some(pos) if pos < self.upto && pos != entry.pos => {
                self.places.push_front(IndexedRecord { pos, ..entry });
                Ok(None)
            }
            // A newer one has come: it is read behind the picks.
            Some(pos) if pos >= self.upto => Ok(None),
            // Compaction keeps the newest of a key only.
            None if compacted && !entry.newest => Ok(None),
            _ if gone || entry.pos < partition.control.first_pos() => Ok(None),
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

    /// A pick that is damaged: what offset it had is not known any more, so the rest of the picks
    /// is.
    fn gap(&self) -> Option<Gap> {
        let from = self.at.segment.as_ref().map(|s| s.head.base_offset)?;
        Some(Gap { from, to: from + 1, cause: GapCause::Damaged })
    }
}

/// Whether the index's places can be true. Each is looked at closely when it is read.
fn all_inside(partition: &Partition, last: &[(KeyHash, u64)], upto: u64) -> bool {
    let (tail, first) = (partition.log_end().0, partition.control.first_pos());
    upto <= tail && last.iter().all(|(_, pos)| *pos >= first && *pos < tail)
}

/// Follows a key's frames back from its newest.
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
        if header.link == 0 || header.link >= pos || header.link < partition.control.first_pos() {
            return Ok(());
        }
        pos = header.link;
    }
    Ok(())
}
