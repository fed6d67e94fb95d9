//! One topic's way over the bridge.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use helio_bus::transport::PartitionInfo;
use helio_bus::{
    Alive, Bus, Event, Forwarder, Outage, Producer, ProducerName, PublishError, Publishing, Sample,
    SchemaId, Start, Subscription, Topic, TopicError, TopicName, TransportError,
};
use helio_core::qos::{History, Liveliness, Ownership};

use crate::bridge::{Ends, Options};
use crate::hops::{Hops, MAX_HOPS, with_hop};
use crate::position::{self, PositionError};
use crate::report::{Figures, Notice, NoticeKind};
use crate::target::{self, Both, OpenError};

/// The most samples of a topic that are on their way to the target.
pub const MAX_UNDER_WAY: usize = 8192;
/// The most bytes of a topic's samples on their way, payloads and keys.
pub const MAX_UNDER_WAY_BYTES: usize = 16 << 20;
/// The most producers of a topic that have a writer on the target at a time.
pub const MAX_FORWARDERS: usize = 1024;

/// How often the target may report that a sample was not taken before it is passed over.
const TRIES: u32 = 3;
/// How often it is looked which producers live, where no lease is shorter.
const SWEEP: Duration = Duration::from_secs(1);
/// How often the position is committed, where a group on the source keeps it.
const COMMIT: Duration = Duration::from_secs(1);

/// A partition and an offset there.
type Place = (u32, u64);

/// What became of an attempt.
pub(crate) enum Flow {
    /// On with the next.
    On,
    /// The target takes no more at the moment.
    Full,
    /// All that is under way is to be settled, and the topic opened anew.
    Anew(String),
}

/// A topic that is open on both buses.
pub(crate) struct Lane {
    name: TopicName,
    source: Topic,
    target: Topic,
    forwarders: HashMap<(u32, ProducerName), Held>,
    /// Producers that write on the target themselves, by their newest incarnation that was refused.
    refused: HashMap<(u32, ProducerName), u64>,
    schemas: HashSet<SchemaId>,
    under_way: VecDeque<UnderWay>,
    bytes_under_way: usize,
    /// Read, and not taken by the target yet.
    waiting: Option<Sample>,
    /// What the target did not take, and how often.
    trouble: Option<(Place, u32)>,
    uses: u64,
    swept: Instant,
    keeper: Keeper,
    /// Where the source's partitions ended when it was opened.
    goals: Vec<Place>,
}

struct Held {
    forwarder: Forwarder,
    used: u64,
}

/// A sample that the target has not acknowledged yet.
struct UnderWay {
    publishing: Option<Publishing>,
    place: Place,
    bytes: usize,
    /// What the window counts it as.
    size: usize,
}

/// What keeps the position.
enum Keeper {
    /// The samples on the target.
    Target,
    /// A group on the source: what is acknowledged, and when it was committed.
    Group { acknowledged: HashMap<u32, u64>, committed: Instant },
}

/// Opens a topic on both buses, and reads from where it stopped.
pub(crate) fn open(
    ends: &Ends,
    name: &TopicName,
    options: &Options,
    trouble: Option<(Place, u32)>,
) -> Result<(Lane, Subscription, String), OpenError> {
    let buses = (&ends.from, &ends.to);
    let Both { source, target, told } = target::open(buses, name, &options.overrides)?;
    let mut schemas = HashSet::from([SchemaId::BYTES]);
    for id in ends.from.topic_info(name)?.map(|info| info.schemas).unwrap_or_default() {
        target::carry_schema(buses, name, id)?;
        schemas.insert(id);
    }
    let earliest = options.begin.is_earliest(source.qos().history);
    let mut goals = Vec::new();
    let (samples, keeper, limits) = if !ends.from.capabilities().rewind.is_yes() {
        let start = if earliest { newest(&ends.from, source.qos().history) } else { Start::Latest };
        (source.subscribe(position::everything(start))?, Keeper::Target, ONLY_ONCE)
    } else {
        let partitions = source.partitions()?;
        goals = partitions.iter().map(|at| (at.partition, at.end)).collect();
        if ends.to.capabilities().rewind.is_yes() {
            let from = &ends.from_name;
            let samples = goes_on((&source, &target), &partitions, (from, earliest))?;
            (samples, Keeper::Target, "")
        } else {
            let start = if earliest { Start::Earliest } else { Start::Latest };
            let group = format!("helio-bridge:{}", ends.to_name);
            let samples = source.subscribe(position::everything(start).group(&group))?;
            let keeper = Keeper::Group { acknowledged: HashMap::new(), committed: Instant::now() };
            (samples, keeper, AT_LEAST_ONCE)
        }
    };
    let lane = Lane {
        name: name.clone(),
        source,
        target,
        forwarders: HashMap::new(),
        refused: HashMap::new(),
        schemas,
        under_way: VecDeque::new(),
        bytes_under_way: 0,
        waiting: None,
        trouble,
        uses: 0,
        swept: Instant::now(),
        keeper,
        goals,
    };
    Ok((lane, samples, told + limits))
}

