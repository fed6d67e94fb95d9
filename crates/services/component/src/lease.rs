//! Leases: being the one live instance of a component, and knowing when one no longer is.
//!
//! Constraints. The topic `X/lease/<index>` is exclusive: whoever holds its writer is the instance.
//! It says so once a second, from a thread that does nothing else, so a busy
//! component is there, and one that is stopped or dead is not. It counts as gone [`LEASE`] after
//! its last word, and another may take over from then on.
//!
//! Operation. A process that was stopped does not know it. So before each command the time since
//! the last word is looked at, on the clock that leases run by, which counts through the stop
//! ([`Clock::uptime`](helio_bus::Clock::uptime)); where it is too long the component says that it
//! is there and then looks whether another has taken over meanwhile. In that order: after our word
//! nobody can take over, and who did before it is seen. Where the bus takes no word, nobody knows
//! whether another has: no command is run until one has arrived, and it goes on then, unless it was
//! replaced. Only the thread that says so waits for the bus; others wait a second for it, once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use helio_bus::transport::WriterInfo;
use helio_bus::{
    Alive, Bus, Message, Publisher, Start, Subscribe, Tai, Topic, TopicError, TopicSpec,
    TransportError,
};
use helio_core::sal::TopicKind;
use helio_core::schema::HasSchema;
use helio_core::{Codec, ProducerName, TopicName};
use thiserror::Error;

use crate::host;
use crate::interface::Interface;
use crate::records::{LEASE, LeaseRecord};
use crate::topic;

/// How often a held lease is confirmed: four words may be late before it runs out.
const EVERY: Duration = Duration::from_secs(1);
/// How long a bus that is slow is waited for: by who wants a lease, to learn who holds it...
const PATIENCE: Duration = Duration::from_secs(10);
/// ... and by who wants to know how it stands, while another says that it is there.
const SOON: Duration = Duration::from_secs(1);
/// When a new lease that took long to open is confirmed again.
const AGAIN: Duration = Duration::from_millis(50);

/// Why a component may not run.
#[derive(Debug, Clone, Error)]
pub enum LeaseError {
    /// Another instance of it runs.
    #[error("{identity} runs already: {holder}; stop it first, or wait until it is gone")]
    Held {
        /// The component, with its index.
        identity: String,
        /// Where it runs, and since when.
        holder: String,
    },
    /// The lease's topic cannot be opened or written.
    #[error("the lease of {identity} cannot be taken: {reason}")]
    Topic {
        /// The component, with its index.
        identity: String,
        /// What the bus says.
        reason: String,
    },
}

/// How an instance stands with its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseStanding {
    /// It was confirmed so lately that nobody can have taken over.
    Held,
    /// It has run out, and the bus does not let it be confirmed: callers are told that nobody is
    /// there, and another may take over. It is tried again every second.
    Lapsed,
    /// Another has taken over, or the bus was closed: this instance has ended.
    Lost,
}

/// What is said of the instance that takes a lease.
#[derive(Debug, Clone, Default)]
pub struct LeaseOptions {
    /// What the component is made with, and of which version.
    pub software: String,
    /// The version of its interface, where it is known.
    pub interface: String,
}

/// The right to be a component, held until it is dropped or lost. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Lease(Arc<Held>);

struct Held {
    bus: Bus,
    topic: Topic,
    publisher: Publisher,
    record: LeaseRecord,
    /// When it was last confirmed, nanoseconds of the clock that leases run by.
    said: AtomicU64,
    /// How often it had run out when it was confirmed.
    lapses: AtomicU64,
    lost: AtomicBool,
    trial: Mutex<Trial>,
    /// A trial has ended.
    tried: Condvar,
    /// Who confirms it.
    confirms: OnceLock<Thread>,
}

/// Confirming a lease.
#[derive(Default)]
struct Trial {
    /// The last did not do, or takes long: nobody waits for the next.
    failed: bool,
    /// Why it did not.
    cause: Option<TopicError>,
}

