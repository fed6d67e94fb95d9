//! What is missing by the writers' own numbers, among samples that the bus does not number for
//! them.
//!
//! Constraints. SAL's writers number the samples of each topic and instance from 1 to 2^31 - 1 and
//! round again, and say who they are by a name and a process. A process that starts again under the
//! same number (in a container nearly all do) begins at 1: lower numbers that were sent later are a
//! new beginning, and lose nothing. The memory is bounded: [`MAX_WRITERS`], [`MAX_HOLES`].
//!
//! Operation. The highest number of each writer is kept, and the holes below it. A number that is
//! ahead leaves a hole; one that fills a hole is late and takes its loss back; any other that is
//! not ahead has come before. Where something else explains that numbers are missing (a gap that
//! the bus has told and counted), a jump is no loss.

use std::collections::VecDeque;

/// The most writers that are remembered; beyond it the one that was silent longest is forgotten.
/// A topic has one writer for each instance, and a new one at each restart.
pub const MAX_WRITERS: usize = 256;
/// The most holes of a writer that are remembered; what comes late for an older one counts as
/// repeated, and its loss stays.
pub const MAX_HOLES: usize = 32;
/// The longest hole: four days at 50 Hz. A longer jump is a writer that begins at random, as SAL's
/// callers do.
pub const MAX_HOLE: i64 = 1 << 24;

/// Numbers go from 1 to this one, which 1 follows.
const MAX_NUMBER: i64 = i32::MAX as i64;

/// Who numbers samples: SAL's private fields that say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numberer<'a> {
    /// `private_identity`.
    pub identity: &'a str,
    /// `private_origin`: the process.
    pub origin: i32,
    /// `salIndex`; 0 where there is none.
    pub index: i32,
}

/// A sample's place among those of its writer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numbered {
    /// `private_seqNum`; what is not positive is no number.
    pub number: i32,
    /// `private_sndStamp`: seconds by the writer's clock, to tell a new beginning.
    pub sent_s: f64,
}

/// What a number tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is the first of its writer, follows its last, or is a new beginning.
    InOrder,
    /// Samples from `first` up to it never came, or not yet.
    AfterHole {
        /// The first number that is missing.
        first: i32,
        /// How many are missing.
        lost: u64,
    },
    /// It was missing until now: one lost sample less.
    Late,
    /// It has come before.
    Repeated,
}

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NumberStats {
    /// Samples that did not come.
    pub lost: u64,
    /// Samples that came behind later ones of their writer.
    pub late: u64,
    /// Samples that had come before.
    pub repeated: u64,
}

/// Follows the numbers of one topic's writers.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    /// The one that was heard last is the first.
    writers: VecDeque<Writer>,
    /// Grows when something explains a jump of everybody's numbers.
    epoch: u64,
    stats: NumberStats,
}

#[derive(Debug, Clone)]
struct Writer {
    identity: String,
    origin: i32,
    index: i32,
    last: Numbered,
    epoch: u64,
    holes: VecDeque<Hole>,
}

/// Numbers that are missing, round the end where they go on there.
#[derive(Debug, Clone, Copy)]
struct Hole {
    first: i64,
    length: i64,
}

impl Numbers {
    /// A sample came.
    pub fn note(&mut self, of: Numberer<'_>, sample: Numbered) -> Arrival {
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
            Arrival::AfterHole { lost, .. } => self.stats.lost += lost,
            Arrival::Late => {
                self.stats.lost -= 1;
                self.stats.late += 1;
            }
            Arrival::Repeated => self.stats.repeated += 1,
        }
        arrival
    }

    /// Something explains why numbers are missing here: the next one of each writer is taken as it
    /// comes.
    pub fn explain(&mut self) {
        self.epoch += 1;
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> NumberStats {
        self.stats
    }

    fn writer(&mut self, of: Numberer<'_>) -> Option<&mut Writer> {
        let place = self.writers.iter().position(|writer| writer.is(of))?;
        if let Some(writer) = (place > 0).then(|| self.writers.remove(place)).flatten() {
            self.writers.push_front(writer);
        }
        self.writers.front_mut()
    }

    fn remember(&mut self, of: Numberer<'_>, last: Numbered) {
        self.writers.truncate(MAX_WRITERS - 1);
        let (identity, holes) = (of.identity.to_owned(), VecDeque::new());
        let (origin, index, epoch) = (of.origin, of.index, self.epoch);
        self.writers.push_front(Writer { identity, origin, index, last, epoch, holes });
    }
}

