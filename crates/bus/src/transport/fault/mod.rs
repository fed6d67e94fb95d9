//! `fault:URL`: any transport, with injected faults that a seed makes repeatable.
//!
//! Users test their programs with lost, late and refused samples. Our tests check that the
//! conformance suite detects a faulty transport. Delays are counted in polls, not in time.
//!
//! The options are probabilities from 0 to 1, each applied on its own:
//!
//! | option | fault |
//! | --- | --- |
//! | `drop` | a sample is not delivered |
//! | `duplicate` | a sample is delivered twice |
//! | `reorder` | a sample is delivered after its successor |
//! | `delay` | a sample and its successors are delayed by a few polls |
//! | `corrupt` | a bit of the payload is flipped |
//! | `strip` | a sample loses its headers |
//! | `disconnect` | an outage of a few polls begins |
//! | `refuse` | a publish finds the queue full |
//! | `lie` | a publish is acknowledged and not stored |
//! | `doubt` | a publish is stored and reported as unknown |
//! | `zombie` | a newer incarnation's first sample is followed by one of the older incarnation |
//! | `amnesia` | a sample is delivered as of incarnation 1 |
//!
//! A program can also pull a [`Cable`] and put it back (an unreachable engine), or freeze and thaw
//! the engine (one that does not answer). Publishes to a frozen engine are queued, up to `queue` of
//! them a writer (1,000); further ones find the queue full. A single topic can be broken and
//! mended: in between, it can be neither read nor written, as after a disk failure.
//!
//! `stall=FILE` is an engine that takes its time: while the file exists, each call that may wait
//! for an engine waits, and an attempt to publish without waiting finds that it would wait.
//!
//! `seed` selects the sequence of random numbers. With `pending=1` every receipt is pending first.
//! Options that are not in this table are passed to the inner transport.

mod reader;
mod writer;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use helio_core::TopicName;

use super::{
    Capabilities, Decorator, Opening, Reader, ReaderRequest, TopicDecorator, Transport,
    TransportTopic, Writer, WriterInfo, WriterRequest,
};
use crate::bell::{Waiters, locked};
use crate::error::{ConnectError, TransportError, engine};
use crate::url::BusUrl;
use reader::FaultyReader;
use writer::{Backlog, FaultyWriter};

/// This transport's own options.
const OWN_OPTIONS: [&str; 16] = [
    "drop",
    "duplicate",
    "reorder",
    "delay",
    "corrupt",
    "strip",
    "disconnect",
    "refuse",
    "lie",
    "doubt",
    "zombie",
    "amnesia",
    "seed",
    "pending",
    "queue",
    "stall",
];

/// How often a waiting call checks whether the engine still takes its time.
const STALL_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How many publishes a writer queues while the engine is frozen, by default.
const DEFAULT_QUEUE_PUBLISHES: usize = 1_000;

/// The faults, as probabilities from 0 to 1 unless noted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FaultPlan {
    /// The seed of the random numbers.
    pub seed: u64,
    /// A sample is not delivered.
    pub drop: f64,
    /// A sample is delivered twice.
    pub duplicate: f64,
    /// A sample is delivered after its successor.
    pub reorder: f64,
    /// A sample and its successors are delayed by a few polls.
    pub delay: f64,
    /// A bit of the payload is flipped.
    pub corrupt: f64,
    /// A sample loses its headers.
    pub strip: f64,
    /// An outage of a few polls begins.
    pub disconnect: f64,
    /// A publish finds the queue full.
    pub refuse: f64,
    /// A publish is acknowledged and not stored.
    pub lie: f64,
    /// A publish is stored and reported as unknown.
    pub doubt: f64,
    /// A newer incarnation's first sample is followed by one of the older incarnation.
    pub zombie: f64,
    /// A sample is delivered as of incarnation 1.
    pub amnesia: f64,
    /// The share of receipts that are pending first.
    pub pending: f64,
    /// How many publishes a writer queues while the engine is frozen; 0 is 1,000.
    pub queue: usize,
}

