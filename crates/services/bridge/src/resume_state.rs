//! What of a topic outlives a failure: where it is, what is in hand, and who writes on the target.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use helio_bus::{PendingPublish, Producer, Sample, Subscription, Tai};

use crate::context::{BridgeContext, rewinds};
use crate::hops::Mark;
use crate::position::ProducerHistory;
use crate::reconcile::{Reconciler, SampleStatus};
use crate::types::{
    AnonymousProducer, DeliveryFailure, IdleProducer, OpenWriter, PartitionOffset, ProducerKey,
    ProducerSequence, SampleIdentity, UNNUMBERED,
};

/// The most producers of a topic whose newest number is remembered, as readers do.
const MAX_KNOWN_PRODUCERS: usize = 16_384;

/// What the target has of each producer, as far as this bridge knows.
#[derive(Default)]
struct KnownSequences {
    newest: HashMap<ProducerKey, (ProducerSequence, u64)>,
    clock: u64,
}

impl KnownSequences {
    fn has_sequence(&self, key: &ProducerKey, sequence: ProducerSequence) -> bool {
        self.newest.get(key).is_some_and(|(newest, _)| *newest >= sequence)
    }

    fn add(&mut self, key: ProducerKey, sequence: ProducerSequence) {
        self.clock += 1;
        if self.newest.len() >= MAX_KNOWN_PRODUCERS && !self.newest.contains_key(&key) {
            // Those that were silent longest; what comes twice of them is dropped by readers.
            let mut seen: Vec<_> = self.newest.values().map(|(_, seen)| *seen).collect();
            let (_, middle, _) = seen.select_nth_unstable(MAX_KNOWN_PRODUCERS / 2);
            let middle = *middle;
            self.newest.retain(|_, (_, seen)| *seen > middle);
        }
        let newest = self.newest.entry(key).or_insert((sequence, 0));
        *newest = (sequence.max(newest.0), self.clock);
    }
}

/// What of a topic outlives a failure.
#[derive(Default)]
pub(crate) struct ResumeState {
    /// The source's subscription, where it is not waited for.
    pub(crate) subscription: Option<Subscription>,
    /// Where each partition of the source is read on; empty before it was first opened.
    pub(crate) next: HashMap<u32, u64>,
    /// When that was first asked for.
    pub(crate) since: Option<Tai>,
    /// The newest of each partition that was read, of a source that can be read again.
    last_read: HashMap<u32, (u64, SampleIdentity)>,
    /// The newest of each partition that was given to the target.
    pub(crate) high: HashMap<u32, u64>,
    /// The newest of each partition that nothing is to be done for any more.
    pub(crate) settled: HashMap<u32, (u64, SampleIdentity)>,
    /// What is written of that, and what is being written.
    pub(crate) written: HashMap<u32, u64>,
    pub(crate) writing: Vec<(PartitionOffset, PendingPublish)>,
    /// When that was written last; none where it is to be written at once.
    pub(crate) last_write: Option<Instant>,
    /// Whether the target was asked what it has.
    pub(crate) target_read: bool,
    /// What it has, until the source has been held against it.
    pub(crate) reconcilers: HashMap<u32, Reconciler>,
    /// Numbers that the target has not, though it has later ones: of sources without places.
    pub(crate) gaps: HashMap<ProducerKey, ProducerHistory>,
    /// Whether the source is to be read elsewhere.
    pub(crate) source_replaced: bool,
    /// Read, and not taken by the target; oldest first.
    pub(crate) queue: VecDeque<Sample>,
    /// What the target has not acknowledged though it had taken it, and why.
    pub(crate) failures: HashMap<PartitionOffset, DeliveryFailure>,
    known: KnownSequences,
    /// Of who has no name of its own: which incarnation came, and which one it is here.
    anonymous_incarnations: HashMap<u32, (u64, u64)>,
    /// The newest number that this bridge has given those.
    assigned_sequences: HashMap<u32, u64>,
    /// Where the source's partitions ended when it was subscribed to.
    pub(crate) initial_ends: Vec<PartitionOffset>,
    /// Who writes on the target.
    pub(crate) writers: HashMap<ProducerKey, OpenWriter>,
    /// Writers that are to be closed before others are opened.
    pub(crate) closing: Vec<OpenWriter>,
    /// Whose samples the target has from a bridge before, and who may live.
    pub(crate) idle_producers: Vec<IdleProducer>,
}