impl Writer {
    fn is(&self, of: Numberer<'_>) -> bool {
        self.origin == of.origin && self.index == of.index && self.identity == of.identity
    }

    fn note(&mut self, sample: Numbered, explained: bool) -> Arrival {
        let number = i64::from(sample.number);
        let ahead = distance(i64::from(self.last.number), number);
        if (1..=MAX_HOLE + 1).contains(&ahead) {
            let first = after(i64::from(self.last.number), 1);
            self.last = sample;
            if ahead == 1 || explained {
                return Arrival::InOrder;
            }
            let hole = Hole { first, length: ahead - 1 };
            self.keep([hole]);
            // Both are within the numbers.
            return Arrival::AfterHole { first: first as i32, lost: hole.length as u64 };
        }
        if sample.sent_s > self.last.sent_s {
            self.last = sample;
            self.holes.clear();
            return Arrival::InOrder;
        }
        if self.fill(number) { Arrival::Late } else { Arrival::Repeated }
    }

    /// Takes a number out of the hole that it is of.
    fn fill(&mut self, number: i64) -> bool {
        let within = |hole: &Hole| distance(hole.first, number) < hole.length;
        let Some(place) = self.holes.iter().position(within) else { return false };
        let Some(hole) = self.holes.remove(place) else { return false };
        let before = distance(hole.first, number);
        let rest = Hole { first: after(number, 1), length: hole.length - before - 1 };
        self.keep([Hole { length: before, ..hole }, rest]);
        true
    }

    fn keep<const N: usize>(&mut self, holes: [Hole; N]) {
        self.holes.extend(holes.into_iter().filter(|hole| hole.length > 0));
        let too_many = self.holes.len().saturating_sub(MAX_HOLES);
        self.holes.drain(..too_many);
    }
}

/// How far a number is ahead of another, round the end.
fn distance(from: i64, to: i64) -> i64 {
    (to - from).rem_euclid(MAX_NUMBER)
}