/// What is told of a topic on a source that cannot be read again.
const ONLY_ONCE: &str = "; the source cannot be read again: what is published while no bridge \
                         runs is forwarded as far as the source hands it to late joiners";
/// What is told of a topic on a target that cannot be read again.
const AT_LEAST_ONCE: &str = "; the target cannot be read again: a group on the source keeps the \
                             position, and after a crash some samples may come twice";

/// Reads each partition of the source from behind the newest sample that the target has of it.
fn goes_on(
    (source, target): (&Topic, &Topic),
    partitions: &[PartitionInfo],
    (name, earliest): (&str, bool),
) -> Result<Subscription, OpenError> {
    let mut places = Vec::new();
    for (there, here) in target.partitions()?.iter().zip(partitions) {
        let found = position::of(target, there, name).map_err(failed)?;
        // Beyond the end: the source's log was made anew, and what is in it was never forwarded.
        let found = found.filter(|next| *next <= here.end);
        let start = if earliest { here.first } else { here.end };
        places.push((here.partition, found.unwrap_or(start)));
    }
    let mut samples = source.subscribe(position::everything(Start::Earliest))?;
    for (partition, offset) in places {
        let sought = samples.seek(partition, offset);
        sought.map_err(|error| OpenError::Failed(error.to_string()))?;
    }
    Ok(samples)
}

fn failed(error: PositionError) -> OpenError {
    OpenError::Failed(format!("the position on the target cannot be read: {error}"))
}

/// All that a late joiner gets of a source that cannot be read again.
fn newest(from: &Bus, history: History) -> Start {
    use helio_bus::transport::HistorySupport;
    let kept = match (history, from.capabilities().history) {
        (History::None, _) | (_, HistorySupport::None) => return Start::Latest,
        (History::KeepLast(n), _) => u32::from(n),
        (History::KeepAll, HistorySupport::KeepLast(n)) => u32::from(n),
        (History::KeepAll, HistorySupport::KeepAll) => u32::MAX,
    };
    Start::Last(kept)
}

/// Why a sample was not forwarded.
enum Not {
    Full,
    /// The target will never take it.
    Ever(String),
    /// It may be taken when the topic was opened anew.
    Now(String),
}

impl From<PublishError> for Not {
    fn from(error: PublishError) -> Self {
        match &error {
            PublishError::Full { .. } => Self::Full,
            PublishError::Transport(
                TransportError::TooLarge { .. } | TransportError::Fenced { .. },
            ) => Self::Ever(error.to_string()),
            _ => Self::Now(error.to_string()),
        }
    }
}

impl From<TopicError> for Not {
    fn from(error: TopicError) -> Self {
        match error {
            TopicError::Transport(error) => PublishError::from(error).into(),
            error => Self::Now(error.to_string()),
        }
    }
}

impl Lane {
    /// Takes what the source has handed out.
    pub(crate) fn take(
        &mut self,
        ends: &Ends,
        event: Event,
        (figures, tell): (&mut Figures, &mut dyn FnMut(Notice)),
    ) -> Flow {
        let told = |kind, text| Notice { kind, topic: Some(self.name.clone()), text };
        match event {
            Event::Sample(sample) => self.sample(ends, sample, (figures, tell)),
            Event::Gap(gap) => {
                figures.lost += gap.lost;
                let text = format!(
                    "{} samples of partition {} are lost: {:?}",
                    gap.lost, gap.partition, gap.cause
                );
                tell(told(NoticeKind::Gap, text));
                Flow::On
            }
            Event::Outage(Outage::Lost { cause }) => {
                tell(told(NoticeKind::Outage, format!("the source cannot be reached: {cause}")));
                Flow::On
            }
            Event::Outage(Outage::Restored) => {
                tell(told(NoticeKind::Outage, "the source can be reached again".to_owned()));
                Flow::On
            }
            _ => Flow::On,
        }
    }

