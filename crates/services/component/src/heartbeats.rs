//! Heartbeats of foreign instances: components of other software, which take no lease.
//!
//! Constraints. An instance of ours publishes under its own identity as producer; any other
//! producer of its heartbeats is foreign. A heartbeat proves life when it arrives, by the local
//! clock: senders' clocks may differ by minutes. The age of a stored heartbeat is unknown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::transport::PartitionInfo;
use helio_bus::{
    Bus, Event, Lagging, Sample, Start, Subscribe, Subscription, Topic, TopicError, TopicSpec,
};
use helio_core::sal::TopicKind;

use crate::interface::{Interface, Shape};
use crate::read::of_instance;
use crate::sender::Sender;
use crate::topic::{STORED_TIMEOUT, read_failed};

/// How long a foreign component may publish no heartbeat, due each second, before it counts as
/// gone.
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many of the newest stored heartbeats, of all instances, are read: 10 s of a hundred
/// instances. With more unread ones, the older ones are skipped.
const TAIL_SAMPLES: u64 = 1_024;
/// A foreign heartbeat before so many of our own is from before they ran: one of ours ends at the
/// first foreign heartbeat, a second after its last own one at the latest.
const OUTDATING_HEARTBEATS: u32 = 2;
/// How long a starting component listens for a foreign instance: three heartbeats.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(3);

/// The heartbeats of one component and index.
pub(crate) struct Heartbeats {
    pub samples: Subscription,
    pub filter: ForeignFilter,
    /// Our own heartbeats since the newest foreign one.
    own: u32,
}

/// Recognises foreign heartbeats.
pub(crate) struct ForeignFilter {
    shape: Arc<Shape>,
    /// The producer of our own instances.
    identity: String,
}

/// A heartbeat of a foreign instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForeignHeartbeat {
    /// `private_identity`: a component's name, with its index.
    pub identity: String,
    /// `private_origin`: the process.
    pub origin: i32,
}

impl std::fmt::Display for ForeignHeartbeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { identity, origin } = self;
        write!(f, "its heartbeat has private_identity={identity:?}, private_origin={origin}")
    }
}

impl Heartbeats {
    /// For callers, who do not create the topic; `None` if there is none.
    pub(crate) fn existing(
        bus: &Bus,
        interface: &Interface,
        index: i32,
    ) -> Result<Option<Self>, TopicError> {
        let Some(topic) = existing(bus, interface, TopicKind::Event, "heartbeat")? else {
            return Ok(None);
        };
        Self::open(bus, &topic, interface, index)
    }

    /// For the component itself; `None` if its interface has no heartbeat.
    pub(crate) fn own(
        bus: &Bus,
        interface: &Interface,
        index: i32,
    ) -> Result<Option<Self>, TopicError> {
        let Ok(shape) = interface.shape(TopicKind::Event, "heartbeat") else { return Ok(None) };
        let spec = TopicSpec::of(shape.topic().topic_name().clone()).qos(shape.topic().qos());
        Self::open(bus, &bus.topic(spec)?, interface, index)
    }

    /// Subscribes to the newest stored heartbeats and all later ones.
    fn open(
        bus: &Bus,
        topic: &Topic,
        interface: &Interface,
        index: i32,
    ) -> Result<Option<Self>, TopicError> {
        let Ok(shape) = interface.shape(TopicKind::Event, "heartbeat") else { return Ok(None) };
        // The newest one may be our own, published beside a foreign one.
        let start = match bus.capabilities().rewind.is_yes().then(|| topic.partitions()) {
            Some(partitions) => match partitions?[..] {
                [PartitionInfo { partition, end, .. }] => {
                    Start::Offset { partition, offset: end.saturating_sub(TAIL_SAMPLES) }
                }
                _ => Start::Last(1),
            },
            None => Start::Last(1),
        };
        let lagging = Lagging::DropOldest { depth: TAIL_SAMPLES };
        let options = Subscribe::from(start).lagging(lagging).as_written();
        let samples = topic.subscribe(of_instance(options, &shape, index))?;
        let filter = ForeignFilter { shape, identity: interface.identity(index) };
        Ok(Some(Self { samples, filter, own: 0 }))
    }

    /// A foreign instance that runs, for a component that starts. It listens only where a foreign
    /// heartbeat is stored, or where the transport stores none.
    pub(crate) fn running(&mut self, bus: &Bus) -> Result<Option<ForeignHeartbeat>, TopicError> {
        // Where there is no log, foreign writers' samples are stored nowhere.
        let stores = bus.capabilities().rewind.is_yes();
        if self.stored()?.is_none() && stores {
            return Ok(None);
        }
        self.listen(LISTEN_TIMEOUT)
    }

    /// The newest heartbeat among those that were stored when this was called, if it is foreign.
    pub(crate) fn stored(&mut self) -> Result<Option<ForeignHeartbeat>, TopicError> {
        self.samples.set_fence().map_err(read_failed)?;
        self.arrived()
    }

    /// The newest heartbeat that has arrived since the last call, if it is foreign.
    pub(crate) fn arrived(&mut self) -> Result<Option<ForeignHeartbeat>, TopicError> {
        let mut newest = None;
        // Without a fence, it returns what has arrived.
        while let Some(event) = self.samples.next_stored(STORED_TIMEOUT).map_err(read_failed)? {
            match self.filter.foreign(&event) {
                Some(heartbeat) => (newest, self.own) = (Some(heartbeat), 0),
                None if matches!(event, Event::Sample(_)) => self.own = self.own.saturating_add(1),
                None => {}
            }
        }
        Ok(newest.filter(|_| self.own < OUTDATING_HEARTBEATS))
    }

    /// The next foreign heartbeat that arrives, for at most this time.
    fn listen(&mut self, timeout: Duration) -> Result<Option<ForeignHeartbeat>, TopicError> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let event = self.samples.next_timeout(left).map_err(read_failed)?;
            let Some(event) = event else { return Ok(None) };
            if let Some(beat) = self.filter.foreign(&event) {
                return Ok(Some(beat));
            }
        }
    }
}

impl ForeignFilter {
    /// The foreign heartbeat of an event.
    pub(crate) fn foreign(&self, event: &Event) -> Option<ForeignHeartbeat> {
        let Event::Sample(Sample { header, payload, .. }) = event else { return None };
        if header.producer.name.as_str() == self.identity {
            return None;
        }
        let sender = Sender::of(&self.shape, payload);
        let (identity, origin) = sender.map_or(("", 0), |sender| (sender.identity, sender.origin));
        Some(ForeignHeartbeat { identity: identity.to_owned(), origin })
    }
}

/// A topic of a component, if it exists; queries do not create it.
pub(crate) fn existing(
    bus: &Bus,
    interface: &Interface,
    kind: TopicKind,
    name: &str,
) -> Result<Option<Topic>, TopicError> {
    let Ok(shape) = interface.shape(kind, name) else { return Ok(None) };
    match bus.topic(TopicSpec::of(shape.topic().topic_name().clone())) {
        Ok(topic) => Ok(Some(topic)),
        Err(TopicError::NoSuchTopic(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