impl Lease {
    /// Takes the lease of an instance; `index` is 0 where the component is not indexed.
    ///
    /// # Errors
    /// [`LeaseError::Held`] where another instance runs.
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
        let record = LeaseRecord {
            component: interface.name().to_owned(),
            index,
            identity: identity.clone(),
            host: host::host(),
            pid: host::origin(),
            started: bus.clock().now().into(),
            software: options.software,
            interface: options.interface,
            commands: interface.names(TopicKind::Command).map(str::to_owned).collect(),
        };
        let topic = open(bus, &record).map_err(|error| failed(&error))?;
        // Of two of one bus both would get the same writer: they are told apart here.
        static CLAIMING: Mutex<()> = Mutex::new(());
        let one = CLAIMING.lock().unwrap_or_else(PoisonError::into_inner);
        let writers = topic.writers_within(PATIENCE).map_err(|error| failed(&error))?;
        if writers.iter().any(|writer| lives(writer, bus.clock().now())) {
            return Err(LeaseError::Held { identity, holder: holder(&topic) });
        }
        let said = AtomicU64::new(nanos(bus.clock().uptime()));
        let publisher = topic.publisher().map_err(|error| match error {
            TopicError::Transport(TransportError::Owned { .. }) => {
                LeaseError::Held { identity: identity.clone(), holder: holder(&topic) }
            }
            error => failed(&error),
        })?;
        let mut payload = Vec::new();
        let codec = codec().map_err(|error| failed(&error))?;
        codec.serialize(&record, &mut payload).map_err(|error| failed(&error))?;
        publisher.publish(Message::new(&payload)).wait().map_err(|error| failed(&error))?;
        drop(one);
        let (bus, lost, lapses) = (bus.clone(), AtomicBool::new(false), AtomicU64::new(0));
        let (trial, tried, confirms) = (Mutex::default(), Condvar::new(), OnceLock::new());
        let held =
            Held { bus, topic, publisher, record, said, lapses, lost, trial, tried, confirms };
        // Opening may have taken as long as a lease; it has not lapsed before it began.
        let until = Instant::now() + PATIENCE;
        while held.known().is_none() && Instant::now() < until {
            held.confirm();
            std::thread::sleep(AGAIN);
        }
        held.lapses.store(0, Ordering::Release);
        let held = Arc::new(held);
        let thread = confirm_for_ever(&held).map_err(|error| failed(&error))?;
        let _ = held.confirms.set(thread);
        Ok(Self(held))
    }

    /// How it stands now. Costs a look at the clock, and more only after a stop; in an outage it is
    /// waited for once, for a second.
    #[must_use]
    pub fn standing(&self) -> LeaseStanding {
        self.0.standing()
    }

    /// The same as far as nothing has to be waited for, which is mostly the case.
    #[must_use]
    pub fn known(&self) -> Option<LeaseStanding> {
        self.0.known()
    }

    /// Which of the component's instances this is: a later one has a larger number.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.0.publisher.producer().incarnation
    }

    /// How often this instance was silent for longer than its lease, and nobody took over. Callers
    /// were told meanwhile that it is gone: what they had sent is not to be run.
    #[must_use]
    pub fn lapses(&self) -> u64 {
        self.0.lapses.load(Ordering::Acquire)
    }

    /// Whether it is held now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.standing() == LeaseStanding::Held
    }

    /// Why it is not known who has it, while it is [lapsed](LeaseStanding::Lapsed).
    #[must_use]
    pub fn outage(&self) -> TransportError {
        self.0.outage()
    }

    /// What it says of this instance.
    #[must_use]
    pub fn record(&self) -> &LeaseRecord {
        &self.0.record
    }
}

/// A lease as those see it who may write only while it is held; it does not keep it.
#[derive(Debug, Clone)]
pub(crate) struct WeakLease(Weak<Held>);

impl Lease {
    pub(crate) fn downgrade(&self) -> WeakLease {
        WeakLease(Arc::downgrade(&self.0))
    }
}

/// Why an instance says nothing.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It has ended, or another has taken over.
    Over(&'static str),
    /// Whether another has taken over is not known.
    Unsure(TransportError),
}

impl WeakLease {
    /// Why this is not for sure the instance that lives, if it is not.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let Some(held) = self.0.upgrade() else {
            return Some(Refusal::Over("it has ended, and its lease is given back"));
        };
        match held.standing() {
            LeaseStanding::Held => None,
            LeaseStanding::Lapsed => Some(Refusal::Unsure(held.outage())),
            LeaseStanding::Lost => {
                Some(Refusal::Over("its lease is lost, and another instance may run"))
            }
        }
    }
}

fn open(bus: &Bus, record: &LeaseRecord) -> Result<Topic, TopicError> {
    let name = name(&record.component, record.index)?;
    let producer = ProducerName::new(&record.identity)?;
    let spec = TopicSpec::of(name).qos(LeaseRecord::qos()).producer(producer);
    bus.topic(match LeaseRecord::schema() {
        Ok(schema) => spec.schema(&schema),
        // It is a constant of this program, and a test parses it.
        Err(_) => spec,
    })
}

