//! The state of a topic that survives a failure: positions, pending samples and open writers.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use helio_bus::transport::PartitionInfo;
use helio_bus::{PendingPublish, Producer, Sample, Subscription, Tai};

use crate::context::{BridgeContext, rewinds};
use crate::hops::Mark;
use crate::position::ProducerHistory;
use crate::reconcile::{Reconciler, SampleStatus};
use crate::types::{
    AnonymousProducer, DeliveryFailure, IdleProducer, OpenWriter, PartitionOffset, ProducerKey,
    ProducerSequence, SampleIdentity, UNNUMBERED,
};

/// The most producers of a topic whose newest sequence is remembered, as for readers.
const MAX_KNOWN_PRODUCERS: usize = 16_384;

/// The newest known sequence on the target, by producer.
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
            // Forgets the half that was silent longest; readers drop their repeats.
            let mut seen: Vec<_> = self.newest.values().map(|(_, seen)| *seen).collect();
            let (_, middle, _) = seen.select_nth_unstable(MAX_KNOWN_PRODUCERS / 2);
            let middle = *middle;
            self.newest.retain(|_, (_, seen)| *seen > middle);
        }
        let newest = self.newest.entry(key).or_insert((sequence, 0));
        *newest = (sequence.max(newest.0), self.clock);
    }
}

/// The log of a partition, compared with the one that the positions are of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogStatus {
    /// It is the same one, or has no identity.
    Same,
    /// It is the same one up to the position, and has this new identity.
    Renamed(u64),
    /// It is another one from an offset below the position; the notice's text.
    Replaced(String),
}

/// The state of a topic that survives a failure.
#[derive(Default)]
pub(crate) struct ResumeState {
    /// The source's subscription, while it is not in the wait set.
    pub(crate) subscription: Option<Subscription>,
    /// The next offset to read, by partition; empty before the topic was first opened.
    pub(crate) next: HashMap<u32, u64>,
    /// When `next` was first set.
    pub(crate) since: Option<Tai>,
    /// The newest sample read, by partition, of a source that can be read again.
    last_read: HashMap<u32, (u64, SampleIdentity)>,
    /// The newest offset sent to the target, by partition.
    pub(crate) high: HashMap<u32, u64>,
    /// The newest settled sample, by partition.
    pub(crate) settled: HashMap<u32, (u64, SampleIdentity)>,
    /// The stored checkpoints by partition, and the ones in flight.
    pub(crate) written: HashMap<u32, u64>,
    pub(crate) writing: Vec<(PartitionOffset, PendingPublish)>,
    /// When checkpoints were last written; none if they are due.
    pub(crate) last_write: Option<Instant>,
    /// Whether the target's samples were read.
    pub(crate) target_read: bool,
    /// By partition, until the source is past the target's samples.
    pub(crate) reconcilers: HashMap<u32, Reconciler>,
    /// Missing sequences on the target, for sources without offsets.
    pub(crate) gaps: HashMap<ProducerKey, ProducerHistory>,
    /// Whether the source's log was replaced, so that the subscription must be reopened.
    pub(crate) source_replaced: bool,
    /// Samples that were read and not sent, oldest first.
    pub(crate) queue: VecDeque<Sample>,
    /// Samples that the target accepted and did not acknowledge.
    pub(crate) failures: HashMap<PartitionOffset, DeliveryFailure>,
    known: KnownSequences,
    /// For producers without a name, by partition: the source's incarnation and the assigned one.
    anonymous_incarnations: HashMap<u32, (u64, u64)>,
    /// The newest sequence assigned to them.
    assigned_sequences: HashMap<u32, u64>,
    /// The identity of the source's log, by partition, to which all positions refer.
    pub(crate) logs: HashMap<u32, u64>,
    /// The ends of the source's partitions when it was subscribed to.
    pub(crate) initial_ends: Vec<PartitionOffset>,
    /// Open writers on the target.
    pub(crate) writers: HashMap<ProducerKey, OpenWriter>,
    /// Writers to close before others are opened.
    pub(crate) closing: Vec<OpenWriter>,
    /// Producers with samples from an earlier bridge, which may be alive.
    pub(crate) idle_producers: Vec<IdleProducer>,
}

impl ResumeState {
    pub(crate) fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Asks for the producer's writer on the target if it is alive.
    pub(crate) fn add_idle_producer(&mut self, partition: u32, producer: Producer) {
        // Replaces an older incarnation.
        self.idle_producers
            .retain(|other| other.partition != partition || other.producer.name != producer.name);
        self.idle_producers.push(IdleProducer { partition, producer, since: Instant::now() });
    }

    pub(crate) fn record_sequence(&mut self, key: ProducerKey, sequence: ProducerSequence) {
        self.known.add(key, sequence);
    }

    /// Whether the target has this sequence of a producer or a later one.
    pub(crate) fn has_sequence(&self, key: &ProducerKey, sequence: ProducerSequence) -> bool {
        self.known.has_sequence(key, sequence)
    }

    /// Whether this sequence is known to be missing below later ones.
    pub(crate) fn is_missing(&self, key: &ProducerKey, sequence: ProducerSequence) -> bool {
        let had = self.gaps.get(key).filter(|had| had.newest.incarnation == sequence.incarnation);
        had.is_some_and(|had| had.gaps.iter().any(|gap| gap.contains(&sequence.number)))
    }

