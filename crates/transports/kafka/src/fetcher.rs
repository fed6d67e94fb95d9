//! The consumers of a connection, shared by its readers.
//!
//! A consumer fetches a partition at one place at a time. A reader is therefore lent partitions of
//! the first consumer that has none of them; a second reader of the same partition makes a second
//! consumer. So does the one beyond what a consumer may have ([`Pace::most`]), and the reader of a
//! topic that has taken the place of one that the consumer has read: librdkafka does not forget
//! what it knows of a name. Samples stay in librdkafka's queue, one a partition, until their
//! reader takes them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Bell, Outage, TransportError, Waiters};
use rdkafka::consumer::Consumer as _;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};

use crate::anew::Anew;
use crate::context::{Consumer, Context};
use crate::error::{engine, failed, outage};
use crate::group::Membership;
use crate::monitor::Health;
use crate::native::TopicId;
use crate::options::{Options, PATIENCE};

/// How soon a consumer's thread notices that nobody has the consumer any more.
const STOP: Duration = Duration::from_millis(100);
/// How long a group's member is waited for when it leaves, so that a program that ends has left;
/// nobody waits for brokers that do not answer.
const LEAVING: Duration = Duration::from_millis(300);
/// The group in whose name partitions are fetched that no group shares. Nothing is committed to it.
pub(crate) const NO_GROUP: &str = "_helio";

/// How a consumer fetches.
///
/// librdkafka has no fetch sessions (KIP-227): a broker looks at all partitions of a consumer with
/// each fetch that comes, that it answers, and that waits while one of them is written to. So who
/// reads thousands of them is not to ask often for nothing, and what is written often is not to
/// have each record fetched by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A connection's first partitions: fetches wait so shortly that one that is opened on the way
    /// is fetched at once.
    Prompt,
    /// All others. Samples come as soon, but for the first ones of a partition that was just
    /// opened, which wait for the fetch under way.
    Patient,
    /// Others that are written at a regular rate: samples are collected for a moment.
    Busy,
}

impl Pace {
    /// The most partitions of a consumer. With each answer of a broker librdkafka looks each of
    /// them up in a list, too, so that one that had thousands would do nothing else.
    fn most(self) -> usize {
        match self {
            Self::Prompt => 32,
            Self::Patient => 64,
            Self::Busy => 256,
        }
    }
}

/// A partition's samples, as librdkafka has fetched them.
pub(crate) type Queue = PartitionQueue<Context>;

/// Has a queue ring from now on; what is in it already does not. All handles of a partition's queue
/// have one bell, which goes with whichever of them is dropped: those of before have to be gone.
pub(crate) fn rings(queue: &mut Queue, wake: &Arc<Wake>) {
    let wake = Arc::downgrade(wake);
    queue.set_nonempty_callback(move || {
        if let Some(wake) = wake.upgrade() {
            wake.ring();
        }
    });
}

/// What rings for a reader: samples in its queues, outages, the end.
#[derive(Default)]
pub(crate) struct Wake {
    rung: AtomicBool,
    waiters: Mutex<Waiters>,
    outages: Mutex<Vec<Outage>>,
    /// Others have deleted the topic, and that was told.
    gone: AtomicBool,
    topic: Mutex<Topic>,
    /// How many times it was found that the topic is still the same.
    same: AtomicU64,
    /// How many watch where the reader stands.
    watched: AtomicUsize,
    /// Where it stood at the end of its newest look that was watched.
    stands: Mutex<Option<(Instant, Vec<Place>)>>,
    /// The reader has gone.
    ended: AtomicBool,
}

/// Where a reader stands in a partition when it has taken all that was fetched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) partition: u32,
    pub(crate) next: u64,
    /// Where the partition ends, as its consumer's newest fetch has told; 0 before the first.
    pub(crate) heard: u64,
}

/// What others have done to a reader's topic.
#[derive(Default)]
struct Topic {
    /// They have made it anew: with what it is read from now on.
    anew: Option<Anew>,
    /// With what the same is read from now on: its consumer hears nothing any more.
    instead: Option<Anew>,
    /// How many partitions it has by now.
    partitions: u32,
}

/// The most outages that wait for a reader: beyond it the oldest are forgotten.
const MAX_OUTAGES: usize = 64;

