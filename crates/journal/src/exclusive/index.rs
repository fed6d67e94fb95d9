//! Where the records of an epoch lie: its segments, and a place every few kilobytes.
//!
//! Constraints: places are of frames that this process has checked. Each frame is checked again
//! when its records are read, but not where a lookup passes it by.
//!
//! Operation: a segment is read from its begin on as far as a lookup needs, once. The newest one is
//! read on from where the last lookup ended.

use std::sync::Arc;

use super::batch::{Batch, Kind};
use crate::JournalError;
use crate::frame::{self, FrameHeader};
use crate::partition::Partition;
use crate::pins::{PinnedBytes, PinnedSegment};

/// The bytes of frames that are passed by at most before the one that is sought begins.
const PLACE_INTERVAL_BYTES: u64 = 4096;

/// A checked frame.
pub(super) struct Place {
    segment: Arc<PinnedSegment>,
    pos: u64,
    /// The end of the frames that were checked.
    upto: u64,
    header: FrameHeader,
}

impl Place {
    /// Returns the frame at a position, whose checksum was right before.
    fn at(segment: &Arc<PinnedSegment>, pos: u64, upto: u64) -> Option<Self> {
        let header = segment.segment().check(pos, upto, &mut Vec::new()).ok()?;
        Some(Self { segment: Arc::clone(segment), pos, upto, header })
    }

    /// The same without a look at the checksum.
    fn passed(segment: &Arc<PinnedSegment>, pos: u64, upto: u64) -> Option<Self> {
        let header = segment.segment().checked(pos, upto)?;
        Some(Self { segment: Arc::clone(segment), pos, upto, header })
    }

    /// The frame's offset in the partition.
    pub(super) fn frame(&self) -> u64 {
        self.header.offset
    }

    /// The frame behind it; `None` at the end of what was checked.
    pub(super) fn next(&self) -> Option<Self> {
        let pos = self.pos + self.header.stride() as u64;
        if pos >= self.upto { None } else { Self::at(&self.segment, pos, self.upto) }
    }

    /// Its batch, if it has one; `Some(None)` for one that contradicts itself.
    pub(super) fn batch(&self) -> Option<Option<Batch<'_>>> {
        let is_batch = self.header.level == Kind::Batch as u8;
        is_batch.then(|| {
            let body = self.segment.segment().body(self.pos, &self.header, &[]);
            Batch::parse(frame::split(&self.header, body).payload)
        })
    }

    /// Keeps bytes of its batch.
    pub(super) fn pin(&self, record: &[u8]) -> Option<PinnedBytes> {
        self.segment.pin(record)
    }
}

/// A segment as far as it was read.
struct SegmentPlaces {
    segment: Arc<PinnedSegment>,
    /// Offset and position of frames with batches.
    places: Vec<(u64, u64)>,
    /// The frames up to here were checked.
    upto: u64,
    /// The offset of the next frame.
    frame: u64,
    /// The offset behind the last record; `None` before the first.
    end: Option<u64>,
    last: Option<Kind>,
}

impl SegmentPlaces {
    fn new(segment: Arc<PinnedSegment>) -> Self {
        let (upto, frame) = (segment.segment().head.base_pos, segment.segment().head.base_offset);
        Self { segment, places: Vec::new(), upto, frame, end: None, last: None }
    }

    fn seq(&self) -> u64 {
        self.segment.segment().head.seq
    }

    fn first(&self) -> Option<u64> {
        self.places.first().map(|place| place.0)
    }

    /// The end of its frames in a log that ends at `tail`.
    fn limit(&self, tail: u64) -> u64 {
        match self.segment.segment().sealed() {
            Ok(Some(seal)) => seal.end,
            _ => tail.min(self.segment.segment().head.end()),
        }
    }

    /// Reads one frame on; returns false at the end, or at a hole.
    fn step(&mut self, tail: u64) -> bool {
        let limit = self.limit(tail);
        if self.upto >= limit {
            return false;
        }
        let Some(place) = Place::at(&self.segment, self.upto, limit) else { return false };
        if place.frame() != self.frame {
            return false;
        }
        match place.batch() {
            None => {
                let end = place.header.level == Kind::End as u8;
                self.last = Some(if end { Kind::End } else { Kind::Begin });
            }
            Some(Some(batch)) if self.end.is_none_or(|end| batch.first == end) => {
                let due = |last: &(u64, u64)| self.upto - last.1 >= PLACE_INTERVAL_BYTES;
                if self.places.last().is_none_or(due) {
                    self.places.push((batch.first, self.upto));
                }
                (self.end, self.last) = (Some(batch.end()), Some(Kind::Batch));
            }
            Some(_) => return false,
        }
        self.upto += place.header.stride() as u64;
        self.frame += 1;
        true
    }

    /// Whether it has been read to its seal.
    fn is_whole(&self) -> bool {
        self.segment.segment().sealed().is_ok_and(|seal| {
            seal.is_some_and(|seal| self.upto >= seal.end && self.frame == seal.offset)
        })
    }
}

/// How much of an epoch is read when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All, up to the first hole.
    Whole,
    /// The first record of each segment, and the newest segment with records.
    Newest,
}

