//! Who is there: looked up in the lease's topic, without a thread.
//!
//! Constraints. A look costs what the transport's list of writers costs (on the journal, a question
//! to the system about each live process); the newest one is taken for up to [`RECENT`], and an
//! acknowledgement counts as one, so that commands in quick succession cost no look. A component
//! that never had a lease is not ours, or has never run: whether any process lives that writes its
//! heartbeats or acknowledgements tells that, and then the heartbeats. Looking makes no topic.

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
use crate::records::LeaseRecord;

/// For how long a look counts as fresh: half of the 100 ms within which a caller is told that
/// nobody is there, for whoever waits looks again after that time.
pub const RECENT: Duration = Duration::from_millis(50);

/// How long the heartbeats of a component without a lease may be absent before it counts as gone.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// What every component writes, whoever made it.
const WRITTEN: [(TopicKind, &str); 2] =
    [(TopicKind::Event, "heartbeat"), (TopicKind::Ack, "ackcmd")];

/// Looks whether an instance of a component is there.
pub struct Watch {
    bus: Bus,
    interface: Interface,
    index: i32,
    lease: Option<OpenLease>,
    /// Topics that a component of somebody else's writes too, where they are there.
    foreign: Vec<(TopicKind, Topic)>,
    heartbeat: Option<Subscription>,
    /// When the newest heartbeat was published.
    beat: Option<Tai>,
    looked: Option<(Duration, Presence)>,
}

struct OpenLease {
    topic: Topic,
    samples: Subscription,
    codec: Codec,
    record: Option<LeaseRecord>,
}

impl Watch {
    /// Watches one instance; `index` is 0 where the component is not indexed.
    #[must_use]
    pub fn new(bus: &Bus, interface: &Interface, index: i32) -> Self {
        let (bus, interface) = (bus.clone(), interface.clone());
        let (lease, heartbeat, beat, looked) = (None, None, None, None);
        let foreign = Vec::new();
        Self { bus, interface, index, lease, foreign, heartbeat, beat, looked }
    }

    /// Whether it is there, as of [`RECENT`] at the most; who is gone is looked for anew, for they
    /// may have come back.
    ///
    /// # Errors
    /// What the bus says.
    pub fn recent(&mut self) -> Result<Presence, TopicError> {
        match self.looked {
            // Whoever was gone may have come: a command is refused only after a fresh look.
            Some((when, presence))
                if presence != Presence::Gone
                    && self.now().saturating_sub(when) < RECENT
                    && !self.has_news() =>
            {
                Ok(presence)
            }
            _ => self.look(),
        }
    }

    /// Whether somebody has taken the lease since the last look: a command that names the instance
    /// before would not be run.
    fn has_news(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.samples.stats().lag > 0)
    }

    /// It has just acknowledged something: what the last look said holds still.
    pub(crate) fn heard(&mut self) {
        let now = self.now();
        if let Some((when, Presence::Here { .. } | Presence::Unknown)) = &mut self.looked {
            *when = now;
        }
    }

    /// Whether it is there now.
    ///
    /// # Errors
    /// What the bus says.
    pub fn look(&mut self) -> Result<Presence, TopicError> {
        let when = self.now();
        let presence = match self.by_lease()? {
            Some(presence) => presence,
            None if self.somebody_writes()? => self.by_heartbeat()?,
            None => Presence::Gone,
        };
        self.looked = Some((when, presence));
        Ok(presence)
    }

    /// The instance that holds the lease, or held it last.
    #[must_use]
    pub fn instance(&self) -> Option<&LeaseRecord> {
        self.lease.as_ref()?.record.as_ref()
    }

    /// Why the instance that is there cannot run a command: its interface has none of that name.
    #[must_use]
    pub fn lacks(&self, command: &str) -> Option<String> {
        let record = self.instance().filter(|_| {
            self.looked.is_some_and(|(_, presence)| matches!(presence, Presence::Here { .. }))
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

    /// Whether any process writes what a component without a lease writes, or may do so: false
    /// where the transport can tell, and knows none that lives.
    fn somebody_writes(&mut self) -> Result<bool, TopicError> {
        if !self.bus.capabilities().liveliness.is_yes() {
            return Ok(true);
        }
        for (kind, name) in WRITTEN {
            if !self.foreign.iter().any(|(known, _)| *known == kind)
                && let Some(topic) = self.existing(kind, name)?
            {
                self.foreign.push((kind, topic));
            }
        }
        // Our other instances, who share these topics, say nothing of this one.
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

    /// A topic of the component's, if it is there: who looks does not make it.
    fn existing(&self, kind: TopicKind, name: &str) -> Result<Option<Topic>, TopicError> {
        let Ok(shape) = self.interface.shape(kind, name) else { return Ok(None) };
        match self.bus.topic(TopicSpec::of(shape.topic().topic_name().clone())) {
            Ok(topic) => Ok(Some(topic)),
            Err(TopicError::NoSuchTopic(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A component without a lease is gone where it had a heartbeat and has none now.
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
                self.beat = Some(sample.header.time);
            }
        }
        let now = self.bus.clock().now().nanos();
        let since = self.beat.map(|beat| now.saturating_sub(beat.nanos()));
        let gone = since
            .is_some_and(|since| u128::try_from(since).unwrap_or(0) > HEARTBEAT_TIMEOUT.as_nanos());
        Ok(if gone { Presence::Gone } else { Presence::Unknown })
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.interface.identity(self.index))
    }
}

/// Opens the lease's topic where there is one; a caller does not make it.
fn open(bus: &Bus, interface: &Interface, index: i32) -> Result<Option<OpenLease>, TopicError> {
    let topic = match bus.topic(TopicSpec::of(lease::name(interface.name(), index)?)) {
        Ok(topic) => topic,
        Err(TopicError::NoSuchTopic(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let samples = topic.subscribe(Subscribe::from(Start::Last(1)).lagging(Lagging::Conflate))?;
    let codec = lease::codec().map_err(|error| TopicError::Schema {
        topic: topic.name().clone(),
        schema: helio_core::SchemaId::BYTES,
        reason: error.to_string(),
    })?;
    Ok(Some(OpenLease { topic, samples, codec, record: None }))
}

impl OpenLease {
    fn read(&mut self) {
        while let Ok(Some(event)) = self.samples.try_next() {
            let Event::Sample(sample) = event else { continue };
            // A record of a later version may not be readable: who is there counts all the same.
            self.record = self.codec.deserialize(&sample.payload).ok();
        }
    }
}