impl FaultPlan {
    fn parse(url: &BusUrl) -> Result<Self, ConnectError> {
        let share = |name: &str| -> Result<f64, ConnectError> {
            let share = url.number::<f64>(name)?.unwrap_or(0.0);
            if (0.0..=1.0).contains(&share) {
                return Ok(share);
            }
            let value = url.option(name).unwrap_or_default();
            Err(url.bad_option(name, value, "a probability lies between 0 and 1"))
        };
        Ok(Self {
            seed: url.number("seed")?.unwrap_or(0),
            drop: share("drop")?,
            duplicate: share("duplicate")?,
            reorder: share("reorder")?,
            delay: share("delay")?,
            corrupt: share("corrupt")?,
            strip: share("strip")?,
            disconnect: share("disconnect")?,
            refuse: share("refuse")?,
            lie: share("lie")?,
            doubt: share("doubt")?,
            zombie: share("zombie")?,
            amnesia: share("amnesia")?,
            pending: share("pending")?,
            queue: url.number("queue")?.unwrap_or(0),
        })
    }
}

/// Repeatable random numbers: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn throws(&mut self, share: f64) -> bool {
        // 53 bits, so that 1.0 always occurs and 0.0 never.
        share > 0.0 && ((self.next() >> 11) as f64) < share * (1_u64 << 53) as f64
    }

    /// From 1 to `most`.
    fn some(&mut self, most: u64) -> u64 {
        1 + self.next() % most
    }
}

/// The faults of one connection, shared by its readers and writers.
#[derive(Debug)]
struct Faults {
    plan: FaultPlan,
    ends: AtomicU64,
    cut: AtomicBool,
    frozen: AtomicBool,
    broken: Mutex<BTreeSet<TopicName>>,
    waiters: Mutex<Waiters>,
    backlogs: Mutex<Vec<Weak<Mutex<Backlog>>>>,
    /// The file of the option `stall`.
    stall: Option<PathBuf>,
}

impl Faults {
    fn dice(&self) -> Dice {
        let end = self.ends.fetch_add(1, Ordering::Relaxed);
        Dice(self.plan.seed ^ end.wrapping_mul(0xa076_1d64_78bd_642f))
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    fn is_stalled(&self) -> bool {
        self.stall.as_ref().is_some_and(|file| file.exists())
    }

    /// Waits for the engine's answer.
    fn answer(&self) {
        while self.is_stalled() {
            std::thread::sleep(STALL_POLL_INTERVAL);
        }
    }

    /// Fails if the topic is broken.
    fn check(&self, topic: &TopicName) -> Result<(), TransportError> {
        if !locked(&self.broken).contains(topic) {
            return Ok(());
        }
        // EIO.
        Err(engine("fault", "use the topic's files", io::Error::from_raw_os_error(5)))
    }

    /// Fails if the engine is unreachable or the topic is broken.
    fn reach(&self, topic: &TopicName) -> Result<(), TransportError> {
        if self.is_cut() {
            let cause = "the cable is pulled".to_owned();
            return Err(TransportError::Outage { transport: "fault".to_owned(), cause });
        }
        self.check(topic)
    }

    fn queue(&self) -> usize {
        if self.plan.queue == 0 { DEFAULT_QUEUE_PUBLISHES } else { self.plan.queue }
    }
}

/// Disconnects, reconnects, freezes and thaws the engine.
#[derive(Debug, Clone)]
pub struct Cable(Arc<Faults>);

impl Cable {
    /// Makes the engine unreachable: readers receive an outage, publishes fail.
    pub fn pull(&self) {
        self.0.cut.store(true, Ordering::Release);
        self.ring();
    }

    /// Makes the engine reachable again.
    pub fn put_back(&self) {
        self.0.cut.store(false, Ordering::Release);
        self.ring();
    }

