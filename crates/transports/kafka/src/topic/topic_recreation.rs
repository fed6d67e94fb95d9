//! Topics that are deleted and recreated under the same name; their identifiers differ.
//!
//! librdkafka stores a partition's state by its topic's name: the position, and the leader epoch.
//! The new topic's leader epochs start again; librdkafka takes them for stale metadata and ignores
//! them for ever. A reader of such a topic therefore gets another consumer, from the new topic's
//! first records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use helio_bus::TransportError;
use helio_bus::transport::{Begin, locked};

use crate::client::fetcher::{ReaderPosition, ReaderSignal, SampleQueue};
use crate::client::ffi::{self, TopicId, TopicMetadata};
use crate::topic::connection::Connection;
use crate::topic::group::{GroupMember, Member};
use crate::topic::reader::{Source, StartPosition};
use crate::topic::transport::TopicState;

/// How often topics are checked for new partitions and recreation.
const TOPIC_CHECK_INTERVAL: Duration = Duration::from_secs(20);
/// How long the brokers may take to answer.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);

/// The source of a recreated topic's samples.
pub(crate) struct ReplacementSource {
    // Declared before the source: queues are dropped before the consumer that fills them.
    pub(crate) queues: Vec<(StartPosition, SampleQueue)>,
    pub(crate) source: Source,
}

/// The partitions that a reader reads.
pub(crate) enum PartitionSelection {
    All,
    These(Vec<u32>),
    /// Those of a group's member.
    Shared(GroupMember),
}

/// A reader that receives changes of its topic.
pub(crate) struct ReaderRegistration {
    pub(crate) wake: Weak<ReaderSignal>,
    topic: Weak<TopicState>,
    reads: PartitionSelection,
    /// Where it began.
    begin: Begin,
    /// The identifier of the topic that it reads; `None` until that was seen.
    id: Mutex<Option<TopicId>>,
}

impl ReaderRegistration {
    pub(crate) fn new(
        wake: &Arc<ReaderSignal>,
        topic: &Arc<TopicState>,
        (reads, begin, id): (PartitionSelection, &Begin, Option<TopicId>),
    ) -> Self {
        let (wake, topic) = (Arc::downgrade(wake), Arc::downgrade(topic));
        Self { wake, topic, reads, begin: begin.clone(), id: Mutex::new(id) }
    }

