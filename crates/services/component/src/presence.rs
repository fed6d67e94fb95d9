//! Who is there: looked up in the lease's topic, without a thread.
//!
//! Constraints. A look costs what the transport's list of writers costs (on the journal, a question
//! to the system about each live process); the newest one is taken for up to [`RECENT`], and an
//! acknowledgement counts as one, so that commands in quick succession cost no look. A component
//! that never had a lease is not ours: its heartbeats must tell.

use std::time::Duration;

use helio_bus::{
    Bus, Event, Lagging, Start, Subscribe, Subscription, Tai, Topic, TopicError, TopicSpec,
};
use helio_core::Codec;
use helio_core::sal::TopicKind;

use crate::interface::Interface;
use crate::lease;
use crate::protocol::caller::{HEARTBEAT_TIMEOUT, Presence};
use crate::read::of_instance;
use crate::records::LeaseRecord;
use crate::topic;

/// For how long a look counts as fresh: half of the 100 ms within which a caller is told that
/// nobody is there, for whoever waits looks again after that time.
pub const RECENT: Duration = Duration::from_millis(50);

/// Looks whether an instance of a component is there.
pub struct Watch {
    bus: Bus,
    interface: Interface,
    index: i32,
    lease: Option<OpenLease>,
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
        Self { bus, interface, index, lease, heartbeat, beat, looked }
    }

    /// Whether it is there, as of [`RECENT`] at the most; who is gone is looked for anew, for they
    /// may have come back.
    ///
    /// # Errors
    /// What the bus says.
    pub fn recent(&mut self) -> Result<Presence, TopicError> {
        match self.looked {
            Some((when, presence))
                if presence != Presence::Gone && self.now().saturating_sub(when) < RECENT =>
            {
                Ok(presence)
            }
            _ => self.look(),
        }
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
            None => self.by_heartbeat()?,
        };
        self.looked = Some((when, presence));
        Ok(presence)
    }

    /// The instance that holds the lease, or held it last.
    #[must_use]
    pub fn instance(&self) -> Option<&LeaseRecord> {
        self.lease.as_ref()?.record.as_ref()
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
        let here = open.topic.writers()?.iter().any(|writer| lease::lives(writer, now));
        open.read();
        if !here {
            return Ok(Some(Presence::Gone));
        }
        let started = open.record.as_ref().map_or(Tai::from_nanos(i64::MIN), |r| r.started.into());
        Ok(Some(Presence::Here { started }))
    }

    /// A component without a lease is gone where it had a heartbeat and has none now.
    fn by_heartbeat(&mut self) -> Result<Presence, TopicError> {
        if self.heartbeat.is_none() {
            let Ok(shape) = self.interface.shape(TopicKind::Event, "heartbeat") else {
                return Ok(Presence::Unknown);
            };
            let options = Subscribe::from(Start::Last(1)).lagging(Lagging::Conflate).as_written();
            let options = of_instance(options, &shape, self.index);
            let topic = topic::open(&self.bus, &shape, None)?;
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
