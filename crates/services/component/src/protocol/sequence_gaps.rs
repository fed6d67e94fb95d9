//! Loss detection by the writers' own sequence numbers, for samples that the bus does not number.
//!
//! Constraints. SAL's writers number the samples of each topic and instance from 1 to 2^31 - 1 and
//! wrap. They identify themselves by a name and a process. A process that restarts with the same
//! process number (as usual in containers) begins at 1: lower numbers with a later send time are a
//! restart, not a loss. Memory is bounded: [`MAX_WRITERS`], [`MAX_GAPS`].
//!
//! Operation. For each writer, the highest number and the gaps below it are stored. A number ahead
//! creates a gap. A number within a gap is late and cancels its loss. Any other number that is not
//! ahead is a repetition. If the missing numbers have another explanation (a gap that the bus has
//! reported and counted), a jump is not a loss.

use std::collections::VecDeque;

/// The most writers that are tracked; beyond it the least recently active one is forgotten. A topic
/// has one writer per instance, and a new one at each restart.
pub const MAX_WRITERS: usize = 256;
/// The most gaps of a writer that are tracked; a late sample of an older gap counts as repeated,
/// and its loss remains.
pub const MAX_GAPS: usize = 32;
/// The longest gap: four days at 50 Hz. A longer jump is a writer that begins at a random number,
/// as SAL's callers do.
pub const MAX_GAP_LENGTH: i64 = 1 << 24;

/// The largest number; 1 follows it.
const MAX_NUMBER: i64 = i32::MAX as i64;

/// The identity of a writer, from SAL's private fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterKey<'a> {
    /// `private_identity`.
    pub identity: &'a str,
    /// `private_origin`: the process.
    pub origin: i32,
    /// `salIndex`; 0 if there is none.
    pub index: i32,
}

/// A sample's number and send time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SequenceSample {
    /// `private_seqNum`; numbers that are not positive are ignored.
    pub number: i32,
    /// `private_sndStamp`: seconds by the writer's clock, to detect restarts.
    pub sent_s: f64,
}

/// The meaning of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The first of its writer, the successor of the last, or the first after a restart.
    InOrder,
    /// The samples from `first` up to this one are missing.
    AfterGap {
        /// The first missing number.
        first: i32,
        /// The number of missing samples.
        lost: u64,
    },
    /// It was missing until now: the loss decreases by one.
    Late,
    /// It was received before.
    Repeated,
}

/// The counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SequenceStats {
    /// Samples that have not arrived.
    pub lost: u64,
    /// Samples that arrived after later ones of their writer.
    pub late: u64,
    /// Samples that were received before.
    pub repeated: u64,
}

/// Tracks the sequence numbers of one topic's writers.
#[derive(Debug, Clone, Default)]
pub struct SequenceTracker {
    /// Most recently active first.
    writers: VecDeque<WriterState>,
    /// Increases when a jump of all numbers has an explanation.
    epoch: u64,
    stats: SequenceStats,
}

#[derive(Debug, Clone)]
struct WriterState {
    identity: String,
    origin: i32,
    index: i32,
    last: SequenceSample,
    epoch: u64,
    gaps: VecDeque<SequenceGap>,
}

/// Missing numbers; they may wrap.
#[derive(Debug, Clone, Copy)]
struct SequenceGap {
    first: i64,
    length: i64,
}

impl SequenceTracker {
    /// Processes a sample.
    pub fn note(&mut self, of: WriterKey<'_>, sample: SequenceSample) -> Arrival {
        if sample.number <= 0 {
            return Arrival::InOrder;
        }
        let epoch = self.epoch;
        let Some(writer) = self.writer(of) else {
            self.remember(of, sample);
            return Arrival::InOrder;
        };
        let explained = writer.epoch != epoch;
        let arrival = writer.note(sample, explained);
        writer.epoch = epoch;
        match arrival {
            Arrival::InOrder => {}
            Arrival::AfterGap { lost, .. } => self.stats.lost += lost,
            Arrival::Late => {
                self.stats.lost -= 1;
                self.stats.late += 1;
            }
            Arrival::Repeated => self.stats.repeated += 1,
        }
        arrival
    }

    /// Marks missing numbers as explained: the next number of each writer is accepted without a
    /// loss.
    pub fn explain(&mut self) {
        self.epoch += 1;
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> SequenceStats {
        self.stats
    }

    fn writer(&mut self, of: WriterKey<'_>) -> Option<&mut WriterState> {
        let place = self.writers.iter().position(|writer| writer.is(of))?;
        if let Some(writer) = (place > 0).then(|| self.writers.remove(place)).flatten() {
            self.writers.push_front(writer);
        }
        self.writers.front_mut()
    }

    fn remember(&mut self, of: WriterKey<'_>, last: SequenceSample) {
        self.writers.truncate(MAX_WRITERS - 1);
        let (identity, gaps) = (of.identity.to_owned(), VecDeque::new());
        let (origin, index, epoch) = (of.origin, of.index, self.epoch);
        self.writers.push_front(WriterState { identity, origin, index, last, epoch, gaps });
    }
}

impl WriterState {
    fn is(&self, of: WriterKey<'_>) -> bool {
        self.origin == of.origin && self.index == of.index && self.identity == of.identity
    }

