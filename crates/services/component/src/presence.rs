//! Presence: whether a component has a live instance, queried from its lease without a thread.
//!
//! Constraints. A query costs a list of the topic's writers; on the journal that is one system call
//! per live process. A result is reused for up to [`PRESENCE_MAX_AGE`], and an acknowledgement
//! refreshes it, so that commands in quick succession cost no query. Queries create no topic.
//!
//! Operation. A held lease is one of our instances. Without one the component may be foreign, such
//! as one of salobj, even if an instance of ours ran before. The probe then checks for live writers
//! of heartbeats or acknowledgements and, after that, for [heartbeats](crate::heartbeats) of other
//! producers. Those count by their arrival here. A stored heartbeat has no age: the component is
//! unknown until it was silent for [`HEARTBEAT_TIMEOUT`]. Our own last heartbeat proves nothing.

use std::time::Duration;

use helio_bus::transport::{Reach, WriterInfo};
use helio_bus::{
    Alive, Bus, Event, Lagging, Start, Subscribe, Subscription, Topic, TopicError, TopicSpec,
};
use helio_core::Codec;
use helio_core::sal::TopicKind;

use crate::heartbeats::{HEARTBEAT_TIMEOUT, Heartbeats, existing};
use crate::interface::Interface;
use crate::lease;
use crate::protocol::caller::Presence;
use crate::records::{self, LeaseRecord};
use crate::topic::{STORED_TIMEOUT, read_failed};

/// How long a result stays valid: half of the 100 ms within which a caller is notified of an absent
/// component, because a waiting caller queries again after that time.
pub const PRESENCE_MAX_AGE: Duration = Duration::from_millis(50);

/// The topics that every component writes, ours or foreign.
const FOREIGN_TOPICS: [(TopicKind, &str); 2] =
    [(TopicKind::Event, "heartbeat"), (TopicKind::Ack, "ackcmd")];

/// Queries whether an instance of a component is live.
pub struct PresenceProbe {
    bus: Bus,
    interface: Interface,
    index: i32,
    lease: Option<OpenLease>,
    /// Topics that foreign components write too, if they exist.
    foreign: Vec<(TopicKind, Topic)>,
    heartbeats: Option<Heartbeats>,
    /// When the newest foreign heartbeat arrived.
    last_heartbeat: Option<Duration>,
    cached: Option<(Duration, Presence)>,
}

struct OpenLease {
    topic: Topic,
    samples: Subscription,
    codec: Codec,
    record: Option<LeaseRecord>,
}

impl PresenceProbe {
    /// A probe of one instance; `index` is 0 if the component is not indexed.
    #[must_use]
    pub fn new(bus: &Bus, interface: &Interface, index: i32) -> Self {
        let (bus, interface) = (bus.clone(), interface.clone());
        let (lease, heartbeats, last_heartbeat, cached) = (None, None, None, None);
        let foreign = Vec::new();
        Self { bus, interface, index, lease, foreign, heartbeats, last_heartbeat, cached }
    }

    /// The presence, at most [`PRESENCE_MAX_AGE`] old. *Gone* is always queried again, because the
    /// instance may have returned.
    ///
    /// # Errors
    /// The bus's error.
    pub fn cached(&mut self) -> Result<Presence, TopicError> {
        self.known().map_or_else(|| self.query(), Ok)
    }

    /// The same if it is known without a query, which may wait for the engine.
    #[must_use]
    pub fn known(&self) -> Option<Presence> {
        let (when, presence) = self.cached?;
        // An absent instance may have returned: a command is refused only after a new query.
        let is_valid = presence != Presence::Gone
            && self.now().saturating_sub(when) < PRESENCE_MAX_AGE
            && !self.lease_changed();
        is_valid.then_some(presence)
    }

