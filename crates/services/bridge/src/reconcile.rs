//! What a partition of the target has of the source, held against what the source hands out: a new
//! bridge reads its predecessor's last samples once more.
//!
//! What is there is passed over. What is not, though others behind it are, was refused and not
//! given again before that bridge was killed. And where the source has another sample at the place
//! of one that is there, its log was cut or made anew, and its offsets say nothing: it is read from
//! further back, each sample is known by itself only, and of those that are not known the ones that
//! are older than all that the target has are those of before.

use std::collections::BTreeMap;

use helio_bus::{ProducerName, Tai};

use crate::hops::Mark;
use crate::types::{ProducerSequence, SampleIdentity};

/// The most samples that are held against the source.
pub(crate) const MAX_COMPARED_SAMPLES: usize = 16_384;

/// What a sample of the source is to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleStatus {
    /// It was settled before.
    Stored,
    /// It is not there, and later ones are.
    Missing,
    /// Another one of this offset is there, or none was.
    Conflict,
    /// Of a log that is another one: it is newer than all that is there.
    New,
    /// Of a log that is another one: it is not, and was forwarded from the one before.
    Older,
}

/// Samples of the source that are on the target.
#[derive(Debug, Clone)]
pub(crate) struct Reconciler {
    stored: BTreeMap<u64, SampleIdentity>,
    /// All below was settled.
    low: u64,
    /// The first that was never given to the target.
    end: u64,
    /// Where it is read from.
    start: u64,
    /// When the newest of them was published; what is older was forwarded, or was not to be.
    newest_time: Option<Tai>,
    /// Whether a sample of the source is the one that is there.
    has_match: bool,
    /// The source's log is another one: its offsets say nothing.
    is_replaced: bool,
}

impl Reconciler {
    /// Nothing but a position, and the newest sample below it, or since when it begins there, where
    /// that is known.
    pub(crate) fn from_position(
        next: u64,
        last: Option<(u64, SampleIdentity)>,
        since: Option<Tai>,
    ) -> Self {
        let newest_time = last.as_ref().map(|(_, identity)| identity.time).or(since);
        let stored: BTreeMap<_, _> = last.into_iter().collect();
        let start = stored.keys().next().copied().unwrap_or(next);
        let (low, end, has_match, is_replaced) = (next, next, false, false);
        Self { stored, low, end, start, newest_time, has_match, is_replaced }
    }

    /// What samples say, newest first; none where there are none.
    pub(crate) fn from_samples(
        samples: impl IntoIterator<Item = (Mark, SampleIdentity)>,
    ) -> Option<Self> {
        let mut samples = samples.into_iter().peekable();
        let (newest, _) = *samples.peek().map(|(mark, identity)| (mark, identity)).as_ref()?;
        let Mark { low, high, .. } = *newest;
        let mut found = Self::from_position(low, None, None);
        for (mark, identity) in samples.take(MAX_COMPARED_SAMPLES) {
            found.newest_time = found.newest_time.max(Some(identity.time));
            // Of two with one offset the newer one is that of the log as it is now.
            found.stored.entry(mark.offset).or_insert(identity);
        }
        found.end = high + 1;
        found.start = found.newest_below();
        Some(found)
    }

    /// Where it is to be read from: with the newest that is there and before which all is settled.
    fn newest_below(&self) -> u64 {
        // What lies behind it is another log's.
        let below = self.stored.range(..self.end.min(self.low.saturating_add(1)));
        below.last().map_or(self.low, |(offset, _)| *offset)
    }

    /// With a position that was kept; of another log it says nothing.
    pub(crate) fn merge(mut self, kept: Self) -> Self {
        let same = |(at, identity)| self.stored.get(at).is_none_or(|stored| stored == identity);
        if !kept.stored.iter().all(same) {
            return self;
        }
        // What retention or compaction has taken out of the target since is settled.
        (self.low, self.end) = (self.low.max(kept.low), self.end.max(kept.end));
        self.newest_time = self.newest_time.max(kept.newest_time);
        self.stored.extend(kept.stored);
        self.start = self.newest_below();
        self
    }

    /// The newest that was given to the target.
    pub(crate) fn high(&self) -> Option<u64> {
        self.end.checked_sub(1).filter(|_| !self.stored.is_empty())
    }

    /// Whose samples are there.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = (&ProducerName, ProducerSequence)> {
        self.stored.values().map(|identity| (&identity.name, identity.sequence))
    }

    /// Where a log of the source from `first` to `end` is read from.
    pub(crate) fn start_offset(&mut self, first: u64, end: u64) -> u64 {
        if end < self.end && !self.is_replaced {
            // It has lost some, or is another one.
            self.rewind();
        }
        while self.start > end && self.start > 0 {
            self.rewind();
        }
        match self.start {
            start if start >= first => start,
            _ if first < self.end => first,
            // What was removed before it was forwarded is told as a gap.
            _ => self.end,
        }
    }

    /// Whether it says nothing of what comes from a position on.
    pub(crate) fn is_past(&self, next: u64) -> bool {
        next >= self.end
    }

    /// Whether the log is known to be another one.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// The log is another one. Begins further back: with the oldest that is remembered, then with
    /// the first there is.
    pub(crate) fn rewind(&mut self) {
        self.is_replaced = true;
        let oldest = self.stored.keys().next().copied().unwrap_or(0);
        self.start = if oldest < self.start { oldest } else { 0 };
    }

    /// What a sample of the source is; none behind all that the target has.
    pub(crate) fn check(&mut self, offset: u64, identity: &SampleIdentity) -> Option<SampleStatus> {
        if offset >= self.end {
            return None;
        }
        Some(match self.stored.get(&offset) {
            Some(stored) if stored == identity => {
                self.has_match = true;
                SampleStatus::Stored
            }
            Some(_) => SampleStatus::Conflict,
            None if self.is_replaced
                && self.newest_time.is_some_and(|newest_time| identity.time <= newest_time) =>
            {
                SampleStatus::Older
            }
            None if self.is_replaced => SampleStatus::New,
            None if offset >= self.low => SampleStatus::Missing,
            // If its log is another one, that shows at a later place, and it is read once more.
            None if self.stored.range(offset..).next().is_some() => SampleStatus::Stored,
            None => SampleStatus::Conflict,
        })
    }

    /// The source has another log from here on: whether it is read again, now that this is known.
    /// Otherwise it was.
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

    /// A sample that was published then, with that number.
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
        // What had come from the target lay between.
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
        // One sample is known only, or none and since when.
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
        // Behind the newest lie those of the log before.
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
