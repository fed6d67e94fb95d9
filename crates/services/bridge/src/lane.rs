//! One topic's way over the bridge.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use helio_bus::transport::{HistorySupport, PartitionInfo, locked};
use helio_bus::{
    Alive, Bus, Event, Forwarder, Outage, Producer, ProducerName, PublishError, Publishing, Qos,
    Sample, SchemaId, Start, Subscription, Topic, TopicError, TopicName, TopicSpec, TransportError,
    WriterInfo,
};
use helio_core::qos::{Durability, History, Liveliness, Ownership};

use crate::bridge::Ends;
use crate::hops::{Hops, MAX_HOPS, with_hop};
use crate::pool::Running;
use crate::position::{self, PositionError};
use crate::report::{Figures, Notice, NoticeKind};
use crate::target::{self, Both, OpenError};

/// The most samples of a topic that are on their way to the target.
pub const MAX_UNDER_WAY: usize = 8192;
/// The most bytes of a topic's samples on their way, payloads and keys.
pub const MAX_UNDER_WAY_BYTES: usize = 16 << 20;
/// The most producers of a topic that have a writer on the target at a time.
pub const MAX_FORWARDERS: usize = 1024;

/// The most producers of a topic whose newest number is remembered, as readers do.
const MAX_KNOWN: usize = 16_384;
/// How often it is looked which producers live, where no lease is shorter.
const SWEEP: Duration = Duration::from_secs(1);

/// A partition and an offset there.
type Place = (u32, u64);
/// A partition, and who publishes into it.
pub(crate) type Key = (u32, ProducerName);
/// Incarnation and number.
pub(crate) type Order = (u64, u64);

/// What became of an attempt.
pub(crate) enum Flow {
    /// On with the next.
    On,
    /// The target takes no more at the moment.
    Full,
    /// All that is under way is to be settled, and the topic opened anew.
    Anew(String),
    /// The same, and somebody has to decide.
    Refused(String),
}

/// Why a sample that the target had taken was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// It was too much, or its company was: it is given again alone.
    Refused,
    /// No permission, no room: no fault of the sample's, and waited for.
    Failed,
    /// Nobody knows whether the target has it.
    Unknown,
}

impl Trouble {
    /// Why it cannot be given again once later ones of its producer are there.
    fn reason(self) -> &'static str {
        match self {
            Self::Refused | Self::Failed => {
                "the target did not take it, and has later ones of its producer"
            }
            Self::Unknown => {
                "the target did not say whether it took it, and has later ones of its producer"
            }
        }
    }
}

/// What of a topic outlives a failure: where it is, and what is in hand.
#[derive(Default)]
pub(crate) struct Kept {
    /// The source's subscription, where it is not waited for.
    pub(crate) samples: Option<Subscription>,
    /// Where each partition of the source is read on; empty before it was first opened.
    next: HashMap<u32, u64>,
    /// Whether the target was asked what it has.
    asked: bool,
    /// Read, and not taken by the target; oldest first.
    ahead: VecDeque<Sample>,
    /// What the target has not acknowledged though it had taken it, and why.
    trouble: HashMap<Place, Trouble>,
    /// What the target has of each producer, as far as this bridge knows.
    known: HashMap<Key, Order>,
    /// Where the source's partitions ended when it was subscribed to.
    goals: Vec<Place>,
    /// Writers that are to be closed before others are opened.
    closing: Vec<Held>,
    /// Whose samples the target has from a bridge before, and who may live.
    idle: Vec<(u32, Producer)>,
}