    fn note(&mut self, sample: SequenceSample, explained: bool) -> Arrival {
        let number = i64::from(sample.number);
        let ahead = distance(i64::from(self.last.number), number);
        if (1..=MAX_GAP_LENGTH + 1).contains(&ahead) {
            let first = after(i64::from(self.last.number), 1);
            self.last = sample;
            if ahead == 1 || explained {
                return Arrival::InOrder;
            }
            let gap = SequenceGap { first, length: ahead - 1 };
            self.keep([gap]);
            // Both fit the range of the numbers.
            return Arrival::AfterGap { first: first as i32, lost: gap.length as u64 };
        }
        if sample.sent_s > self.last.sent_s {
            self.last = sample;
            self.gaps.clear();
            return Arrival::InOrder;
        }
        if self.fill(number) { Arrival::Late } else { Arrival::Repeated }
    }

    /// Removes a number from its gap.
    fn fill(&mut self, number: i64) -> bool {
        let within = |gap: &SequenceGap| distance(gap.first, number) < gap.length;
        let Some(place) = self.gaps.iter().position(within) else { return false };
        let Some(gap) = self.gaps.remove(place) else { return false };
        let before = distance(gap.first, number);
        let rest = SequenceGap { first: after(number, 1), length: gap.length - before - 1 };
        self.keep([SequenceGap { length: before, ..gap }, rest]);
        true
    }