impl ResumeState {
    /// How much was read and is not forwarded.
    pub(crate) fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Its writer is to be open on the target if it lives.
    pub(crate) fn add_idle_producer(&mut self, partition: u32, producer: Producer) {
        // The newest counts; others of its name are older.
        self.idle_producers
            .retain(|other| other.partition != partition || other.producer.name != producer.name);
        self.idle_producers.push(IdleProducer { partition, producer, since: Instant::now() });
    }

    pub(crate) fn record_sequence(&mut self, key: ProducerKey, sequence: ProducerSequence) {
        self.known.add(key, sequence);
    }

    /// Whether the target has this number of a producer, or a later one.
    pub(crate) fn has_sequence(&self, key: &ProducerKey, sequence: ProducerSequence) -> bool {
        self.known.has_sequence(key, sequence)
    }

    /// Whether it is known to be missing among later ones.
    pub(crate) fn is_missing(&self, key: &ProducerKey, sequence: ProducerSequence) -> bool {
        let had = self.gaps.get(key).filter(|had| had.newest.incarnation == sequence.incarnation);
        had.is_some_and(|had| had.gaps.iter().any(|gap| gap.contains(&sequence.number)))
    }

    /// The target has these samples.
    pub(crate) fn add_reconciler(&mut self, partition: u32, found: Reconciler) {
        for (name, sequence) in found.sequences() {
            self.known.add(ProducerKey { partition, producer: name.clone() }, sequence);
        }
        self.high.extend(found.high().map(|high| (partition, high)));
        self.reconcilers.insert(partition, found);
    }

    /// What a sample of the source is, as far as the target had it when this bridge began.
    pub(crate) fn reconcile(
        &mut self,
        sample: &Sample,
        anonymous: &AnonymousProducer,
    ) -> Option<SampleStatus> {
        let found = self.reconcilers.get_mut(&sample.partition)?;
        let status = found.check(sample.offset, &SampleIdentity::of(sample.as_ref(), anonymous));
        if status.is_none() {
            self.reconcilers.remove(&sample.partition);
        }
        status
    }

    /// The source has another log; whether it is read again.
    pub(crate) fn log_differs(&mut self, partition: u32) -> bool {
        let Some(found) = self.reconcilers.get_mut(&partition) else { return false };
        let again = found.log_differs();
        if again {
            self.queue.retain(|sample| sample.partition != partition);
            self.failures.retain(|(at, _), _| *at != partition);
            self.next.remove(&partition);
            self.source_replaced = true;
            self.forget_offsets(partition);
        }
        again
    }

    /// What was known of the log's offsets says nothing any more.
    fn forget_offsets(&mut self, partition: u32) {
        self.high.remove(&partition);
        self.settled.remove(&partition);
        self.last_read.remove(&partition);
        self.last_write = None;
    }

    /// Where a partition of the source, from `first` to `end`, is read on. What was read last is
    /// read once more, for by now it may be another log; not while samples are in hand: they would
    /// be held against themselves.
    pub(crate) fn resume_offset(&mut self, partition: u32, first: u64, end: u64) -> Option<u64> {
        let next = self.next.get(&partition).copied();
        if let Some(next) = next
            && !self.has_queued(partition)
            && self.reconcilers.get(&partition).is_none_or(|found| found.is_past(next))
        {
            let last = self.last_read.get(&partition).cloned();
            self.reconcilers.insert(partition, Reconciler::from_position(next, last, self.since));
        } else if let Some(next) = next.filter(|next| *next <= end) {
            return Some(next);
        }
        let Some(found) = self.reconcilers.get_mut(&partition) else { return next.map(|_| first) };
        let begin = found.start_offset(first, end);
        if found.is_replaced() {
            self.forget_offsets(partition);
        }
        Some(begin)
    }

