//! Finds where a topic resumes, from the forwarded samples.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::{ControlFlow, Range};
use std::time::{Duration, Instant};

use helio_bus::transport::PartitionInfo;
use helio_bus::{
    EventRef, Lagging, ProducerName, ReadError, SampleRef, Start, Subscribe, Topic, TopicError,
};
use helio_core::qos::History;
use thiserror::Error;

use crate::hops::{Hops, Mark};
use crate::reconcile::{MAX_COMPARED_SAMPLES, Reconciler};
use crate::types::{AnonymousProducer, ProducerSequence, SampleIdentity};

/// How many of the newest samples are read first.
const INITIAL_WINDOW_SAMPLES: u64 = 256;
/// The growth of the next window, if no forwarded sample was found.
const WINDOW_GROWTH_FACTOR: u64 = 16;
/// How many of the newest samples of a partition are searched for producers of a source without
/// offsets. Older ones may be forwarded again, and readers drop them.
const MAX_SCANNED_SAMPLES: u64 = 1_000_000;
/// The most remembered gaps in a producer's sequences, the newest ones.
const MAX_GAPS: usize = 1024;
/// How long the target may deliver nothing while it is read.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a topic begins that has no forwarded sample on the target yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Begin {
    /// As for a late joiner: with the oldest sample, or with the next published one if the topic
    /// promises no history. So old commands are not forwarded.
    #[default]
    AsPromised,
    /// With the oldest stored sample.
    Earliest,
    /// With the next published sample.
    Latest,
}

impl Begin {
    pub(crate) fn is_earliest(self, history: History) -> bool {
        match self {
            Self::AsPromised => history != History::None,
            Self::Earliest => true,
            Self::Latest => false,
        }
    }
}

#[derive(Debug, Error)]
pub(crate) enum PositionError {
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the target does not deliver its own samples; retrying")]
    Silent,
}

/// Options for reading all stored samples, as written.
pub(crate) fn read_options(start: Start) -> Subscribe {
    Subscribe::from(start).as_written().lagging(Lagging::Lossless).lifespan(Duration::MAX)
}

/// The forwarded samples in a partition of the target, as far back as needed to know what is
/// settled; none if there are none. Reads ever larger windows back from the end.
pub(crate) fn forwarded_samples(
    target: &Topic,
    partition: &PartitionInfo,
    (source, anonymous): (&str, &AnonymousProducer),
) -> Result<Option<Reconciler>, PositionError> {
    let (mut upto, mut window) = (partition.end, INITIAL_WINDOW_SAMPLES);
    let mut own: Vec<(Mark, SampleIdentity)> = Vec::new();
    while upto > partition.first && !is_complete(&own) && own.len() < MAX_COMPARED_SAMPLES {
        let from = upto.saturating_sub(window).max(partition.first);
        let mut before = VecDeque::new();
        visit(target, partition.partition, (from, upto), |sample| {
            if let Some((bus, mark)) = Hops::of(sample.headers).last()
                && bus == source
            {
                before.push_back((mark, SampleIdentity::of(*sample, anonymous)));
                if before.len() > MAX_COMPARED_SAMPLES {
                    before.pop_front();
                }
            }
        })?;
        own.extend(before.into_iter().rev());
        (upto, window) = (from, window.saturating_mul(WINDOW_GROWTH_FACTOR));
    }
    Ok(Reconciler::from_samples(own))
}

/// Whether these samples, newest first, include all that were in flight with the newest one.
fn is_complete(own: &[(Mark, SampleIdentity)]) -> bool {
    let Some((Mark { low, high, .. }, _)) = own.first() else { return false };
    let within = own.iter().map(|(mark, _)| mark.offset).filter(|at| (low..=high).contains(&at));
    let within: HashSet<_> = within.collect();
    within.len() as u64 > high - low || own.iter().any(|(mark, _)| mark.high < *low)
}

