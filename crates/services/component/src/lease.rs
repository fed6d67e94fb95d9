//! Leases: the right to be the one live instance of a component, and the detection of its loss.
//!
//! Constraints. The topic `X/lease/<index>` is exclusive; its writer is the live instance. A
//! dedicated thread renews the lease once a second, so a busy component keeps it, and a stopped or
//! dead one does not. The lease expires [`LEASE_TIMEOUT`] after the last renewal; then another
//! instance may take over.
//!
//! Operation. A stopped process does not notice the stop. Before each command, the component
//! therefore compares the time since the last renewal with the timeout, on the clock that leases
//! use, which counts during the stop ([`Clock::uptime`](helio_bus::Clock::uptime)). If the lease
//! has expired, the component renews it first and then checks for another owner. In that order:
//! after the renewal no instance can take over, and one that did before is visible. If the bus
//! accepts no renewal, the owner is unknown: no command runs until a renewal succeeds. The
//! component then continues, unless it was replaced. Only the renewal thread waits for the bus;
//! other threads wait for it once, for a second.
//!
//! Components of other software take no lease. Before a claim, and as long as the lease is held,
//! [heartbeats](crate::heartbeats) of foreign producers are watched by another thread: the first
//! one that arrives ends the lease.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use helio_bus::transport::{WriterInfo, locked};
use helio_bus::{
    Alive, Bus, Message, Publisher, Start, Subscribe, Tai, Topic, TopicError, TopicSpec,
    TransportError, WaitSet, WaitSetWaker,
};
use helio_core::sal::TopicKind;
use helio_core::{ProducerName, TopicName};
use thiserror::Error;

use crate::heartbeats::{ForeignFilter, ForeignHeartbeat, Heartbeats};
use crate::interface::Interface;
use crate::process_identity;
use crate::records::{self, LEASE_TIMEOUT, LeaseRecord};
use crate::topic::{self, STORED_TIMEOUT};

/// How often a held lease is renewed: four renewals may fail before it expires.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a claim waits for a slow bus to report the current holder.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a query of the standing waits for the renewal thread.
const STANDING_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the renewal of a new lease that took long to open is retried.
const CLAIM_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Why a component may not run.
#[derive(Debug, Clone, Error)]
pub enum LeaseError {
    /// Another instance is running.
    #[error("{identity} runs already: {holder}; stop it first, or wait until it is gone")]
    Held {
        /// The component, with its index.
        identity: String,
        /// Where it runs, and since when.
        holder: String,
    },
    /// A component of other software is running under this name.
    #[error("found another instance of {identity}: {heartbeat}; stop it first")]
    Foreign {
        /// The component, with its index.
        identity: String,
        /// Where its heartbeat comes from.
        heartbeat: String,
    },
    /// The lease's topic cannot be opened or written.
    #[error("the lease of {identity} cannot be taken: {reason}")]
    Topic {
        /// The component, with its index.
        identity: String,
        /// The bus's error.
        reason: String,
    },
}

/// The standing of an instance's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseStanding {
    /// Renewed recently enough that no other instance can have taken over.
    Held,
    /// Expired, and the bus does not confirm a renewal. Callers see no live instance, and another
    /// may take over. The renewal is retried each second.
    Lapsed,
    /// Another instance has taken over, or the bus was closed: this instance has ended.
    Lost,
}

/// The description of an instance that takes a lease.
#[derive(Debug, Clone, Default)]
pub struct LeaseOptions {
    /// The middleware and its version.
    pub software: String,
    /// The version of its interface, if known.
    pub interface: String,
}

/// The right to be the live instance, held until it is dropped or lost. Clones share it.
#[derive(Debug, Clone)]
pub struct Lease(Arc<LeaseInner>);