impl Kept {
    /// Whether something that was read is not forwarded.
    pub(crate) fn is_behind(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Its writer is to be open on the target if it lives.
    fn rests(&mut self, partition: u32, producer: Producer) {
        self.idle.retain(|(at, other)| *at != partition || other.name != producer.name);
        self.idle.push((partition, producer));
    }

    fn knows(&mut self, key: Key, order: Order) {
        if self.known.len() >= MAX_KNOWN && !self.known.contains_key(&key) {
            // What comes twice then is dropped by readers.
            self.known.clear();
        }
        let newest = self.known.entry(key).or_insert(order);
        *newest = order.max(*newest);
    }
}

/// A topic that is open on both buses.
pub(crate) struct Lane {
    name: TopicName,
    source: Topic,
    target: Topic,
    pub(crate) kept: Box<Kept>,
    forwarders: HashMap<Key, Held>,
    /// Producers that write on the target themselves: the newest incarnation that was refused, and
    /// the one that has refused it.
    refused: HashMap<Key, (u64, u64)>,
    /// The sample whose producer's writer was fenced, and for which another one was opened.
    fenced: Option<Place>,
    schemas: HashSet<SchemaId>,
    under_way: VecDeque<UnderWay>,
    bytes_under_way: usize,
    /// What was under way and not taken.
    failed: Vec<Sample>,
    /// What the next sample waits for.
    preparing: Option<Running<Prepared>>,
    uses: u64,
    swept: Instant,
    sweeping: Option<Running<Result<Vec<Key>, String>>>,
    keeper: Keeper,
    opened: Instant,
    has_forwarded: bool,
}

struct Held {
    /// Locked while its lease is asserted in another thread.
    forwarder: Arc<Mutex<Forwarder>>,
    incarnation: u64,
    used: u64,
}

/// A sample that the target has not acknowledged yet.
struct UnderWay {
    place: Place,
    /// None where nothing is waited for.
    publishing: Option<(Publishing, Sample)>,
}

/// What a sample needs on the target before it can be forwarded.
#[derive(Default)]
struct Prepared {
    /// Of who lives though nothing new came of it.
    idle: Option<(Key, Forwarder, u64)>,
    schema: Option<(SchemaId, Result<(), OpenError>)>,
    forwarder: Option<(Key, Opened)>,
}

/// A writer, and the incarnation that it was asked for.
type Opened = (u64, Result<Forwarder, TopicError>);

/// What keeps the position.
enum Keeper {
    /// The samples on the target.
    Target,
    /// A group on the source: what is acknowledged, and when it was committed.
    Group { acknowledged: HashMap<u32, u64>, committed: Instant },
}

/// Opens a topic on both buses, and reads from where it stopped. What was kept comes back where
/// that fails.
pub(crate) fn open(
    ends: &Ends,
    name: &TopicName,
    mut kept: Box<Kept>,
) -> Result<(Box<Lane>, String), (OpenError, Box<Kept>)> {
    kept.closing.clear();
    let opened = open_both(ends, name, &mut kept);
    let (Both { source, target, told }, schemas, keeper) = match opened {
        Ok(opened) => opened,
        Err(error) => return Err((error, kept)),
    };
    let limits = match (rewinds(&ends.from), rewinds(&ends.to)) {
        (false, _) => ONLY_ONCE,
        (true, false) => AT_LEAST_ONCE,
        (true, true) => "",
    };
    let lane = Lane {
        name: name.clone(),
        source,
        target,
        kept,
        forwarders: HashMap::new(),
        refused: HashMap::new(),
        fenced: None,
        schemas,
        under_way: VecDeque::new(),
        bytes_under_way: 0,
        failed: Vec::new(),
        preparing: None,
        uses: 0,
        swept: Instant::now(),
        sweeping: None,
        keeper,
        opened: Instant::now(),
        has_forwarded: false,
    };
    Ok((Box::new(lane), told + limits))
}

fn rewinds(bus: &Bus) -> bool {
    bus.capabilities().rewind.is_yes()
}

/// The source comes first: what is published while the target cannot be opened is not missed.
fn open_both(
    ends: &Ends,
    name: &TopicName,
    kept: &mut Kept,
) -> Result<(Both, HashSet<SchemaId>, Keeper), OpenError> {
    let buses = (&ends.from, &ends.to);
    let source = ends.from.topic(TopicSpec::of(name.clone()))?;
    let earliest = ends.options.begin.is_earliest(source.qos().history);
    let again = rewinds(&ends.from);
    if !again && kept.samples.is_none() {
        let start = if earliest { newest(&ends.from, source.qos()) } else { Start::Latest };
        kept.samples = Some(source.subscribe(position::everything(start))?);
        // Its places are those of the subscription before.
        kept.trouble.clear();
    }
    if again && kept.next.is_empty() {
        kept.next = begins(&source.partitions()?, earliest);
    }
    let both = target::open(&ends.to, source, &ends.options.overrides)?;
    let mut schemas = HashSet::from([SchemaId::BYTES]);
    for id in ends.from.topic_info(name)?.map(|info| info.schemas).unwrap_or_default() {
        target::carry_schema(buses, name, id)?;
        schemas.insert(id);
    }
    let group = again && !rewinds(&ends.to);
    if !kept.asked && !group {
        goes_on(ends, &both, kept)?;
    }
    if !kept.asked && again && shows_life(both.target.qos()) {
        for at in &both.source.partitions()? {
            let all = position::of_own(&both.source, at, &ends.to_name).map_err(failed)?;
            let own =
                |(name, (incarnation, _)): (ProducerName, Order)| Producer { name, incarnation };
            kept.idle.extend(all.into_iter().map(|one| (at.partition, own(one))));
        }
    }
    kept.asked = true;
    if kept.samples.is_none() {
        subscribe(ends, &both.source, (kept, earliest), group)?;
    }
    let keeper = match group {
        true => Keeper::Group { acknowledged: HashMap::new(), committed: Instant::now() },
        false => Keeper::Target,
    };
    Ok((both, schemas, keeper))
}

/// Whether it matters who is there though nothing comes of him.
fn shows_life(qos: &Qos) -> bool {
    matches!(qos.liveliness, Liveliness::Lease(_)) || qos.ownership == Ownership::Exclusive
}

fn begins(partitions: &[PartitionInfo], earliest: bool) -> HashMap<u32, u64> {
    let begin = |at: &PartitionInfo| (at.partition, if earliest { at.first } else { at.end });
    partitions.iter().map(begin).collect()
}

/// Goes on behind what the target has, where it can be asked.
fn goes_on(ends: &Ends, both: &Both, kept: &mut Kept) -> Result<(), OpenError> {
    if !rewinds(&ends.to) {
        return Ok(());
    }
    for there in &both.target.partitions()? {
        if rewinds(&ends.from) {
            let found = position::of(&both.target, there, &ends.from_name).map_err(failed)?;
            kept.next.extend(found.map(|next| (there.partition, next)));
        } else {
            let all = position::of_producers(&both.target, there, &ends.from_name);
            let all = all.map_err(failed)?.into_iter();
            kept.known.extend(all.map(|(name, order)| ((there.partition, name), order)));
        }
    }
    Ok(())
}

/// Subscribes to a source that can be read again.
fn subscribe(
    ends: &Ends,
    source: &Topic,
    (kept, earliest): (&mut Kept, bool),
    group: bool,
) -> Result<(), OpenError> {
    let partitions = source.partitions()?;
    kept.goals = partitions.iter().map(|at| (at.partition, at.end)).collect();
    if group {
        let start = if earliest { Start::Earliest } else { Start::Latest };
        let group = format!("helio-bridge:{}", ends.to_name);
        kept.samples = Some(source.subscribe(position::everything(start).group(&group))?);
        return Ok(());
    }
    let mut samples = source.subscribe(position::everything(Start::Earliest))?;
    let begins = begins(&partitions, earliest);
    for PartitionInfo { partition, end, .. } in partitions {
        // Beyond the end: the source's log was made anew, and what is in it was never forwarded.
        let next = kept.next.get(&partition).filter(|next| **next <= end);
        let next = next.or(begins.get(&partition)).copied().unwrap_or(end);
        let sought = samples.seek(partition, next);
        sought.map_err(|error| OpenError::Failed(error.to_string()))?;
        kept.next.insert(partition, next);
    }
    kept.samples = Some(samples);
    Ok(())
}

/// What is told of a topic on a source that cannot be read again.
const ONLY_ONCE: &str = "; the source cannot be read again: what is published while no bridge \
                         runs is forwarded as far as the source hands it to late joiners";
/// What is told of a topic on a target that cannot be read again.
const AT_LEAST_ONCE: &str = "; the target cannot be read again: a group on the source keeps the \
                             position, and after a crash some samples may come twice";

fn failed(error: PositionError) -> OpenError {
    OpenError::Failed(format!("the position on the target cannot be read: {error}"))
}

/// All that a late joiner gets of a source that cannot be read again.
fn newest(from: &Bus, qos: &Qos) -> Start {
    let kept = match (qos.history, from.capabilities().history) {
        (History::None, _) | (_, HistorySupport::None) => return Start::Latest,
        // What is kept of it is kept whole.
        (_, HistorySupport::KeepAll) if qos.durability == Durability::Persistent => {
            return Start::Earliest;
        }
        (History::KeepLast(n), _) | (History::KeepAll, HistorySupport::KeepLast(n)) => n.into(),
        (History::KeepAll, HistorySupport::KeepAll) => u32::MAX,
    };
    Start::Last(kept)
}

/// Why a sample was not forwarded.
enum Not {
    Full,
    /// The target will never take it.
    Ever(String),
    /// Its producer's writer is one no more.
    Fenced(String),
    /// It may be taken when the topic was opened anew.
    Now(String),
    /// The target takes no samples of other buses.
    AtAll(String),
}

impl From<PublishError> for Not {
    fn from(error: PublishError) -> Self {
        match &error {
            PublishError::Full { .. } => Self::Full,
            PublishError::Transport(TransportError::TooLarge { .. }) | PublishError::Encode(_) => {
                Self::Ever(error.to_string())
            }
            PublishError::Transport(TransportError::Fenced { .. }) => {
                Self::Fenced(error.to_string())
            }
            PublishError::Transport(TransportError::Unsupported { .. }) => {
                Self::AtAll(error.to_string())
            }
            _ => Self::Now(error.to_string()),
        }
    }
}

impl From<TopicError> for Not {
    fn from(error: TopicError) -> Self {
        match error {
            // Whoever writes there now was there before.
            TopicError::Transport(error @ TransportError::Fenced { .. }) => {
                Self::Ever(error.to_string())
            }
            TopicError::Transport(error) => PublishError::from(error).into(),
            error => Self::Now(error.to_string()),
        }
    }
}

/// Where a lane counts and tells.
pub(crate) type Told<'a> = (&'a mut Figures, &'a mut dyn FnMut(Notice));

impl Lane {
    /// Takes what the source has handed out.
    pub(crate) fn take(&mut self, ends: &Ends, event: Event, (figures, tell): Told<'_>) -> Flow {
        let told = |kind, text| Notice { kind, topic: Some(self.name.clone()), text };
        match event {
            Event::Sample(sample) => {
                self.kept.next.insert(sample.partition, sample.offset + 1);
                self.kept.ahead.push_back(sample);
                self.go_on(ends, (figures, tell))
            }
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

    /// Forwards what was read, as far as the target takes it.
    pub(crate) fn go_on(&mut self, ends: &Ends, (figures, tell): Told<'_>) -> Flow {
        while !self.is_full() {
            let Some(sample) = self.kept.ahead.pop_front() else { return Flow::On };
            let place = (sample.partition, sample.offset);
            match self.sample(ends, &sample, figures) {
                Ok(None) => self.passed(place),
                Ok(Some(publishing)) => {
                    self.bytes_under_way += size(&sample);
                    let publishing = Some((publishing, sample));
                    self.under_way.push_back(UnderWay { place, publishing });
                }
                Err(Not::Ever(reason)) => {
                    self.skip(&sample, &reason, (figures, tell));
                    self.passed(place);
                }
                Err(not) => {
                    self.kept.ahead.push_front(sample);
                    return match not {
                        Not::Now(reason) => Flow::Anew(reason),
                        Not::AtAll(reason) => Flow::Refused(reason),
                        Not::Full | Not::Ever(_) | Not::Fenced(_) => Flow::Full,
                    };
                }
            }
        }
        Flow::Full
    }

    /// Gives a sample to the target; none where there is nothing to give.
    fn sample(
        &mut self,
        ends: &Ends,
        sample: &Sample,
        figures: &mut Figures,
    ) -> Result<Option<Publishing>, Not> {
        let hops = Hops::of(sample.headers.as_ref());
        if hops.visited(&ends.to_name) || hops.visited(&ends.from_name) {
            figures.returned += 1;
            return Ok(None);
        }
        if hops.iter().count() >= MAX_HOPS {
            return Err(Not::Ever(format!("it was forwarded {MAX_HOPS} times before")));
        }
        let place = (sample.partition, sample.offset);
        let known = self.kept.known.get(&key(sample)).is_some_and(|known| *known >= order(sample));
        match self.kept.trouble.get(&place) {
            None if known => {
                figures.repeated += 1;
                if shows_life(self.target.qos()) {
                    self.kept.rests(sample.partition, sample.header.producer.clone());
                }
                return Ok(None);
            }
            Some(trouble) if known => return Err(Not::Ever(trouble.reason().to_owned())),
            // Alone, so that it is refused for itself, and none goes before it.
            Some(Trouble::Refused) if !self.under_way.is_empty() => return Err(Not::Full),
            _ => {}
        }
        self.forward(ends, sample).map(Some)
    }

    fn skip(&self, sample: &Sample, reason: &str, (figures, tell): Told<'_>) {
        figures.skipped += 1;
        let Producer { name, incarnation } = &sample.header.producer;
        let text = format!(
            "number {} of {name} (incarnation {incarnation}) is not forwarded: {reason}",
            sample.header.sequence
        );
        tell(Notice { kind: NoticeKind::Skipped, topic: Some(self.name.clone()), text });
    }

    fn forward(&mut self, ends: &Ends, sample: &Sample) -> Result<Publishing, Not> {
        let headers = with_hop(sample.headers.as_ref(), &ends.from_name, sample.offset);
        let headers = headers.map_err(|error| Not::Ever(error.to_string()))?;
        let (key, producer) = (key(sample), &sample.header.producer);
        let refused = self.refused.get(&key).filter(|(tried, _)| producer.incarnation <= *tried);
        if let Some((_, newer)) = refused {
            let producer = Producer { name: producer.name.clone(), incarnation: *newer };
            return Err(Not::Ever(format!("{producer:?} publishes on the target itself")));
        }
        self.prepare(ends, sample, &key)?;
        self.uses += 1;
        let held = self.forwarders.get_mut(&key).ok_or(Not::Full)?;
        held.used = self.uses;
        let forwarded = match held.forwarder.try_lock() {
            Ok(mut forwarder) => forwarder.forward(&sample.as_ref(), headers.as_ref()),
            Err(TryLockError::WouldBlock) => return Err(Not::Full),
            Err(TryLockError::Poisoned(_)) => {
                return Err(Not::Now("a thread of the bridge has failed".to_owned()));
            }
        };
        let reason = match forwarded.map_err(Not::from) {
            Err(Not::Fenced(reason)) => reason,
            forwarded => return forwarded,
        };
        // Who has fenced it may have gone: another one is tried, once for each sample.
        let held = self.forwarders.remove(&key);
        self.close(ends, held);
        let place = (sample.partition, sample.offset);
        match self.fenced.replace(place) == Some(place) {
            true => Err(Not::Ever(reason)),
            false => Err(Not::Full),
        }
    }

    /// Makes sure that the target has the sample's schema, and a writer of its producer; full while
    /// that is waited for.
    fn prepare(&mut self, ends: &Ends, sample: &Sample, key: &Key) -> Result<(), Not> {
        self.prepared()?;
        let schema = sample.header.schema;
        let has_schema = self.schemas.contains(&schema);
        let incarnation = sample.header.producer.incarnation;
        let has_writer = self.forwarders.get(key).map(|held| held.incarnation >= incarnation);
        if has_schema && has_writer == Some(true) {
            return Ok(());
        }
        if has_writer == Some(false) && !self.under_way.is_empty() {
            // What the one before it has written is acknowledged first.
            return Err(Not::Full);
        }
        let has_writer = has_writer == Some(true);
        let closing = if has_writer { Vec::new() } else { self.make_way(key) };
        let (from, to) = (ends.from.clone(), ends.to.clone());
        let (name, target, waker) = (self.name.clone(), self.target.clone(), ends.waker.clone());
        let (producer, key, partition) = (sample.header.producer.clone(), key.clone(), key.0);
        self.preparing = Some(ends.openers.run(move || {
            drop(closing);
            let carry = || target::carry_schema((&from, &to), &name, schema);
            let schema = (!has_schema).then(|| (schema, carry()));
            let open = || {
                let mut forwarder = target.forwarder(&producer, partition)?;
                forwarder.on_room(Arc::new(move || waker.wake_by_ref()));
                Ok(forwarder)
            };
            let forwarder = (!has_writer).then(|| (key, (incarnation, open())));
            Prepared { idle: None, schema, forwarder }
        }));
        Err(Not::Full)
    }

    /// Takes what was prepared; full while it is waited for.
    fn prepared(&mut self) -> Result<(), Not> {
        let Some(preparing) = &self.preparing else { return Ok(()) };
        let Poll::Ready(prepared) = preparing.poll() else { return Err(Not::Full) };
        self.preparing = None;
        let failed = || Not::Now("a thread of the bridge has failed".to_owned());
        let Prepared { idle, schema, forwarder } = prepared.ok_or_else(failed)?;
        let mut outcome = Ok(());
        if let Some((key, forwarder, incarnation)) = idle {
            let forwarder = Arc::new(Mutex::new(forwarder));
            self.forwarders.insert(key, Held { forwarder, incarnation, used: self.uses });
        }
        if let Some((key, (incarnation, opened))) = forwarder {
            match opened {
                Ok(forwarder) => {
                    let forwarder = Arc::new(Mutex::new(forwarder));
                    let held = Held { forwarder, incarnation, used: self.uses };
                    self.forwarders.insert(key, held);
                }
                Err(error) => {
                    if let TopicError::Transport(TransportError::Fenced { newer, .. }) = &error {
                        self.refused.insert(key, (incarnation, *newer));
                    }
                    outcome = Err(Not::from(error));
                }
            }
        }
        match schema {
            Some((id, Ok(()))) => _ = self.schemas.insert(id),
            Some((_, Err(error))) => outcome = outcome.and(Err(Not::Now(error.to_string()))),
            None => {}
        }
        outcome
    }

    /// Opens the writers of those who live on the source though nothing new comes of them: a bridge
    /// before this one had them open.
    fn revive(&mut self, ends: &Ends) {
        if self.preparing.is_some() && self.prepared().is_err() {
            return;
        }
        let Some((partition, producer)) = self.kept.idle.pop() else { return };
        // The newest comes last; others of its name are older.
        self.kept.idle.retain(|(at, other)| *at != partition || other.name != producer.name);
        let key = (partition, producer.name.clone());
        let exclusive = self.target.qos().ownership == Ownership::Exclusive;
        let taken = self.forwarders.contains_key(&key) || self.refused.contains_key(&key);
        if taken || (exclusive && !self.forwarders.is_empty()) {
            return;
        }
        let (source, target, waker) =
            (self.source.clone(), self.target.clone(), ends.waker.clone());
        self.preparing = Some(ends.openers.run(move || {
            let open = || {
                let writers = source.writers().ok()?;
                let own =
                    |info: &WriterInfo| info.producer == producer && info.alive == Some(Alive::Yes);
                writers.iter().find(|info| own(info))?;
                // Where that fails its next sample tells why.
                let mut forwarder = target.forwarder(&producer, partition).ok()?;
                forwarder.on_room(Arc::new(move || waker.wake_by_ref()));
                Some((key, forwarder, producer.incarnation))
            };
            Prepared { idle: open(), ..Prepared::default() }
        }));
    }

    /// Takes out the writers that are to be closed before one is opened.
    fn make_way(&mut self, key: &Key) -> Vec<Held> {
        let mut closing: Vec<_> = self.forwarders.remove(key).into_iter().collect();
        if self.target.qos().ownership == Ownership::Exclusive {
            // The one before it has ended on the source.
            let others = self.forwarders.extract_if(|(_, name), _| *name != key.1);
            closing.extend(others.map(|(_, held)| held));
        }
        if self.forwarders.len() >= MAX_FORWARDERS {
            let oldest = self.forwarders.iter().min_by_key(|(_, held)| held.used);
            let oldest = oldest.map(|(key, _)| key.clone());
            closing.extend(oldest.and_then(|key| self.forwarders.remove(&key)));
        }
        closing
    }

    /// Closes writers; none is opened meanwhile.
    fn close(&mut self, ends: &Ends, closing: impl IntoIterator<Item = Held>) {
        let closing: Vec<_> = closing.into_iter().collect();
        if !closing.is_empty() {
            self.preparing = Some(ends.openers.run(move || {
                drop(closing);
                Prepared::default()
            }));
        }
    }

    /// A sample that nothing is waited for.
    fn passed(&mut self, place: Place) {
        match self.keeper {
            Keeper::Group { .. } => {
                self.under_way.push_back(UnderWay { place, publishing: None });
            }
            Keeper::Target => self.done(place),
        }
    }

    /// Whether the target is to take no more at the moment.
    fn is_full(&self) -> bool {
        let first = self.under_way.front();
        first.is_some_and(|first| self.is_alone(first.place))
            || self.under_way.len() >= MAX_UNDER_WAY
            || self.bytes_under_way >= MAX_UNDER_WAY_BYTES
    }

    /// Whether a sample is given with no other under way.
    fn is_alone(&self, place: Place) -> bool {
        self.kept.trouble.get(&place) == Some(&Trouble::Refused)
    }

    /// Whether nothing of it waits for the target.
    pub(crate) fn is_settled(&self) -> bool {
        self.under_way.is_empty() && self.kept.ahead.is_empty() && self.failed.is_empty()
    }

    /// Whether the target has said of each sample what became of it, and no thread is at work.
    pub(crate) fn is_quiet(&self) -> bool {
        fn done<T>(running: &Running<T>) -> bool {
            running.poll().is_ready()
        }
        self.under_way.is_empty()
            && self.preparing.as_ref().is_none_or(done)
            && self.sweeping.as_ref().is_none_or(done)
    }

    /// Whether it has done well enough for what was before to be forgotten.
    pub(crate) fn is_well(&self, since: Duration) -> bool {
        self.has_forwarded || self.opened.elapsed() >= since
    }

    /// What goes on with the next lane.
    pub(crate) fn into_kept(mut self) -> Box<Kept> {
        for sample in self.failed.into_iter().rev() {
            self.kept.ahead.push_front(sample);
        }
        for ((partition, name), held) in self.forwarders {
            if shows_life(self.target.qos()) {
                self.kept.rests(partition, Producer { name, incarnation: held.incarnation });
            }
            self.kept.closing.push(held);
        }
        self.kept
    }

    /// Whether everything was read that was there when it was subscribed to.
    pub(crate) fn has_read(&self, samples: &Subscription) -> bool {
        let at: HashMap<_, _> =
            samples.positions().iter().map(|at| (at.partition, at.next)).collect();
        let mut goals = self.kept.goals.iter();
        goals.all(|(partition, end)| at.get(partition).is_some_and(|next| next >= end))
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len() + self.failed.len() + self.kept.ahead.len()
    }

    /// Looks what the target has acknowledged, in order; has the bridge woken by the next.
    pub(crate) fn settle(&mut self, waker: &Waker, (figures, tell): Told<'_>) -> Flow {
        let mut flow = Flow::On;
        while let Some(first) = self.under_way.front_mut() {
            let outcome = match &mut first.publishing {
                None => None,
                Some((publishing, _)) => {
                    match Pin::new(publishing).poll(&mut Context::from_waker(waker)) {
                        Poll::Pending => break,
                        Poll::Ready(outcome) => Some(outcome),
                    }
                }
            };
            let Some(UnderWay { place, publishing }) = self.under_way.pop_front() else { break };
            if let (Some(outcome), Some((_, sample))) = (outcome, publishing) {
                self.bytes_under_way -= size(&sample);
                if let Err(error) = outcome {
                    if let Some(cause) = self.not_taken(sample, &error, (figures, tell))
                        && matches!(flow, Flow::On)
                    {
                        flow = Flow::Anew(cause);
                    }
                    continue;
                }
                figures.forwarded += 1;
                figures.bytes += sample.payload.len() as u64;
                self.has_forwarded = true;
                self.kept.knows(key(&sample), order(&sample));
            }
            self.done(place);
        }
        flow
    }

    /// Nothing is to be done any more for a sample.
    fn done(&mut self, (partition, offset): Place) {
        self.kept.trouble.remove(&(partition, offset));
        if let Keeper::Group { acknowledged, .. } = &mut self.keeper
            && self.failed.iter().all(|sample| sample.partition != partition)
        {
            acknowledged.insert(partition, offset + 1);
        }
    }

    /// The target has reported that it does not have a sample; why the topic is to be opened anew.
    fn not_taken(
        &mut self,
        sample: Sample,
        error: &PublishError,
        told: Told<'_>,
    ) -> Option<String> {
        let place = (sample.partition, sample.offset);
        let trouble = match error {
            // In company it may be the others that were too much.
            PublishError::Transport(TransportError::TooLarge { .. }) | PublishError::Encode(_) => {
                if self.is_alone(place) {
                    self.skip(&sample, &error.to_string(), told);
                    self.done(place);
                    return None;
                }
                Trouble::Refused
            }
            PublishError::Transport(TransportError::Engine { .. }) => Trouble::Failed,
            _ => Trouble::Unknown,
        };
        self.kept.trouble.insert(place, trouble);
        self.failed.push(sample);
        Some(error.to_string())
    }

    /// Shows on the target which producers live: the writers of those that have gone are closed,
    /// the others' leases asserted, in a thread of its own. `idle` where nothing lies ahead.
    pub(crate) fn sweep(&mut self, ends: &Ends, idle: bool) -> Result<(), String> {
        if let Some(sweeping) = &self.sweeping {
            let Poll::Ready(swept) = sweeping.poll() else { return Ok(()) };
            self.sweeping = None;
            let gone = swept.unwrap_or_else(|| Err("a thread has failed".to_owned()))?;
            // Of those whose samples lie ahead it would be too early.
            if idle && self.preparing.is_none() {
                let gone: Vec<_> =
                    gone.iter().filter_map(|key| self.forwarders.remove(key)).collect();
                self.close(ends, gone);
            }
        }
        if self.kept.ahead.is_empty() {
            self.revive(ends);
        }
        let lease = match self.target.qos().liveliness {
            Liveliness::Lease(lease) => Some(lease / 4),
            Liveliness::Automatic => None,
        };
        let every = lease.unwrap_or(SWEEP).min(SWEEP);
        if self.forwarders.is_empty() || self.swept.elapsed() < every {
            return Ok(());
        }
        self.swept = Instant::now();
        let held = self.forwarders.iter();
        let held: Vec<_> =
            held.map(|(key, held)| (key.clone(), Arc::downgrade(&held.forwarder))).collect();
        let source = self.source.clone();
        self.sweeping = Some(ends.keepers.run(move || {
            let writers = source.writers().map_err(|error| error.to_string())?;
            let alive: HashMap<_, _> =
                writers.into_iter().map(|info| (info.producer.name, info.alive)).collect();
            let mut gone = Vec::new();
            for (key, forwarder) in held {
                match alive.get(&key.1) {
                    Some(Some(Alive::No)) => gone.push(key),
                    Some(Some(Alive::Yes)) if lease.is_some() => {
                        // One that is fenced is told with its next sample.
                        let forwarder = forwarder.upgrade();
                        forwarder.into_iter().for_each(|one| _ = locked(&one).assert_alive());
                    }
                    _ => {}
                }
            }
            Ok(gone)
        }));
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

fn key(sample: &Sample) -> Key {
    (sample.partition, sample.header.producer.name.clone())
}

fn order(sample: &Sample) -> Order {
    (sample.header.producer.incarnation, sample.header.sequence)
}
