//! Leases: being the one live instance of a component, and knowing when one no longer is.
//!
//! Constraints. The topic `X/lease/<index>` is exclusive: whoever holds its writer is the instance.
//! It says so once a second, from one thread of the process that does nothing else, so a busy
//! component is there, and one that is stopped or dead is not. It counts as gone [`LEASE`] after
//! its last word, and another may take over from then on.
//!
//! Operation. A process that was stopped does not know it. So before each command the time since
//! the last word is looked at, on the clock that leases run by, which counts through the stop
//! ([`Clock::uptime`](helio_bus::Clock::uptime)); where it is too long the component says that it
//! is there and then looks whether another has taken over meanwhile. In that order: after our word
//! nobody can take over, and who did before it is seen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

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
use crate::protocol::controller::LeaseState;
use crate::records::{LEASE, LeaseRecord};
use crate::topic;

/// How often a held lease is confirmed: four words may be late before it runs out.
const EVERY: Duration = Duration::from_secs(1);

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
    /// When it was last confirmed, by the clock that leases run by; locked while it is.
    said: Mutex<Duration>,
    /// How often it had run out when it was confirmed.
    lapses: AtomicU64,
    lost: AtomicBool,
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
        let writers = topic.writers().map_err(|error| failed(&error))?;
        if writers.iter().any(|writer| lives(writer, bus.clock().now())) {
            return Err(LeaseError::Held { identity, holder: holder(&topic) });
        }
        let said = Mutex::new(bus.clock().uptime());
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
        let held = Arc::new(Held { bus, topic, publisher, record, said, lapses, lost });
        confirm_for_ever(&held).map_err(|error| failed(&error))?;
        Ok(Self(held))
    }

    /// Whether it is held now. Costs a look at the clock, and more only after a stop.
    #[must_use]
    pub fn state(&self) -> LeaseState {
        let held = &self.0;
        if held.lost.load(Ordering::Acquire) {
            return LeaseState::Lost;
        }
        let said = *held.said.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = held.bus.clock().uptime().saturating_sub(said) < LEASE;
        if recent || held.confirm() {
            LeaseState::Held { incarnation: self.incarnation() }
        } else {
            LeaseState::Lost
        }
    }

    /// Whether it was confirmed so lately that nobody can have taken over. Never waits; where it is
    /// not, [`state`](Self::state) tells.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        let held = &self.0;
        let Ok(said) = held.said.try_lock() else { return false };
        let recent = held.bus.clock().uptime().saturating_sub(*said) < LEASE;
        recent && !held.lost.load(Ordering::Acquire)
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
        self.state() != LeaseState::Lost
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

impl WeakLease {
    /// Why this instance is not the one that lives, if it is not.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        match self.0.upgrade().map(|held| Lease(held).is_held()) {
            Some(true) => None,
            Some(false) => Some("its lease is lost, and another instance may run"),
            None => Some("it has ended, and its lease is given back"),
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
    /// Says that this instance is there, then looks whether it still is the one.
    fn confirm(&self) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if self.lost.load(Ordering::Acquire) {
            return false;
        }
        let now = self.bus.clock().uptime();
        let held = self.publisher.assert_alive().is_ok() && !self.replaced();
        if held {
            if now.saturating_sub(*said) >= LEASE {
                self.lapses.fetch_add(1, Ordering::AcqRel);
            }
            *said = now;
        } else {
            self.lost.store(true, Ordering::Release);
        }
        held
    }

    /// Whether a later instance has the lease. A look that fails says nothing.
    fn replaced(&self) -> bool {
        let own = self.publisher.producer();
        let Ok(writers) = self.topic.writers() else { return false };
        writers.iter().any(|writer| {
            writer.producer.name == own.name && writer.producer.incarnation > own.incarnation
        })
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Held").field(&self.record.identity).finish()
    }
}

/// The leases of this process, confirmed by one thread for as long as there are any.
static LEASES: Mutex<Leases> = Mutex::new(Leases { all: Vec::new(), running: false });
/// Never told: the thread's pace. A wait ends by its time.
static PACE: Condvar = Condvar::new();

struct Leases {
    all: Vec<Weak<Held>>,
    running: bool,
}

fn confirm_for_ever(held: &Arc<Held>) -> std::io::Result<()> {
    let mut leases = LEASES.lock().unwrap_or_else(PoisonError::into_inner);
    leases.all.push(Arc::downgrade(held));
    if !leases.running {
        let thread = std::thread::Builder::new().name("helio-leases".to_owned());
        thread.spawn(confirm_all)?;
        leases.running = true;
    }
    Ok(())
}

fn confirm_all() {
    let mut leases = LEASES.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        leases.all.retain(|held| held.strong_count() > 0);
        if leases.all.is_empty() {
            leases.running = false;
            return;
        }
        let all: Vec<_> = leases.all.iter().filter_map(Weak::upgrade).collect();
        drop(leases);
        all.iter().for_each(|held| {
            held.confirm();
        });
        drop(all);
        leases = LEASES.lock().unwrap_or_else(PoisonError::into_inner);
        leases = PACE.wait_timeout(leases, EVERY).unwrap_or_else(PoisonError::into_inner).0;
    }
}