/// A producer's sequences in a partition.
#[derive(Debug)]
pub(crate) struct ProducerHistory {
    /// The newest one.
    pub(crate) newest: ProducerSequence,
    /// Missing sequence numbers of its incarnation.
    pub(crate) gaps: Vec<Range<u64>>,
}

/// The forwarded producers among the newest samples of a partition of the target; for sources
/// without offsets.
pub(crate) fn forwarded_producers(
    target: &Topic,
    partition: &PartitionInfo,
    source: &str,
) -> Result<HashMap<ProducerName, ProducerHistory>, PositionError> {
    producers(target, partition, |hops| hops.last().is_some_and(|(bus, _)| bus == source))
}

/// The producers in a partition of the source whose samples were never on the target.
pub(crate) fn own_producers(
    source: &Topic,
    partition: &PartitionInfo,
    target: &str,
) -> Result<HashMap<ProducerName, ProducerHistory>, PositionError> {
    producers(source, partition, |hops| !hops.visited(target))
}

fn producers(
    topic: &Topic,
    partition: &PartitionInfo,
    counts: impl Fn(Hops<'_>) -> bool,
) -> Result<HashMap<ProducerName, ProducerHistory>, PositionError> {
    let from = partition.end.saturating_sub(MAX_SCANNED_SAMPLES).max(partition.first);
    let mut all: HashMap<ProducerName, ProducerHistory> = HashMap::new();
    visit(topic, partition.partition, (from, partition.end), |sample| {
        if counts(Hops::of(sample.headers)) {
            let sequence = ProducerSequence::of(*sample);
            match all.get_mut(&sample.producer.name) {
                Some(had) => had.add(sequence),
                None => {
                    let had = ProducerHistory { newest: sequence, gaps: Vec::new() };
                    all.insert(sample.producer.name.clone(), had);
                }
            }
        }
    })?;
    Ok(all)
}

impl ProducerHistory {
    fn add(&mut self, sequence: ProducerSequence) {
        if sequence.incarnation > self.newest.incarnation {
            self.gaps.clear();
        } else if sequence > self.newest && sequence.number > self.newest.number + 1 {
            self.gaps.push(self.newest.number + 1..sequence.number);
        }
        // A sample that was sent after later ones fills its gap.
        self.gaps.retain_mut(|gap| {
            if sequence.incarnation == self.newest.incarnation && gap.start == sequence.number {
                gap.start += 1;
            }
            !gap.is_empty()
        });
        if self.gaps.len() > MAX_GAPS {
            self.gaps.remove(0);
        }
        self.newest = sequence.max(self.newest);
    }
}

/// Visits the samples in a range of offsets.
fn visit(
    target: &Topic,
    partition: u32,
    (offset, upto): (u64, u64),
    mut visit: impl FnMut(&SampleRef<'_>),
) -> Result<(), PositionError> {
    if offset >= upto {
        return Ok(());
    }
    let options = read_options(Start::Offset { partition, offset }).partitions([partition]);
    let mut samples = target.subscribe(options)?;
    let mut until = Instant::now() + READ_TIMEOUT;
    loop {
        let mut past = false;
        let before = samples.positions();
        samples.visit(1024, |event| {
            let EventRef::Sample(sample) = event else { return ControlFlow::Continue(()) };
            if sample.offset >= upto {
                past = true;
                return ControlFlow::Break(());
            }
            visit(&sample);
            ControlFlow::Continue(())
        })?;
        let now = samples.positions();
        if past || now.iter().all(|at| at.partition != partition || at.next >= upto) {
            return Ok(());
        }
        // Other events, such as a missed deadline, are no progress.
        if now.iter().map(|at| at.next).ne(before.iter().map(|at| at.next)) {
            until = Instant::now() + READ_TIMEOUT;
        } else if !samples.wait_until(Some(until))? {
            return Err(PositionError::Silent);
        }
    }
}
