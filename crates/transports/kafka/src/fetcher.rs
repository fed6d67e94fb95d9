//! The consumers of a connection, shared by its readers.
//!
//! A consumer fetches a partition at one place at a time. A reader is therefore lent partitions of
//! the first consumer that has none of them; a second reader of the same partition makes a second
//! consumer. Samples stay in librdkafka's queue, one a partition, until their reader takes them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Bell, Outage, TransportError, Waiters};
use rdkafka::consumer::Consumer as _;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::context::{Consumer, Context};
use crate::error::{engine, failed};
use crate::group::Membership;
use crate::monitor::Health;
use crate::options::{Options, PATIENCE};

/// How soon a consumer's thread notices that it is to end.
const STOP: Duration = Duration::from_millis(100);
/// The group in whose name partitions are fetched that no group shares. Nothing is committed to it.
pub(crate) const NO_GROUP: &str = "_helio";

/// A partition's samples, as librdkafka has fetched them.
pub(crate) type Queue = PartitionQueue<Context>;

/// What rings for a reader: samples in its queues, outages, the end.
#[derive(Default)]
pub(crate) struct Wake {
    rung: AtomicBool,
    waiters: Mutex<Waiters>,
    outages: Mutex<Vec<Outage>>,
}

impl Wake {
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        let waiters = locked(&self.waiters).take();
        waiters.ring();
    }

    pub(crate) fn tell(&self, outage: &Outage) {
        locked(&self.outages).push(outage.clone());
        self.ring();
    }

    /// Before looking: what comes from now on rings anew.
    pub(crate) fn looking(&self) {
        self.rung.store(false, Ordering::SeqCst);
    }

    /// After a look that did not come to the end.
    pub(crate) fn more(&self) {
        self.rung.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    pub(crate) fn outages(&self) -> Vec<Outage> {
        std::mem::take(&mut *locked(&self.outages))
    }

    pub(crate) fn arm(&self, bell: &Arc<dyn Bell>, token: u64) {
        locked(&self.waiters).add(bell, token);
    }

    pub(crate) fn disarm(&self, bell: &Arc<dyn Bell>, token: u64) {
        locked(&self.waiters).remove(bell, token);
    }
}

/// One consumer, and the thread that serves its callbacks.
pub(crate) struct Fetcher {
    pub(crate) consumer: Arc<Consumer>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    lent: Mutex<HashSet<(String, u32)>>,
    knows_brokers: AtomicBool,
}

impl Fetcher {
    /// A consumer in the name of a group, and a member of it where there is a membership.
    pub(crate) fn start(
        options: &Options,
        health: &Arc<Health>,
        (group, membership): (&str, Option<Arc<Membership>>),
    ) -> Result<Self, TransportError> {
        let context = Context::new(health, membership);
        let consumer: Consumer = options
            .consumer(group)
            .create_with_context(context)
            .map_err(failed("start a consumer"))?;
        let consumer = Arc::new(consumer);
        consumer.context().belongs_to(&consumer);
        let stop = Arc::new(AtomicBool::new(false));
        let (serving, stopped) = (Arc::clone(&consumer), Arc::clone(&stop));
        let serve = move || {
            while !stopped.load(Ordering::Acquire) {
                // Samples are in queues of their own: what comes here are callbacks.
                let _ = serving.poll(STOP);
            }
        };
        let thread = std::thread::Builder::new().name("kafka-fetcher".to_owned()).spawn(serve);
        let thread = thread.map_err(|error| engine("start a thread", error))?;
        let (thread, lent, knows_brokers) =
            (Some(thread), Mutex::default(), AtomicBool::new(false));
        Ok(Self { consumer, stop, thread, lent, knows_brokers })
    }

    /// A partition's own queue, which rings. To be asked for before it is assigned.
    pub(crate) fn queue(
        consumer: &Arc<Consumer>,
        (topic, partition): (&str, u32),
        wake: &Arc<Wake>,
    ) -> Result<Queue, TransportError> {
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let queue = consumer.split_partition_queue(topic, number);
        let mut queue = queue.ok_or_else(|| no_queue(topic, partition))?;
        let wake = Arc::downgrade(wake);
        queue.set_nonempty_callback(move || {
            if let Some(wake) = wake.upgrade() {
                wake.ring();
            }
        });
        Ok(queue)
    }

    /// What the brokers say about a topic, or all. Not of one that fetches: a broker answers the
    /// requests of a connection in turn, and a fetch that finds nothing takes its time.
    pub(crate) fn fetch_metadata(
        &self,
        topic: Option<&str>,
        patience: Duration,
    ) -> Result<Metadata, KafkaError> {
        self.consumer.fetch_metadata(topic, patience)
    }

    /// The first offset that a partition has, and its end, as its broker says.
    pub(crate) fn ends(
        &self,
        topic: &str,
        partition: u32,
        patience: Duration,
    ) -> Result<(u64, u64), TransportError> {
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.consumer.fetch_watermarks(topic, number, left) {
                Ok((first, end)) => {
                    let place = |offset| u64::try_from(offset).unwrap_or(0);
                    return Ok((place(first), place(end)));
                }
                // A topic that was just made, or a partition that moves: its leader is named, and
                // does not know of it yet.
                Err(error) if moves(&error) && !left.is_zero() => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(failed("ask for a partition's ends")(error)),
            }
        }
    }
}

/// Whether it says that another broker is to be asked, or the same a little later.
fn moves(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::UnknownTopicOrPartition
        )
    )
}

