//! Data between a reader and background threads: changes of its topic, and its positions.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use helio_bus::transport::locked;

use crate::client::context::Consumer;
use crate::client::fetcher::{LentPartitions, SampleQueue};
use crate::client::signal::ReaderSignal;
use crate::topic::group::Member;
use crate::topic::start::StartPosition;

/// The source of a reader's partitions.
pub(crate) enum Source {
    Lent(LentPartitions),
    Member(Member),
}

impl Source {
    pub(crate) fn consumer(&self) -> &Arc<Consumer> {
        match self {
            Self::Lent(lent) => &lent.fetcher.consumer,
            Self::Member(member) => member.consumer(),
        }
    }
}

/// The source of a recreated topic's samples.
pub(crate) struct ReplacementSource {
    // Declared before the source: queues are dropped before the consumer that fills them.
    pub(crate) queues: Vec<(StartPosition, SampleQueue)>,
    pub(crate) source: Source,
}

/// A reader's position in a partition, when it has taken all fetched samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReaderPosition {
    pub(crate) partition: u32,
    pub(crate) next: u64,
    /// The partition's end as of its consumer's newest fetch; 0 before the first.
    pub(crate) fetched_end: u64,
}

/// Changes to a reader's topic by others.
#[derive(Default)]
struct TopicChanges {
    /// The topic was recreated: the new topic's queues.
    recreated: Option<ReplacementSource>,
    /// The topic is the same, and its consumer stopped fetching: queues of another consumer.
    instead: Option<ReplacementSource>,
    /// The current number of partitions.
    partitions: u32,
}

/// A reader's signal, the changes of its topic, and its published positions.
#[derive(Default)]
pub(crate) struct ReaderUpdates {
    pub(crate) signal: Arc<ReaderSignal>,
    topic: Mutex<TopicChanges>,
    /// How many checks have found the topic unchanged.
    same: AtomicU64,
    /// How many watchdogs observe the reader's position.
    watched: AtomicUsize,
    /// The position at the end of its newest observed poll.
    stands: Mutex<Option<(Instant, Vec<ReaderPosition>)>>,
    /// The reader was dropped.
    ended: AtomicBool,
}

impl ReaderUpdates {
    /// Makes the reader continue with the queues of a recreated topic that has so many partitions.
    pub(crate) fn recreate(&self, recreated: ReplacementSource, partitions: u32) {
        let mut topic = locked(&self.topic);
        topic.partitions = partitions;
        let not_needed = match self.ended.load(Ordering::SeqCst) {
            true => Some(recreated),
            false => topic.recreated.replace(recreated),
        };
        drop(topic);
        drop(not_needed);
        self.signal.ring();
    }

    /// Makes the reader resume at its position with another consumer.
    pub(crate) fn resume(&self, instead: ReplacementSource) {
        let mut topic = locked(&self.topic);
        let not_needed = match self.ended.load(Ordering::SeqCst) {
            true => Some(instead),
            false => topic.instead.replace(instead),
        };
        drop(topic);
        drop(not_needed);
        self.signal.ring();
    }

    /// The reader was dropped.
    pub(crate) fn end(&self) {
        let mut topic = locked(&self.topic);
        self.ended.store(true, Ordering::SeqCst);
        let not_needed = (topic.recreated.take(), topic.instead.take());
        drop(topic);
        drop(not_needed);
    }

    /// The queues of a recreated topic, those of another consumer of the same topic, and the number
    /// of partitions. Queues are returned once.
    pub(crate) fn topic(&self) -> (Option<ReplacementSource>, Option<ReplacementSource>, u32) {
        let mut topic = locked(&self.topic);
        (topic.recreated.take(), topic.instead.take(), topic.partitions)
    }

    /// Makes the reader publish its position until [`Self::unwatch`].
    pub(crate) fn watch(&self) {
        self.watched.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unwatch(&self) {
        self.watched.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed) > 0
    }

    /// A poll has ended at these positions.
    pub(crate) fn stands_at(&self, places: Vec<ReaderPosition>) {
        *locked(&self.stands) = Some((Instant::now(), places));
    }

    /// The reader's positions, if it has polled since then.
    pub(crate) fn stands(&self, since: Instant) -> Option<Vec<ReaderPosition>> {
        let stands = locked(&self.stands);
        stands.as_ref().filter(|(at, _)| *at >= since).map(|(_, places)| places.clone())
    }

    /// Counts a check that found the topic unchanged.
    pub(crate) fn unchanged(&self) {
        self.same.fetch_add(1, Ordering::SeqCst);
    }

    /// How many checks have found the topic unchanged.
    pub(crate) fn unchanged_checks(&self) -> u64 {
        self.same.load(Ordering::SeqCst)
    }

    pub(crate) fn set_partitions(&self, partitions: u32) {
        let before = std::mem::replace(&mut locked(&self.topic).partitions, partitions);
        if before != partitions {
            self.signal.ring();
        }
    }
}
