//! The consumers of a connection, shared by its readers.
//!
//! A consumer fetches a partition at one position at a time. A reader therefore borrows partitions
//! from the first consumer that does not fetch them already. A second reader of the same partition
//! starts a second consumer. Two more cases start one: a consumer that already has
//! [`FetchPace::most`] partitions, and a topic that was recreated under a name that the consumer
//! has read (see `topic_recreation`). Samples stay in librdkafka's queues, one per partition, until
//! the reader takes them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::TransportError;
use helio_bus::transport::locked;
use rdkafka::consumer::Consumer as _;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};

use crate::client::context::{Consumer, Context, GroupEvents};
use crate::client::error::{engine, failed, outage};
use crate::client::ffi::TopicId;
use crate::client::health::Health;
use crate::client::options::{BROKER_TIMEOUT, FetchPace, Options};
use crate::client::signal::ReaderSignal;

/// How soon a consumer's thread notices that the consumer is no longer used.
const CONSUMER_POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// How long a leaving group member is waited for, so that a program that exits has left its group.
/// Brokers that do not answer cause no longer delay.
const GROUP_LEAVE_TIMEOUT: Duration = Duration::from_millis(300);
/// The group name of consumers that belong to no group. Nothing is committed to it.
pub(crate) const NO_GROUP: &str = "_helio";

/// A partition's fetched samples, in librdkafka.
pub(crate) type SampleQueue = PartitionQueue<Context>;

/// Makes a queue signal the reader from now on; samples that are in it already do not. All handles
/// of a partition's queue share one callback, which is removed when any of them is dropped: earlier
/// handles must be gone.
pub(crate) fn signal_when_nonempty(queue: &mut SampleQueue, wake: &Arc<ReaderSignal>) {
    let wake = Arc::downgrade(wake);
    queue.set_nonempty_callback(move || {
        if let Some(wake) = wake.upgrade() {
            wake.ring();
        }
    });
}

/// A consumer, and the thread that serves its callbacks. That thread also destroys the consumer,
/// which takes as long as the brokers do.
pub(crate) struct Fetcher {
    pub(crate) consumer: Arc<Consumer>,
    /// Closed when the consumer was destroyed.
    ended: Mutex<Receiver<()>>,
    lent: Mutex<FetchedPartitions>,
    has_brokers: AtomicBool,
    pace: FetchPace,
    started: Instant,
    /// The consumer was abandoned: no more partitions are lent from it.
    abandoned: AtomicBool,
}

/// The partitions that a consumer fetches, and the topics that it has read.
#[derive(Default)]
struct FetchedPartitions {
    partitions: HashSet<(String, u32)>,
    /// The topic that it has read under each name. It cannot read another topic of that name.
    topics: HashMap<String, Option<TopicId>>,
}

impl FetchedPartitions {
    /// Whether it fetches none of these partitions and has room for them.
    fn is_free(&self, topic: NamedTopic<'_>, partitions: &[u32], most: usize) -> bool {
        let of_topic = |partition: &u32| (topic.0.to_owned(), *partition);
        let has_room =
            self.partitions.is_empty() || self.partitions.len() + partitions.len() <= most;
        has_room
            && self.topics.get(topic.0).is_none_or(|read| *read == topic.1)
            && !partitions.iter().any(|partition| self.partitions.contains(&of_topic(partition)))
    }
}

/// A topic's name, and its identifier where that is known.
pub(crate) type NamedTopic<'a> = (&'a str, Option<TopicId>);

impl Fetcher {
    /// Starts a consumer of a group; it is a member where there is a membership.
    pub(crate) fn start(
        options: &Options,
        health: &Arc<Health>,
        (group, membership): (&str, Option<Arc<dyn GroupEvents>>),
    ) -> Result<Self, TransportError> {
        let context = Context::new(health, membership);
        let consumer: Consumer = options
            .consumer(group)
            .create_with_context(context)
            .map_err(failed("start a consumer"))?;
        let consumer = Arc::new(consumer);
        consumer.context().belongs_to(&consumer);
        health.clients.add(&consumer);
        let (mut serving, (ending, ended)) = (Arc::clone(&consumer), mpsc::channel());
        let serve = move || {
            // No other thread drops the last reference: others hold one briefly.
            let consumer = loop {
                match Arc::try_unwrap(serving) {
                    Ok(consumer) => break consumer,
                    Err(shared) => serving = shared,
                }
                // Samples arrive in queues of their own; only callbacks and errors arrive here.
                if let Some(Err(error)) = serving.poll(CONSUMER_POLL_TIMEOUT) {
                    serving.context().failed(&error);
                }
            };
            drop(consumer);
            drop::<Sender<()>>(ending);
        };
        let thread = std::thread::Builder::new().name("kafka-fetcher".to_owned()).spawn(serve);
        thread.map_err(|error| engine("start a thread", error))?;
        let (lent, ended) = (Mutex::default(), Mutex::new(ended));
        let [has_brokers, abandoned] = [false; 2].map(AtomicBool::new);
        let (pace, started) = (options.pace, Instant::now());
        Ok(Self { consumer, ended, lent, has_brokers, pace, started, abandoned })
    }

