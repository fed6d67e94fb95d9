//! Connects to the bus, also to one that is not available yet, and opens the publishers of all
//! lanes.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use helio_bus::transport::{locked, schemes};
use helio_bus::{
    Builder, Bus, BusUrl, ConnectError, Publisher, Topic, TopicError, TopicName, TopicSpec,
    TransportError, partition_of,
};

use super::levels::Source;
use super::{Inner, LogError};
use crate::lanes::Lanes;
use crate::level::Level;

/// How long the first attempt may take before it is gone on without the bus: long enough for one
/// that is there, and for what is wrong for ever to be told.
const FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it is waited before the second attempt; twice as long before each other one.
const MIN_RECONNECT_INTERVAL: Duration = Duration::from_millis(100);
/// How long at the most.
const MAX_RECONNECT_INTERVAL: Duration = Duration::from_secs(5);

/// Where a lane's packets go.
pub(super) struct LanePublisher {
    pub(super) publisher: Publisher,
    /// The partition that has all of them, where the topic has several: among partitions there is
    /// no order.
    pub(super) partition: Option<u32>,
}

/// What there is to be had of a bus.
pub(super) struct Opened {
    /// By lane.
    pub(super) ways: Vec<LanePublisher>,
    /// What it says of levels.
    pub(super) levels: Box<Source>,
}

/// Opens all lanes, the lowest level first, and the topic of levels.
pub(super) fn open(bus: &Bus, lanes: &Lanes) -> Result<Opened, LogError> {
    let specs = Level::ALL.iter().map(|level| lanes.topic(*level));
    let specs = specs.collect::<Result<Vec<_>, _>>()?;
    bus.make_topics(&specs, |_| {}).map_err(TopicError::from)?;
    let name = bus.producer().as_str().as_bytes();
    let way = |(spec, level): (TopicSpec, &Level)| {
        let topic = open_topic(bus, spec, &lanes.topic_name(*level))?;
        let partitions = topic.qos().partitions;
        let partition = (partitions > 1).then(|| partition_of(name, partitions));
        Ok(LanePublisher { publisher: topic.publisher()?, partition })
    };
    let ways = specs.into_iter().zip(&Level::ALL).map(way).collect::<Result<_, LogError>>()?;
    Ok(Opened { ways, levels: Box::new(Source::open(bus, lanes)?) })
}

/// The topic of a lane: as it is, where somebody has made it otherwise.
fn open_topic(bus: &Bus, spec: TopicSpec, name: &str) -> Result<Topic, TopicError> {
    match bus.topic(spec) {
        Err(TopicError::Transport(TransportError::Differs { .. })) => {
            bus.topic(TopicSpec::new(name)?)
        }
        opened => opened,
    }
}

/// A bus that is logged to, and the name of a lane: two who number their records alike would lose
/// each other's.
pub(super) struct Claim(Bus, TopicName);

static CLAIMS: Mutex<Vec<(Bus, TopicName)>> = Mutex::new(Vec::new());

impl Claim {
    /// Claims a bus's lanes for one `Logging`.
    pub(super) fn of(bus: &Bus, lanes: &Lanes) -> Result<Self, TopicError> {
        let topic = TopicName::new(&lanes.topic_name(Level::INFO))?;
        let mut claims = locked(&CLAIMS);
        if claims.iter().any(|(other, claimed)| other.is(bus) && *claimed == topic) {
            let holder = "another Logging over the same bus: share it, or connect".to_owned();
            return Err(TransportError::Owned { topic, holder }.into());
        }
        claims.push((bus.clone(), topic.clone()));
        Ok(Self(bus.clone(), topic))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = locked(&CLAIMS);
        let place = claims.iter().position(|(bus, topic)| bus.is(&self.0) && *topic == self.1);
        let gone = place.map(|place| claims.swap_remove(place));
        // The last end of a bus may take its time.
        drop(claims);
        drop(gone);
    }
}

/// The ways, where they come later. Dropped, nobody wants them any more.
pub(super) struct PendingConnection {
    pub(super) ways: Receiver<Opened>,
    _wanted: SyncSender<()>,
}

/// Who connects, in a thread of its own: what is logged meanwhile is taken all the same.
pub(super) struct Connector {
    builder: Builder,
    url: String,
    lanes: Lanes,
    ways: SyncSender<Opened>,
    wanted: Receiver<()>,
    bus: Option<Bus>,
}

impl Connector {
    /// Looks whether a URL is one, and prepares to connect.
    pub(super) fn of(
        builder: Builder,
        url: &str,
        lanes: &Lanes,
    ) -> Result<(Self, PendingConnection), LogError> {
        let parsed: BusUrl = url.parse()?;
        let known = schemes();
        if !known.iter().any(|scheme| scheme == parsed.scheme()) {
            let (scheme, known) = (parsed.scheme().to_owned(), known.join(", "));
            return Err(ConnectError::UnknownScheme { scheme, known }.into());
        }
        lanes.topic(Level::INFO)?;
        let (ways, coming) = sync_channel(1);
        let (keeps, wanted) = sync_channel(0);
        let (url, lanes, bus) = (url.to_owned(), lanes.clone(), None);
        let connector = Self { builder, url, lanes, ways, wanted, bus };
        Ok((connector, PendingConnection { ways: coming, _wanted: keeps }))
    }

    /// Begins; fails where the first attempt finds something wrong that no waiting mends.
    pub(super) fn start(self, inner: &Arc<Inner>) -> Result<(), LogError> {
        let (told, first) = sync_channel(1);
        let thread = std::thread::Builder::new().name("helio-log-bus".to_owned());
        let inner = Arc::downgrade(inner);
        thread.spawn(move || self.run(&inner, &told))?;
        match first.recv_timeout(FIRST_ATTEMPT_TIMEOUT) {
            Ok(Err(error)) if !may_yet(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn run(mut self, inner: &Weak<Inner>, told: &SyncSender<Result<(), LogError>>) {
        let mut pause = MIN_RECONNECT_INTERVAL;
        loop {
            let attempt = self.attempt();
            let Some(inner) = inner.upgrade() else { return };
            let error = match attempt {
                Ok(opened) => {
                    *locked(&inner.trouble) = None;
                    _ = self.ways.send(opened);
                    inner.wake();
                    _ = told.try_send(Ok(()));
                    return;
                }
                Err(error) => error,
            };
            *locked(&inner.trouble) = Some(error.to_string());
            drop(inner);
            _ = told.try_send(Err(error));
            if self.wanted.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            pause = MAX_RECONNECT_INTERVAL.min(2 * pause);
        }
    }

    fn attempt(&mut self) -> Result<Opened, LogError> {
        let bus = match &self.bus {
            Some(bus) => bus,
            None => self.bus.insert(self.builder.clone().connect(&self.url)?),
        };
        open(bus, &self.lanes)
    }
}

/// Whether it may go well when it is tried again.
fn may_yet(error: &LogError) -> bool {
    matches!(
        error,
        LogError::Connect(ConnectError::Transport(_)) | LogError::Topic(TopicError::Transport(_))
    )
}