    fn keep<const N: usize>(&mut self, gaps: [SequenceGap; N]) {
        self.gaps.extend(gaps.into_iter().filter(|gap| gap.length > 0));
        let too_many = self.gaps.len().saturating_sub(MAX_GAPS);
        self.gaps.drain(..too_many);
    }
}

/// The distance from one number to another, with wrapping.
fn distance(from: i64, to: i64) -> i64 {
    (to - from).rem_euclid(MAX_NUMBER)
}

/// The number at a distance, with wrapping.
fn after(number: i64, by: i64) -> i64 {
    (number - 1 + by).rem_euclid(MAX_NUMBER) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use Arrival::{InOrder, Late, Repeated};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const ALICE: WriterKey<'_> = WriterKey { identity: "Test", origin: 7, index: 0 };

    fn at(number: i32, sent_s: f64) -> SequenceSample {
        SequenceSample { number, sent_s }
    }

    fn gap(first: i32, lost: u64) -> Arrival {
        Arrival::AfterGap { first, lost }
    }

    /// Each number is sent a second after the one before it.
    fn told(numbers: &mut SequenceTracker, all: &[(i32, f64, Arrival)]) {
        for (number, sent_s, arrival) in all {
            assert_eq!(numbers.note(ALICE, at(*number, *sent_s)), *arrival, "{number}");
        }
    }

    #[test]
    fn holes_are_counted_until_they_are_filled() {
        let mut numbers = SequenceTracker::default();
        told(
            &mut numbers,
            &[
                (5, 5.0, InOrder),
                (6, 6.0, InOrder),
                (10, 10.0, gap(7, 3)),
                (8, 8.0, Late),
                (8, 8.0, Repeated),
                (10, 10.0, Repeated),
                (6, 6.0, Repeated),
                (11, 11.0, InOrder),
                (7, 7.0, Late),
                (13, 13.0, gap(12, 1)),
            ],
        );
        assert_eq!(numbers.stats(), SequenceStats { lost: 2, late: 2, repeated: 3 });
    }

    #[test]
    fn numbers_go_round() {
        let mut numbers = SequenceTracker::default();
        let last = i32::MAX;
        told(
            &mut numbers,
            &[
                (last - 2, 0.0, InOrder),
                (last - 1, 1.0, InOrder),
                (2, 4.0, gap(last, 2)),
                (1, 3.0, Late),
                (last - 1, 1.0, Repeated),
                (last, 2.0, Late),
                (3, 5.0, InOrder),
            ],
        );
        assert_eq!(numbers.stats(), SequenceStats { lost: 0, late: 2, repeated: 1 });
    }

    #[test]
    fn a_new_beginning_loses_nothing() {
        let mut numbers = SequenceTracker::default();
        told(
            &mut numbers,
            &[
                (500, 500.0, InOrder),
                (502, 502.0, gap(501, 1)),
                // The same process number: lower, and sent later.
                (1, 600.0, InOrder),
                (2, 601.0, InOrder),
                (4, 603.0, gap(3, 1)),
                // Restarted immediately, with the same number.
                (4, 700.0, InOrder),
                // A random start, as callers have.
                (2_000_000_000, 800.0, InOrder),
                (1_000, 900.0, InOrder),
            ],
        );
        assert_eq!(numbers.stats(), SequenceStats { lost: 2, late: 0, repeated: 0 });
    }

    #[test]
    fn writers_are_told_apart() {
        let mut numbers = SequenceTracker::default();
        for of in [
            ALICE,
            WriterKey { identity: "Tests", ..ALICE },
            WriterKey { origin: 8, ..ALICE },
            WriterKey { index: 1, ..ALICE },
        ] {
            assert_eq!(numbers.note(of, at(10, 10.0)), InOrder);
            assert_eq!(numbers.note(of, at(12, 12.0)), gap(11, 1));
        }
        assert_eq!(numbers.stats().lost, 4);
    }

    #[test]
    fn what_is_explained_or_no_number_is_no_loss() {
        let mut numbers = SequenceTracker::default();
        told(&mut numbers, &[(1, 1.0, InOrder), (0, 2.0, InOrder), (-3, 2.0, InOrder)]);
        numbers.explain();
        told(&mut numbers, &[(9, 9.0, InOrder), (11, 11.0, gap(10, 1))]);
        numbers.explain();
        told(&mut numbers, &[(10, 10.0, Late), (13, 13.0, gap(12, 1))]);
        // Without a clock a restart looks like repetitions, and causes no loss either.
        told(&mut numbers, &[(2, f64::NAN, Repeated)]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut numbers = SequenceTracker::default();
        for origin in 0..3 * MAX_WRITERS as i32 {
            let of = WriterKey { origin, ..ALICE };
            assert_eq!(numbers.note(of, at(1, 1.0)), InOrder);
            let steady = WriterKey { origin: -1, ..ALICE };
            assert_eq!(numbers.note(steady, at(1 + origin, f64::from(origin))), InOrder);
        }
        assert_eq!(numbers.writers.len(), MAX_WRITERS);
        for n in 0..3 * MAX_GAPS as i32 {
            numbers.note(ALICE, at(1 + 2 * n, f64::from(n)));
        }
        let gaps: usize = numbers.writers.iter().map(|writer| writer.gaps.len()).sum();
        assert_eq!(gaps, MAX_GAPS);
        // A forgotten gap stays lost.
        assert_eq!(numbers.note(ALICE, at(2, 0.0)), Repeated);
    }

    /// The treatment of a writer's next sample by the network.
    #[derive(Debug, Clone, Copy)]
    enum Fate {
        Arrives,
        IsLost,
        /// Arrives after that many later samples.
        IsLate(usize),
        ComesTwice,
        /// The writer restarts before it, after all late samples have arrived.
        StartsAgain,
    }

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![
            10 => Just(Fate::Arrives),
            2 => Just(Fate::IsLost),
            2 => (1usize..6).prop_map(Fate::IsLate),
            2 => Just(Fate::ComesTwice),
            1 => Just(Fate::StartsAgain),
        ]
    }

    /// Samples in their order of arrival: the writer's life, and their position in it.
    fn arrivals(fates: &[Fate]) -> Vec<(usize, i64)> {
        let (mut life, mut place, mut all) = (0, 0, Vec::new());
        let mut late: Vec<(usize, (usize, i64))> = Vec::new();
        for fate in fates {
            if matches!(fate, Fate::StartsAgain) {
                all.extend(late.drain(..).map(|(_, sample)| sample));
                (life, place) = (life + 1, 0);
            }
            let sample = (life, place);
            place += 1;
            match fate {
                Fate::IsLost => {}
                Fate::IsLate(by) => late.push((*by, sample)),
                Fate::ComesTwice => all.extend([sample; 2]),
                Fate::Arrives | Fate::StartsAgain => all.push(sample),
            }
            late.iter_mut().for_each(|(by, _)| *by = by.saturating_sub(1));
            all.extend(late.extract_if(.., |(by, _)| *by == 0).map(|(_, sample)| sample));
        }
        all
    }

    proptest! {
        #[test]
        fn it_counts_as_a_model_that_forgets_nothing(
            fates in prop::collection::vec(fate(), 0..200),
            begins in prop_oneof![Just(1), Just(MAX_NUMBER - 20), 1..MAX_NUMBER],
        ) {
            let (mut numbers, mut expected) =
                (SequenceTracker::default(), SequenceStats::default());
            let (mut seen, mut life): (BTreeSet<i64>, _) = (BTreeSet::new(), 0);
            let mut lost_before = 0;
            for (of, place) in arrivals(&fates) {
                if of != life {
                    (life, lost_before) = (of, expected.lost);
                    seen.clear();
                }
                let is_late = seen.last().is_some_and(|newest| place < *newest);
                let lower = seen.first().is_some_and(|first| place < *first);
                // Samples before the first received one are not lost.
                if lower || !seen.insert(place) {
                    expected.repeated += 1;
                } else if is_late {
                    expected.late += 1;
                }
                let (first, last) = (seen.first().unwrap(), seen.last().unwrap());
                let missing = last - first + 1 - seen.len() as i64;
                expected.lost = lost_before + missing as u64;
                // A restart begins a thousand numbers lower, or higher if it passes 1.
                let number = after(begins, place - 1_000 * life as i64);
                let sent_s = (life * 1_000) as f64 + place as f64;
                numbers.note(ALICE, at(number as i32, sent_s));
                prop_assert_eq!(numbers.stats(), expected);
            }
        }
    }
}