    /// It stopped fetching: no more partitions are lent from it.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Drops the consumer, and waits briefly for it to leave its group.
    pub(crate) fn leave(self) {
        let Self { consumer, ended, .. } = self;
        drop(consumer);
        let _ = locked(&ended).recv_timeout(GROUP_LEAVE_TIMEOUT);
    }

    /// A partition's own queue. It must be requested before the partition is assigned.
    pub(crate) fn queue(
        consumer: &Arc<Consumer>,
        (topic, partition): (&str, u32),
    ) -> Result<SampleQueue, TransportError> {
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let queue = consumer.split_partition_queue(topic, number);
        queue.ok_or_else(|| no_queue(topic, partition))
    }

    /// The brokers' metadata of one topic or of all. Not for a consumer that fetches: a broker
    /// answers a connection's requests in order, and an empty fetch takes its time.
    pub(crate) fn fetch_metadata(
        &self,
        topic: Option<&str>,
        patience: Duration,
    ) -> Result<Metadata, KafkaError> {
        self.consumer.fetch_metadata(topic, patience)
    }

    /// The cluster's identifier.
    pub(crate) fn cluster(&self, patience: Duration) -> Result<String, TransportError> {
        let named = self.consumer.client().fetch_cluster_id(patience);
        named.ok_or_else(|| outage("the brokers have returned no cluster id".to_owned()))
    }

    /// A partition's first offset and its end, from its leader.
    pub(crate) fn ends(
        &self,
        topic: &str,
        partition: u32,
        patience: Duration,
    ) -> Result<(u64, u64), TransportError> {
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let asked = |left| self.consumer.fetch_watermarks(topic, number, left);
        let (first, end) = patiently(patience, asked)
            .map_err(|error| unanswered(&format!("query the offsets of {topic}"), error))?;
        let place = |offset| u64::try_from(offset).unwrap_or(0);
        Ok((place(first), place(end)))
    }

    /// The offsets of the first records at or after a time, in milliseconds of UTC. Partitions
    /// without such a record are left out.
    pub(crate) fn at_time(
        &self,
        topic: &str,
        (partitions, millis): (&[u32], u64),
        patience: Duration,
    ) -> Result<Vec<(u32, u64)>, TransportError> {
        let asked = partition_list(topic, partitions.iter().map(|each| (*each, millis)))?;
        self.offsets(&asked, "find the offset of a time", patience)
    }

    /// The ends of partitions, from their leaders; those without an answer are left out.
    pub(crate) fn all_ends(
        &self,
        topic: &str,
        partitions: &[u32],
        patience: Duration,
    ) -> Result<Vec<(u32, u64)>, TransportError> {
        let mut asked = partition_list(topic, partitions.iter().map(|each| (*each, 0)))?;
        asked.set_all_offsets(Offset::End).map_err(failed("set an offset"))?;
        self.offsets(&asked, "query the ends of partitions", patience)
    }

    /// The offsets of times.
    fn offsets(
        &self,
        asked: &TopicPartitionList,
        what: &str,
        patience: Duration,
    ) -> Result<Vec<(u32, u64)>, TransportError> {
        let found = patiently(patience, |left| {
            let found = self.consumer.offsets_for_times(asked.clone(), left)?;
            let refused = found.elements().iter().find_map(|element| element.error().err());
            refused.map_or(Ok(found), Err)
        });
        let found = found.map_err(|error| unanswered(what, error))?;
        Ok(found.elements().iter().filter_map(place).collect())
    }
}

/// Retries until there is an answer. A new topic or a moving partition has a named leader that does
/// not know it yet, or a dead one that is being replaced.
fn patiently<T>(
    patience: Duration,
    ask: impl Fn(Duration) -> Result<T, KafkaError>,
) -> Result<T, KafkaError> {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match ask(left) {
            Err(error) if moves(&error) && !left.is_zero() => {
                std::thread::sleep(Duration::from_millis(5));
            }
            answer => return answer,
        }
    }
}

/// A partition with its offset, if it has one.
pub(crate) fn place(element: &TopicPartitionListElem<'_>) -> Option<(u32, u64)> {
    let Offset::Offset(offset) = element.offset() else { return None };
    Some((u32::try_from(element.partition()).ok()?, u64::try_from(offset).ok()?))
}