    /// Whether another instance has taken the lease since the last query: it would not run a
    /// command that names the previous one.
    fn lease_changed(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.samples.stats().lag > 0)
    }

    /// Refreshes the last result after an acknowledgement.
    pub(crate) fn note_ack(&mut self) {
        let now = self.now();
        if let Some((when, Presence::Here { .. } | Presence::Unknown)) = &mut self.cached {
            *when = now;
        }
    }

    /// The presence now.
    ///
    /// # Errors
    /// The bus's error.
    pub fn query(&mut self) -> Result<Presence, TopicError> {
        let when = self.now();
        let presence = match self.by_lease()? {
            Some(here @ Presence::Here { .. }) => here,
            // One of ours may have run before; a foreign one may run now.
            lease => self.without_lease(lease.is_some())?,
        };
        self.cached = Some((when, presence));
        Ok(presence)
    }

    /// The instance that holds the lease, or held it last.
    #[must_use]
    pub fn instance(&self) -> Option<&LeaseRecord> {
        self.lease.as_ref()?.record.as_ref()
    }

    /// Why the live instance cannot run a command: its interface has no command of that name.
    #[must_use]
    pub fn missing_command(&self, command: &str) -> Option<String> {
        self.live_instance()?.missing_command(command)
    }

    /// The instance that was live at the last query.
    #[must_use]
    pub fn live_instance(&self) -> Option<&LeaseRecord> {
        self.instance().filter(|_| {
            self.cached.is_some_and(|(_, presence)| matches!(presence, Presence::Here { .. }))
        })
    }

    fn now(&self) -> Duration {
        self.bus.clock().uptime()
    }

    fn by_lease(&mut self) -> Result<Option<Presence>, TopicError> {
        if self.lease.is_none() {
            self.lease = open(&self.bus, &self.interface, self.index)?;
        }
        let Some(open) = &mut self.lease else { return Ok(None) };
        let now = self.bus.clock().now();
        let writers = open.topic.writers()?;
        open.read();
        let living = writers.iter().filter(|writer| lease::lives(writer, now));
        let newest = living.map(|writer| writer.producer.incarnation).max();
        Ok(Some(newest.map_or(Presence::Gone, |incarnation| Presence::Here { incarnation })))
    }

    /// The presence of a foreign component. `known`: one of ours ran before.
    fn without_lease(&mut self, known: bool) -> Result<Presence, TopicError> {
        let writes = self.has_live_writer()?;
        // Engines of one machine know all writers; those of a network do not know foreign ones.
        let heard = match writes || self.bus.capabilities().reach == Reach::Network {
            true => self.by_heartbeat()?,
            false => None,
        };
        // A foreign component may have published no heartbeat yet.
        let quiet = if writes && !known { Presence::Unknown } else { Presence::Gone };
        Ok(heard.unwrap_or(quiet))
    }

    /// Whether a foreign process may be writing the topics of a component without a lease. False
    /// only if the transport knows that none is live.
    fn has_live_writer(&mut self) -> Result<bool, TopicError> {
        if !self.bus.capabilities().liveliness.is_yes() {
            return Ok(true);
        }
        for (kind, name) in FOREIGN_TOPICS {
            if !self.foreign.iter().any(|(known, _)| *known == kind)
                && let Some(topic) = existing(&self.bus, &self.interface, kind, name)?
            {
                self.foreign.push((kind, topic));
            }
        }
        // Our own instances share these topics. They hold leases: a writer of theirs that outlives
        // its lease is no component.
        let component = self.interface.name();
        let ours = |name: &str| {
            name.strip_prefix(component)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        for (_, topic) in &self.foreign {
            let lives = |writer: &WriterInfo| writer.alive != Some(Alive::No);
            let writers = topic.writers()?;
            if writers.iter().any(|writer| lives(writer) && !ours(writer.producer.name.as_str())) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The presence by the heartbeats of foreign producers; `None` if there has been none.
    fn by_heartbeat(&mut self) -> Result<Option<Presence>, TopicError> {
        let newest = match &mut self.heartbeats {
            Some(heartbeats) => heartbeats.arrived()?,
            None => {
                let (bus, interface) = (&self.bus, &self.interface);
                let opened = Heartbeats::existing(bus, interface, self.index)?;
                let Some(mut heartbeats) = opened else { return Ok(None) };
                let stored = heartbeats.stored()?;
                self.heartbeats = Some(heartbeats);
                stored
            }
        };
        if newest.is_some() {
            self.last_heartbeat = Some(self.now());
        }
        let silent = self.last_heartbeat.map(|last| self.now().saturating_sub(last));
        Ok(silent.map(
            |silent| {
                if silent > HEARTBEAT_TIMEOUT { Presence::Gone } else { Presence::Unknown }
            },
        ))
    }
}

impl std::fmt::Debug for PresenceProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.interface.identity(self.index))
    }
}

/// Opens the lease's topic if it exists; callers do not create it.
fn open(bus: &Bus, interface: &Interface, index: i32) -> Result<Option<OpenLease>, TopicError> {
    let topic = match bus.topic(TopicSpec::of(lease::name(interface.name(), index)?)) {
        Ok(topic) => topic,
        Err(TopicError::NoSuchTopic(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut samples =
        topic.subscribe(Subscribe::from(Start::Last(1)).lagging(Lagging::Conflate))?;
    // The first query waits until the stored record has arrived.
    samples.set_fence().map_err(read_failed)?;
    let codec = records::codec::<LeaseRecord>();
    Ok(Some(OpenLease { topic, samples, codec, record: None }))
}

impl OpenLease {
    fn read(&mut self) {
        while let Ok(Some(event)) = self.samples.next_stored(STORED_TIMEOUT) {
            let Event::Sample(sample) = event else { continue };
            // A record of a later version may be unreadable; presence does not depend on it.
            self.record = self.codec.deserialize(&sample.payload).ok();
        }
    }
}
