//! Topics that are deleted and recreated under the same name; their identifiers differ.
//!
//! librdkafka stores a partition's state by its topic's name: the position, and the leader epoch.
//! A consumer does not detect the new topic
//! ([#3255](https://github.com/confluentinc/librdkafka/issues/3255)). The new topic's leader epochs
//! start again, and librdkafka ignores them as stale metadata for ever
//! ([#4898](https://github.com/confluentinc/librdkafka/issues/4898)). A reader of such a topic
//! therefore gets another consumer, from the new topic's first records. Tests:
//! `a_topic_that_is_made_anew…` in `tests/soak/outage.rs`, and `tests/soak/others.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use helio_bus::TransportError;
use helio_bus::transport::{Begin, locked};

use crate::client::ffi::{self, TopicId, TopicMetadata};
use crate::client::link::Link;
use crate::client::signal::ReaderSignal;
use crate::topic::group::{GroupMember, Member};
use crate::topic::reader_updates::{ReaderPosition, ReaderUpdates, ReplacementSource, Source};
use crate::topic::start::StartPosition;
use crate::topic::state::TopicState;

/// How often topics are checked for new partitions and recreation.
const TOPIC_CHECK_INTERVAL: Duration = Duration::from_secs(20);
/// How long the brokers may take to describe the topics.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);

/// The partitions that a reader reads.
pub(crate) enum PartitionSelection {
    All,
    These(Vec<u32>),
    /// Those of a group's member.
    Shared(GroupMember),
}

/// A reader that receives changes of its topic.
pub(crate) struct ReaderRegistration {
    updates: Weak<ReaderUpdates>,
    topic: Weak<TopicState>,
    reads: PartitionSelection,
    /// Where it began.
    begin: Begin,
    /// The identifier of the topic that it reads; `None` until that was seen.
    id: Mutex<Option<TopicId>>,
}

impl ReaderRegistration {
    pub(crate) fn new(
        updates: &Arc<ReaderUpdates>,
        topic: &Arc<TopicState>,
        (reads, begin, id): (PartitionSelection, &Begin, Option<TopicId>),
    ) -> Self {
        let (updates, topic) = (Arc::downgrade(updates), Arc::downgrade(topic));
        Self { updates, topic, reads, begin: begin.clone(), id: Mutex::new(id) }
    }

    /// The reader's updates, unless it was dropped.
    pub(crate) fn updates(&self) -> Option<Arc<ReaderUpdates>> {
        self.updates.upgrade()
    }