/// Whether a retry on another broker, or on the same one a little later, may succeed.
fn moves(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::DestroyBroker
                | RDKafkaErrorCode::FencedLeaderEpoch
                | RDKafkaErrorCode::KafkaStorageError
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::OffsetNotAvailable
                | RDKafkaErrorCode::ReplicaNotAvailable
                | RDKafkaErrorCode::UnknownLeaderEpoch
                | RDKafkaErrorCode::UnknownPartition
                | RDKafkaErrorCode::UnknownTopicOrPartition
        )
    )
}

/// Why there was no answer in time. If a later answer was possible, it is an outage.
fn unanswered(what: &str, error: KafkaError) -> TransportError {
    if moves(&error) { outage(format!("{what}: {error}")) } else { failed(what)(error) }
}

fn no_queue(topic: &str, partition: u32) -> TransportError {
    crate::client::error::outage(format!("partition {partition} of {topic} has no queue"))
}

/// All consumers of a connection.
pub(crate) struct FetcherPool {
    options: Options,
    health: Arc<Health>,
    fetchers: Mutex<Vec<Arc<Fetcher>>>,
}

impl FetcherPool {
    pub(crate) fn new(options: &Options, health: &Arc<Health>) -> Arc<Self> {
        let (options, health) = (options.clone(), Arc::clone(health));
        Arc::new(Self { options, health, fetchers: Mutex::default() })
    }

    /// Lends partitions from the first consumer that does not fetch them and has read no other
    /// topic of that name.
    pub(crate) fn lend(
        self: &Arc<Self>,
        topic: NamedTopic<'_>,
        partitions: &[u32],
        pace: FetchPace,
    ) -> Result<LentPartitions, TransportError> {
        self.lend_of(topic, (partitions, pace), |_| true)
    }

    /// The same, from consumers that were started since then.
    pub(crate) fn lend_since(
        self: &Arc<Self>,
        topic: NamedTopic<'_>,
        (partitions, pace): (&[u32], FetchPace),
        since: Instant,
    ) -> Result<LentPartitions, TransportError> {
        self.lend_of(topic, (partitions, pace), |fetcher| fetcher.started >= since)
    }

    fn lend_of(
        self: &Arc<Self>,
        topic: NamedTopic<'_>,
        (partitions, pace): (&[u32], FetchPace),
        is_meant: impl Fn(&Fetcher) -> bool,
    ) -> Result<LentPartitions, TransportError> {
        let mut fetchers = locked(&self.fetchers);
        let is_usable = |fetcher: &&Arc<Fetcher>| !fetcher.abandoned.load(Ordering::Relaxed);
        let prompt =
            fetchers.iter().filter(|fetcher| fetcher.pace == FetchPace::Prompt).filter(is_usable);
        let prompt: usize = prompt.map(|fetcher| locked(&fetcher.lent).partitions.len()).sum();
        let is_first = prompt == 0 || prompt + partitions.len() <= FetchPace::Prompt.most();
        let pace = if is_first { FetchPace::Prompt } else { pace };
        let free = |fetcher: &&Arc<Fetcher>| {
            is_usable(fetcher)
                && is_meant(fetcher)
                && fetcher.pace == pace
                && locked(&fetcher.lent).is_free(topic, partitions, pace.most())
        };
        let fetcher = match fetchers.iter().find(free) {
            Some(found) => Arc::clone(found),
            None => {
                let options = self.options.at(pace);
                let started = Fetcher::start(&options, &self.health, (NO_GROUP, None))?;
                let started = Arc::new(started);
                fetchers.push(Arc::clone(&started));
                started
            }
        };
        let (name, id) = (topic.0.to_owned(), topic.1);
        let mut lent = locked(&fetcher.lent);
        lent.partitions.extend(partitions.iter().map(|p| (name.clone(), *p)));
        lent.topics.insert(name.clone(), id);
        drop(lent);
        let (partitions, pool) = (partitions.to_vec(), Arc::clone(self));
        Ok(LentPartitions { fetcher, topic: name, partitions, assigned: false, pool })
    }

    /// Partitions were returned. Unused consumers are dropped, except the first, unless that was
    /// abandoned.
    fn back(&self, lent: &LentPartitions) {
        let mut fetchers = locked(&self.fetchers);
        let mut left = locked(&lent.fetcher.lent);
        left.partitions.retain(|(topic, partition)| {
            *topic != lent.topic || !lent.partitions.contains(partition)
        });
        let idle = left.partitions.is_empty();
        drop(left);
        let mut place = 0;
        fetchers.retain(|fetcher| {
            place += 1;
            let stays = place == 1 && !fetcher.abandoned.load(Ordering::Relaxed);
            stays || !idle || !Arc::ptr_eq(fetcher, &lent.fetcher)
        });
    }
}