    /// Adds the samples that the target has.
    pub(crate) fn add_reconciler(&mut self, partition: u32, found: Reconciler) {
        for (name, sequence) in found.sequences() {
            self.known.add(ProducerKey { partition, producer: name.clone() }, sequence);
        }
        self.high.extend(found.high().map(|high| (partition, high)));
        self.reconcilers.insert(partition, found);
    }

    /// The status of a sample, by the target's samples when the bridge was started.
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

    /// Records that the source's log was replaced. Returns whether it is read again.
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

    /// Compares the identity of a partition's log with that of the positions. Where another log
    /// begins below them, its samples are read from there on. A new identity of a log that fits
    /// them is adopted by [`Self::set_log`], once the checkpoint has it.
    pub(crate) fn check_log(&mut self, at: &PartitionInfo) -> LogStatus {
        let (partition, Some(log)) = (at.partition, at.log) else { return LogStatus::Same };
        let known = *self.logs.entry(partition).or_insert(log.id);
        let fits = log.fits_up_to(known);
        let next = self.next.get(&partition).copied();
        let position = next.max(self.reconcilers.get(&partition).map(Reconciler::end));
        let position = match position.filter(|position| *position > fits) {
            Some(position) => position,
            None if known == log.id => return LogStatus::Same,
            None => return LogStatus::Renamed(log.id),
        };
        self.set_log(partition, log.id);
        let last = self.last_read.get(&partition);
        if self.reconcilers.get(&partition).is_none_or(|found| found.is_past(fits)) {
            // If samples were read, those of the other log count whatever their time.
            let since = self.since.filter(|_| last.is_none());
            let last = last.filter(|(offset, _)| *offset < fits).cloned();
            self.reconcilers.insert(partition, Reconciler::from_position(fits, last, since));
        }
        if let Some(found) = self.reconcilers.get_mut(&partition) {
            found.another_log_from(fits, at.end);
        }
        self.next.remove(&partition);
        let fit = |at: &u32, offset: u64| *at != partition || offset < fits;
        self.queue.retain(|sample| fit(&sample.partition, sample.offset));
        self.failures.retain(|(at, offset), _| fit(at, *offset));
        self.last_read.retain(|at, (offset, _)| fit(at, *offset));
        self.settled.retain(|at, (offset, _)| fit(at, *offset));
        self.high.retain(|at, high| fit(at, *high));
        self.last_write = None;
        LogStatus::Replaced(format!(
            "partition {partition} of the source is another log from offset {fits} on, below the \
             position {position}: it was cut, or restored from a copy; it is forwarded from there, \
             and samples may be repeated"
        ))
    }

    /// Sets the identity of the log that the positions are of.
    pub(crate) fn set_log(&mut self, partition: u32, id: u64) {
        self.logs.insert(partition, id);
    }

    /// Forgets all offsets of a replaced log.
    fn forget_offsets(&mut self, partition: u32) {
        self.high.remove(&partition);
        self.settled.remove(&partition);
        self.last_read.remove(&partition);
        self.last_write = None;
    }

    /// The offset from which a partition of the source, from `first` to `end`, is read. The last
    /// sample read is read again, to detect a replaced log; not while samples are queued, which
    /// would match themselves.
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

    fn has_queued(&self, partition: u32) -> bool {
        self.queue.iter().any(|sample| sample.partition == partition)
    }

    /// Queues a sample, with its producer's name on other buses. Producers without a name get the
    /// bus's.
    pub(crate) fn enqueue(&mut self, context: &BridgeContext, mut sample: Sample) {
        let (partition, offset) = (sample.partition, sample.offset);
        let before = self.next.insert(partition, offset + 1);
        let rewinds = rewinds(&context.from);
        let producer = &mut sample.header.producer;
        if context.anonymous.matches(&producer.name) {
            producer.name = context.anonymous.name.clone();
            if rewinds {
                // An offset is no sequence. One is assigned when the target is known to lack the
                // sample. Each bridge is a new incarnation, as the last assigned sequence may be
                // unknown.
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

    /// The source delivers offsets below the next one: its log was replaced.
    fn source_rewound(&mut self, partition: u32, next: u64) {
        let last = self.last_read.get(&partition).cloned();
        self.forget_offsets(partition);
        if !self.has_queued(partition) {
            let new = || Reconciler::from_position(next, last, self.since);
            self.reconcilers.entry(partition).or_insert_with(new).rewind();
        }
    }

    /// The incarnation of a producer that has only the time of its first sample: newer than on the
    /// target, whatever that host's clock was.
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

    /// Assigns a sequence if the sample has none.
    pub(crate) fn assign_sequence(&mut self, sample: &mut Sample) {
        if sample.header.sequence != UNNUMBERED {
            return;
        }
        let newest = self.assigned_sequences.entry(sample.partition).or_default();
        *newest += 1;
        sample.header.sequence = *newest;
    }

    /// Leaves a gap for lost samples in the assigned sequences.
    pub(crate) fn skip_sequences(&mut self, partition: u32, lost: u64) {
        if let Some(newest) = self.assigned_sequences.get_mut(&partition) {
            *newest += lost;
        }
    }

    /// Marks a sample as settled. One that failed before may settle after later ones.
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

    /// The hop's mark of a sample that is sent while all below `low` are settled.
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
        // The log was truncated and has grown again.
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
