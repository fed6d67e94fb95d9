//! What a partition's files prove: where its log begins and ends, and which records are missing.
//!
//! Constraints: nothing is changed here, and nothing is believed without its checksum. The end
//! never lies before an offset that any checksum proves: such an offset was given to a record, and
//! must not be given to another one. Records in between that cannot be read are *missing*.
//!
//! Operation: the beginning is on record, or a compacted segment's. From there on segments follow
//! each other by number; a sealed one ends at its seal, one that is followed ends where the next
//! begins. Only in the last one frames are checked, from the newest checkpoint on. The log ends at
//! the first invalid frame, unless a proof lies behind it: then the scan goes on behind the damage.

use std::ops::Range;

use helio_core::Tai;

use crate::JournalError;
use crate::control::{Beginning, FIRST_POS, PowerLoss, RecoveryReport};
use crate::error::IoContext;
use crate::partition::Partition;
use crate::segment::{self, Head, Seal, Segment};

/// The contents of a partition's files.
#[derive(Debug, Clone)]
pub(crate) struct LogScan {
    /// The first segment, and whether it is certain that those before it are retired.
    pub first: Beginning,
    pub first_is_certain: bool,
    /// The offset below which retention has left records out.
    pub whole_from: u64,
    /// The highest number of a segment that is or was there.
    pub seq: u64,
    /// The last readable segment, 0 for none, and the end of its records.
    pub last: u64,
    pub last_end: Seal,
    last_is_sealed: bool,
    /// The end of the log.
    pub pos: u64,
    pub end: u64,
    pub time: Tai,
    /// Records that were promised and cannot be read.
    pub missing: u64,
    pub missing_from: u64,
    /// Records that were not durable, and went with the power.
    pub cut: u64,
    /// The first of them.
    cut_from: Option<u64>,
    /// The offset below which records were promised, but for those that a recovery has cut off.
    promised: u64,
    loss_before: PowerLoss,
}

/// When the control page was last used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastUse {
    /// Stored records are there.
    ThisBoot,
    /// Under another boot, or as another file: durable records are there.
    Before,
}

/// The highest place in the log that any checksum proves.
#[derive(Debug, Clone, Copy, Default)]
struct Proof {
    end: u64,
    pos: u64,
    seq: u64,
}

impl Proof {
    fn add(&mut self, end: u64, pos: u64, seq: u64) {
        self.end = self.end.max(end);
        self.pos = self.pos.max(pos);
        self.seq = self.seq.max(seq);
    }
}

impl LogScan {
    /// Moves on to a place that is proven; records in between are missing.
    fn reach(&mut self, pos: u64, end: u64) {
        if end > self.end {
            self.lose(self.end..end);
        }
        self.skip_to(pos, end);
    }

    /// Counts offsets whose records are not there.
    fn lose(&mut self, lost: Range<u64>) {
        let before = &self.loss_before.cut;
        let promised = self.promised.clamp(lost.start, lost.end);
        // Promised, but for what a former recovery has cut off.
        let (from, to) = (before.start.max(lost.start), before.end.min(promised));
        let cut_before = to.saturating_sub(from);
        let missing = promised - lost.start - cut_before;
        if missing > 0 && self.missing == 0 {
            let is_behind = cut_before > 0 && from == lost.start;
            self.missing_from = if is_behind { to } else { lost.start };
        }
        self.missing += missing;
        if missing < lost.end - lost.start {
            self.cut_from.get_or_insert(if cut_before > 0 { from } else { promised });
        }
        self.cut += lost.end - lost.start - missing;
    }

    /// Returns the power loss that this scan has found; the former one if there was none since.
    pub(crate) fn power_loss(&self, last_use: LastUse) -> PowerLoss {
        let before = &self.loss_before;
        let durable = if self.promised == u64::MAX { 0 } else { self.promised };
        let is_same = durable == before.cut.end && durable > 0;
        if last_use == LastUse::ThisBoot || (durable == self.end && !is_same) {
            return before.clone();
        }
        // A recovery of the same power loss may have been interrupted.
        let durable = if is_same { before.durable } else { durable };
        let before = Some(before.cut.start).filter(|_| is_same && !before.cut.is_empty());
        let from = self.cut_from.into_iter().chain(before).min().unwrap_or(self.end);
        PowerLoss { durable, cut: from..self.end }
    }