struct LeaseInner {
    bus: Bus,
    topic: Topic,
    publisher: Publisher,
    record: LeaseRecord,
    /// The time of the last renewal, in nanoseconds of the clock that leases use.
    renewed_at: AtomicU64,
    /// How often the lease had expired when it was renewed.
    lapses: AtomicU64,
    lost: AtomicBool,
    /// The foreign instance that ended the lease.
    foreign: OnceLock<ForeignHeartbeat>,
    /// Ends the wait of the thread that watches for one.
    watch: OnceLock<WaitSetWaker>,
    renewal: Mutex<Renewal>,
    /// Notified after each renewal, successful or not.
    renewed: Condvar,
    /// The thread that renews the lease.
    renewal_thread: OnceLock<Thread>,
}

/// The result of the last renewal.
#[derive(Default)]
struct Renewal {
    /// It failed or takes long: queries do not wait for the next one.
    failed: bool,
    /// Why it failed.
    cause: Option<TopicError>,
}

impl Lease {
    /// Takes the lease of an instance; `index` is 0 if the component is not indexed.
    ///
    /// # Errors
    /// [`LeaseError::Held`] if another instance is running.
    pub fn claim(
        bus: &Bus,
        interface: &Interface,
        index: i32,
        options: LeaseOptions,
    ) -> Result<Self, LeaseError> {
        let identity = interface.identity(index);
        let failed = |error: &dyn std::fmt::Display| LeaseError::Topic {
            identity: identity.clone(),
            reason: error.to_string(),
        };
        let record = record(bus, interface, index, options);
        let topic = open(bus, &record).map_err(|error| failed(&error))?;
        // Before the claim: a caller that sees the lease may send.
        let heartbeats = Heartbeats::own(bus, interface, index);
        let mut heartbeats = heartbeats.map_err(|error| failed(&error))?;
        let running = heartbeats.as_mut().map_or(Ok(None), |heartbeats| heartbeats.running(bus));
        if let Some(heartbeat) = running.map_err(|error| failed(&error))? {
            return Err(LeaseError::Foreign { identity, heartbeat: heartbeat.to_string() });
        }
        // Two claims on one bus would get the same writer; this lock separates them.
        static CLAIMING: Mutex<()> = Mutex::new(());
        let one = locked(&CLAIMING);
        let writers = topic.writers_within(CLAIM_TIMEOUT).map_err(|error| failed(&error))?;
        if writers.iter().any(|writer| lives(writer, bus.clock().now())) {
            return Err(LeaseError::Held { identity, holder: holder(&topic) });
        }
        let renewed_at = nanos(bus.clock().uptime());
        let publisher = topic.publisher().map_err(|error| match error {
            TopicError::Transport(TransportError::Owned { .. }) => {
                LeaseError::Held { identity: identity.clone(), holder: holder(&topic) }
            }
            error => failed(&error),
        })?;
        let mut payload = Vec::new();
        let codec = records::codec::<LeaseRecord>();
        codec.serialize(&record, &mut payload).map_err(|error| failed(&error))?;
        publisher.publish(Message::new(&payload)).wait().map_err(|error| failed(&error))?;
        drop(one);
        let held = LeaseInner::new(bus, topic, publisher, record, renewed_at);
        // Opening may have taken longer than the timeout; the lease has not lapsed before it began.
        let until = Instant::now() + CLAIM_TIMEOUT;
        while held.known().is_none() && Instant::now() < until {
            held.renew();
            std::thread::sleep(CLAIM_RETRY_INTERVAL);
        }
        held.lapses.store(0, Ordering::Release);
        let held = Arc::new(held);
        let thread = spawn_renewal_thread(&held).map_err(|error| failed(&error))?;
        let _ = held.renewal_thread.set(thread);
        if let Some(heartbeats) = heartbeats {
            let watch = ForeignWatch::new(&held, interface, heartbeats);
            watch.and_then(ForeignWatch::spawn).map_err(|error| failed(&error))?;
        }
        Ok(Self(held))
    }

    /// The lease's standing now. It usually costs one clock read. After a stop it waits for a
    /// renewal, and in an outage once, for up to a second.
    #[must_use]
    pub fn standing(&self) -> LeaseStanding {
        self.0.standing()
    }

    /// The standing if it is known without waiting, as it usually is.
    #[must_use]
    pub fn known(&self) -> Option<LeaseStanding> {
        self.0.known()
    }

