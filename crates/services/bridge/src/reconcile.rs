//! Compares a partition of the source with its forwarded samples on the target, after a restart or
//! a failure.
//!
//! A sample that the target has is skipped. One that it lacks, although it has later ones, was
//! refused and not sent again before the previous bridge was killed.
//!
//! Where the source has another sample at the offset of a forwarded one, its log was truncated or
//! recreated, and offsets prove nothing. The source is then read from further back, and each sample
//! is compared by its identity alone. A sample without a match that is not newer than all forwarded
//! ones is taken as forwarded from the old log.

use std::collections::BTreeMap;
use std::ops::Range;

use helio_bus::{ProducerName, Tai};

use crate::hops::Mark;
use crate::types::{ProducerSequence, SampleIdentity};

/// The most samples that are compared with the source.
pub(crate) const MAX_COMPARED_SAMPLES: usize = 16_384;

/// The target's knowledge of a sample of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleStatus {
    /// It is settled.
    Stored,
    /// The target lacks it and has later ones.
    Missing,
    /// The target has another sample of this offset, or there was none.
    Conflict,
    /// The source was replaced, and the sample is newer than all forwarded ones.
    New,
    /// The source was replaced, and the sample is not newer: it was forwarded from the old log.
    Older,
    /// The source was replaced by another log, and the sample lies below the position in the former
    /// one. It was forwarded if the target has its sequence.
    BelowPosition,
}

/// The forwarded samples of a partition, and the state of the comparison.
#[derive(Debug, Clone)]
pub(crate) struct Reconciler {
    stored: BTreeMap<u64, SampleIdentity>,
    /// All samples below this offset are settled.
    low: u64,
    /// The first offset that was never sent to the target.
    end: u64,
    /// The offset from which the source is read.
    start: u64,
    /// When the newest forwarded sample was published. Older samples were forwarded, or excluded.
    newest_time: Option<Tai>,
    /// Whether a sample of the source has matched.
    has_match: bool,
    /// The source's log was truncated or recreated, so its offsets prove nothing.
    is_replaced: bool,
    /// The offsets at which the source is another log, up to the position in the former one; below
    /// them it is the same one.
    other: Option<Range<u64>>,
}

impl Reconciler {
    /// From a position, and if known the newest sample below it, or the time at which the partition
    /// begins there.
    pub(crate) fn from_position(
        next: u64,
        last: Option<(u64, SampleIdentity)>,
        since: Option<Tai>,
    ) -> Self {
        let newest_time = last.as_ref().map(|(_, identity)| identity.time).or(since);
        let stored: BTreeMap<_, _> = last.into_iter().collect();
        let start = stored.keys().next().copied().unwrap_or(next);
        let (low, end, has_match, is_replaced) = (next, next, false, false);
        let other = None;
        Self { stored, low, end, start, newest_time, has_match, is_replaced, other }
    }

    /// From forwarded samples, newest first; none if there are none.
    pub(crate) fn from_samples(
        samples: impl IntoIterator<Item = (Mark, SampleIdentity)>,
    ) -> Option<Self> {
        let mut samples = samples.into_iter().peekable();
        let (newest, _) = *samples.peek().map(|(mark, identity)| (mark, identity)).as_ref()?;
        let Mark { low, high, .. } = *newest;
        let mut found = Self::from_position(low, None, None);
        for (mark, identity) in samples.take(MAX_COMPARED_SAMPLES) {
            found.newest_time = found.newest_time.max(Some(identity.time));
            // Of two samples with one offset, the newer one is of the current log.
            found.stored.entry(mark.offset).or_insert(identity);
        }
        found.end = high + 1;
        found.start = found.newest_below();
        Some(found)
    }

    /// The newest forwarded offset below which all are settled.
    fn newest_below(&self) -> u64 {
        // Offsets beyond `end` are of another log.
        let below = self.stored.range(..self.end.min(self.low.saturating_add(1)));
        below.last().map_or(self.low, |(offset, _)| *offset)
    }