impl Wake {
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        let waiters = locked(&self.waiters).take();
        waiters.ring();
    }

    pub(crate) fn tell(&self, outage: &Outage) {
        let mut outages = locked(&self.outages);
        if outages.len() == MAX_OUTAGES {
            outages.remove(0);
        }
        outages.push(outage.clone());
        drop(outages);
        self.ring();
    }

    /// Has the reader go on with other queues, of a topic that has so many partitions.
    pub(crate) fn renew(&self, anew: Anew, partitions: u32) {
        let mut topic = locked(&self.topic);
        topic.partitions = partitions;
        let not_needed = match self.ended.load(Ordering::SeqCst) {
            true => Some(anew),
            false => topic.anew.replace(anew),
        };
        drop(topic);
        drop(not_needed);
        self.ring();
    }

    /// Has the reader go on where it stands with another consumer.
    pub(crate) fn go_on(&self, instead: Anew) {
        let mut topic = locked(&self.topic);
        let not_needed = match self.ended.load(Ordering::SeqCst) {
            true => Some(instead),
            false => topic.instead.replace(instead),
        };
        drop(topic);
        drop(not_needed);
        self.ring();
    }

    /// The reader has gone.
    pub(crate) fn end(&self) {
        let mut topic = locked(&self.topic);
        self.ended.store(true, Ordering::SeqCst);
        let not_needed = (topic.anew.take(), topic.instead.take());
        drop(topic);
        drop(not_needed);
    }

    /// With what the topic is read from now on, once, or the same topic, and how many partitions it
    /// has.
    pub(crate) fn topic(&self) -> (Option<Anew>, Option<Anew>, u32) {
        let mut topic = locked(&self.topic);
        (topic.anew.take(), topic.instead.take(), topic.partitions)
    }

    /// Has the reader say where it stands until that is unwatched.
    pub(crate) fn watch(&self) {
        self.watched.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unwatch(&self) {
        self.watched.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed) > 0
    }

    /// A look has come to its end.
    pub(crate) fn stands_at(&self, places: Vec<Place>) {
        *locked(&self.stands) = Some((Instant::now(), places));
    }

    /// Where the reader stands, if it has looked since then.
    pub(crate) fn stands(&self, since: Instant) -> Option<Vec<Place>> {
        let stands = locked(&self.stands);
        stands.as_ref().filter(|(at, _)| *at >= since).map(|(_, places)| places.clone())
    }

    /// It was looked, and the topic is the one that is read.
    pub(crate) fn is_same(&self) {
        self.same.fetch_add(1, Ordering::SeqCst);
    }

    /// How many times that was found.
    pub(crate) fn same(&self) -> u64 {
        self.same.load(Ordering::SeqCst)
    }

    /// Tells, once, that the topic, or what is read of it, is not there.
    pub(crate) fn gone(&self, what: &str) {
        if !self.gone.swap(true, Ordering::SeqCst) {
            let cause = format!(
                "{what} is not there any more: somebody has deleted it; it is read from its first \
                 record when it is made anew"
            );
            self.tell(&Outage::Lost { cause });
        }
    }

    /// The topic is there: tells that too, where it was not.
    pub(crate) fn there(&self) {
        if self.gone.load(Ordering::Relaxed) && self.gone.swap(false, Ordering::SeqCst) {
            self.tell(&Outage::Restored);
        }
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

    pub(crate) fn has(&self, partitions: u32) {
        let before = std::mem::replace(&mut locked(&self.topic).partitions, partitions);
        if before != partitions {
            self.ring();
        }
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

/// One consumer, and the thread that serves its callbacks. The thread also ends the consumer, which
/// takes as long as the brokers do.
pub(crate) struct Fetcher {
    pub(crate) consumer: Arc<Consumer>,
    /// Closed when the consumer has ended.
    ended: Mutex<Receiver<()>>,
    lent: Mutex<Fetched>,
    knows_brokers: AtomicBool,
    pace: Pace,
    started: Instant,
    /// It was given up: nobody is lent anything of it any more.
    deaf: AtomicBool,
}

/// What a consumer fetches, and has fetched.
#[derive(Default)]
struct Fetched {
    partitions: HashSet<(String, u32)>,
    /// Which topic it has read of each name: with another one it is of no use.
    topics: HashMap<String, Option<TopicId>>,
}

impl Fetched {
    /// Whether it has none of these partitions, and room for them.
    fn is_free(&self, topic: Named<'_>, partitions: &[u32], most: usize) -> bool {
        let of_topic = |partition: &u32| (topic.0.to_owned(), *partition);
        let has_room =
            self.partitions.is_empty() || self.partitions.len() + partitions.len() <= most;
        has_room
            && self.topics.get(topic.0).is_none_or(|read| *read == topic.1)
            && !partitions.iter().any(|partition| self.partitions.contains(&of_topic(partition)))
    }
}

/// A topic's name, and which of that name it is, where that is known.
pub(crate) type Named<'a> = (&'a str, Option<TopicId>);

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
        health.clients.add(&consumer);
        let (mut serving, (ending, ended)) = (Arc::clone(&consumer), mpsc::channel());
        let serve = move || {
            // Nobody else ends it, who has it for a moment only.
            let consumer = loop {
                match Arc::try_unwrap(serving) {
                    Ok(consumer) => break consumer,
                    Err(shared) => serving = shared,
                }
                // Samples are in queues of their own: what comes here are callbacks and errors.
                if let Some(Err(error)) = serving.poll(STOP) {
                    serving.context().failed(&error);
                }
            };
            drop(consumer);
            drop::<Sender<()>>(ending);
        };
        let thread = std::thread::Builder::new().name("kafka-fetcher".to_owned()).spawn(serve);
        thread.map_err(|error| engine("start a thread", error))?;
        let (lent, ended) = (Mutex::default(), Mutex::new(ended));
        let [knows_brokers, deaf] = [false; 2].map(AtomicBool::new);
        let (pace, started) = (options.pace, Instant::now());
        Ok(Self { consumer, ended, lent, knows_brokers, pace, started, deaf })
    }

    /// It hears nothing any more: nobody else is lent anything of it.
    pub(crate) fn give_up(&self) {
        self.deaf.store(true, Ordering::Relaxed);
    }

    /// Gives the consumer up, and waits a moment for it to leave its group.
    pub(crate) fn leave(self) {
        let Self { consumer, ended, .. } = self;
        drop(consumer);
        let _ = locked(&ended).recv_timeout(LEAVING);
    }

    /// A partition's own queue. To be asked for before it is assigned.
    pub(crate) fn queue(
        consumer: &Arc<Consumer>,
        (topic, partition): (&str, u32),
    ) -> Result<Queue, TransportError> {
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let queue = consumer.split_partition_queue(topic, number);
        queue.ok_or_else(|| no_queue(topic, partition))
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

    /// What the brokers' cluster calls itself.
    pub(crate) fn cluster(&self, patience: Duration) -> Result<String, TransportError> {
        let named = self.consumer.client().fetch_cluster_id(patience);
        named.ok_or_else(|| outage("the brokers do not say what they are called".to_owned()))
    }

    /// The first offset that a partition has, and its end, as its broker says.
    pub(crate) fn ends(
        &self,
        topic: &str,
        partition: u32,
        patience: Duration,
    ) -> Result<(u64, u64), TransportError> {
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let asked = |left| self.consumer.fetch_watermarks(topic, number, left);
        let (first, end) = patiently(patience, asked)
            .map_err(|error| unanswered(&format!("ask where {topic} begins and ends"), error))?;
        let place = |offset| u64::try_from(offset).unwrap_or(0);
        Ok((place(first), place(end)))
    }

    /// The offsets of the first records that are not of before a time, in milliseconds of UTC;
    /// partitions that have none are left out.
    pub(crate) fn at_time(
        &self,
        topic: &str,
        (partitions, millis): (&[u32], u64),
        patience: Duration,
    ) -> Result<Vec<(u32, u64)>, TransportError> {
        let asked = partition_list(topic, partitions.iter().map(|each| (*each, millis)))?;
        self.offsets(&asked, "look for a time", patience)
    }

    /// Where partitions end, as their brokers say; those that do not are left out.
    pub(crate) fn all_ends(
        &self,
        topic: &str,
        partitions: &[u32],
        patience: Duration,
    ) -> Result<Vec<(u32, u64)>, TransportError> {
        let mut asked = partition_list(topic, partitions.iter().map(|each| (*each, 0)))?;
        asked.set_all_offsets(Offset::End).map_err(failed("name an offset"))?;
        self.offsets(&asked, "ask where partitions end", patience)
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

/// Asks until there is an answer. A topic that was just made, or a partition that moves: its leader
/// is named, and does not know of it yet, or it is dead, and another is elected.
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
            told => return told,
        }
    }
}