    /// The instance's incarnation: a later instance has a larger number.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.0.publisher.producer().incarnation
    }

    /// How often the lease expired without another instance taking over. In the meantime callers
    /// were notified that the instance is gone: their commands must not run.
    #[must_use]
    pub fn lapses(&self) -> u64 {
        self.0.lapses.load(Ordering::Acquire)
    }

    /// Why it was lost to a component of other software, if it was.
    #[must_use]
    pub fn foreign(&self) -> Option<LeaseError> {
        let heartbeat = self.0.foreign.get()?.to_string();
        Some(LeaseError::Foreign { identity: self.record().identity.clone(), heartbeat })
    }

    /// Whether it is held now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.standing() == LeaseStanding::Held
    }

    /// Why the owner is unknown while the lease is [lapsed](LeaseStanding::Lapsed).
    #[must_use]
    pub fn outage(&self) -> TransportError {
        self.0.outage()
    }

    /// The published record of this instance.
    #[must_use]
    pub fn record(&self) -> &LeaseRecord {
        &self.0.record
    }
}

/// A reference to a lease for writers that may write only while it is held. It does not keep the
/// lease alive.
#[derive(Debug, Clone)]
pub(crate) struct WeakLease(Weak<LeaseInner>);

impl Lease {
    pub(crate) fn downgrade(&self) -> WeakLease {
        WeakLease(Arc::downgrade(&self.0))
    }
}