    /// The ends of the topic's partitions, from their leaders.
    pub(crate) fn ends(
        &self,
        partitions: &[u32],
        patience: Duration,
    ) -> Result<Vec<(u32, u64)>, TransportError> {
        match self.topic.upgrade() {
            Some(topic) if !partitions.is_empty() => {
                topic.connection.client.all_ends(&topic.kafka, partitions, patience)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Makes the reader resume at these positions with a consumer that was started since then; a
    /// group's member leaves and joins again. This waits for the brokers.
    pub(crate) fn go_on(
        &self,
        places: &[ReaderPosition],
        since: Instant,
    ) -> Result<(), TransportError> {
        let (Some(wake), Some(topic)) = (self.wake.upgrade(), self.topic.upgrade()) else {
            return Ok(());
        };
        // So that no check finds another topic meanwhile.
        let id = locked(&self.id);
        let next: Vec<_> = places.iter().map(|place| (place.partition, place.next)).collect();
        if let PartitionSelection::Shared(joined) = &self.reads {
            let described = topic.connection.described(&topic.kafka, Duration::ZERO)?;
            let begin = (&self.begin, &wake);
            let member = Member::join((&topic, described), joined.clone().at(next), begin)?;
            wake.go_on(ReplacementSource { queues: Vec::new(), source: Source::Member(member) });
            return Ok(());
        }
        let partitions: Vec<_> = places.iter().map(|place| place.partition).collect();
        let pool = &topic.connection.pool;
        let mut lent = pool.lend_since((&topic.kafka, *id), (&partitions, topic.pace()), since)?;
        let queues = lent.assign(&next, &wake)?;
        let starts =
            next.into_iter().map(|(partition, offset)| StartPosition::at(partition, offset));
        wake.go_on(ReplacementSource {
            queues: starts.zip(queues).collect(),
            source: Source::Lent(lent),
        });
        Ok(())
    }

    /// The topic's name, as long as it is read.
    fn name(&self) -> Option<String> {
        self.wake.upgrade()?;
        Some(self.topic.upgrade()?.kafka.clone())
    }

    /// Checks the brokers' description of the topic. If it was recreated, this does not wait for
    /// its leaders: its consumer starts when they are known.
    fn look(&self, described: TopicMetadata) -> Result<(), TransportError> {
        let (Some(wake), Some(topic)) = (self.wake.upgrade(), self.topic.upgrade()) else {
            return Ok(());
        };
        let mut id = locked(&self.id);
        match *id {
            Some(id) if id != described.id => {
                let anew = self.anew(&topic, &wake, described)?;
                wake.renew(anew, described.partitions);
                wake.there();
                if let Some(these) = self.are_gone(described.partitions) {
                    wake.gone(&format!("partitions {these:?} of the topic {}", topic.kafka));
                }
            }
            Some(_) => wake.is_same(),
            None => {}
        }
        *id = Some(described.id);
        wake.has(described.partitions);
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

    fn anew(
        &self,
        topic: &Arc<TopicState>,
        wake: &Arc<ReaderSignal>,
        described: TopicMetadata,
    ) -> Result<ReplacementSource, TransportError> {
        let all = 0..described.partitions;
        let partitions: Vec<u32> = match &self.reads {
            PartitionSelection::All => all.collect(),
            PartitionSelection::These(named) => {
                all.filter(|partition| named.contains(partition)).collect()
            }
            PartitionSelection::Shared(joined) => {
                let begin = (&Begin::Earliest, wake);
                let member = Member::join((topic, Some(described)), joined.clone(), begin)?;
                return Ok(ReplacementSource {
                    queues: Vec::new(),
                    source: Source::Member(member),
                });
            }
        };
        let named = (&*topic.kafka, Some(described.id));
        let mut lent = topic.connection.pool.lend(named, &partitions, topic.pace())?;
        let places: Vec<_> = partitions.iter().map(|partition| (*partition, 0)).collect();
        let queues = lent.assign(&places, wake)?;
        let queues = partitions.into_iter().map(StartPosition::first).zip(queues).collect();
        Ok(ReplacementSource { queues, source: Source::Lent(lent) })
    }
}

/// Starts the checking thread. It ends with the connection. It waits for brokers, so nothing may
/// wait for it, least of all heartbeats.
pub(crate) fn start(connection: &Arc<Connection>) -> std::io::Result<()> {
    let (weak, health) = (Arc::downgrade(connection), Arc::clone(&connection.health));
    let run = move || {
        while !health.wait_for_end(TOPIC_CHECK_INTERVAL) {
            // The connection is held only during the check.
            let Some(connection) = weak.upgrade() else { return };
            if !health.is_lost() {
                look(&connection);
            }
        }
    };
    std::thread::Builder::new().name("kafka-topics".to_owned()).spawn(run).map(drop)
}

/// Checks for new partitions and recreated topics, and updates the readers.
fn look(connection: &Connection) {
    let mut readers = BTreeMap::<String, Vec<Arc<ReaderRegistration>>>::new();
    for reader in connection.reader_registrations() {
        if let Some(name) = reader.name() {
            readers.entry(name).or_default().push(reader);
        }
    }
    if readers.is_empty() {
        return;
    }
    let told =
        ffi::describe(&connection.client.consumer, readers.keys().cloned(), METADATA_TIMEOUT);
    // If there is no answer, the next check repeats it.
    let Some(told) = told else { return };
    for (name, readers) in readers {
        let Some(described) = told.get(&name) else { continue };
        for reader in readers {
            if connection.is_closed() {
                return;
            }
            // If no consumer can be started, the next check repeats it.
            let _ = reader.look(*described);
        }
    }
}