    /// Stops the engine: publishes are queued, and readers receive neither samples nor an outage.
    pub fn freeze(&self) {
        self.0.frozen.store(true, Ordering::Release);
    }

    /// Resumes the engine: queued samples are published, and readers continue.
    pub fn thaw(&self) {
        self.0.frozen.store(false, Ordering::Release);
        let backlogs = std::mem::take(&mut *locked(&self.0.backlogs));
        for backlog in backlogs.iter().filter_map(Weak::upgrade) {
            locked(&backlog).catch_up();
            let notify = locked(&backlog).notify.clone();
            if let Some(notify) = notify {
                notify();
            }
        }
        *locked(&self.0.backlogs) = backlogs;
        self.ring();
    }

    /// Breaks a topic: it can be neither read, written nor opened.
    pub fn break_topic(&self, topic: &TopicName) {
        locked(&self.0.broken).insert(topic.clone());
        self.ring();
    }

    /// Mends a topic.
    pub fn mend_topic(&self, topic: &TopicName) {
        locked(&self.0.broken).remove(topic);
        self.ring();
    }

    fn ring(&self) {
        let waiters = locked(&self.0.waiters).take();
        waiters.ring();
    }
}

/// A transport that fails as planned.
pub struct FaultTransport {
    inner: Arc<dyn Transport>,
    capabilities: Capabilities,
    faults: Arc<Faults>,
}

impl FaultTransport {
    /// Wraps a transport.
    ///
    /// ```
    /// use helio_bus::transport::fault::{FaultPlan, FaultTransport};
    /// use helio_bus::{Bus, Message, Qos, Start, Subscribe, TopicSpec};
    ///
    /// let plan = FaultPlan { drop: 0.5, seed: 7, ..FaultPlan::default() };
    /// let bus = Bus::builder().over(FaultTransport::connect("memory:", plan)?)?;
    /// let topic = bus.topic(TopicSpec::new("wind")?.qos(Qos::stream()))?;
    /// let mut samples = topic.subscribe(Subscribe::from(Start::Latest))?;
    /// let publisher = topic.publisher()?;
    /// for _ in 0..100 {
    ///     publisher.publish(Message::new(b"7.5")).wait()?;
    /// }
    /// while samples.try_next()?.is_some() {}
    /// let stats = samples.stats();
    /// assert!(stats.lost > 20 && stats.received > 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn over(inner: Arc<dyn Transport>, plan: FaultPlan) -> Arc<Self> {
        Self::stalled_by(inner, plan, None)
    }

    fn stalled_by(inner: Arc<dyn Transport>, plan: FaultPlan, stall: Option<PathBuf>) -> Arc<Self> {
        let mut capabilities = inner.capabilities().clone();
        capabilities.transport = format!("fault:{}", capabilities.transport);
        let faults = Faults {
            plan,
            ends: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            broken: Mutex::default(),
            waiters: Mutex::default(),
            backlogs: Mutex::default(),
            stall,
        };
        Arc::new(Self { inner, capabilities, faults: Arc::new(faults) })
    }

    /// Opens the transport of a URL and wraps it.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(url: &str, plan: FaultPlan) -> Result<Arc<Self>, ConnectError> {
        let clock = Arc::new(crate::clock::SystemClock::new());
        Self::open(&Opening { url: url.parse()?, clock }, plan)
    }

    /// The same, with a clock.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn open(opening: &Opening, plan: FaultPlan) -> Result<Arc<Self>, ConnectError> {
        Ok(Self::over(super::open(opening)?, plan))
    }

    /// The cable, to disconnect the engine.
    #[must_use]
    pub fn cable(&self) -> Cable {
        Cable(Arc::clone(&self.faults))
    }
}