    /// Moves on without a loss, or over one that a former recovery has reported.
    fn skip_to(&mut self, pos: u64, end: u64) {
        (self.pos, self.end) = (self.pos.max(pos), self.end.max(end));
    }

    /// Returns what is missing.
    pub(crate) fn report(&self) -> RecoveryReport {
        let Self { missing, missing_from, cut, .. } = *self;
        RecoveryReport { count: 0, missing, missing_from, cut }
    }

    /// Whether the last segment's file cannot be the one that the next record follows.
    pub(crate) fn ends_behind_its_files(&self) -> bool {
        self.seq != self.last || self.pos != self.last_end.end
    }
}

impl Partition {
    /// Finds out what the files prove, without changing any.
    pub(crate) fn scan(&self, last_use: LastUse) -> Result<LogScan, JournalError> {
        let files = self.files()?;
        let segments = self.readable(&files)?;
        let (first, first_is_certain) = self.scan_beginning(&files, &segments);
        let proof = self.proof(&segments);
        let time = Tai::from_nanos(i64::MIN);
        let mut found = LogScan {
            first,
            first_is_certain,
            whole_from: first.offset,
            seq: files.last().copied().unwrap_or(0).max(proof.seq).max(first.seq.saturating_sub(1)),
            last: 0,
            last_is_sealed: false,
            last_end: Seal { end: first.pos, offset: first.offset, time, closed: 0 },
            pos: first.pos,
            end: first.offset,
            time,
            missing: 0,
            missing_from: 0,
            cut: 0,
            cut_from: None,
            promised: self.promised(last_use),
            loss_before: self.control.power_loss(),
        };
        let kept = segments.partition_point(|head| head.seq < first.seq);
        for (i, head) in segments.iter().enumerate().skip(kept) {
            if head.base_offset < found.end || head.base_pos < found.pos {
                // It contradicts those before it.
                continue;
            }
            let Some(segment) = self.segment(head.seq)? else { continue };
            if head.seq == found.last + 1 && found.last_is_sealed {
                found.skip_to(head.base_pos, head.base_offset);
            } else {
                found.reach(head.base_pos, head.base_offset);
            }
            found.time = found.time.max(head.base_time);
            self.scan_segment(&segment, segments.get(i + 1), proof, &mut found);
        }
        self.reach_proof(proof, &files, &mut found)?;
        Ok(found)
    }

    /// Returns the headers of the segments that can be opened, in order.
    fn readable(&self, files: &[u64]) -> Result<Vec<Head>, JournalError> {
        let mut heads = Vec::new();
        for seq in files {
            heads.extend(self.segment(*seq)?.map(|segment| segment.head));
        }
        Ok(heads)
    }

    /// Returns where the log begins, and whether everything before is certainly retired.
    fn scan_beginning(&self, files: &[u64], segments: &[Head]) -> (Beginning, bool) {
        let begin = |h: &Head| Beginning { seq: h.seq, pos: h.base_pos, offset: h.base_offset };
        let record = self.control.beginning();
        let compacted = segments.iter().rev().find(|head| head.compacted).map(begin);
        match (record, compacted) {
            (record, Some(found)) if record.is_none_or(|r| found.seq >= r.seq) => (found, true),
            (Some(record), _) => (record, true),
            // A journal of an older version has no record. Where the words fit a segment, they are
            // right; otherwise all files count. In one of this version there is none before the
            // first sync, and nothing was retired.
            (None, _) => {
                let old = segments.first().filter(|head| !head.has_running_time());
                let (control, oldest) = (&self.control, old.map(begin));
                let (seq, offset) = (control.first_seq(), control.first_offset());
                let words = Beginning { seq, pos: control.first_pos(), offset };
                let fits = segments.iter().any(|head| begin(head) == words);
                let fresh = Beginning { seq: 1, pos: FIRST_POS, offset: 0 };
                match (oldest, files.first()) {
                    _ if fits => (words, true),
                    (Some(oldest), Some(file)) if oldest.seq == *file => (oldest, false),
                    (Some(_), Some(file)) => (Beginning { seq: *file, ..fresh }, false),
                    _ => (fresh, false),
                }
            }
        }
    }

    /// Returns the offset below which records were promised to survive. Without any word about it,
    /// all were.
    fn promised(&self, last_use: LastUse) -> u64 {
        let durable = self.control.checkpoints().map(|c| c.end).max();
        let durable = durable.unwrap_or(0).max(self.control.durable().1);
        let known = self.control.durable() != (0, 0, 0) || durable > 0;
        if last_use == LastUse::Before && known { durable } else { u64::MAX }
    }