    fn sample(
        &mut self,
        ends: &Ends,
        sample: Sample,
        (figures, tell): (&mut Figures, &mut dyn FnMut(Notice)),
    ) -> Flow {
        let place = (sample.partition, sample.offset);
        let hops = Hops::of(sample.headers.as_ref());
        if hops.visited(&ends.to_name) || hops.visited(&ends.from_name) {
            figures.returned += 1;
            self.passed(place);
            return Flow::On;
        }
        let tired = self.trouble.is_some_and(|(at, times)| at == place && times >= TRIES);
        let forwarded = match (hops.iter().count() >= MAX_HOPS, tired) {
            (false, false) => self.forward(ends, &sample),
            (true, _) => Err(Not::Ever(format!("it was forwarded {MAX_HOPS} times before"))),
            (_, true) => Err(Not::Ever(format!("the target did not take it {TRIES} times"))),
        };
        match forwarded {
            Ok(publishing) => {
                let (bytes, size) = (sample.payload.len(), size(&sample));
                self.bytes_under_way += size;
                let publishing = Some(publishing);
                self.under_way.push_back(UnderWay { publishing, place, bytes, size });
                if self.is_full() { Flow::Full } else { Flow::On }
            }
            Err(Not::Full) => {
                self.waiting = Some(sample);
                Flow::Full
            }
            Err(Not::Ever(reason)) => {
                figures.skipped += 1;
                let Producer { name, incarnation } = &sample.header.producer;
                let text = format!(
                    "number {} of {name} (incarnation {incarnation}) is not forwarded: {reason}",
                    sample.header.sequence
                );
                let topic = Some(self.name.clone());
                tell(Notice { kind: NoticeKind::Skipped, topic, text });
                self.passed(place);
                Flow::On
            }
            Err(Not::Now(reason)) => Flow::Anew(reason),
        }
    }

    fn forward(&mut self, ends: &Ends, sample: &Sample) -> Result<Publishing, Not> {
        if !self.schemas.contains(&sample.header.schema) {
            let carried =
                target::carry_schema((&ends.from, &ends.to), &self.name, sample.header.schema);
            carried.map_err(|error| Not::Now(error.to_string()))?;
            self.schemas.insert(sample.header.schema);
        }
        let headers = with_hop(sample.headers.as_ref(), &ends.from_name, sample.offset);
        let headers = headers.map_err(|error| Not::Ever(error.to_string()))?;
        let producer = &sample.header.producer;
        let key = (sample.partition, producer.name.clone());
        if let Some(newer) = self.refused.get(&key).filter(|n| producer.incarnation <= **n) {
            let producer = Producer { name: producer.name.clone(), incarnation: *newer };
            return Err(Not::Ever(format!("{producer:?} publishes on the target itself")));
        }
        let forwarder = self.forwarder(ends, &key, producer);
        let forwarded = match forwarder {
            Ok(forwarder) => {
                forwarder.forward(&sample.as_ref(), headers.as_ref()).map_err(Not::from)
            }
            Err(error) => Err(Not::from(error)),
        };
        if matches!(forwarded, Err(Not::Ever(_))) {
            // It writes there itself, or the sample is too large: in doubt it is opened again.
            self.forwarders.remove(&key);
        }
        forwarded
    }

    /// The writer of a producer on the target.
    fn forwarder(
        &mut self,
        ends: &Ends,
        key: &(u32, ProducerName),
        producer: &Producer,
    ) -> Result<&mut Forwarder, TopicError> {
        self.uses += 1;
        if !self.forwarders.contains_key(key) {
            if self.target.qos().ownership == Ownership::Exclusive {
                // The one before it has ended on the source.
                self.forwarders.retain(|(_, name), _| *name == key.1);
            }
            if self.forwarders.len() >= MAX_FORWARDERS {
                let oldest = self.forwarders.iter().min_by_key(|(_, held)| held.used);
                let oldest = oldest.map(|(key, _)| key.clone());
                oldest.map(|key| self.forwarders.remove(&key));
            }
            let opened = self.target.forwarder(producer, key.0);
            if let Err(TopicError::Transport(TransportError::Fenced { newer, .. })) = &opened {
                self.refused.insert(key.clone(), *newer);
            }
            let mut forwarder = opened?;
            let waker = ends.waker.clone();
            forwarder.on_room(Arc::new(move || waker.wake_by_ref()));
            self.forwarders.insert(key.clone(), Held { forwarder, used: 0 });
        }
        let held = self.forwarders.get_mut(key).ok_or(TransportError::Closed)?;
        held.used = self.uses;
        Ok(&mut held.forwarder)
    }

    /// A sample that nothing is waited for.
    fn passed(&mut self, place: Place) {
        if matches!(self.keeper, Keeper::Group { .. }) {
            self.under_way.push_back(UnderWay { publishing: None, place, bytes: 0, size: 0 });
        }
    }

    fn is_full(&self) -> bool {
        self.under_way.len() >= MAX_UNDER_WAY || self.bytes_under_way >= MAX_UNDER_WAY_BYTES
    }

    /// Whether nothing of it waits for the target.
    pub(crate) fn is_settled(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_none()
    }

