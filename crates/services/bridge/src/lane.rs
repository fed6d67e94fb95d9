//! One topic's way over the bridge.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use helio_bus::{
    Alive, Event, Forwarder, GapCause, Outage, PendingPublish, Producer, ProducerName,
    PublishError, Sample, SchemaId, Subscription, Topic, TopicError, TopicName, TransportError,
    WriterInfo,
};
use helio_core::qos::Ownership;

use crate::book::Entry;
use crate::bridge::Ends;
use crate::found::{Verdict, Who};
use crate::hops::{Hops, MAX_HOPS, Mark, with_hop};
use crate::kept::{ANOTHER, Held, Kept, LATER, Rests, Trouble, UNNUMBERED, key, order, who};
use crate::lives::{Lives, shows_life};
use crate::opening::{Opened, rewinds};
use crate::pool::Running;
use crate::report::{Figures, Notice, NoticeKind};
use crate::target::{self, Both, OpenError};

/// The most samples of a topic that are on their way to the target.
pub const MAX_UNDER_WAY: usize = 8192;
/// The most bytes of a topic's samples on their way, payloads and keys.
pub const MAX_UNDER_WAY_BYTES: usize = 16 << 20;
/// The most producers of a topic that have a writer on the target at a time.
pub const MAX_FORWARDERS: usize = 1024;

/// How often the text of a schema is asked for that the source does not have.
const ASK: Duration = Duration::from_secs(5);

/// How often it is tried to open a writer of who lives and says nothing.
const REVIVE: Duration = Duration::from_secs(1);
/// How long a source may take to hear of who lives, once it is connected to.
const DISCOVERY: Duration = Duration::from_secs(10);

/// A partition and an offset there.
pub(crate) type Place = (u32, u64);
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

/// A topic that is open on both buses.
pub(crate) struct Lane {
    name: TopicName,
    source: Topic,
    target: Topic,
    pub(crate) kept: Box<Kept>,
    /// Producers that write on the target themselves: the newest incarnation that was refused, and
    /// the one that has refused it.
    refused: HashMap<Key, (u64, u64)>,
    /// The sample whose producer's writer was fenced, and for which another one was opened.
    fenced: Option<Place>,
    /// Those that the target has; and when those were asked for last that the source has not.
    schemas: HashMap<SchemaId, Option<Instant>>,
    under_way: VecDeque<UnderWay>,
    bytes_under_way: usize,
    /// Each partition's offsets under way, oldest first.
    offsets: HashMap<u32, VecDeque<u64>>,
    /// What was under way and not taken.
    failed: Vec<Sample>,
    /// What the next sample waits for.
    preparing: Option<Running<Prepared>>,
    uses: u64,
    /// When it was tried last to open writers of those who live.
    revived: Option<Instant>,
    opened: Instant,
    has_forwarded: bool,
}

/// What is not done with yet.
struct UnderWay {
    place: Place,
    given: Given,
}

#[expect(clippy::large_enum_variant, reason = "nearly all are the large one")]
enum Given {
    /// The target has not acknowledged it yet.
    Taken(Sample, PendingPublish),
    /// Nothing is waited for but those before it: the sample itself is not kept for that.
    Not(Who),
}

/// What a sample needs on the target before it can be forwarded.
#[derive(Default)]
struct Prepared {
    /// Of those who live though nothing new came of them.
    idle: Vec<(Key, Forwarder, u64)>,
    /// Of whom it is tried again.
    rests: Vec<Rests>,
    schema: Option<(SchemaId, Result<bool, OpenError>)>,
    forwarder: Option<(Key, Asked)>,
}

/// The incarnation that a writer was asked for, and the writer.
type Asked = (u64, Result<Forwarder, TopicError>);