    /// Collects all proofs: the words of the control page and the segments' headers and seals.
    fn proof(&self, segments: &[Head]) -> Proof {
        let (control, mut proof) = (&self.control, Proof::default());
        proof.add(0, FIRST_POS, 0);
        control.checkpoints().for_each(|c| proof.add(c.end, c.pos, c.seq));
        let (pos, end, seq) = control.durable();
        proof.add(end, pos, seq);
        control.committed().for_each(|(pos, end)| proof.add(end, pos, 0));
        control.floor().into_iter().for_each(|(end, pos)| proof.add(end, pos, 0));
        for head in segments {
            proof.add(head.base_offset, head.base_pos, head.seq);
        }
        proof
    }

    /// Advances `found` over a segment's records.
    fn scan_segment(
        &self,
        segment: &Segment,
        next: Option<&Head>,
        proof: Proof,
        found: &mut LogScan,
    ) {
        let head = &segment.head;
        let follows = |next: &&Head| {
            next.seq == head.seq + 1
                && (head.base_pos..=head.end()).contains(&next.base_pos)
                && (next.prev_id == head.id || head.compacted)
        };
        let seal = segment.sealed().ok().flatten();
        found.last_is_sealed = seal.is_some();
        let known = seal.or_else(|| {
            let next = next.filter(follows)?;
            let (offset, time) = (next.base_offset, next.base_time);
            Some(Seal { end: next.base_pos, offset, time, closed: 0 })
        });
        match known {
            Some(seal) => {
                (found.pos, found.end) = (seal.end, found.end.max(seal.offset));
                found.time = found.time.max(seal.time);
            }
            None => {
                let upto = next.map_or(proof.end, |next| next.base_offset);
                self.scan_frames(segment, upto, found);
            }
        }
        if head.compacted {
            found.whole_from = found.end;
        }
        found.last = head.seq;
        let (end, offset, time) = (found.pos, found.end, found.time);
        found.last_end = Seal { end, offset, time, closed: 0 };
    }

    /// Advances `found` over a segment's valid frames, and over damage before a proven offset.
    fn scan_frames(&self, segment: &Segment, proven: u64, found: &mut LogScan) {
        let head = &segment.head;
        let inside = |pos: u64| (head.base_pos..=head.end()).contains(&pos);
        let of_it = |c: &crate::control::Checkpoint| c.seq == head.seq && inside(c.pos);
        if let Some(c) = self.control.checkpoints().find(of_it).filter(|_| !head.compacted) {
            (found.pos, found.end) = (c.pos, found.end.max(c.end));
            found.time = found.time.max(Tai::from_nanos(c.time));
        }
        let (limit, mut scratch) = (head.end(), Vec::new());
        loop {
            let header = match segment.check(found.pos, limit, &mut scratch) {
                Ok(header) if header.offset >= found.end => header,
                _ if found.end >= proven => return,
                _ => match segment.resume(found.pos, limit, Some(found.end)) {
                    Some((pos, offset)) if offset <= proven => {
                        found.reach(pos, offset);
                        continue;
                    }
                    _ => return,
                },
            };
            if header.offset > found.end && !head.compacted {
                if header.offset > proven {
                    return;
                }
                found.reach(found.pos, header.offset);
            }
            found.pos += header.stride() as u64;
            found.end = header.offset + 1;
            if self.env.is_plausible(header.time) {
                found.time = found.time.max(header.time);
            }
        }
    }

    /// Moves the end behind everything that is proven, and behind files that cannot be read: a
    /// position belongs to one segment.
    fn reach_proof(
        &self,
        proof: Proof,
        files: &[u64],
        found: &mut LogScan,
    ) -> Result<(), JournalError> {
        let mut pos = proof.pos;
        for seq in files.iter().filter(|seq| **seq > found.last) {
            let path = segment::path(&self.dir, *seq);
            let len = std::fs::metadata(&path).at("look at", &path)?.len();
            pos = pos.max(found.pos) + len / 8 * 8;
        }
        found.reach(pos, proof.end);
        // Damage at the very end of the last segment is within it.
        if let Some(segment) = self.segment(found.last)?
            && found.seq == found.last
            && found.pos <= segment.head.end()
            && segment.sealed().ok().flatten().is_none()
        {
            found.last_end.end = found.pos;
            found.last_end.offset = found.end;
        }
        Ok(())
    }
}
