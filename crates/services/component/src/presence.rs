//! Presence: whether a component has a live instance, queried from its lease without a thread.
//!
//! Constraints. A query costs a list of the topic's writers; on the journal that is one system call
//! per live process. A result is reused for up to [`PRESENCE_MAX_AGE`], and an acknowledgement
//! refreshes it, so that commands in quick succession cost no query. A component without a lease is
//! foreign or never ran. Then the probe checks for live writers of its heartbeats or
//! acknowledgements, and after that the age of its heartbeats. Queries create no topic.

use std::time::Duration;

use helio_bus::transport::WriterInfo;
use helio_bus::{
    Alive, Bus, Event, Lagging, Start, Subscribe, Subscription, Tai, Topic, TopicError, TopicSpec,
};
use helio_core::Codec;
use helio_core::sal::TopicKind;

use crate::interface::Interface;
use crate::lease;
use crate::protocol::caller::Presence;
use crate::read::of_instance;
use crate::records::{self, LeaseRecord};

/// How long a result stays valid: half of the 100 ms within which a caller is notified of an absent
/// component, because a waiting caller queries again after that time.
pub const PRESENCE_MAX_AGE: Duration = Duration::from_millis(50);

/// How long a component without a lease may publish no heartbeat before it counts as gone.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

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
    heartbeat: Option<Subscription>,
    /// The time of the newest heartbeat.
    last_heartbeat: Option<Tai>,
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
        let (lease, heartbeat, last_heartbeat, cached) = (None, None, None, None);
        let foreign = Vec::new();
        Self { bus, interface, index, lease, foreign, heartbeat, last_heartbeat, cached }
    }

    /// The presence, at most [`PRESENCE_MAX_AGE`] old. *Gone* is always queried again, because the
    /// instance may have returned.
    ///
    /// # Errors
    /// The bus's error.
    pub fn cached(&mut self) -> Result<Presence, TopicError> {
        match self.cached {
            // An absent instance may have returned: a command is refused only after a new query.
            Some((when, presence))
                if presence != Presence::Gone
                    && self.now().saturating_sub(when) < PRESENCE_MAX_AGE
                    && !self.lease_changed() =>
            {
                Ok(presence)
            }
            _ => self.query(),
        }
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
            Some(presence) => presence,
            None if self.has_live_writer()? => self.by_heartbeat()?,
            None => Presence::Gone,
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
        let record = self.instance().filter(|_| {
            self.cached.is_some_and(|(_, presence)| matches!(presence, Presence::Here { .. }))
        })?;
        let has = |known: &String| known == command;
        (!command.is_empty() && !record.commands.iter().any(has)).then(|| {
            format!("the instance of {} that runs has no command {command}", record.identity)
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

    /// Whether a process may be writing the topics of a component without a lease. False only if
    /// the transport knows that none is live.
    fn has_live_writer(&mut self) -> Result<bool, TopicError> {
        if !self.bus.capabilities().liveliness.is_yes() {
            return Ok(true);
        }
        for (kind, name) in FOREIGN_TOPICS {
            if !self.foreign.iter().any(|(known, _)| *known == kind)
                && let Some(topic) = self.existing(kind, name)?
            {
                self.foreign.push((kind, topic));
            }
        }
        // Our own other instances share these topics and prove nothing about this one.
        let (own, others) = (self.interface.identity(self.index), self.interface.name());
        let other = |name: &str| {
            let index = name.strip_prefix(others).and_then(|rest| rest.strip_prefix(':'));
            index.is_some() && name != own
        };
        for (_, topic) in &self.foreign {
            let lives = |writer: &WriterInfo| writer.alive != Some(Alive::No);
            let writers = topic.writers()?;
            if writers.iter().any(|writer| lives(writer) && !other(writer.producer.name.as_str())) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A topic of the component, if it exists; queries do not create it.
    fn existing(&self, kind: TopicKind, name: &str) -> Result<Option<Topic>, TopicError> {
        let Ok(shape) = self.interface.shape(kind, name) else { return Ok(None) };
        match self.bus.topic(TopicSpec::of(shape.topic().topic_name().clone())) {
            Ok(topic) => Ok(Some(topic)),
            Err(TopicError::NoSuchTopic(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A component without a lease is gone if it published heartbeats and stopped.
    fn by_heartbeat(&mut self) -> Result<Presence, TopicError> {
        if self.heartbeat.is_none() {
            let Ok(shape) = self.interface.shape(TopicKind::Event, "heartbeat") else {
                return Ok(Presence::Unknown);
            };
            let options = Subscribe::from(Start::Last(1)).lagging(Lagging::Conflate).as_written();
            let options = of_instance(options, &shape, self.index);
            let Some(topic) = self.existing(TopicKind::Event, "heartbeat")? else {
                return Ok(Presence::Unknown);
            };
            self.heartbeat = Some(topic.subscribe(options)?);
        }
        while let Some(Ok(Some(event))) = self.heartbeat.as_mut().map(Subscription::try_next) {
            if let Event::Sample(sample) = event {
                self.last_heartbeat = Some(sample.header.time);
            }
        }
        let now = self.bus.clock().now().nanos();
        let since =
            self.last_heartbeat.map(|last_heartbeat| now.saturating_sub(last_heartbeat.nanos()));
        let gone = since
            .is_some_and(|since| u128::try_from(since).unwrap_or(0) > HEARTBEAT_TIMEOUT.as_nanos());
        Ok(if gone { Presence::Gone } else { Presence::Unknown })
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
    let samples = topic.subscribe(Subscribe::from(Start::Last(1)).lagging(Lagging::Conflate))?;
    let codec = records::codec::<LeaseRecord>();
    Ok(Some(OpenLease { topic, samples, codec, record: None }))
}

impl OpenLease {
    fn read(&mut self) {
        while let Ok(Some(event)) = self.samples.try_next() {
            let Event::Sample(sample) = event else { continue };
            // A record of a later version may be unreadable; presence does not depend on it.
            self.record = self.codec.deserialize(&sample.payload).ok();
        }
    }
}
