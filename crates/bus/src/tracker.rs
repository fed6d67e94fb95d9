//! Progress by producer and partition, which detects replaced writers, duplicates and losses.
//!
//! Order is (incarnation, sequence). A sample of an older incarnation than one that was read is
//! dropped. A sequence that was passed is dropped as a duplicate. A skipped sequence is a loss.
//! After an explained jump (a gap that the transport reported, history by key, a seek), any next
//! sequence is accepted.

use std::collections::HashMap;

use helio_core::ProducerName;

use crate::transport::{Origin, SampleRef};

/// The most producers stored for a partition; beyond it, the half that was silent longest is
/// removed.
const MAX_PRODUCERS_PER_PARTITION: usize = 16_384;

/// What becomes of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleStatus {
    /// It is delivered.
    Deliver,
    /// It is delivered after a gap: its producer's samples from `from` on are lost.
    DeliverAfterHole { from: u64 },
    /// It was passed already.
    Duplicate,
    /// Its incarnation was replaced, which is to be reported.
    FencedFirst { newer: u64 },
    /// Its incarnation was replaced, which was reported.
    Fenced,
    /// Its incarnation is older than that of another producer of the partition, on an exclusive
    /// topic. [`Tracker::fence`], [`Tracker::pass`] or [`Tracker::admit`] decides.
    Outranked {
        /// Whether it was fenced before.
        fenced: bool,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Tracker {
    partitions: Vec<Partition>,
    /// Whether producers of other names are fenced, too.
    by_rank: bool,
}

#[derive(Debug, Default)]
struct Partition {
    tracks: Vec<ProducerProgress>,
    index: HashMap<ProducerName, usize>,
    hot: usize,
    /// Increases when something explains a jump in all producers' sequences.
    epoch: u64,
    /// The newest incarnation of all producers.
    newest: u64,
    in_history: bool,
    clock: u64,
}

#[derive(Debug)]
struct ProducerProgress {
    name: ProducerName,
    incarnation: u64,
    sequence: u64,
    epoch: u64,
    fenced: u64,
    seen: u64,
}

impl Tracker {
    /// A tracker of an exclusive topic, where a later owner may have the larger incarnation,
    /// whatever its name.
    pub(crate) fn of_owners() -> Self {
        Self { by_rank: true, ..Self::default() }
    }

    fn partition(&mut self, partition: u32) -> &mut Partition {
        let at = partition as usize;
        if self.partitions.len() <= at {
            self.partitions.resize_with(at + 1, Partition::default);
        }
        &mut self.partitions[at]
    }

    pub(crate) fn check(&mut self, sample: &SampleRef<'_>) -> SampleStatus {
        let by_rank = self.by_rank;
        let partition = self.partition(sample.partition);
        match (sample.origin, partition.in_history) {
            (Origin::History, false) => partition.in_history = true,
            (Origin::Log, true) => {
                partition.in_history = false;
                partition.epoch += 1;
            }
            _ => {}
        }
        partition.clock += 1;
        let incarnation = sample.producer.incarnation;
        // The history has the newest samples of each key, whoever wrote them.
        if by_rank && incarnation < partition.newest && sample.origin == Origin::Log {
            let track = partition.find(&sample.producer.name);
            return SampleStatus::Outranked {
                fenced: track.is_some_and(|track| track.fenced == incarnation),
            };
        }
        partition.newest = partition.newest.max(incarnation);
        partition.check(sample)
    }

    /// Compares an outranked sample with its own producer's samples only.
    pub(crate) fn pass(&mut self, sample: &SampleRef<'_>) -> SampleStatus {
        self.partition(sample.partition).check(sample)
    }

    /// Fences an outranked sample.
    pub(crate) fn fence(&mut self, sample: &SampleRef<'_>) -> SampleStatus {
        let partition = self.partition(sample.partition);
        let newer = partition.newest;
        if partition.find(&sample.producer.name).is_none() {
            partition.remember(sample);
        }
        let track = partition.find(&sample.producer.name).expect("it was remembered");
        track.fence(sample.producer.incarnation, newer)
    }

    /// Admits an outranked sample; no sample is fenced by its rank from now on.
    pub(crate) fn admit(&mut self, sample: &SampleRef<'_>) -> SampleStatus {
        self.by_rank = false;
        self.check(sample)
    }

    /// Accepts a jump in this partition's sequences.
    pub(crate) fn explain(&mut self, partition: u32) {
        self.partition(partition).epoch += 1;
    }

    /// Restarts after a seek in this partition.
    pub(crate) fn forget(&mut self, partition: u32) {
        *self.partition(partition) = Partition::default();
    }
}

impl Partition {
    fn check(&mut self, sample: &SampleRef<'_>) -> SampleStatus {
        let (epoch, clock) = (self.epoch, self.clock);
        match self.find(&sample.producer.name) {
            Some(track) => {
                track.seen = clock;
                track.check(sample, epoch)
            }
            None => {
                self.remember(sample);
                SampleStatus::Deliver
            }
        }
    }

    fn find(&mut self, name: &ProducerName) -> Option<&mut ProducerProgress> {
        let hot = self.tracks.get(self.hot).is_some_and(|track| same(&track.name, name));
        if !hot {
            self.hot = *self.index.get(name)?;
        }
        self.tracks.get_mut(self.hot)
    }

    fn remember(&mut self, sample: &SampleRef<'_>) {
        if self.tracks.len() >= MAX_PRODUCERS_PER_PARTITION {
            self.tracks.sort_unstable_by_key(|track| std::cmp::Reverse(track.seen));
            self.tracks.truncate(MAX_PRODUCERS_PER_PARTITION / 2);
            let names = self.tracks.iter().map(|track| track.name.clone());
            self.index = names.zip(0..).collect();
        }
        self.hot = self.tracks.len();
        self.index.insert(sample.producer.name.clone(), self.hot);
        self.tracks.push(ProducerProgress {
            name: sample.producer.name.clone(),
            incarnation: sample.producer.incarnation,
            sequence: sample.sequence,
            epoch: self.epoch,
            fenced: 0,
            seen: self.clock,
        });
    }
}

/// Whether two names are equal; nearly always they are the same text in memory.
fn same(one: &ProducerName, other: &ProducerName) -> bool {
    std::ptr::eq(one.as_str(), other.as_str()) || one == other
}

impl ProducerProgress {
    fn fence(&mut self, incarnation: u64, newer: u64) -> SampleStatus {
        let first = std::mem::replace(&mut self.fenced, incarnation) != incarnation;
        if first { SampleStatus::FencedFirst { newer } } else { SampleStatus::Fenced }
    }

    fn check(&mut self, sample: &SampleRef<'_>, epoch: u64) -> SampleStatus {
        let incarnation = sample.producer.incarnation;
        if incarnation < self.incarnation {
            return self.fence(incarnation, self.incarnation);
        }
        let before = if incarnation > self.incarnation { 0 } else { self.sequence };
        if incarnation == self.incarnation && sample.sequence <= before {
            return SampleStatus::Duplicate;
        }
        let explained = self.epoch != epoch || sample.origin == Origin::History;
        self.incarnation = incarnation;
        self.sequence = sample.sequence;
        self.epoch = epoch;
        if explained || sample.sequence == before + 1 {
            return SampleStatus::Deliver;
        }
        SampleStatus::DeliverAfterHole { from: before + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helio_core::{HeadersRef, Producer, SchemaId, Tai};

    fn check(tracker: &mut Tracker, origin: Origin, at: (&str, u64, u64)) -> SampleStatus {
        with(at, |sample| tracker.check(&SampleRef { origin, ..*sample }))
    }

    fn with<R>(at: (&str, u64, u64), see: impl FnOnce(&SampleRef<'_>) -> R) -> R {
        let producer = Producer { name: ProducerName::new(at.0).unwrap(), incarnation: at.1 };
        see(&SampleRef {
            partition: 0,
            offset: 0,
            key: b"",
            producer: &producer,
            sequence: at.2,
            time: Tai::from_nanos(0),
            schema: SchemaId::BYTES,
            level: 0,
            trace: None,
            headers: HeadersRef::EMPTY,
            payload: b"",
            origin: Origin::Log,
            pin: None,
        })
    }

    #[test]
    fn numbers_tell_losses_repeats_and_zombies() {
        let mut t = Tracker::default();
        let script = [
            (("a", 1, 5), SampleStatus::Deliver),
            (("a", 1, 6), SampleStatus::Deliver),
            (("b", 7, 1), SampleStatus::Deliver),
            (("a", 1, 9), SampleStatus::DeliverAfterHole { from: 7 }),
            (("a", 1, 8), SampleStatus::Duplicate),
            (("a", 1, 9), SampleStatus::Duplicate),
            (("a", 2, 1), SampleStatus::Deliver),
            (("a", 1, 10), SampleStatus::FencedFirst { newer: 2 }),
            (("a", 1, 11), SampleStatus::Fenced),
            (("a", 3, 2), SampleStatus::DeliverAfterHole { from: 1 }),
            (("a", 2, 2), SampleStatus::FencedFirst { newer: 3 }),
            (("b", 7, 2), SampleStatus::Deliver),
        ];
        for (at, status) in script {
            assert_eq!(check(&mut t, Origin::Log, at), status, "{at:?}");
        }
    }

    #[test]
    fn jumps_that_were_explained_are_no_losses() {
        let mut t = Tracker::default();
        assert_eq!(check(&mut t, Origin::History, ("a", 1, 3)), SampleStatus::Deliver);
        assert_eq!(check(&mut t, Origin::History, ("a", 1, 8)), SampleStatus::Deliver);
        assert_eq!(check(&mut t, Origin::Log, ("a", 1, 20)), SampleStatus::Deliver);
        t.explain(0);
        assert_eq!(check(&mut t, Origin::Log, ("a", 1, 30)), SampleStatus::Deliver);
        assert_eq!(
            check(&mut t, Origin::Log, ("a", 1, 32)),
            SampleStatus::DeliverAfterHole { from: 31 }
        );
        t.forget(0);
        assert_eq!(check(&mut t, Origin::Log, ("a", 1, 2)), SampleStatus::Deliver);
    }

    #[test]
    fn an_owner_outranks_those_before_it_whatever_their_names() {
        let mut t = Tracker::of_owners();
        assert_eq!(check(&mut t, Origin::History, ("b", 8, 3)), SampleStatus::Deliver);
        assert_eq!(check(&mut t, Origin::History, ("a", 5, 9)), SampleStatus::Deliver);
        for (at, status) in [
            (("b", 8, 4), SampleStatus::Deliver),
            (("a", 5, 10), SampleStatus::Outranked { fenced: false }),
            (("never-seen", 4, 1), SampleStatus::Outranked { fenced: false }),
            (("c", 9, 1), SampleStatus::Deliver),
            (("b", 8, 5), SampleStatus::Outranked { fenced: false }),
        ] {
            assert_eq!(check(&mut t, Origin::Log, at), status, "{at:?}");
        }
        t.forget(0);
        assert_eq!(check(&mut t, Origin::Log, ("b", 8, 5)), SampleStatus::Deliver);
    }

    #[test]
    fn who_is_outranked_is_fenced_and_told_of_once_or_let_in() {
        let mut t = Tracker::of_owners();
        assert_eq!(check(&mut t, Origin::Log, ("b", 8, 1)), SampleStatus::Deliver);
        for first in [SampleStatus::FencedFirst { newer: 8 }, SampleStatus::Fenced] {
            assert_eq!(with(("a", 5, 9), |sample| t.fence(sample)), first);
        }
        let fenced = SampleStatus::Outranked { fenced: true };
        assert_eq!(check(&mut t, Origin::Log, ("a", 5, 10)), fenced);
        assert_eq!(with(("d", 6, 3), |sample| t.admit(sample)), SampleStatus::Deliver);
        assert_eq!(check(&mut t, Origin::Log, ("c", 1, 1)), SampleStatus::Deliver);
    }

    #[test]
    fn who_is_passed_is_held_against_its_own_samples_and_is_no_rule() {
        let mut t = Tracker::of_owners();
        assert_eq!(check(&mut t, Origin::Log, ("b", 8, 1)), SampleStatus::Deliver);
        let mut pass = |at| with(at, |sample| t.pass(sample));
        assert_eq!(pass(("a", 1, 7)), SampleStatus::Deliver);
        assert_eq!(pass(("a", 1, 7)), SampleStatus::Duplicate);
        assert_eq!(pass(("a", 1, 9)), SampleStatus::DeliverAfterHole { from: 8 });
        for at in [("a", 1, 10), ("z", 1, 1)] {
            let status = check(&mut t, Origin::Log, at);
            assert_eq!(status, SampleStatus::Outranked { fenced: false }, "{at:?}");
        }
        assert_eq!(check(&mut t, Origin::Log, ("b", 8, 2)), SampleStatus::Deliver);
    }

    #[test]
    fn memory_of_producers_is_bounded() {
        let mut t = Tracker::default();
        for n in 0..3 * MAX_PRODUCERS_PER_PARTITION {
            check(&mut t, Origin::Log, (&format!("p{n}"), 1, 1));
            assert_eq!(
                check(&mut t, Origin::Log, ("steady", 1, 1 + n as u64)),
                SampleStatus::Deliver
            );
        }
        assert!(t.partitions[0].tracks.len() <= MAX_PRODUCERS_PER_PARTITION);
        assert_eq!(t.partitions[0].tracks.len(), t.partitions[0].index.len());
    }
}