    /// Whether samples of a partition are in hand.
    fn has_queued(&self, partition: u32) -> bool {
        self.queue.iter().any(|sample| sample.partition == partition)
    }

    /// Keeps a sample that was read, under the name that it has on other buses: those that have no
    /// producer are the bus's own.
    pub(crate) fn enqueue(&mut self, context: &BridgeContext, mut sample: Sample) {
        let (partition, offset) = (sample.partition, sample.offset);
        let before = self.next.insert(partition, offset + 1);
        let rewinds = rewinds(&context.from);
        let producer = &mut sample.header.producer;
        if context.anonymous.matches(&producer.name) {
            producer.name = context.anonymous.name.clone();
            if rewinds {
                // Where it lies is no number: it gets one when it is known whether the target has
                // it. With each bridge they are somebody new, for none knows how far the one
                // before has counted.
                sample.header.sequence = UNNUMBERED;
                producer.incarnation = context.started;
            }
            producer.incarnation = self.incarnation(partition, producer);
        }
        if rewinds {
            if let Some(next) = before.filter(|next| offset < *next) {
                self.source_rewound(partition, next);
            }
            self.last_read.insert(
                partition,
                (offset, SampleIdentity::of(sample.as_ref(), &context.anonymous)),
            );
        }
        self.queue.push_back(sample);
    }

    /// The source hands out samples from further back than the next one: its log is another one.
    fn source_rewound(&mut self, partition: u32, next: u64) {
        let last = self.last_read.get(&partition).cloned();
        self.forget_offsets(partition);
        if !self.has_queued(partition) {
            let new = || Reconciler::from_position(next, last, self.since);
            self.reconcilers.entry(partition).or_insert_with(new).rewind();
        }
    }

    /// The incarnation of who has none but the time at which it was first read: newer than what the
    /// target has, whatever that host's clock said.
    fn incarnation(&mut self, partition: u32, producer: &Producer) -> u64 {
        let came = producer.incarnation;
        if let Some((before, here)) = self.anonymous_incarnations.get(&partition)
            && *before == came
        {
            return *here;
        }
        let newest =
            self.known.newest.get(&ProducerKey { partition, producer: producer.name.clone() });
        let here = newest.map_or(came, |(newest, _)| came.max(newest.incarnation + 1));
        self.anonymous_incarnations.insert(partition, (came, here));
        here
    }

    /// Numbers a sample that has none.
    pub(crate) fn assign_sequence(&mut self, sample: &mut Sample) {
        if sample.header.sequence != UNNUMBERED {
            return;
        }
        let newest = self.assigned_sequences.entry(sample.partition).or_default();
        *newest += 1;
        sample.header.sequence = *newest;
    }

    /// Samples are lost: those that have no numbers have a hole in them for it, as others have.
    pub(crate) fn skip_sequences(&mut self, partition: u32, lost: u64) {
        if let Some(newest) = self.assigned_sequences.get_mut(&partition) {
            *newest += lost;
        }
    }

    /// Nothing is to be done any more for a sample. One that was in trouble comes behind others.
    pub(crate) fn settle_offset(
        &mut self,
        (partition, offset): PartitionOffset,
        identity: SampleIdentity,
    ) {
        let newest = self.settled.get(&partition);
        if newest.is_none_or(|(newest, _)| *newest <= offset) {
            self.settled.insert(partition, (offset, identity));
        }
    }

    /// The mark of a sample that is given to the target while all below `low` is settled.
    pub(crate) fn mark(&self, sample: &Sample, low: u64) -> Mark {
        let offset = sample.offset;
        let high = self.high.get(&sample.partition).copied().unwrap_or(offset);
        Mark { offset, low: low.min(offset), high: high.max(offset) }
    }
}

#[cfg(test)]
mod tests {
    use helio_bus::ProducerName;

    use super::*;