/// Why an instance may not write.
#[derive(Debug)]
pub(crate) enum WriteRefusal {
    /// It has ended, or another instance has taken over.
    Ended(&'static str),
    /// It is unknown whether another instance has taken over.
    Unconfirmed(TransportError),
}

impl WeakLease {
    /// Why this is not certainly the live instance; `None` if it is.
    pub(crate) fn refusal(&self) -> Option<WriteRefusal> {
        let Some(held) = self.0.upgrade() else {
            return Some(WriteRefusal::Ended("it has ended, and its lease is given back"));
        };
        match held.standing() {
            LeaseStanding::Held => None,
            LeaseStanding::Lapsed => Some(WriteRefusal::Unconfirmed(held.outage())),
            LeaseStanding::Lost => {
                Some(WriteRefusal::Ended("its lease is lost, and another instance may run"))
            }
        }
    }
}

/// The description of an instance that starts now.
fn record(bus: &Bus, interface: &Interface, index: i32, options: LeaseOptions) -> LeaseRecord {
    LeaseRecord {
        component: interface.name().to_owned(),
        index,
        identity: interface.identity(index),
        host: process_identity::host_name(),
        pid: process_identity::origin(),
        started: bus.clock().now().into(),
        software: options.software,
        interface: options.interface,
        commands: interface.names(TopicKind::Command).map(str::to_owned).collect(),
    }
}

fn open(bus: &Bus, record: &LeaseRecord) -> Result<Topic, TopicError> {
    let name = name(&record.component, record.index)?;
    let producer = ProducerName::new(&record.identity)?;
    let spec = TopicSpec::of(name).qos(LeaseRecord::qos()).producer(producer);
    bus.topic(spec.schema(records::codec::<LeaseRecord>().schema()))
}

/// The topic of an instance's lease.
pub(crate) fn name(component: &str, index: i32) -> Result<TopicName, TopicError> {
    topic::beside(component, &format!("lease/{index}"))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a writer of the lease's topic is alive.
pub(crate) fn lives(writer: &WriterInfo, now: Tai) -> bool {
    match (writer.alive, writer.seen) {
        (Some(alive), _) => alive == Alive::Yes,
        // Without liveliness, the transport reports when the writer was last seen.
        (None, Some(seen)) => {
            let since = now.nanos().saturating_sub(seen.nanos());
            u128::try_from(since).unwrap_or(0) <= LEASE_TIMEOUT.as_nanos()
        }
        (None, None) => false,
    }
}

/// A description of the holder, from the newest record.
fn holder(topic: &Topic) -> String {
    newest(topic).map_or_else(
        || "it has not yet said where".to_owned(),
        |record| {
            let since = Tai::from(record.started).to_utc_string();
            let since = since.get(..19).unwrap_or_default();
            format!("process {} on {} since {since} UTC", record.pid, record.host)
        },
    )
}

fn newest(topic: &Topic) -> Option<LeaseRecord> {
    let mut samples = topic.subscribe(Subscribe::from(Start::Last(1))).ok()?;
    samples.set_fence().ok()?;
    let mut newest = None;
    while let Ok(Some(event)) = samples.next_stored(STORED_TIMEOUT) {
        newest = event.into_sample().or(newest);
    }
    records::codec::<LeaseRecord>().deserialize(&newest?.payload).ok()
}

impl LeaseInner {
    fn new(
        bus: &Bus,
        topic: Topic,
        publisher: Publisher,
        record: LeaseRecord,
        renewed_at: u64,
    ) -> Self {
        Self {
            bus: bus.clone(),
            topic,
            publisher,
            record,
            renewed_at: AtomicU64::new(renewed_at),
            lapses: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            foreign: OnceLock::new(),
            watch: OnceLock::new(),
            renewal: Mutex::default(),
            renewed: Condvar::new(),
            renewal_thread: OnceLock::new(),
        }
    }

    fn standing(&self) -> LeaseStanding {
        if let Some(known) = self.known() {
            return known;
        }
        let renewal = self.renewal();
        if !renewal.failed {
            if let Some(thread) = self.renewal_thread.get() {
                thread.unpark();
            }
            let waits = |renewal: &mut Renewal| !renewal.failed && self.known().is_none();
            let (mut renewal, waited) = self
                .renewed
                .wait_timeout_while(renewal, STANDING_TIMEOUT, waits)
                .unwrap_or_else(PoisonError::into_inner);
            renewal.failed |= waited.timed_out();
        }
        self.known().unwrap_or(LeaseStanding::Lapsed)
    }

    /// The standing, if no renewal is needed to know it.
    fn known(&self) -> Option<LeaseStanding> {
        if self.lost.load(Ordering::Acquire) {
            return Some(LeaseStanding::Lost);
        }
        let recent = self.bus.clock().uptime().saturating_sub(self.renewed_at()) < LEASE_TIMEOUT;
        recent.then_some(LeaseStanding::Held)
    }

    /// Renews the lease, then checks whether another instance has it.
    fn renew(&self) {
        let now = self.bus.clock().uptime();
        let since = |then: Duration| self.bus.clock().uptime().saturating_sub(then);
        let asserted = self.publisher.assert_alive();
        // If the renewal took that long, the lease had expired.
        let ran_out = since(self.renewed_at()) >= LEASE_TIMEOUT;
        let replaced = match asserted {
            Ok(()) => self.is_replaced(ran_out),
            Err(TransportError::Fenced { .. } | TransportError::Closed) => Ok(true),
            Err(error) => Err(error.into()),
        };
        match replaced {
            Ok(true) => self.lost.store(true, Ordering::Release),
            // A renewal that took longer than the timeout proves nothing; the next one will.
            Ok(false) if since(now) < LEASE_TIMEOUT => {
                self.lapses.fetch_add(u64::from(ran_out), Ordering::AcqRel);
                self.renewed_at.store(nanos(now), Ordering::Release);
            }
            Ok(false) | Err(_) => {}
        }
        *self.renewal() = Renewal { failed: replaced.is_err(), cause: replaced.err() };
        self.renewed.notify_all();
    }

    /// Why the owner is unknown.
    fn outage(&self) -> TransportError {
        let cause = match &self.renewal().cause {
            None => "the bus takes too long".to_owned(),
            Some(TopicError::Transport(TransportError::Outage { cause, .. })) => cause.clone(),
            Some(error) => error.to_string(),
        };
        let transport = self.bus.capabilities().transport.clone();
        TransportError::Outage { transport, cause: format!("the lease is not confirmed: {cause}") }
    }

    fn renewed_at(&self) -> Duration {
        Duration::from_nanos(self.renewed_at.load(Ordering::Acquire))
    }

    fn renewal(&self) -> MutexGuard<'_, Renewal> {
        locked(&self.renewal)
    }

    /// Whether a later instance has the lease. If the query fails, none can have taken an unexpired
    /// lease.
    fn is_replaced(&self, ran_out: bool) -> Result<bool, TopicError> {
        let own = self.publisher.producer();
        let writers = match self.topic.writers() {
            Err(_) if !ran_out => return Ok(false),
            told => told?,
        };
        Ok(writers.iter().any(|writer| {
            writer.producer.name == own.name && writer.producer.incarnation > own.incarnation
        }))
    }
}

impl Drop for LeaseInner {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get() {
            watch.wake();
        }
    }
}