/// Partitions of one topic that a consumer fetches for one reader.
pub(crate) struct LentPartitions {
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) topic: String,
    partitions: Vec<u32>,
    assigned: bool,
    pool: Arc<FetcherPool>,
}

impl LentPartitions {
    /// Starts fetching at these offsets; returns the queues in the same order.
    pub(crate) fn assign(
        &mut self,
        starts: &[(u32, u64)],
        wake: &Arc<ReaderSignal>,
    ) -> Result<Vec<SampleQueue>, TransportError> {
        if starts.is_empty() {
            return Ok(Vec::new());
        }
        let consumer = &self.fetcher.consumer;
        let each = starts.iter().map(|(p, _)| Fetcher::queue(consumer, (&self.topic, *p)));
        let mut queues = each.collect::<Result<Vec<_>, _>>()?;
        queues.iter_mut().for_each(|queue| signal_when_nonempty(queue, wake));
        let list = partition_list(&self.topic, starts.iter().copied())?;
        consumer.incremental_assign(&list).map_err(failed("fetch partitions"))?;
        self.assigned = true;
        self.learn();
        Ok(queues)
    }

    /// Fetches additional partitions from their first records; `None` if the consumer fetches them
    /// for another reader.
    pub(crate) fn widen(
        &mut self,
        partitions: &[u32],
        wake: &Arc<ReaderSignal>,
    ) -> Result<Option<Vec<SampleQueue>>, TransportError> {
        let of_topic = |partition: &u32| (self.topic.clone(), *partition);
        let mut lent = locked(&self.fetcher.lent);
        if partitions.iter().any(|partition| lent.partitions.contains(&of_topic(partition))) {
            return Ok(None);
        }
        lent.partitions.extend(partitions.iter().map(of_topic));
        drop(lent);
        self.partitions.extend_from_slice(partitions);
        let starts: Vec<_> = partitions.iter().map(|partition| (*partition, 0)).collect();
        self.assign(&starts, wake).map(Some)
    }

    /// Makes the consumer learn the topic's leaders, which it would otherwise do a second later. A
    /// new consumer has to find the brokers first. For others the request suffices: they are busy
    /// with a fetch that is not waited for.
    fn learn(&self) {
        let new = !self.fetcher.has_brokers.swap(true, Ordering::Relaxed);
        let patience = if new { BROKER_TIMEOUT } else { Duration::from_millis(1) };
        // On failure it learns a second later.
        let _ = self.fetcher.consumer.fetch_metadata(Some(&self.topic), patience);
    }
}

impl Drop for LentPartitions {
    fn drop(&mut self) {
        if self.assigned
            && let Ok(list) = partition_list(&self.topic, self.partitions.iter().map(|p| (*p, 0)))
        {
            // It fails if the consumer is gone, and its assignment with it.
            let _ = self.fetcher.consumer.incremental_unassign(&list);
        }
        self.pool.back(self);
    }
}

/// The outcome of a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sought {
    /// The consumer fetches from the position.
    Moved,
    /// The consumer does not have the partition: its group is between two assignments.
    Unassigned,
}

/// Moves to another position of a partition. Samples fetched for the old position are dropped.
pub(crate) fn seek(
    consumer: &Consumer,
    topic: &str,
    partition: u32,
    offset: u64,
) -> Result<Sought, TransportError> {
    let until = Instant::now() + BROKER_TIMEOUT;
    loop {
        let list = partition_list(topic, [(partition, offset)])?;
        let sought =
            consumer.seek_partitions(list, BROKER_TIMEOUT).map_err(failed("seek to an offset"))?;
        let error = sought.elements().iter().find_map(|element| element.error().err());
        let Some(error) = error else { return Ok(Sought::Moved) };
        let assigned = consumer.assignment().map_err(failed("seek to an offset"))?;
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        if assigned.find_partition(topic, number).is_none() {
            return Ok(Sought::Unassigned);
        }
        if Instant::now() >= until {
            return Err(failed("seek to an offset")(error));
        }
        // A partition that was just assigned may not have started; librdkafka's own thread does
        // that without waiting for a broker, once it has a processor.
        std::thread::sleep(SEEK_RETRY_INTERVAL);
    }
}

/// How long a seek waits for librdkafka's thread before it is tried again.
const SEEK_RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Partitions of a topic with their offsets, in librdkafka's type.
pub(crate) fn partition_list(
    topic: &str,
    places: impl IntoIterator<Item = (u32, u64)>,
) -> Result<TopicPartitionList, TransportError> {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in places {
        let partition = i32::try_from(partition).unwrap_or(i32::MAX);
        let offset = Offset::Offset(i64::try_from(offset).unwrap_or(i64::MAX));
        list.add_partition_offset(topic, partition, offset).map_err(failed("set an offset"))?;
    }
    Ok(list)
}