    const FIRST: ProducerSequence = ProducerSequence { incarnation: 1, number: 1 };

    #[test]
    fn who_has_no_incarnation_is_newer_than_before_whatever_the_clock_says() {
        let mut state = ResumeState::default();
        let name = ProducerName::new("dds-0").unwrap();
        let came = |incarnation| Producer { name: name.clone(), incarnation };
        assert_eq!(state.incarnation(0, &came(40)), 40);
        let key = ProducerKey { partition: 1, producer: name.clone() };
        state.record_sequence(key.clone(), ProducerSequence { incarnation: 100, number: 7 });
        assert_eq!(state.incarnation(1, &came(50)), 101);
        state.record_sequence(key, ProducerSequence { incarnation: 101, number: 3 });
        assert_eq!(state.incarnation(1, &came(50)), 101, "it is the same one");
        assert_eq!(state.incarnation(1, &came(200)), 200);
    }

    fn identity(name: &str, time: i64) -> SampleIdentity {
        let name = ProducerName::new(name).unwrap();
        let bus = helio_bus::Bus::connect("memory:").unwrap();
        SampleIdentity::new(
            &name,
            FIRST,
            Tai::from_nanos(time),
            &AnonymousProducer::of(&bus, "bus"),
        )
    }

    #[test]
    fn what_was_read_last_is_held_against_the_log_as_it_is_when_it_is_read_again() {
        let mut state = ResumeState::default();
        assert_eq!(state.resume_offset(0, 0, 9), None, "it was never read");
        state.next.insert(0, 100);
        assert_eq!(state.resume_offset(0, 0, 120), Some(100), "nothing was read yet");
        state.next.insert(0, 101);
        state.last_read.insert(0, (100, identity("Mount", 7)));
        assert_eq!(state.resume_offset(0, 0, 120), Some(100));
        let found = state.reconcilers.get_mut(&0).unwrap();
        assert_eq!(found.check(100, &identity("Mount", 7)), Some(SampleStatus::Stored));
        // It was cut, and has grown again.
        assert_eq!(found.check(100, &identity("Mount", 8)), Some(SampleStatus::Conflict));
        assert!(state.log_differs(0) && state.next.is_empty());
    }

    #[test]
    fn a_log_that_is_shorter_is_read_from_its_beginning_and_what_is_old_is_passed() {
        let mut state = ResumeState::default();
        state.next.insert(0, 101);
        state.last_read.insert(0, (100, identity("Mount", 7)));
        state.high.insert(0, 100);
        assert_eq!(state.resume_offset(0, 3, 90), Some(3));
        assert!(state.high.is_empty());
        let found = state.reconcilers.get_mut(&0).unwrap();
        assert_eq!(found.check(3, &identity("Dome", 6)), Some(SampleStatus::Older));
        assert_eq!(found.check(89, &identity("Dome", 8)), Some(SampleStatus::New));
    }

    #[test]
    fn the_newest_that_is_settled_is_no_older_one_that_came_later() {
        let mut state = ResumeState::default();
        for (offset, newest) in [(5, 5), (9, 9), (7, 9)] {
            state.settle_offset((0, offset), identity("Mount", 1));
            assert_eq!(state.settled[&0].0, newest);
        }
    }

    #[test]
    fn of_many_producers_those_that_were_silent_longest_are_forgotten() {
        let mut state = ResumeState::default();
        let key = |n: usize| {
            let producer = ProducerName::new(&format!("p{n}")).unwrap();
            ProducerKey { partition: 0, producer }
        };
        (0..=MAX_KNOWN_PRODUCERS).for_each(|n| state.record_sequence(key(n), FIRST));
        assert!(!state.has_sequence(&key(0), FIRST));
        assert!(
            state.has_sequence(&key(MAX_KNOWN_PRODUCERS - 1), FIRST)
                && state.has_sequence(&key(MAX_KNOWN_PRODUCERS), FIRST)
        );
        assert!(state.known.newest.len() <= MAX_KNOWN_PRODUCERS);
    }
}