/// Why a sample was not forwarded.
enum Not {
    Full,
    /// The target will never take it.
    Ever(String),
    /// Its producer's writer is one no more.
    Fenced(String),
    /// It may be taken when the topic was opened anew.
    Now(String),
    /// The source's log is another one than what was forwarded.
    Astray,
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
    pub(crate) fn new(name: &TopicName, kept: Box<Kept>, opened: Opened) -> Self {
        let Opened { both: Both { source, target, .. }, schemas, .. } = opened;
        Self {
            name: name.clone(),
            source,
            target,
            kept,
            refused: HashMap::new(),
            fenced: None,
            schemas: schemas.into_iter().map(|id| (id, None)).collect(),
            under_way: VecDeque::new(),
            bytes_under_way: 0,
            offsets: HashMap::new(),
            failed: Vec::new(),
            preparing: None,
            uses: 0,
            revived: None,
            opened: Instant::now(),
            has_forwarded: false,
        }
    }

    /// Takes what the source has handed out.
    pub(crate) fn take(&mut self, ends: &Ends, event: Event, (figures, tell): Told<'_>) -> Flow {
        let told = |kind, text| Notice { kind, topic: Some(self.name.clone()), text };
        match event {
            Event::Sample(sample) => {
                self.kept.read(ends, sample);
                self.go_on(ends, (figures, tell))
            }
            Event::Gap(gap) => {
                figures.lost += gap.lost;
                if let GapCause::Retention { to, .. } = gap.cause {
                    figures.uncounted += u64::from(gap.lost == 0);
                    // Read again after a failure it is told no more.
                    self.kept.next.insert(gap.partition, to);
                    self.kept.misses(gap.partition, gap.lost);
                }
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
            let Some(mut sample) = self.kept.ahead.pop_front() else { return Flow::On };
            match self.sample(ends, &mut sample, figures) {
                Ok(publishing) => self.given(ends, sample, publishing),
                Err(Not::Ever(reason)) => {
                    self.skip(&sample, &reason, (figures, tell));
                    self.given(ends, sample, None);
                }
                // It is read again.
                Err(Not::Astray) => {
                    return Flow::Anew(format!(
                        "partition {} of the source is not the log that was forwarded; it is held \
                         against what the target has",
                        sample.partition
                    ));
                }
                Err(not) => {
                    self.kept.ahead.push_front(sample);
                    return match not {
                        Not::Now(reason) => Flow::Anew(reason),
                        Not::AtAll(reason) => Flow::Refused(reason),
                        Not::Full | Not::Ever(_) | Not::Fenced(_) | Not::Astray => Flow::Full,
                    };
                }
            }
        }
        Flow::Full
    }

    /// The target has a sample, or nothing is waited for.
    fn given(&mut self, ends: &Ends, sample: Sample, publishing: Option<PendingPublish>) {
        let place @ (partition, offset) = (sample.partition, sample.offset);
        let given = match publishing {
            None if self.under_way.is_empty() => {
                return self.done(place, who(&sample, &ends.nameless));
            }
            None => Given::Not(who(&sample, &ends.nameless)),
            Some(publishing) => {
                self.bytes_under_way += size(&sample);
                let high = self.kept.high.entry(partition).or_default();
                *high = offset.max(*high);
                Given::Taken(sample, publishing)
            }
        };
        self.offsets.entry(partition).or_default().push_back(offset);
        self.under_way.push_back(UnderWay { place, given });
    }

    /// The oldest offset of a partition that is under way.
    fn low(&self, partition: u32) -> Option<u64> {
        self.offsets.get(&partition)?.front().copied()
    }

    /// Gives a sample to the target; none where there is nothing to give.
    fn sample(
        &mut self,
        ends: &Ends,
        sample: &mut Sample,
        figures: &mut Figures,
    ) -> Result<Option<PendingPublish>, Not> {
        let hops = Hops::of(sample.headers.as_ref());
        if hops.visited(&ends.to_name) || hops.visited(&ends.from_name) {
            figures.returned += 1;
            return Ok(None);
        }
        if hops.iter().count() >= MAX_HOPS {
            return Err(Not::Ever(format!("it was forwarded {MAX_HOPS} times before")));
        }
        let (place, key) = ((sample.partition, sample.offset), key(sample));
        let is_numbered = sample.header.sequence != UNNUMBERED;
        let known = is_numbered && self.kept.has(&key, order(sample));
        match self.kept.trouble.get(&place) {
            Some(trouble) if known => return Err(Not::Ever(trouble.reason().to_owned())),
            // Alone, so that it is refused for itself, and none goes before it.
            Some(Trouble::Refused) if !self.under_way.is_empty() => return Err(Not::Full),
            // None goes before what is in trouble: how far back it lies is bounded so.
            None if !self.kept.trouble.is_empty() && !self.under_way.is_empty() => {
                return Err(Not::Full);
            }
            None => match self.kept.verdict(sample, &ends.nameless) {
                Some(Verdict::There) => return Ok(None),
                Some(Verdict::Missing) if known => return Err(Not::Ever(LATER.to_owned())),
                Some(Verdict::Other) if self.kept.differs(sample.partition) => {
                    return Err(Not::Astray);
                }
                Some(Verdict::Other | Verdict::New) if known => {
                    return Err(Not::Ever(ANOTHER.to_owned()));
                }
                Some(Verdict::Other | Verdict::New) => {}
                Some(Verdict::Older) => {
                    figures.repeated += 1;
                    return Ok(None);
                }
                _ if self.kept.is_missing(&key, order(sample)) => {
                    return Err(Not::Ever(LATER.to_owned()));
                }
                _ if known => {
                    figures.repeated += 1;
                    if shows_life(self.target.qos()) {
                        self.kept.rests(sample.partition, sample.header.producer.clone());
                    }
                    return Ok(None);
                }
                _ => {}
            },
            Some(_) => {}
        }
        self.kept.number(sample);
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

    fn forward(&mut self, ends: &Ends, sample: &Sample) -> Result<PendingPublish, Not> {
        // Where the source has no places, they say nothing to the next bridge.
        let mark = match rewinds(&ends.from) {
            true => self.kept.mark(sample, self.low(sample.partition).unwrap_or(sample.offset)),
            false => Mark::alone(sample.offset),
        };
        let headers = with_hop(sample.headers.as_ref(), &ends.from_name, mark);
        let headers = headers.map_err(|error| Not::Ever(error.to_string()))?;
        let (key, producer) = (key(sample), &sample.header.producer);
        let refused = self.refused.get(&key).filter(|(tried, _)| producer.incarnation <= *tried);
        if let Some((_, newer)) = refused {
            let producer = Producer { name: producer.name.clone(), incarnation: *newer };
            return Err(Not::Ever(format!("{producer:?} publishes on the target itself")));
        }
        self.prepare(ends, sample, &key)?;
        self.uses += 1;
        let held = self.kept.forwarders.get_mut(&key).ok_or(Not::Full)?;
        held.used = self.uses;
        let forwarded = match held.forwarder.try_lock() {
            Ok(mut forwarder) => {
                forwarder.forward(&sample.as_ref(), headers.as_ref()).map_err(Not::from)
            }
            Err(TryLockError::WouldBlock) => return Err(Not::Full),
            Err(TryLockError::Poisoned(_)) => {
                Err(Not::Now("a thread of the bridge has failed".to_owned()))
            }
        };
        let reason = match forwarded {
            Err(Not::Fenced(reason)) => reason,
            Err(Not::Now(reason)) => {
                self.drop_writer(&key);
                return Err(Not::Now(reason));
            }
            forwarded => return forwarded,
        };
        // Who has fenced it may have gone: another one is tried, once for each sample.
        let held = self.kept.forwarders.remove(&key);
        self.close(ends, held);
        let place = (sample.partition, sample.offset);
        match self.fenced.replace(place) == Some(place) {
            true => Err(Not::Ever(reason)),
            false => Err(Not::Full),
        }
    }

    /// A writer that fails is opened anew with the topic.
    fn drop_writer(&mut self, key: &Key) {
        let Some(held) = self.kept.forwarders.remove(key) else { return };
        if shows_life(self.target.qos()) {
            let producer = Producer { name: key.1.clone(), incarnation: held.incarnation };
            self.kept.rests(key.0, producer);
        }
        self.kept.closing.push(held);
    }

    /// Makes sure that the target has the sample's schema, and a writer of its producer; full while
    /// that is waited for.
    fn prepare(&mut self, ends: &Ends, sample: &Sample, key: &Key) -> Result<(), Not> {
        self.prepared()?;
        let schema = sample.header.schema;
        let asked = self.schemas.get(&schema);
        let has_schema = asked.is_some_and(|at| at.is_none_or(|at| at.elapsed() < ASK));
        let incarnation = sample.header.producer.incarnation;
        let has_writer = self.kept.forwarders.get(key);
        let has_writer = has_writer.map(|held| held.incarnation >= incarnation);
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
        self.preparing = Some(ends.preparers.run(move || {
            drop(closing);
            let carry = || target::carry_schema((&from, &to), &name, schema);
            let schema = (!has_schema).then(|| (schema, carry()));
            let open = || {
                let mut forwarder = target.forwarder(&producer, partition)?;
                forwarder.on_room(Arc::new(move || waker.wake_by_ref()));
                Ok(forwarder)
            };
            let forwarder = (!has_writer).then(|| (key, (incarnation, open())));
            Prepared { schema, forwarder, ..Prepared::default() }
        }));
        Err(Not::Full)
    }

    /// Takes what was prepared; full while it is waited for.
    fn prepared(&mut self) -> Result<(), Not> {
        let Some(preparing) = &self.preparing else { return Ok(()) };
        let Poll::Ready(prepared) = preparing.poll() else { return Err(Not::Full) };
        self.preparing = None;
        let failed = || Not::Now("a thread of the bridge has failed".to_owned());
        let Prepared { idle, rests, schema, forwarder } = prepared.ok_or_else(failed)?;
        let mut outcome = Ok(());
        self.kept.idle.extend(rests);
        for (key, forwarder, incarnation) in idle {
            let forwarder = Arc::new(Mutex::new(forwarder));
            self.kept.forwarders.insert(key, Held { forwarder, incarnation, used: self.uses });
        }
        if let Some((key, (incarnation, opened))) = forwarder {
            match opened {
                Ok(forwarder) => {
                    let forwarder = Arc::new(Mutex::new(forwarder));
                    let held = Held { forwarder, incarnation, used: self.uses };
                    self.kept.forwarders.insert(key, held);
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
            Some((id, Ok(has))) => {
                // Its text may come later; the sample is forwarded without.
                _ = self.schemas.insert(id, (!has).then(Instant::now));
            }
            Some((_, Err(OpenError::Refused(reason)))) => {
                outcome = outcome.and(Err(Not::AtAll(reason)));
            }
            Some((_, Err(error))) => outcome = outcome.and(Err(Not::Now(error.to_string()))),
            None => {}
        }
        outcome
    }

    /// Opens the writers of those who live on the source though nothing new comes of them: a bridge
    /// before this one had them open, and its claims may have to lapse first.
    fn revive(&mut self, ends: &Ends) {
        if self.preparing.is_some() && self.prepared().is_err() {
            return;
        }
        let soon = self.revived.is_some_and(|at| at.elapsed() < REVIVE);
        if self.kept.idle.is_empty() || soon {
            return;
        }
        self.revived = Some(Instant::now());
        let exclusive = self.target.qos().ownership == Ownership::Exclusive;
        let held = &self.kept.forwarders;
        let room = if exclusive { 1 } else { MAX_FORWARDERS }.saturating_sub(held.len());
        let taken = |rests: &Rests| {
            let key = (rests.partition, rests.producer.name.clone());
            held.contains_key(&key) || self.refused.contains_key(&key)
        };
        let idle = std::mem::take(&mut self.kept.idle);
        let idle: Vec<_> = idle.into_iter().filter(|rests| room > 0 && !taken(rests)).collect();
        if idle.is_empty() {
            return;
        }
        let (source, target, waker) =
            (self.source.clone(), self.target.clone(), ends.waker.clone());
        self.preparing = Some(ends.preparers.run(move || {
            let (idle, rests) = revived((&source, &target), (idle, room), &waker);
            Prepared { idle, rests, ..Prepared::default() }
        }));
    }

    /// Takes out the writers that are to be closed before one is opened.
    fn make_way(&mut self, key: &Key) -> Vec<Held> {
        let mut closing: Vec<_> = self.kept.forwarders.remove(key).into_iter().collect();
        if self.target.qos().ownership == Ownership::Exclusive {
            // The one before it has ended on the source.
            let others = self.kept.forwarders.extract_if(|(_, name), _| *name != key.1);
            closing.extend(others.map(|(_, held)| held));
        }
        if self.kept.forwarders.len() >= MAX_FORWARDERS {
            let oldest = self.kept.forwarders.iter().min_by_key(|(_, held)| held.used);
            let oldest = oldest.map(|(key, _)| key.clone());
            closing.extend(oldest.and_then(|key| self.kept.forwarders.remove(&key)));
        }
        closing
    }

    /// Closes writers; none is opened meanwhile.
    fn close(&mut self, ends: &Ends, closing: impl IntoIterator<Item = Held>) {
        let closing: Vec<_> = closing.into_iter().collect();
        if !closing.is_empty() {
            self.preparing = Some(ends.preparers.run(move || {
                drop(closing);
                Prepared::default()
            }));
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
    pub(crate) fn is_quiet(&mut self) -> bool {
        // What was opened meanwhile is kept, and what failed is told with the next sample.
        let _ = self.prepared();
        self.under_way.is_empty() && self.preparing.is_none()
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
    pub(crate) fn settle(&mut self, ends: &Ends, (figures, tell): Told<'_>) -> Flow {
        let mut flow = Flow::On;
        while let Some(first) = self.under_way.front_mut() {
            let outcome = match &mut first.given {
                Given::Not(_) => Ok(()),
                Given::Taken(_, publishing) => {
                    match Pin::new(publishing).poll(&mut Context::from_waker(&ends.waker)) {
                        Poll::Pending => break,
                        Poll::Ready(outcome) => outcome.map(drop),
                    }
                }
            };
            let Some(UnderWay { place, given }) = self.under_way.pop_front() else { break };
            if let Some(offsets) = self.offsets.get_mut(&place.0) {
                offsets.pop_front();
            }
            let sample = match given {
                Given::Taken(sample, _) => sample,
                Given::Not(who) => {
                    self.done(place, who);
                    continue;
                }
            };
            self.bytes_under_way -= size(&sample);
            if let Err(error) = outcome {
                if let Some(cause) = self.not_taken(ends, sample, (&error, (figures, tell)))
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
            self.done(place, who(&sample, &ends.nameless));
        }
        flow
    }

    /// Nothing is to be done any more for a sample.
    fn done(&mut self, place: Place, who: Who) {
        self.kept.trouble.remove(&place);
        self.kept.settles(place, who);
    }

    /// The target has reported that it does not have a sample; why the topic is to be opened anew.
    fn not_taken(
        &mut self,
        ends: &Ends,
        sample: Sample,
        (error, told): (&PublishError, Told<'_>),
    ) -> Option<String> {
        let place = (sample.partition, sample.offset);
        let trouble = match error {
            // In company it may be the others that were too much.
            PublishError::Transport(TransportError::TooLarge { .. }) | PublishError::Encode(_) => {
                if self.is_alone(place) {
                    self.skip(&sample, &error.to_string(), told);
                    self.done(place, who(&sample, &ends.nameless));
                    return None;
                }
                Trouble::Refused
            }
            PublishError::Transport(TransportError::Engine { .. }) => Trouble::Failed,
            _ => Trouble::Unknown,
        };
        let before = self.kept.trouble.insert(place, trouble);
        if before.is_some_and(|before| before != Trouble::Refused) {
            // A second time it may be the writer.
            self.drop_writer(&key(&sample));
        }
        self.failed.push(sample);
        Some(error.to_string())
    }

    /// Shows on the target which producers live: the writers of those that have gone are closed,
    /// the others' leases asserted, in a thread of its own. `idle` where nothing lies ahead.
    pub(crate) fn sweep(
        &mut self,
        ends: &Ends,
        lives: &mut Lives,
        idle: bool,
    ) -> Result<(), String> {
        let gone = lives.sweep(ends, Some(&self.kept.forwarders))?;
        // Of those whose samples lie ahead it would be too early.
        if idle && self.preparing.is_none() {
            let gone: Vec<_> =
                gone.iter().filter_map(|key| self.kept.forwarders.remove(key)).collect();
            self.close(ends, gone);
        }
        if self.kept.ahead.is_empty() {
            self.revive(ends);
        }
        Ok(())
    }

    /// Writes down where the topic stands, where that has changed: now and then, or `now`.
    pub(crate) fn write(&mut self, ends: &Ends, now: bool) {
        let Ok(book) = &ends.book else { return };
        let written = &mut self.kept.written;
        self.kept.writing.retain(|((partition, next), publishing)| match publishing.outcome() {
            None => true,
            Some(Ok(_)) => {
                written.insert(*partition, *next);
                false
            }
            // It is written the next time.
            Some(Err(_)) => false,
        });
        let soon = self.kept.wrote.is_some_and(|at| at.elapsed() < book.every);
        if !self.kept.writing.is_empty() || (!now && soon) {
            return;
        }
        self.kept.wrote = Some(Instant::now());
        for (partition, (offset, who)) in &self.kept.settled {
            let of = |sample: &&Sample| sample.partition == *partition;
            if self.failed.iter().any(|sample| of(&sample)) {
                continue;
            }
            let ahead = self.kept.ahead.iter().find(of).map(|sample| sample.offset);
            let read = self.kept.next.get(partition).copied();
            let Some(next) = self.low(*partition).or(ahead).or(read) else { continue };
            if self.kept.written.get(partition) != Some(&next) && next > *offset {
                let entry = Entry::stands(next, (*offset, who));
                let publishing = book.keep(&self.name, *partition, &entry);
                self.kept.writing.extend(publishing.map(|one| ((*partition, next), one)));
            }
        }
    }
}

/// Opens the writers of those who live; gives of whom it is tried again, too.
fn revived(
    (source, target): (&Topic, &Topic),
    (idle, mut room): (Vec<Rests>, usize),
    waker: &Waker,
) -> (Vec<(Key, Forwarder, u64)>, Vec<Rests>) {
    let Ok(writers) = source.writers() else { return (Vec::new(), idle) };
    let lives = |producer: &Producer| {
        let own = |info: &&WriterInfo| info.producer == *producer && info.alive == Some(Alive::Yes);
        writers.iter().any(|info| own(&info))
    };
    let (mut opened, mut rests) = (Vec::new(), Vec::new());
    for one in idle {
        if !lives(&one.producer) {
            // A source that was just connected to may not have heard of it.
            rests.extend((one.since.elapsed() < DISCOVERY).then_some(one));
            continue;
        }
        if room == 0 {
            continue;
        }
        match target.forwarder(&one.producer, one.partition) {
            Ok(mut forwarder) => {
                let waker = waker.clone();
                forwarder.on_room(Arc::new(move || waker.wake_by_ref()));
                let Producer { name, incarnation } = one.producer;
                opened.push(((one.partition, name), forwarder, incarnation));
                room -= 1;
            }
            // It publishes on the target itself: its next sample tells so.
            Err(TopicError::Transport(TransportError::Fenced { .. })) => {}
            Err(_) => rests.push(one),
        }
    }
    (opened, rests)
}

fn size(sample: &Sample) -> usize {
    sample.payload.len() + sample.key.len()
}
