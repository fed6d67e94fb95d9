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

/// The time limit of the first attempt, after which logging starts without the bus. It suffices for
/// an available bus, and to detect permanent errors.
const FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// The delay before the second attempt; it doubles with each further one.
const MIN_RECONNECT_INTERVAL: Duration = Duration::from_millis(100);
/// The longest delay.
const MAX_RECONNECT_INTERVAL: Duration = Duration::from_secs(5);

/// The publisher of a lane's packets.
pub(super) struct LanePublisher {
    pub(super) publisher: Publisher,
    /// The one partition that is used if the topic has several, as partitions are not ordered among
    /// each other.
    pub(super) partition: Option<u32>,
}

/// The opened topics of a bus.
pub(super) struct Opened {
    /// By lane.
    pub(super) ways: Vec<LanePublisher>,
    /// The topic of levels.
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

/// The topic of a lane; an existing topic is used with its own quality of service.
fn open_topic(bus: &Bus, spec: TopicSpec, name: &str) -> Result<Topic, TopicError> {
    match bus.topic(spec) {
        Err(TopicError::Transport(TransportError::Differs { .. })) => {
            bus.topic(TopicSpec::new(name)?)
        }
        opened => opened,
    }
}

/// A claimed bus and lane. Two writers with the same numbers would make readers drop records of
/// both.
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
        // Dropping the last handle of a bus may take time.
        drop(claims);
        drop(gone);
    }
}

/// The receiver of the opened topics. Dropping it cancels the connection.
pub(super) struct PendingConnection {
    pub(super) ways: Receiver<Opened>,
    _wanted: SyncSender<()>,
}

/// Connects in a thread of its own; meanwhile records are accepted.
pub(super) struct Connector {
    builder: Builder,
    url: String,
    lanes: Lanes,
    ways: SyncSender<Opened>,
    wanted: Receiver<()>,
    bus: Option<Bus>,
}

impl Connector {
    /// Checks a URL and prepares to connect.
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

    /// Starts; fails if the first attempt finds a permanent error.
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

/// Whether a retry may succeed.
fn may_yet(error: &LogError) -> bool {
    matches!(
        error,
        LogError::Connect(ConnectError::Transport(_)) | LogError::Topic(TopicError::Transport(_))
    )
}