/// The number that far ahead.
fn after(number: i64, by: i64) -> i64 {
    (number - 1 + by).rem_euclid(MAX_NUMBER) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use Arrival::{InOrder, Late, Repeated};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const ALICE: Numberer<'_> = Numberer { identity: "Test", origin: 7, index: 0 };

    fn at(number: i32, sent_s: f64) -> Numbered {
        Numbered { number, sent_s }
    }

    fn hole(first: i32, lost: u64) -> Arrival {
        Arrival::AfterHole { first, lost }
    }

    /// Each number is sent a second after the one before it.
    fn told(numbers: &mut Numbers, all: &[(i32, f64, Arrival)]) {
        for (number, sent_s, arrival) in all {
            assert_eq!(numbers.note(ALICE, at(*number, *sent_s)), *arrival, "{number}");
        }
    }

    #[test]
    fn holes_are_counted_until_they_are_filled() {
        let mut numbers = Numbers::default();
        told(
            &mut numbers,
            &[
                (5, 5.0, InOrder),
                (6, 6.0, InOrder),
                (10, 10.0, hole(7, 3)),
                (8, 8.0, Late),
                (8, 8.0, Repeated),
                (10, 10.0, Repeated),
                (6, 6.0, Repeated),
                (11, 11.0, InOrder),
                (7, 7.0, Late),
                (13, 13.0, hole(12, 1)),
            ],
        );
        assert_eq!(numbers.stats(), NumberStats { lost: 2, late: 2, repeated: 3 });
    }

    #[test]
    fn numbers_go_round() {
        let mut numbers = Numbers::default();
        let last = i32::MAX;
        told(
            &mut numbers,
            &[
                (last - 2, 0.0, InOrder),
                (last - 1, 1.0, InOrder),
                (2, 4.0, hole(last, 2)),
                (1, 3.0, Late),
                (last - 1, 1.0, Repeated),
                (last, 2.0, Late),
                (3, 5.0, InOrder),
            ],
        );
        assert_eq!(numbers.stats(), NumberStats { lost: 0, late: 2, repeated: 1 });
    }

    #[test]
    fn a_new_beginning_loses_nothing() {
        let mut numbers = Numbers::default();
        told(
            &mut numbers,
            &[
                (500, 500.0, InOrder),
                (502, 502.0, hole(501, 1)),
                // The same process number: lower, and sent later.
                (1, 600.0, InOrder),
                (2, 601.0, InOrder),
                (4, 603.0, hole(3, 1)),
                // At once again, with the very same number.
                (4, 700.0, InOrder),
                // As callers begin, at random.
                (2_000_000_000, 800.0, InOrder),
                (1_000, 900.0, InOrder),
            ],
        );
        assert_eq!(numbers.stats(), NumberStats { lost: 2, late: 0, repeated: 0 });
    }

    #[test]
    fn writers_are_told_apart() {
        let mut numbers = Numbers::default();
        for of in [
            ALICE,
            Numberer { identity: "Tests", ..ALICE },
            Numberer { origin: 8, ..ALICE },
            Numberer { index: 1, ..ALICE },
        ] {
            assert_eq!(numbers.note(of, at(10, 10.0)), InOrder);
            assert_eq!(numbers.note(of, at(12, 12.0)), hole(11, 1));
        }
        assert_eq!(numbers.stats().lost, 4);
    }

    #[test]
    fn what_is_explained_or_no_number_is_no_loss() {
        let mut numbers = Numbers::default();
        told(&mut numbers, &[(1, 1.0, InOrder), (0, 2.0, InOrder), (-3, 2.0, InOrder)]);
        numbers.explain();
        told(&mut numbers, &[(9, 9.0, InOrder), (11, 11.0, hole(10, 1))]);
        numbers.explain();
        told(&mut numbers, &[(10, 10.0, Late), (13, 13.0, hole(12, 1))]);
        // Without a clock a new beginning looks like repetitions, and loses nothing either.
        told(&mut numbers, &[(2, f64::NAN, Repeated)]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut numbers = Numbers::default();
        for origin in 0..3 * MAX_WRITERS as i32 {
            let of = Numberer { origin, ..ALICE };
            assert_eq!(numbers.note(of, at(1, 1.0)), InOrder);
            let steady = Numberer { origin: -1, ..ALICE };
            assert_eq!(numbers.note(steady, at(1 + origin, f64::from(origin))), InOrder);
        }
        assert_eq!(numbers.writers.len(), MAX_WRITERS);
        for n in 0..3 * MAX_HOLES as i32 {
            numbers.note(ALICE, at(1 + 2 * n, f64::from(n)));
        }
        let holes: usize = numbers.writers.iter().map(|writer| writer.holes.len()).sum();
        assert_eq!(holes, MAX_HOLES);
        // One that was forgotten stays lost.
        assert_eq!(numbers.note(ALICE, at(2, 0.0)), Repeated);
    }

    /// What the network does with the next sample of a writer.
    #[derive(Debug, Clone, Copy)]
    enum Fate {
        Arrives,
        IsLost,
        /// Comes behind that many later ones.
        IsLate(usize),
        ComesTwice,
        /// The writer starts again before it, when all that was late has come.
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

    /// Samples as they arrive: the life of the writer that they are of, and their place in it.
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
            let (mut numbers, mut expected) = (Numbers::default(), NumberStats::default());
            let (mut seen, mut life): (BTreeSet<i64>, _) = (BTreeSet::new(), 0);
            let mut lost_before = 0;
            for (of, place) in arrivals(&fates) {
                if of != life {
                    (life, lost_before) = (of, expected.lost);
                    seen.clear();
                }
                let is_late = seen.last().is_some_and(|newest| place < *newest);
                let lower = seen.first().is_some_and(|first| place < *first);
                // What came before the first that was seen is nobody's loss.
                if lower || !seen.insert(place) {
                    expected.repeated += 1;
                } else if is_late {
                    expected.late += 1;
                }
                let (first, last) = (seen.first().unwrap(), seen.last().unwrap());
                let missing = last - first + 1 - seen.len() as i64;
                expected.lost = lost_before + missing as u64;
                // A restart begins a thousand numbers lower, or higher where 1 is passed.
                let number = after(begins, place - 1_000 * life as i64);
                let sent_s = (life * 1_000) as f64 + place as f64;
                numbers.note(ALICE, at(number as i32, sent_s));
                prop_assert_eq!(numbers.stats(), expected);
            }
        }
    }
}