/// A partition with its offset, where it has one.
pub(crate) fn place(told: &TopicPartitionListElem<'_>) -> Option<(u32, u64)> {
    let Offset::Offset(offset) = told.offset() else { return None };
    Some((u32::try_from(told.partition()).ok()?, u64::try_from(offset).ok()?))
}

/// Whether it says that another broker is to be asked, or the same a little later.
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

/// Why there was no answer in time: what would have come a little later is an outage.
fn unanswered(what: &str, error: KafkaError) -> TransportError {
    if moves(&error) { outage(format!("{what}: {error}")) } else { failed(what)(error) }
}

fn no_queue(topic: &str, partition: u32) -> TransportError {
    crate::error::outage(format!("there is no queue for partition {partition} of {topic}"))
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

    /// The first consumer that has none of these partitions, and has read no other topic of the
    /// name; they are lent by this.
    pub(crate) fn lend(
        self: &Arc<Self>,
        topic: Named<'_>,
        partitions: &[u32],
        pace: Pace,
    ) -> Result<Lent, TransportError> {
        self.lend_of(topic, (partitions, pace), |_| true)
    }

    /// The same of those that were started since then.
    pub(crate) fn lend_since(
        self: &Arc<Self>,
        topic: Named<'_>,
        (partitions, pace): (&[u32], Pace),
        since: Instant,
    ) -> Result<Lent, TransportError> {
        self.lend_of(topic, (partitions, pace), |fetcher| fetcher.started >= since)
    }

    fn lend_of(
        self: &Arc<Self>,
        topic: Named<'_>,
        (partitions, pace): (&[u32], Pace),
        is_meant: impl Fn(&Fetcher) -> bool,
    ) -> Result<Lent, TransportError> {
        let mut fetchers = locked(&self.fetchers);
        let hears = |fetcher: &&Arc<Fetcher>| !fetcher.deaf.load(Ordering::Relaxed);
        let prompt = fetchers.iter().filter(|fetcher| fetcher.pace == Pace::Prompt).filter(hears);
        let prompt: usize = prompt.map(|fetcher| locked(&fetcher.lent).partitions.len()).sum();
        let is_first = prompt == 0 || prompt + partitions.len() <= Pace::Prompt.most();
        let pace = if is_first { Pace::Prompt } else { pace };
        let free = |fetcher: &&Arc<Fetcher>| {
            hears(fetcher)
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
        Ok(Lent { fetcher, topic: name, partitions, assigned: false, pool })
    }

    /// Partitions came back; consumers that are not needed any more end, all but the first, unless
    /// that was given up.
    fn back(&self, lent: &Lent) {
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
            let stays = place == 1 && !fetcher.deaf.load(Ordering::Relaxed);
            stays || !idle || !Arc::ptr_eq(fetcher, &lent.fetcher)
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
        if starts.is_empty() {
            return Ok(Vec::new());
        }
        let consumer = &self.fetcher.consumer;
        let each = starts.iter().map(|(p, _)| Fetcher::queue(consumer, (&self.topic, *p)));
        let mut queues = each.collect::<Result<Vec<_>, _>>()?;
        queues.iter_mut().for_each(|queue| rings(queue, wake));
        let list = partition_list(&self.topic, starts.iter().copied())?;
        consumer.incremental_assign(&list).map_err(failed("fetch partitions"))?;
        self.assigned = true;
        self.learn();
        Ok(queues)
    }

    /// Fetches partitions besides, from their first records on; none where the consumer fetches
    /// them for another reader.
    pub(crate) fn widen(
        &mut self,
        partitions: &[u32],
        wake: &Arc<Wake>,
    ) -> Result<Option<Vec<Queue>>, TransportError> {
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