/// The topic of an instance's lease.
pub(crate) fn name(component: &str, index: i32) -> Result<TopicName, TopicError> {
    topic::beside(component, &format!("lease/{index}"))
}

/// The codec of leases.
pub(crate) fn codec() -> Result<Codec, helio_core::SchemaError> {
    Ok(Codec::new(&LeaseRecord::schema()?))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a writer of a lease's topic holds it.
pub(crate) fn lives(writer: &WriterInfo, now: Tai) -> bool {
    match (writer.alive, writer.seen) {
        (Some(alive), _) => alive == Alive::Yes,
        // A transport that cannot tell knows when it was last heard of.
        (None, Some(seen)) => {
            let since = now.nanos().saturating_sub(seen.nanos());
            u128::try_from(since).unwrap_or(0) <= LEASE.as_nanos()
        }
        (None, None) => false,
    }
}

/// The holder in words, from the newest record.
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
    let sample = samples.try_next().ok()??.into_sample()?;
    codec().ok()?.deserialize(&sample.payload).ok()
}

impl Held {
    fn standing(&self) -> LeaseStanding {
        if let Some(known) = self.known() {
            return known;
        }
        let trial = self.trial();
        if !trial.failed {
            if let Some(thread) = self.confirms.get() {
                thread.unpark();
            }
            let waits = |trial: &mut Trial| !trial.failed && self.known().is_none();
            let (mut trial, waited) = self
                .tried
                .wait_timeout_while(trial, SOON, waits)
                .unwrap_or_else(PoisonError::into_inner);
            trial.failed |= waited.timed_out();
        }
        self.known().unwrap_or(LeaseStanding::Lapsed)
    }

    /// How it stands, as far as no word is needed for that.
    fn known(&self) -> Option<LeaseStanding> {
        if self.lost.load(Ordering::Acquire) {
            return Some(LeaseStanding::Lost);
        }
        let recent = self.bus.clock().uptime().saturating_sub(self.said()) < LEASE;
        recent.then_some(LeaseStanding::Held)
    }

    /// Says that this instance is there, then looks whether it still is the one.
    fn confirm(&self) {
        let now = self.bus.clock().uptime();
        let since = |then: Duration| self.bus.clock().uptime().saturating_sub(then);
        let asserted = self.publisher.assert_alive();
        // It counted as gone until now, if that took long.
        let ran_out = since(self.said()) >= LEASE;
        let replaced = match asserted {
            Ok(()) => self.is_replaced(ran_out),
            Err(TransportError::Fenced { .. } | TransportError::Closed) => Ok(true),
            Err(error) => Err(error.into()),
        };
        match replaced {
            Ok(true) => self.lost.store(true, Ordering::Release),
            // A word that took longer than a lease says nothing any more: the next does.
            Ok(false) if since(now) < LEASE => {
                self.lapses.fetch_add(u64::from(ran_out), Ordering::AcqRel);
                self.said.store(nanos(now), Ordering::Release);
            }
            Ok(false) | Err(_) => {}
        }
        *self.trial() = Trial { failed: replaced.is_err(), cause: replaced.err() };
        self.tried.notify_all();
    }

    /// Why it is not known who has the lease.
    fn outage(&self) -> TransportError {
        let cause = match &self.trial().cause {
            None => "the bus takes too long".to_owned(),
            Some(TopicError::Transport(TransportError::Outage { cause, .. })) => cause.clone(),
            Some(error) => error.to_string(),
        };
        let transport = self.bus.capabilities().transport.clone();
        TransportError::Outage { transport, cause: format!("the lease is not confirmed: {cause}") }
    }

    fn said(&self) -> Duration {
        Duration::from_nanos(self.said.load(Ordering::Acquire))
    }

    fn trial(&self) -> MutexGuard<'_, Trial> {
        self.trial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a later instance has the lease. Who cannot look knows it as long as none could take
    /// it.
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

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Held").field(&self.record.identity).finish()
    }
}

/// Confirms a lease for as long as somebody has it. Each has a thread of its own: one whose bus is
/// away holds up no other.
fn confirm_for_ever(held: &Arc<Held>) -> std::io::Result<Thread> {
    let weak = Arc::downgrade(held);
    let confirm = move || {
        loop {
            let begun = Instant::now();
            let Some(held) = weak.upgrade() else { return };
            held.confirm();
            drop(held);
            // After one that took long the next is due at once, and where somebody waits for it.
            std::thread::park_timeout(EVERY.saturating_sub(begun.elapsed()));
        }
    };
    let thread = std::thread::Builder::new().name("helio-lease".to_owned()).spawn(confirm)?;
    Ok(thread.thread().clone())
}