    /// The ends of the topic's partitions, from their leaders.
    pub(crate) fn ends(
        &self,
        partitions: &[u32],
        patience: Duration,
    ) -> Result<Vec<(u32, u64)>, TransportError> {
        match self.topic.upgrade() {
            Some(topic) if !partitions.is_empty() => {
                topic.link.client.all_ends(&topic.kafka, partitions, patience)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Makes the reader resume at these positions with a consumer that was started since then; a
    /// group's member leaves and joins again. This waits for the brokers.
    pub(crate) fn resume(
        &self,
        places: &[ReaderPosition],
        since: Instant,
    ) -> Result<(), TransportError> {
        let (Some(updates), Some(topic)) = (self.updates.upgrade(), self.topic.upgrade()) else {
            return Ok(());
        };
        // So that no check finds another topic meanwhile.
        let id = locked(&self.id);
        let next: Vec<_> = places.iter().map(|place| (place.partition, place.next)).collect();
        if let PartitionSelection::Shared(joined) = &self.reads {
            let described = topic.link.client.described(&topic.kafka, Duration::ZERO)?;
            let begin = (&self.begin, &updates.signal);
            let member = Member::join((&topic, described), joined.clone().at(next), begin)?;
            updates
                .resume(ReplacementSource { queues: Vec::new(), source: Source::Member(member) });
            return Ok(());
        }
        let partitions: Vec<_> = places.iter().map(|place| place.partition).collect();
        let pool = &topic.link.pool;
        let mut lent = pool.lend_since((&topic.kafka, *id), (&partitions, topic.pace()), since)?;
        let queues = lent.assign(&next, &updates.signal)?;
        let starts =
            next.into_iter().map(|(partition, offset)| StartPosition::at(partition, offset));
        updates.resume(ReplacementSource {
            queues: starts.zip(queues).collect(),
            source: Source::Lent(lent),
        });
        Ok(())
    }

    /// The topic's name, as long as it is read.
    fn name(&self) -> Option<String> {
        self.updates()?;
        Some(self.topic.upgrade()?.kafka.clone())
    }

    /// Checks the brokers' description of the topic. If it was recreated, this does not wait for
    /// its leaders: its consumer starts when they are known.
    fn check(&self, described: TopicMetadata) -> Result<(), TransportError> {
        let (Some(updates), Some(topic)) = (self.updates.upgrade(), self.topic.upgrade()) else {
            return Ok(());
        };
        let mut id = locked(&self.id);
        match *id {
            Some(id) if id != described.id => {
                let source = self.recreated_source(&topic, &updates.signal, described)?;
                updates.recreate(source, described.partitions);
                updates.signal.topic_exists();
                if let Some(these) = self.are_gone(described.partitions) {
                    updates.signal.topic_missing(&format!(
                        "partitions {these:?} of the topic {}",
                        topic.kafka
                    ));
                }
            }
            Some(_) => updates.unchanged(),
            None => {}
        }
        *id = Some(described.id);
        updates.set_partitions(described.partitions);
        Ok(())
    }

    /// The partitions that it reads, if none of them exists.
    fn are_gone(&self, there: u32) -> Option<&[u32]> {
        match &self.reads {
            PartitionSelection::These(named) => {
                named.iter().all(|named| *named >= there).then_some(named)
            }
            PartitionSelection::All | PartitionSelection::Shared(_) => None,
        }
    }

    fn recreated_source(
        &self,
        topic: &Arc<TopicState>,
        signal: &Arc<ReaderSignal>,
        described: TopicMetadata,
    ) -> Result<ReplacementSource, TransportError> {
        let all = 0..described.partitions;
        let partitions: Vec<u32> = match &self.reads {
            PartitionSelection::All => all.collect(),
            PartitionSelection::These(named) => {
                all.filter(|partition| named.contains(partition)).collect()
            }
            PartitionSelection::Shared(joined) => {
                let begin = (&Begin::Earliest, signal);
                let member = Member::join((topic, Some(described)), joined.clone(), begin)?;
                return Ok(ReplacementSource {
                    queues: Vec::new(),
                    source: Source::Member(member),
                });
            }
        };
        let named = (&*topic.kafka, Some(described.id));
        let mut lent = topic.link.pool.lend(named, &partitions, topic.pace())?;
        let places: Vec<_> = partitions.iter().map(|partition| (*partition, 0)).collect();
        let queues = lent.assign(&places, signal)?;
        let queues = partitions.into_iter().map(StartPosition::first).zip(queues).collect();
        Ok(ReplacementSource { queues, source: Source::Lent(lent) })
    }
}

/// The readers of a connection.
#[derive(Default)]
pub(crate) struct ReaderRegistry(Mutex<Vec<Arc<ReaderRegistration>>>);

impl ReaderRegistry {
    /// Adds a reader that receives outages, the connection's end, and changes of its topic.
    pub(crate) fn add(&self, reader: ReaderRegistration) {
        let mut readers = locked(&self.0);
        readers.retain(|reader| reader.updates.strong_count() > 0);
        readers.push(Arc::new(reader));
    }

    pub(crate) fn all(&self) -> Vec<Arc<ReaderRegistration>> {
        locked(&self.0).clone()
    }
}

/// Starts the checking thread. It ends with the connection. It waits for brokers, so nothing may
/// wait for it, least of all heartbeats.
pub(crate) fn start(link: &Arc<Link>, readers: &Arc<ReaderRegistry>) -> std::io::Result<()> {
    let (link, health) = (Arc::downgrade(link), Arc::clone(&link.health));
    let readers = Arc::clone(readers);
    let run = move || {
        while !health.wait_for_end(TOPIC_CHECK_INTERVAL) {
            // The link is held only during the check.
            let Some(link) = link.upgrade() else { return };
            if !health.is_lost() {
                check(&link, &readers);
            }
        }
    };
    std::thread::Builder::new().name("kafka-topics".to_owned()).spawn(run).map(drop)
}

/// Checks for new partitions and recreated topics, and updates the readers.
fn check(link: &Link, registry: &ReaderRegistry) {
    let mut readers = BTreeMap::<String, Vec<Arc<ReaderRegistration>>>::new();
    for reader in registry.all() {
        if let Some(name) = reader.name() {
            readers.entry(name).or_default().push(reader);
        }
    }
    if readers.is_empty() {
        return;
    }
    let described = ffi::describe(&link.client.consumer, readers.keys().cloned(), METADATA_TIMEOUT);
    // If there is no answer, the next check repeats it.
    let Some(topics) = described else { return };
    for (name, readers) in readers {
        let Some(described) = topics.get(&name) else { continue };
        for reader in readers {
            if link.is_closed() {
                return;
            }
            // If no consumer can be started, the next check repeats it.
            let _ = reader.check(*described);
        }
    }
}