/// The segments of an epoch that are known, in order and without a gap.
#[derive(Default)]
pub(super) struct Index {
    segments: Vec<SegmentPlaces>,
    opened: bool,
}

impl Index {
    /// Opens the segments: all, or the newest that has records.
    pub(super) fn open(
        &mut self,
        partition: &Partition,
        extent: Extent,
    ) -> Result<(), JournalError> {
        if self.opened {
            return Ok(());
        }
        self.opened = true;
        let whole = extent == Extent::Whole;
        let (first, last) = partition.segments();
        let tail = partition.tail();
        for seq in first..=last {
            let Some(segment) = partition.segment(seq)? else { break };
            let mut places = SegmentPlaces::new(PinnedSegment::unlimited(segment));
            let begins = self.segments.last().is_none_or(|last| last.seq() + 1 == seq);
            if !begins {
                break;
            }
            // Its first record, with which lookups find it.
            while places.first().is_none() && places.step(tail) {}
            while whole && places.step(tail) {}
            let is_hole = whole && seq < last && !places.is_whole();
            self.segments.push(places);
            if is_hole {
                return Ok(());
            }
        }
        if !whole && let Some(newest) = self.segments.iter().rposition(|s| s.first().is_some()) {
            self.segments[newest..].iter_mut().for_each(|places| while places.step(tail) {});
        }
        Ok(())
    }

    /// Reads the newest segments on to the end of the log.
    pub(super) fn extend(&mut self, partition: &Partition) -> Result<(), JournalError> {
        self.open(partition, Extent::Newest)?;
        loop {
            let tail = partition.tail();
            let Some(newest) = self.segments.last_mut() else {
                self.opened = false;
                return Ok(());
            };
            while newest.step(tail) {}
            let next = newest.seq() + 1;
            if !newest.is_whole() || next > partition.segments().1 {
                return Ok(());
            }
            let Some(segment) = partition.segment(next)? else { return Ok(()) };
            let mut places = SegmentPlaces::new(PinnedSegment::unlimited(segment));
            places.end = self.end();
            self.segments.push(places);
        }
    }

    /// The offset of the oldest record.
    pub(super) fn first(&self) -> Option<u64> {
        self.segments.iter().find_map(SegmentPlaces::first)
    }

    /// The offset behind the newest record.
    pub(super) fn end(&self) -> Option<u64> {
        self.segments.iter().rev().find_map(|places| places.end)
    }

    /// What the newest frame is.
    pub(super) fn last_kind(&self) -> Option<Kind> {
        self.segments.iter().rev().find_map(|places| places.last)
    }

    /// The offset behind the records of the frames below one; `None` if it is not known.
    pub(super) fn records_below(&self, frame: u64) -> Option<u64> {
        let behind =
            self.segments.iter().rev().find(|s| s.segment.segment().head.base_offset < frame);
        let Some(places) = behind else { return Some(0) };
        if places.frame < frame {
            return None;
        }
        let mut found = places.first();
        let mut place =
            Place::at(&places.segment, places.segment.segment().head.base_pos, places.upto);
        while let Some(here) = place.filter(|here| here.frame() < frame) {
            found = here.batch().flatten().map(|batch| batch.end()).or(found);
            place = here.next();
        }
        // Without a batch up to there, everything before it was in older segments.
        found.or_else(|| self.segments.iter().rev().find_map(|s| s.end)).or(Some(0))
    }

    /// Finds the frame at or shortly before the one with a record.
    pub(super) fn find(
        &mut self,
        partition: &Partition,
        offset: u64,
    ) -> Result<Option<Place>, JournalError> {
        self.open(partition, Extent::Newest)?;
        if self.end().is_none_or(|end| offset >= end) {
            self.extend(partition)?;
        }
        let tail = partition.tail();
        let known = self.segments.iter_mut().rev();
        let mut known = known.skip_while(|s| s.first().is_none_or(|first| first > offset));
        let Some(places) = known.next() else { return Ok(None) };
        while places.end.is_none_or(|end| end <= offset) {
            if !places.step(tail) {
                return Ok(None);
            }
        }
        let at = places.places.partition_point(|place| place.0 <= offset);
        let Some((_, mut pos)) = at.checked_sub(1).map(|at| places.places[at]) else {
            return Ok(None);
        };
        // Passes by the frames before it.
        loop {
            let place = Place::passed(&places.segment, pos, places.upto);
            let Some(place) = place else { return Ok(None) };
            match place.batch() {
                Some(Some(batch)) if batch.end() > offset => {
                    return Ok(Place::at(&places.segment, pos, places.upto));
                }
                _ => pos += place.header.stride() as u64,
            }
        }
    }

    /// Forgets the segments before one. The caller drops them without a lock that readers need: a
    /// removed file's blocks are freed with its last map, which takes time.
    #[must_use]
    pub(super) fn forget(&mut self, first: u64) -> Vec<Arc<PinnedSegment>> {
        let forgotten = self.segments.extract_if(.., |places| places.seq() < first);
        forgotten.map(|places| places.segment).collect()
    }
}