    /// Adds a checkpoint, unless it is of another log.
    pub(crate) fn merge(mut self, kept: Self) -> Self {
        let same = |(at, identity)| self.stored.get(at).is_none_or(|stored| stored == identity);
        if !kept.stored.iter().all(same) {
            return self;
        }
        // Forwarded samples that retention or compaction has removed since are settled.
        (self.low, self.end) = (self.low.max(kept.low), self.end.max(kept.end));
        self.newest_time = self.newest_time.max(kept.newest_time);
        self.stored.extend(kept.stored);
        self.start = self.newest_below();
        self
    }

    /// The newest offset that was sent to the target.
    pub(crate) fn high(&self) -> Option<u64> {
        self.end.checked_sub(1).filter(|_| !self.stored.is_empty())
    }

    /// The sequences of the forwarded samples.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = (&ProducerName, ProducerSequence)> {
        self.stored.values().map(|identity| (&identity.name, identity.sequence))
    }

    /// The offset from which a source that ranges from `first` to `end` is read.
    pub(crate) fn start_offset(&mut self, first: u64, end: u64) -> u64 {
        if end < self.end && !self.is_replaced {
            // It was truncated or recreated.
            self.rewind();
        }
        while self.start > end && self.start > 0 {
            self.rewind();
        }
        match self.start {
            start if start >= first => start,
            _ if first < self.end => first,
            // Samples that were removed before they were forwarded are reported as a gap.
            _ => self.end,
        }
    }

    /// The first offset that was never sent to the target.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The source is another log from an offset on: its samples up to `end` were never forwarded,
    /// but for those that are the forwarded ones. Those that were published before the partition
    /// begins here stay excluded.
    pub(crate) fn another_log_from(&mut self, offset: u64, end: u64) {
        self.is_replaced = true;
        if self.stored.is_empty() && self.newest_time.is_some() {
            self.start = self.start.min(offset);
            return;
        }
        let below = self.stored.range(..offset.min(self.low.saturating_add(1)));
        self.start = below.last().map_or(self.low.min(offset), |(offset, _)| *offset);
        (self.other, self.end) = (Some(offset..self.end), self.end.max(end));
    }

    /// Whether it knows nothing from an offset on.
    pub(crate) fn is_past(&self, next: u64) -> bool {
        next >= self.end
    }

    /// Whether the source's log is known to be replaced.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// Marks the log as replaced, and starts further back: at the oldest known sample, then at the
    /// first.
    pub(crate) fn rewind(&mut self) {
        self.is_replaced = true;
        let oldest = self.stored.keys().next().copied().unwrap_or(0);
        self.start = if oldest < self.start { oldest } else { 0 };
    }

    /// The status of a sample of the source; none beyond all that was sent.
    pub(crate) fn check(&mut self, offset: u64, identity: &SampleIdentity) -> Option<SampleStatus> {
        if offset >= self.end {
            return None;
        }
        let in_other = self.other.as_ref().is_some_and(|other| offset >= other.start);
        let is_below = self.other.as_ref().is_some_and(|other| other.contains(&offset));
        let is_replaced = self.is_replaced && self.other.is_none();
        Some(match self.stored.get(&offset) {
            Some(stored) if stored == identity => {
                self.has_match = true;
                SampleStatus::Stored
            }
            _ if is_below => SampleStatus::BelowPosition,
            _ if in_other => SampleStatus::New,
            Some(_) => SampleStatus::Conflict,
            None if is_replaced
                && self.newest_time.is_some_and(|newest_time| identity.time <= newest_time) =>
            {
                SampleStatus::Older
            }
            None if is_replaced => SampleStatus::New,
            None if offset >= self.low => SampleStatus::Missing,
            // If the log was replaced, a later offset conflicts, and this one is read again.
            None if self.stored.range(offset..).next().is_some() => SampleStatus::Stored,
            None => SampleStatus::Conflict,
        })
    }

    /// Records a conflict. Returns whether the source is to be read again from further back.
    pub(crate) fn log_differs(&mut self) -> bool {
        let again = !self.is_replaced || (!self.has_match && self.start > 0);
        if again && !self.has_match {
            self.rewind();
        }
        self.is_replaced = true;
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::AnonymousProducer;

    /// A sample with this sequence, published at this time.
    fn identity(number: u64) -> SampleIdentity {
        by("Mount", number)
    }

    fn by(name: &str, number: u64) -> SampleIdentity {
        let time = Tai::from_nanos(number.try_into().unwrap());
        SampleIdentity::new(
            &ProducerName::new(name).unwrap(),
            ProducerSequence { incarnation: 1, number },
            time,
            &AnonymousProducer::new("kafka-x.", "kafka"),
        )
    }

    fn found(offsets: impl IntoIterator<Item = u64>) -> Reconciler {
        Reconciler::from_samples(offsets.into_iter().map(|at| (Mark::alone(at), identity(at))))
            .unwrap()
    }

    fn mark(offset: u64, low: u64) -> Mark {
        Mark { offset, low, high: offset }
    }

    #[test]
    fn what_was_settled_is_passed_and_what_is_missing_is_seen() {
        let samples = [(14, 11), (13, 11), (12, 11), (10, 10)];
        let samples = samples.map(|(offset, low)| (mark(offset, low), identity(offset)));
        let mut found = Reconciler::from_samples(samples).unwrap();
        assert_eq!(found.start_offset(0, 20), 10);
        let verdicts: Vec<_> = (10..16).map(|at| found.check(at, &identity(at))).collect();
        let stored = Some(SampleStatus::Stored);
        assert_eq!(verdicts, [stored, Some(SampleStatus::Missing), stored, stored, stored, None]);
    }

    #[test]
    fn another_log_is_forwarded_from_its_beginning_whatever_the_clocks_say() {
        let mut found = found([13, 12, 11, 10]);
        found.another_log_from(12, 20);
        assert_eq!(found.start_offset(0, 20), 11);
        let new = |at| by("New", at);
        assert_eq!(found.check(11, &identity(11)), Some(SampleStatus::Stored));
        // Older than all that was forwarded.
        assert_eq!(found.check(12, &new(1)), Some(SampleStatus::BelowPosition));
        assert_eq!(
            found.check(13, &identity(13)),
            Some(SampleStatus::Stored),
            "it was restored, too"
        );
        assert_eq!(found.check(19, &new(2)), Some(SampleStatus::New));
        assert_eq!(found.check(20, &new(3)), None);
    }

    #[test]
    fn what_was_published_before_the_partition_begins_stays_excluded_in_another_log() {
        let mut found = Reconciler::from_position(30, None, Some(Tai::from_nanos(5)));
        found.another_log_from(20, 50);
        assert_eq!(found.start_offset(0, 50), 20);
        assert_eq!(found.check(20, &identity(4)), Some(SampleStatus::Older));
        assert_eq!(found.check(21, &identity(6)), Some(SampleStatus::New));
    }

    #[test]
    fn a_log_that_was_cut_is_gone_on_with_where_it_was_cut() {
        let mut found = found((0..20).rev());
        assert_eq!(found.start_offset(0, 25), 19);
        assert_eq!(found.check(19, &identity(99)), Some(SampleStatus::Conflict));
        assert!(found.log_differs(), "it is read from further back");
        assert_eq!(found.start_offset(0, 25), 0);
        assert_eq!(found.check(14, &identity(14)), Some(SampleStatus::Stored));
        assert_eq!(found.check(15, &identity(90)), Some(SampleStatus::Conflict));
        assert!(!found.log_differs(), "here it was cut");
    }

    #[test]
    fn of_a_log_that_was_cut_nothing_is_passed_for_its_place() {
        // Samples from the target lay between.
        let mut found = found([18, 14, 12, 10]);
        assert_eq!(found.start_offset(0, 40), 18);
        assert_eq!(found.check(18, &by("New", 98)), Some(SampleStatus::Conflict));
        assert!(found.log_differs());
        assert_eq!(found.start_offset(0, 40), 10);
        let mut check = |at, identity: &SampleIdentity| found.check(at, identity);
        assert_eq!(check(10, &identity(10)), Some(SampleStatus::Stored));
        assert_eq!(
            check(11, &by("Other", 11)),
            Some(SampleStatus::Older),
            "from before it was cut"
        );
        assert_eq!(check(12, &identity(12)), Some(SampleStatus::Stored));
        assert_eq!(check(13, &by("New", 93)), Some(SampleStatus::New));
        assert_eq!(check(14, &by("New", 94)), Some(SampleStatus::Conflict));
        assert!(!found.log_differs(), "it is not read once more");
        assert_eq!(found.check(15, &by("New", 95)), Some(SampleStatus::New));
    }

    #[test]
    fn what_was_passed_for_its_place_is_looked_at_again_where_the_log_differs() {
        let samples = [(18, 14), (10, 10)];
        let samples = samples.map(|(at, low)| (Mark { offset: at, low, high: at }, identity(at)));
        let mut found = Reconciler::from_samples(samples).unwrap();
        assert_eq!(found.start_offset(0, 40), 10);
        assert_eq!(found.check(10, &identity(10)), Some(SampleStatus::Stored));
        assert_eq!(found.check(11, &by("New", 91)), Some(SampleStatus::Stored));
        assert_eq!(found.check(18, &by("New", 98)), Some(SampleStatus::Conflict));
        assert!(found.log_differs());
        assert_eq!(found.start_offset(0, 40), 10);
        assert_eq!(found.check(11, &by("New", 91)), Some(SampleStatus::New));
    }

    #[test]
    fn of_a_log_that_lost_its_end_what_is_old_is_not_new() {
        // Either one sample is known, or only the time of the beginning.
        let last = Reconciler::from_position(20, Some((19, identity(19))), None);
        let since = Reconciler::from_position(20, None, Some(Tai::from_nanos(19)));
        for mut found in [last, since] {
            assert_eq!(found.start_offset(0, 15), 0);
            assert_eq!(found.check(0, &by("Other", 5)), Some(SampleStatus::Older));
            assert_eq!(found.check(14, &by("Other", 20)), Some(SampleStatus::New));
            assert_eq!(found.check(20, &by("Other", 21)), None);
        }
    }

    #[test]
    fn where_nothing_was_is_another_log() {
        let mut found = Reconciler::from_position(20, Some((15, identity(15))), None);
        assert_eq!(found.start_offset(0, 40), 15);
        assert_eq!(found.check(15, &identity(15)), Some(SampleStatus::Stored));
        assert_eq!(found.check(16, &by("New", 90)), Some(SampleStatus::Conflict));
        assert!(found.log_differs());
        assert_eq!(found.check(16, &by("New", 90)), Some(SampleStatus::New));
    }

    #[test]
    fn what_older_bridges_called_otherwise_is_the_same() {
        let new = by("kafka", 7);
        assert_eq!(new.name.as_str(), "kafka-x.");
        let mut old = by("kafka-x.", 3);
        assert_ne!(new, old);
        old.time = new.time;
        assert_eq!(new, old, "the bridge has numbered it");
        let mut other = by("Mount", 3);
        other.time = by("Mount", 7).time;
        assert_ne!(by("Mount", 7), other);
    }

    #[test]
    fn what_retention_took_is_no_reason_to_begin_anew() {
        let mut found = found((0..20).rev());
        assert_eq!(found.start_offset(30, 40), 20, "the gap is told from here");
        let kept = |at| Reconciler::from_position(at + 1, Some((at, identity(at))), None);
        assert_eq!(found.clone().merge(kept(24)).start_offset(0, 40), 24);
        assert_eq!(found.clone().merge(kept(14)).start_offset(0, 40), 19);
        let other = Reconciler::from_position(30, Some((12, by("Other", 12))), None);
        assert_eq!(found.merge(other).start_offset(0, 40), 19, "it is of another log");
        // Higher offsets are of the old log.
        let samples = [4, 3, 2, 1, 0, 9, 8, 7, 6, 5].map(|at| (Mark::alone(at), identity(at)));
        let found = Reconciler::from_samples(samples).unwrap();
        assert_eq!(found.merge(kept(4)).start_offset(0, 40), 4);
    }

    #[test]
    fn what_compaction_took_is_not_missing_behind_an_orderly_end() {
        let samples = [(18, 10), (10, 10)];
        let samples = samples.map(|(at, low)| (Mark { offset: at, low, high: at }, identity(at)));
        let found = Reconciler::from_samples(samples).unwrap();
        assert_eq!(found.clone().check(14, &identity(14)), Some(SampleStatus::Missing));
        let mut found = found.merge(Reconciler::from_position(19, Some((18, identity(18))), None));
        assert_eq!(found.start_offset(0, 40), 18);
        assert_eq!(found.check(14, &identity(14)), Some(SampleStatus::Stored));
    }
}