pub(super) fn connect(opening: &Opening) -> Result<Arc<dyn Transport>, ConnectError> {
    let plan = FaultPlan::parse(&opening.url)?;
    let inner =
        Opening { url: opening.url.inner(&OWN_OPTIONS)?, clock: Arc::clone(&opening.clock) };
    let stall = opening.url.option("stall").map(PathBuf::from);
    Ok(FaultTransport::stalled_by(super::open(&inner)?, plan, stall))
}

impl Decorator for FaultTransport {
    fn inner(&self) -> &dyn Transport {
        &*self.inner
    }

    fn topic(&self, inner: Arc<dyn TransportTopic>, name: &TopicName) -> Arc<dyn TransportTopic> {
        let (name, faults) = (name.clone(), Arc::clone(&self.faults));
        Arc::new(FaultyTopic { inner, name, faults })
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_topic(
        &self,
        name: &TopicName,
    ) -> Result<Option<Arc<dyn TransportTopic>>, TransportError> {
        self.faults.answer();
        Ok(self.inner.open_topic(name)?.map(|topic| self.topic(topic, name)))
    }

    fn topics(&self) -> Result<Vec<TopicName>, TransportError> {
        self.faults.answer();
        self.inner.topics()
    }

    fn close(&self) {
        self.inner.close();
        for backlog in locked(&self.faults.backlogs).iter().filter_map(Weak::upgrade) {
            locked(&backlog).give_up();
        }
    }
}

struct FaultyTopic {
    inner: Arc<dyn TransportTopic>,
    name: TopicName,
    faults: Arc<Faults>,
}

impl TopicDecorator for FaultyTopic {
    fn inner(&self) -> &dyn TransportTopic {
        &*self.inner
    }

    fn writer(&self, request: &WriterRequest<'_>) -> Result<Box<dyn Writer>, TransportError> {
        self.faults.answer();
        self.faults.check(&self.name)?;
        let inner = self.inner.writer(request)?;
        let (topic, partition) = (self.name.clone(), request.partition);
        Ok(Box::new(FaultyWriter::new(inner, &self.faults, topic, partition)))
    }

    fn forwarder(
        &self,
        request: &WriterRequest<'_>,
        incarnation: u64,
    ) -> Result<Box<dyn Writer>, TransportError> {
        self.faults.check(&self.name)?;
        let inner = self.inner.forwarder(request, incarnation)?;
        let (topic, partition) = (self.name.clone(), request.partition);
        Ok(Box::new(FaultyWriter::new(inner, &self.faults, topic, partition)))
    }

    fn reader(&self, request: &ReaderRequest<'_>) -> Result<Box<dyn Reader>, TransportError> {
        self.faults.answer();
        self.faults.check(&self.name)?;
        let inner = self.inner.reader(request)?;
        Ok(Box::new(FaultyReader::new(inner, &self.faults, self.name.clone())))
    }

    fn writers(&self) -> Result<Vec<WriterInfo>, TransportError> {
        self.faults.answer();
        self.faults.reach(&self.name)?;
        self.inner.writers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_are_repeatable_and_fair_enough() {
        let throw = |share| {
            let mut dice = Dice(42);
            (0..10_000).filter(|_| dice.throws(share)).count()
        };
        assert_eq!((throw(0.0), throw(1.0)), (0, 10_000));
        assert!((2_300..2_700).contains(&throw(0.25)));
        assert_eq!(throw(0.25), throw(0.25));
    }

    #[test]
    fn a_plan_is_read_from_the_url() {
        let url: BusUrl = "fault:memory:x?drop=0.5&seed=3&strict=1".parse().unwrap();
        let plan = FaultPlan::parse(&url).unwrap();
        assert_eq!(plan, FaultPlan { drop: 0.5, seed: 3, ..FaultPlan::default() });
        assert_eq!(url.inner(&OWN_OPTIONS).unwrap().to_string(), "memory:x?strict=1");
        let wrong: BusUrl = "fault:memory:x?drop=2".parse().unwrap();
        assert!(FaultPlan::parse(&wrong).is_err());
    }
}