fn no_queue(topic: &str, partition: u32) -> TransportError {
    crate::error::outage(format!("there is no queue for partition {partition} of {topic}"))
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// All consumers of a connection.
pub(crate) struct Pool {
    options: Options,
    health: Arc<Health>,
    fetchers: Mutex<Vec<Arc<Fetcher>>>,
}

impl Pool {
    pub(crate) fn new(options: &Options, health: &Arc<Health>) -> Arc<Self> {
        let (options, health) = (options.clone(), Arc::clone(health));
        Arc::new(Self { options, health, fetchers: Mutex::default() })
    }

    /// The first consumer that has none of these partitions; they are lent by this.
    pub(crate) fn lend(
        self: &Arc<Self>,
        topic: &str,
        partitions: &[u32],
    ) -> Result<Lent, TransportError> {
        let mut fetchers = locked(&self.fetchers);
        let free = |fetcher: &&Arc<Fetcher>| {
            let lent = locked(&fetcher.lent);
            !partitions.iter().any(|partition| lent.contains(&(topic.to_owned(), *partition)))
        };
        let found = fetchers.iter().find(free).map(Arc::clone);
        let fetcher = match found {
            Some(fetcher) => fetcher,
            None => {
                let started = Fetcher::start(&self.options, &self.health, (NO_GROUP, None))?;
                let started = Arc::new(started);
                fetchers.push(Arc::clone(&started));
                started
            }
        };
        locked(&fetcher.lent).extend(partitions.iter().map(|p| (topic.to_owned(), *p)));
        let (topic, partitions) = (topic.to_owned(), partitions.to_vec());
        Ok(Lent { fetcher, topic, partitions, assigned: false, pool: Arc::clone(self) })
    }

    /// Partitions came back; consumers that are not needed any more end, all but the first.
    fn back(&self, lent: &Lent) {
        let mut fetchers = locked(&self.fetchers);
        let mut left = locked(&lent.fetcher.lent);
        left.retain(|(topic, partition)| {
            *topic != lent.topic || !lent.partitions.contains(partition)
        });
        let idle = left.is_empty();
        drop(left);
        let mut place = 0;
        fetchers.retain(|fetcher| {
            place += 1;
            place == 1 || !idle || !Arc::ptr_eq(fetcher, &lent.fetcher)
        });
    }
}

/// Partitions of one topic that a consumer fetches for one reader.
pub(crate) struct Lent {
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) topic: String,
    partitions: Vec<u32>,
    assigned: bool,
    pool: Arc<Pool>,
}

impl Lent {
    /// Begins to fetch at these offsets; gives the queues in the same order.
    pub(crate) fn assign(
        &mut self,
        starts: &[(u32, u64)],
        wake: &Arc<Wake>,
    ) -> Result<Vec<Queue>, TransportError> {
        let consumer = &self.fetcher.consumer;
        let each = starts.iter().map(|(p, _)| Fetcher::queue(consumer, (&self.topic, *p), wake));
        let queues = each.collect::<Result<Vec<_>, _>>()?;
        let list = partition_list(&self.topic, starts.iter().copied())?;
        consumer.incremental_assign(&list).map_err(failed("fetch partitions"))?;
        self.assigned = true;
        self.learn();
        Ok(queues)
    }

    /// Has the consumer learn where the topic is, which by itself it does a second later. A new
    /// consumer has to find the brokers first; for others it is enough to have asked, and they are
    /// busy with a fetch that they are not to be waited for.
    fn learn(&self) {
        let new = !self.fetcher.knows_brokers.swap(true, Ordering::Relaxed);
        let patience = if new { PATIENCE } else { Duration::from_millis(1) };
        // It will learn a second later, then.
        let _ = self.fetcher.consumer.fetch_metadata(Some(&self.topic), patience);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.assigned
            && let Ok(list) = partition_list(&self.topic, self.partitions.iter().map(|p| (*p, 0)))
        {
            // It fails where the consumer is gone, and its assignment with it.
            let _ = self.fetcher.consumer.incremental_unassign(&list);
        }
        self.pool.back(self);
    }
}

/// Goes to another place in a partition. What was fetched of the old place is dropped at once.
pub(crate) fn seek(
    consumer: &Consumer,
    topic: &str,
    partition: u32,
    offset: u64,
) -> Result<(), TransportError> {
    let seek = || {
        let list = partition_list(topic, [(partition, offset)])?;
        let sought = consumer.seek_partitions(list, PATIENCE).map_err(failed("go to an offset"))?;
        let error = sought.elements().iter().find_map(|element| element.error().err());
        Ok::<_, TransportError>(error)
    };
    // One that was assigned just now may not have begun yet; librdkafka's own thread does it, and
    // no broker is waited for.
    for _ in 0..SEEKS {
        match seek()? {
            None => return Ok(()),
            Some(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    seek()?.map_or(Ok(()), |error| Err(failed("go to an offset")(error)))
}

/// How often a seek is tried, each a millisecond after the other.
const SEEKS: usize = 200;

/// Partitions of a topic with their offsets, as librdkafka takes them.
pub(crate) fn partition_list(
    topic: &str,
    places: impl IntoIterator<Item = (u32, u64)>,
) -> Result<TopicPartitionList, TransportError> {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in places {
        let partition = i32::try_from(partition).unwrap_or(i32::MAX);
        let offset = Offset::Offset(i64::try_from(offset).unwrap_or(i64::MAX));
        list.add_partition_offset(topic, partition, offset).map_err(failed("name an offset"))?;
    }
    Ok(list)
}