    /// Whether the target has said of each sample what became of it.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether everything was read that was there when it was opened.
    pub(crate) fn has_read(&self, samples: &Subscription) -> bool {
        let at: HashMap<_, _> =
            samples.positions().iter().map(|at| (at.partition, at.next)).collect();
        self.goals.iter().all(|(partition, end)| at.get(partition).is_some_and(|next| next >= end))
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len() + usize::from(self.waiting.is_some())
    }

    pub(crate) fn trouble(&self) -> Option<(Place, u32)> {
        self.trouble
    }

    /// Looks what the target has acknowledged, in order; has the bridge woken by the next.
    pub(crate) fn settle(&mut self, waker: &Waker, figures: &mut Figures) -> Flow {
        while let Some(first) = self.under_way.front_mut() {
            if let Some(publishing) = &mut first.publishing {
                match Pin::new(publishing).poll(&mut Context::from_waker(waker)) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(_)) => {
                        figures.forwarded += 1;
                        figures.bytes += first.bytes as u64;
                    }
                    Poll::Ready(Err(error)) => {
                        let (place, size) = (first.place, first.size);
                        self.under_way.pop_front();
                        self.bytes_under_way -= size;
                        return self.not_taken(place, &error);
                    }
                }
            }
            let Some(done) = self.under_way.pop_front() else { break };
            self.bytes_under_way -= done.size;
            if self.trouble.is_some_and(|(at, _)| at == done.place) {
                self.trouble = None;
            }
            if let Keeper::Group { acknowledged, .. } = &mut self.keeper {
                acknowledged.insert(done.place.0, done.place.1 + 1);
            }
        }
        Flow::On
    }

    /// The target has reported that it does not have a sample.
    fn not_taken(&mut self, place: Place, error: &PublishError) -> Flow {
        // What an outage has taken is no fault of the sample's.
        if let PublishError::Transport(
            TransportError::TooLarge { .. } | TransportError::Engine { .. },
        ) = error
        {
            let times = self.trouble.filter(|(at, _)| *at == place).map_or(0, |(_, times)| times);
            self.trouble = Some((place, times + 1));
        }
        Flow::Anew(error.to_string())
    }

    /// Tries again what the target had no room for.
    pub(crate) fn go_on(
        &mut self,
        ends: &Ends,
        told: (&mut Figures, &mut dyn FnMut(Notice)),
    ) -> Flow {
        match self.waiting.take() {
            Some(sample) if !self.is_full() => self.sample(ends, sample, told),
            waiting => {
                self.waiting = waiting;
                if self.is_full() { Flow::Full } else { Flow::On }
            }
        }
    }

    /// Shows on the target which producers live: the writers of those that have gone are closed,
    /// the others' leases asserted. Commits the position where a group keeps it.
    pub(crate) fn sweep(&mut self, samples: &mut Subscription) -> Result<(), String> {
        let every = match self.target.qos().liveliness {
            Liveliness::Lease(lease) => (lease / 4).min(SWEEP),
            Liveliness::Automatic => SWEEP,
        };
        self.commit(samples, COMMIT)?;
        if self.forwarders.is_empty() || self.swept.elapsed() < every {
            return Ok(());
        }
        self.swept = Instant::now();
        // Of those whose samples lie ahead it would be too early.
        let idle = self.is_settled() && samples.stats().lag == 0;
        let writers = self.source.writers().map_err(|error| error.to_string())?;
        let alive: HashMap<_, _> =
            writers.into_iter().map(|info| (info.producer.name, info.alive)).collect();
        let is =
            |key: &(u32, ProducerName), alive_or_gone| alive.get(&key.1) == Some(&alive_or_gone);
        if idle {
            self.forwarders.retain(|key, _| !is(key, Some(Alive::No)));
        }
        if matches!(self.target.qos().liveliness, Liveliness::Lease(_)) {
            let living = self.forwarders.iter_mut().filter(|(key, _)| is(key, Some(Alive::Yes)));
            for (_, held) in living {
                // One that is fenced is told with its next sample.
                let _ = held.forwarder.assert_alive();
            }
        }
        Ok(())
    }

    /// Commits what was acknowledged, where a group keeps the position, this often at most.
    pub(crate) fn commit(
        &mut self,
        samples: &mut Subscription,
        every: Duration,
    ) -> Result<(), String> {
        let Keeper::Group { acknowledged, committed } = &mut self.keeper else { return Ok(()) };
        if committed.elapsed() < every {
            return Ok(());
        }
        *committed = Instant::now();
        for (partition, offset) in acknowledged.drain() {
            samples.commit_at(partition, offset).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn size(sample: &Sample) -> usize {
    sample.payload.len() + sample.key.len()
}