impl std::fmt::Debug for LeaseInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Held").field(&self.record.identity).finish()
    }
}

/// Renews a lease as long as it exists. Each lease has its own thread, so that an outage of one bus
/// does not block the leases of another.
fn spawn_renewal_thread(held: &Arc<LeaseInner>) -> std::io::Result<Thread> {
    let weak = Arc::downgrade(held);
    let renew = move || {
        loop {
            let begun = Instant::now();
            let Some(held) = weak.upgrade() else { return };
            held.renew();
            drop(held);
            // After a slow renewal the next one is due at once; a waiting query unparks the thread.
            std::thread::park_timeout(RENEWAL_INTERVAL.saturating_sub(begun.elapsed()));
        }
    };
    let thread = std::thread::Builder::new().name("helio-lease".to_owned()).spawn(renew)?;
    Ok(thread.thread().clone())
}

/// Watches for heartbeats of foreign instances as long as a lease exists.
struct ForeignWatch {
    held: Weak<LeaseInner>,
    interface: Interface,
    filter: ForeignFilter,
    set: WaitSet,
}

impl ForeignWatch {
    fn new(
        held: &Arc<LeaseInner>,
        interface: &Interface,
        heartbeats: Heartbeats,
    ) -> Result<Self, TopicError> {
        let Heartbeats { samples, filter, .. } = heartbeats;
        let mut set = held.bus.wait_set()?;
        set.add(samples);
        let _ = held.watch.set(set.waker());
        Ok(Self { held: Arc::downgrade(held), interface: interface.clone(), filter, set })
    }

    /// Starts its thread: a bus that delivers slowly must not delay a renewal.
    fn spawn(mut self) -> Result<(), TopicError> {
        let thread = std::thread::Builder::new().name("helio-foreign".to_owned());
        let spawned = thread.spawn(move || while self.turn().is_continue() {});
        spawned.map(drop).map_err(|error| {
            TransportError::Outage {
                transport: "helio".to_owned(),
                cause: format!("no thread could be started: {error}"),
            }
            .into()
        })
    }

    /// Waits for a heartbeat; breaks when the lease is gone, or lost to a foreign instance.
    fn turn(&mut self) -> ControlFlow<()> {
        let next = self.set.next_timeout(Duration::MAX);
        let Some(held) = self.held.upgrade() else { return ControlFlow::Break(()) };
        match next {
            Ok(Some((_, event))) => {
                let Some(heartbeat) = self.filter.foreign(&event) else {
                    return ControlFlow::Continue(());
                };
                let _ = held.foreign.set(heartbeat);
                held.lost.store(true, Ordering::Release);
                ControlFlow::Break(())
            }
            Ok(None) => ControlFlow::Continue(()),
            Err(failed) => {
                drop(held);
                self.set.remove(failed.member);
                self.reopen()
            }
        }
    }

    /// Subscribes again, however long that takes. Stored heartbeats may be from before.
    fn reopen(&mut self) -> ControlFlow<()> {
        loop {
            // The waker ends this wait, too.
            let _ = self.set.next_timeout(RENEWAL_INTERVAL);
            let Some(held) = self.held.upgrade() else { return ControlFlow::Break(()) };
            let (bus, index) = (held.bus.clone(), held.record.index);
            drop(held);
            let opened = Heartbeats::own(&bus, &self.interface, index);
            if let Ok(Some(mut heartbeats)) = opened
                && heartbeats.stored().is_ok()
            {
                self.set.add(heartbeats.samples);
                return ControlFlow::Continue(());
            }
        }
    }
}
