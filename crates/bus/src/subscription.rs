//! Subscriptions: the transport's items, filtered by the topic's policies.
//!
//! All work is done in the caller's thread. A call polls the transport's reader, applies the
//! policies to each item (fencing, duplicates, losses, lifespan, keys, levels, schema), and
//! delivers what remains. If nothing is pending, the thread waits on the transport's own bell.

mod fence;

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_core::Stream;
use helio_core::headers::MAX_HEADERS_BYTES;
use helio_core::qos::{Liveliness, Ownership};
use helio_core::{SchemaId, TopicName};

use crate::batch::Batch;
use crate::bell::Bell;
use crate::clock::Clock;
use crate::error::{ReadError, TopicError, TransportError};
use crate::event::{Event, Fenced, Gap, GapCause, Sample, Undecodable};
use crate::evolution::SchemaRules;
use crate::reactor::Reactor;
use crate::resolve::{Resolver, Unreadable};
use crate::schema_text::SchemaText;
use crate::status_events::{Deadlines, LivelinessMonitor};
use crate::subscribe::{Keys, Lagging, Start, Stats, Subscribe};
use crate::topic_core::TopicCore;
use crate::tracker::{SampleStatus, Tracker};
use crate::transport::{
    Armed, Ends, GroupRequest, HistorySupport, Item, Origin, OwnerOrder, Position, Reader,
    ReaderRequest, SampleRef, Support, Transport, TransportTopic,
};
use fence::{FENCE_POLL_INTERVAL, SetFence};

/// Items polled from the transport at once during conflation.
const CONFLATE_BATCH_ITEMS: usize = 4096;
/// Samples skipped in one poll before the task yields to others.
const MAX_SKIPPED_PER_POLL: usize = 4096;
/// The most keys that conflation gathers before it delivers them.
const MAX_CONFLATED_KEYS: usize = 65_536;
/// How often a pending query about a topic's owners is polled.
const OWNER_ANSWER_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How long an answer about replaced owners is used before the engine is queried again.
const OWNER_QUERY_INTERVAL: Duration = Duration::from_secs(1);

/// An event for a visitor: a sample without a copy, or another event.
#[derive(Debug)]
pub enum EventRef<'a> {
    /// A sample in the transport's memory.
    Sample(SampleRef<'a>),
    /// Another event.
    Other(Event),
}

type Sink<'a> = &'a mut dyn FnMut(EventRef<'_>) -> ControlFlow<()>;

/// A subscription to one topic, with a cursor and statistics of its own.
///
/// Events are read by blocking calls ([`Subscription::next_timeout`]), asynchronously
/// ([`Subscription::next`], or as a stream), or without copies ([`Subscription::visit`]). All three
/// return the same sequence of events.
pub struct Subscription {
    reader: Box<dyn Reader>,
    state: State,
    topic: Arc<TopicCore>,
    token: u64,
    in_group: Support,
    bell: Option<Arc<dyn Bell>>,
    reactor: Option<Arc<Reactor>>,
    ended: bool,
}

/// All but the reader, so that both can be borrowed at once.
struct State {
    name: TopicName,
    tracker: Tracker,
    /// Answers whether the owners of an exclusive topic are ordered by incarnation.
    owners: Arc<dyn TransportTopic>,
    stats: Stats,
    keys: Keys,
    lagging: Lagging,
    shed_below: u16,
    lifespan: Option<Duration>,
    deadlines: Option<Deadlines>,
    writers: Option<LivelinessMonitor>,
    resolver: Option<Resolver>,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    past_history: bool,
    assignment: Vec<u32>,
    /// Samples read since the last ones were skipped.
    since_jump: u64,
    /// An error after delivered items; the next call returns it.
    failed: Option<ReadError>,
    pending: VecDeque<Event>,
    /// A sample of a possibly replaced owner, and when the engine was queried about it. Later
    /// samples wait.
    undecided: Option<(Sample, Instant)>,
    /// The transport explained the next hole: the reader was behind.
    behind: bool,
    gathered: Conflated,
    /// Until it is passed.
    fence: Option<SetFence>,
    /// The ends of the last fence that was passed.
    passed: Ends,
}

/// The newest sample of each key, in the order in which they were last written.
#[derive(Default)]
struct Conflated {
    newest: HashMap<Bytes, usize>,
    samples: Vec<Option<Sample>>,
}

impl Conflated {
    /// Adds a sample; true if it replaced one of its key.
    fn keep(&mut self, sample: Sample) -> bool {
        let place = self.samples.len();
        let before = self.newest.insert(sample.key.clone(), place);
        self.samples.push(Some(sample));
        before.is_some_and(|before| self.samples[before].take().is_some())
    }

    /// Removes the slots of replaced samples when they are many.
    fn compact(&mut self) {
        if self.samples.len() <= 2 * self.newest.len() + CONFLATE_BATCH_ITEMS {
            return;
        }
        self.samples.retain(Option::is_some);
        for (place, sample) in self.samples.iter().enumerate() {
            if let Some(at) = sample.as_ref().and_then(|s| self.newest.get_mut(&s.key)) {
                *at = place;
            }
        }
    }

    fn drain(&mut self) -> impl Iterator<Item = Sample> {
        self.newest.clear();
        self.samples.drain(..).flatten()
    }
}

impl Subscription {
    pub(crate) fn open(
        topic: &Arc<TopicCore>,
        schema: Option<(&SchemaText, &SchemaRules)>,
        options: Subscribe,
    ) -> Result<Self, TopicError> {
        check(topic, &options)?;
        let resolver = match schema {
            Some((schema, rules))
                if !options.as_written.is_yes() && schema.id != SchemaId::BYTES =>
            {
                Some(Resolver::new(topic, schema, rules, options.undecodable)?)
            }
            _ => None,
        };
        let member = topic.producer.as_str();
        let group = options.group.as_deref().map(|name| GroupRequest { name, member });
        let request = ReaderRequest {
            from: options.start.begin(),
            partitions: options.partitions.as_deref().unwrap_or_default(),
            group,
            schema: schema.map(|(schema, _)| schema),
        };
        let mut reader = topic.transport.reader(&request)?;
        options.pinned_bytes.into_iter().for_each(|bytes| reader.pin_payloads(bytes));
        let qos = topic.transport.qos();
        let watch = options.writers.is_yes().then(|| LivelinessMonitor::new(qos.liveliness));
        let state = State {
            name: topic.name.clone(),
            tracker: match qos.ownership {
                Ownership::Exclusive => Tracker::of_owners(),
                Ownership::Shared => Tracker::default(),
            },
            owners: Arc::clone(&topic.transport),
            stats: Stats::default(),
            keys: options.keys,
            lagging: options.lagging.unwrap_or_else(|| Lagging::of(qos.overload)),
            shed_below: 0,
            lifespan: options.lifespan.or(qos.lifespan),
            deadlines: options.deadline.or(qos.deadline).map(Deadlines::new),
            writers: watch,
            resolver,
            transport: Arc::clone(&topic.bus.transport),
            clock: Arc::clone(&topic.bus.clock),
            past_history: !matches!(options.start, Start::Last(_) | Start::Earliest),
            assignment: Vec::new(),
            since_jump: u64::MAX,
            failed: None,
            pending: VecDeque::new(),
            undecided: None,
            behind: false,
            gathered: Conflated::default(),
            fence: None,
            passed: Ends::new(),
        };
        let token = topic.bus.token();
        let topic = Arc::clone(topic);
        let in_group = if options.group.is_some() { Support::Yes } else { Support::No };
        let (bell, reactor, ended) = (None, None, false);
        Ok(Self { reader, state, topic, token, in_group, bell, reactor, ended })
    }

    /// The next event, if one is pending.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn try_next(&mut self) -> Result<Option<Event>, ReadError> {
        let Self { reader, state, topic, .. } = self;
        for _ in 0..MAX_SKIPPED_PER_POLL {
            if let Some(event) = state.pending.pop_front() {
                return Ok(Some(event));
            }
            let name = state.name.clone();
            let mut next = None;
            let seen = state.pump(&mut **reader, topic, 1, &mut |event| {
                next = Some(match event {
                    EventRef::Sample(sample) => Event::Sample(Sample::owned(&name, &sample)),
                    EventRef::Other(event) => event,
                });
                ControlFlow::Break(())
            })?;
            if next.is_some() || seen == 0 {
                return Ok(next);
            }
        }
        Ok(None)
    }

    /// Blocks until the next event, at most for `timeout`; `None` after the timeout.
    ///
    /// # Errors
    /// [`ReadError`]; closing the bus ends the wait with [`TransportError::Closed`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Event>, ReadError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(Some(event));
            }
            if !self.wait_until(until)? {
                return Ok(None);
            }
        }
    }

    /// Blocks until the next event.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn next_blocking(&mut self) -> Result<Event, ReadError> {
        loop {
            if let Some(event) = self.next_timeout(Duration::MAX)? {
                return Ok(event);
            }
        }
    }

    /// Blocks until the next sample; skips other events, which the statistics count.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn next_sample(&mut self) -> Result<Sample, ReadError> {
        loop {
            if let Event::Sample(sample) = self.next_blocking()? {
                return Ok(sample);
            }
        }
    }

    /// The next event, for tasks. Dropping the future loses nothing.
    #[expect(clippy::should_implement_trait, reason = "the word that every stream uses")]
    pub fn next(&mut self) -> Next<'_> {
        Next(self)
    }

    /// Visits pending events without copies and without allocation: at most `max` items of the
    /// transport, until the visitor breaks. Returns how many items the transport had.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn visit(
        &mut self,
        max: usize,
        mut visitor: impl FnMut(EventRef<'_>) -> ControlFlow<()>,
    ) -> Result<usize, ReadError> {
        let Self { reader, state, topic, .. } = self;
        state.pump(&mut **reader, topic, max, &mut visitor)
    }

    /// Fills a batch with pending events, at most `max` items. Returns how many samples it
    /// contains.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn poll_batch(&mut self, max: usize, batch: &mut Batch) -> Result<usize, ReadError> {
        batch.clear();
        self.visit(max, |event| {
            match event {
                EventRef::Sample(sample) => batch.push(&sample),
                EventRef::Other(event) => batch.event(event),
            }
            ControlFlow::Continue(())
        })?;
        Ok(batch.len())
    }

    /// Blocks until an event is pending, then fills a batch; an empty batch after the timeout.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn next_batch(
        &mut self,
        max: usize,
        timeout: Duration,
        batch: &mut Batch,
    ) -> Result<usize, ReadError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            self.poll_batch(max, batch)?;
            if !batch.is_empty() || !self.wait_until(until)? {
                return Ok(batch.len());
            }
        }
    }

    /// Blocks until an event may be pending; false after the timeout.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn wait_until(&mut self, until: Option<Instant>) -> Result<bool, ReadError> {
        let bell = match &self.bell {
            Some(bell) => Arc::clone(bell),
            None => {
                let bell = self.topic.bus.transport.bell()?;
                Arc::clone(self.bell.insert(bell))
            }
        };
        let mut due = self.due();
        match self.arm(&bell)? {
            Armed::Ready => return Ok(until.is_none_or(|until| Instant::now() < until)),
            Armed::Waiting => {}
            Armed::Recheck(after) => due = sooner(due, Instant::now().checked_add(after)),
        }
        let now = Instant::now();
        let left = sooner(due, until).map(|at| at.saturating_duration_since(now));
        // Even without time left: an armed reader expects a wait.
        bell.sleep(left);
        Ok(until.is_none_or(|until| now < until))
    }

    /// When the next deadline or liveliness check is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        let state = &self.state;
        let deadline = state.deadlines.as_ref().map(Deadlines::next);
        let writers = state.writers.as_ref().map(LivelinessMonitor::next);
        let next = match (deadline, writers) {
            (None, None) => return None,
            (one, other) => one.unwrap_or(Duration::MAX).min(other.unwrap_or(Duration::MAX)),
        };
        Instant::now().checked_add(next.saturating_sub(state.clock.monotonic()))
    }

    pub(crate) fn arm(&mut self, bell: &Arc<dyn Bell>) -> Result<Armed, TransportError> {
        if self.state.undecided.is_some() {
            return Ok(Armed::Recheck(OWNER_ANSWER_POLL_INTERVAL));
        }
        let armed = self.reader.arm(bell, self.token)?;
        Ok(match (&self.state.fence, armed) {
            // No bell rings when its ends become known.
            (Some(fence), Armed::Waiting | Armed::Recheck(_)) if !fence.is_known() => {
                Armed::Recheck(FENCE_POLL_INTERVAL)
            }
            _ => armed,
        })
    }

    pub(crate) fn set_token(&mut self, token: u64) {
        self.token = token;
    }

    /// The statistics, and the lag.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { lag: self.reader.lag(), ..self.state.stats }
    }

    /// Each partition's next offset and end of the log.
    #[must_use]
    pub fn positions(&self) -> Vec<Position> {
        let mut positions = Vec::new();
        self.reader.positions(&mut |position| positions.push(position));
        positions
    }

    /// The topic's name.
    #[must_use]
    pub fn topic(&self) -> &TopicName {
        &self.state.name
    }

    /// Moves to an offset of a partition, back or forward.
    ///
    /// # Errors
    /// [`TransportError::Unsupported`] if the transport cannot rewind.
    pub fn seek(&mut self, partition: u32, offset: u64) -> Result<(), ReadError> {
        self.reader.seek(partition, offset)?;
        self.state.tracker.forget(partition);
        self.state.pending.retain(
            |event| !matches!(event, Event::Sample(sample) if sample.partition == partition),
        );
        self.state.undecided.take_if(|(sample, _)| sample.partition == partition);
        Ok(())
    }

    /// Commits the position behind all delivered events. A partition that the group has given to
    /// another member meanwhile is left out: that member resumes at the position committed last.
    ///
    /// # Errors
    /// [`ReadError::NoGroup`]; the transport's error.
    pub fn commit(&mut self) -> Result<(), ReadError> {
        if !self.in_group.is_yes() {
            return Err(ReadError::NoGroup);
        }
        let waiting = self.state.pending.iter().filter_map(|event| match event {
            Event::Sample(sample) if sample.origin == Origin::Log => Some(sample),
            _ => None,
        });
        let undecided = self.state.undecided.as_ref().map(|(sample, _)| sample);
        let mut held: HashMap<u32, u64> = HashMap::new();
        for sample in waiting.chain(undecided) {
            let first = held.entry(sample.partition).or_insert(sample.offset);
            *first = sample.offset.min(*first);
        }
        for position in self.positions() {
            let next = held.get(&position.partition).copied().unwrap_or(position.next);
            match self.commit_at(position.partition, next) {
                Err(ReadError::Transport(TransportError::NotAssigned { .. })) => {}
                committed => committed?,
            }
        }
        Ok(())
    }

    /// Commits an offset, at which the group starts next.
    ///
    /// # Errors
    /// [`ReadError::NoGroup`]; [`TransportError::NotAssigned`]; the transport's error.
    pub fn commit_at(&mut self, partition: u32, offset: u64) -> Result<(), ReadError> {
        if !self.in_group.is_yes() {
            return Err(ReadError::NoGroup);
        }
        Ok(self.reader.commit(partition, offset)?)
    }
}

fn check(topic: &Arc<TopicCore>, options: &Subscribe) -> Result<(), TopicError> {
    let can = topic.bus.transport.capabilities();
    let name = &topic.name;
    consistent(topic, options)?;
    match options.start {
        Start::Latest => {}
        Start::Earliest => {
            let whole = can.history == HistorySupport::KeepAll;
            let has = if whole { Support::Yes } else { can.rewind };
            can.need(name, "start", "earliest", has)?;
        }
        Start::Offset { .. } => can.need(name, "start", "an offset", can.rewind)?,
        Start::Time(_) => can.need(name, "start", "a time", can.rewind)?,
        Start::Last(n) => {
            let enough = match can.history {
                HistorySupport::None => false,
                HistorySupport::KeepLast(most) => n <= u32::from(most),
                HistorySupport::KeepAll => true,
            };
            let has = if enough { Support::Yes } else { Support::No };
            can.need(name, "start", &format!("last({n})"), has)?;
        }
    }
    if options.group.is_some() {
        can.need(name, "group", "a group", can.groups)?;
    }
    let lease = matches!(topic.transport.qos().liveliness, Liveliness::Lease(_));
    if options.writers.is_yes() && !lease {
        can.need(name, "liveliness", "automatic", can.liveliness)?;
    }
    Ok(())
}

/// Refuses options that contradict each other on any transport.
fn consistent(topic: &TopicCore, options: &Subscribe) -> Result<(), TopicError> {
    let invalid = |field, value: String, reason| {
        Err(TopicError::Invalid { topic: topic.name.clone(), field, value, reason })
    };
    let count = topic.transport.qos().partitions;
    let of_start = match options.start {
        Start::Offset { partition, .. } => Some(partition),
        _ => None,
    };
    let named = options.partitions.as_deref().unwrap_or_default();
    if let Some(missing) = named.iter().copied().chain(of_start).find(|at| *at >= count) {
        let reason = "the topic has no such partition: they are numbered from 0";
        return invalid("partition", format!("{missing} of {count}"), reason);
    }
    match (options.lagging, options.start) {
        (Some(Lagging::DropOldest { depth: 0 } | Lagging::ShedByLevel { depth: 0 }), _) => {
            invalid("lagging.depth", "0".to_owned(), "a depth is 1 sample at least")
        }
        (_, Start::Last(n)) if options.group.is_some() => invalid(
            "start",
            format!("last({n})"),
            "a group commits offsets in the log, which last values lack: start elsewhere",
        ),
        (_, Start::Last(n)) if !(1..=Start::MAX_LAST).contains(&n) => {
            invalid("start", format!("last({n})"), "the newest 1 to 255 of each key are stored")
        }
        _ if options.partitions.as_ref().is_some_and(Vec::is_empty) => invalid(
            "partitions",
            "[]".to_owned(),
            "a subscription without a partition receives nothing: name one, or leave them out",
        ),
        _ if options.group.is_some() && options.partitions.is_some() => invalid(
            "partitions",
            format!("{named:?}"),
            "a group assigns the partitions itself: select partitions or a group",
        ),
        _ => Ok(()),
    }
}

pub(crate) fn sooner(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl State {
    /// Reads up to `max` items and delivers those that the policies admit, until the sink breaks;
    /// the rest stays pending. Returns how many items there were.
    fn pump(
        &mut self,
        reader: &mut dyn Reader,
        topic: &TopicCore,
        max: usize,
        sink: Sink<'_>,
    ) -> Result<usize, ReadError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.check_clock(topic)?;
        match self.lagging {
            Lagging::Lossless => {}
            Lagging::DropOldest { depth } => self.catch_up(reader, depth)?,
            Lagging::ShedByLevel { depth } => self.shed_below = shed_below(reader.lag(), depth),
            Lagging::Conflate if self.pending.is_empty() => self.conflate(reader)?,
            Lagging::Conflate => {}
        }
        let mut passed = 0;
        while passed < max {
            let Some(event) = self.pending.pop_front() else { break };
            passed += 1;
            let flow = match &event {
                Event::Sample(sample) => sink(EventRef::Sample(sample.as_ref())),
                _ => sink(EventRef::Other(event)),
            };
            if flow.is_break() {
                return Ok(passed);
            }
        }
        if passed == max || self.lagging == Lagging::Conflate {
            return Ok(passed);
        }
        match self.take(reader, max - passed, sink) {
            Ok(seen) => Ok(passed + seen),
            Err(error) if passed > 0 => {
                self.failed = Some(error);
                Ok(passed)
            }
            Err(error) => Err(error),
        }
    }

    fn take(
        &mut self,
        reader: &mut dyn Reader,
        max: usize,
        sink: Sink<'_>,
    ) -> Result<usize, ReadError> {
        let mut decided = 0;
        if let Some((sample, since)) = self.undecided.take() {
            let flow = self.sample(sample.as_ref(), Some(since), sink);
            decided = usize::from(self.undecided.is_none());
            if flow.is_break() || decided == max {
                return Ok(decided);
            }
        }
        let seen = decided + reader.poll(max - decided, &mut |item| self.item(item, sink))?;
        if seen < max {
            self.past_history = true;
        }
        Ok(seen)
    }

    fn item(&mut self, item: Item<'_>, sink: Sink<'_>) -> ControlFlow<()> {
        match item {
            Item::Sample(sample) => self.sample(sample, None, sink),
            Item::Gap(gap) => {
                self.tracker.explain(gap.partition);
                self.open_truncated_fence(&gap);
                self.stats.lost += gap.lost;
                sink(EventRef::Other(Event::Gap(gap)))
            }
            Item::Recreated(partition) => {
                self.tracker.forget(partition);
                self.open_fence(partition);
                ControlFlow::Continue(())
            }
            Item::Behind => {
                self.behind = true;
                ControlFlow::Continue(())
            }
            Item::Assigned(partitions) => {
                self.assigned(partitions);
                sink(EventRef::Other(Event::Assigned(partitions.to_vec())))
            }
            Item::Outage(outage) => sink(EventRef::Other(Event::Outage(outage))),
            Item::Incompatible(incompatible) => {
                sink(EventRef::Other(Event::Incompatible(incompatible)))
            }
        }
    }

    /// The assignment changed. A new partition is read from the group's position, possibly again;
    /// pending samples of a lost one are another member's.
    fn assigned(&mut self, partitions: &[u32]) {
        for partition in partitions.iter().filter(|new| !self.assignment.contains(new)) {
            self.tracker.forget(*partition);
        }
        let before = self.pending.len();
        let ours = |event: &Event| match event {
            Event::Sample(sample) => partitions.contains(&sample.partition),
            _ => true,
        };
        self.pending.retain(ours);
        self.stats.received -= (before - self.pending.len()) as u64;
        self.assignment = partitions.to_vec();
    }

    /// A sample's status. For a possibly replaced owner the engine decides; the error is the time
    /// of the pending query.
    fn status(
        &mut self,
        sample: &SampleRef<'_>,
        asked: Option<Instant>,
    ) -> Result<SampleStatus, Instant> {
        let status = self.tracker.check(sample);
        let SampleStatus::Outranked { fenced } = status else { return Ok(status) };
        let since = asked.unwrap_or_else(Instant::now);
        let fresh =
            if fenced { since.checked_sub(OWNER_QUERY_INTERVAL).unwrap_or(since) } else { since };
        Ok(match self.owners.owners_in_order(sample.producer, fresh) {
            OwnerOrder::No => self.tracker.admit(sample),
            OwnerOrder::Yes => self.tracker.fence(sample),
            // This producer was fenced before, which holds until the answer.
            OwnerOrder::Asked | OwnerOrder::Unknown if fenced => self.tracker.fence(sample),
            // One sample of a replaced owner does less harm than the loss of all of a live one's.
            OwnerOrder::Unknown => self.tracker.pass(sample),
            OwnerOrder::Asked => return Err(since),
        })
    }

    /// Processes a sample; an undecided one has the time of its pending query.
    fn sample(
        &mut self,
        sample: SampleRef<'_>,
        asked: Option<Instant>,
        sink: Sink<'_>,
    ) -> ControlFlow<()> {
        self.past_history |= sample.origin == Origin::Log;
        if asked.is_none() {
            self.since_jump = self.since_jump.saturating_add(1);
        }
        let status = match self.status(&sample, asked) {
            Ok(status) => status,
            Err(since) => {
                self.undecided = Some((Sample::owned(&self.name, &sample), since));
                return ControlFlow::Break(());
            }
        };
        let behind = std::mem::take(&mut self.behind);
        match status {
            // An outranked sample was admitted.
            SampleStatus::Deliver | SampleStatus::Outranked { .. } => {}
            SampleStatus::DeliverAfterHole { from } => {
                let (producer, to) = (sample.producer.clone(), sample.sequence);
                self.stats.lost += to - from;
                let cause = match behind {
                    true => GapCause::Behind { producer, from, to },
                    false => GapCause::Sequence { producer, from, to },
                };
                let gap = Gap { partition: sample.partition, lost: to - from, cause };
                if sink(EventRef::Other(Event::Gap(gap))).is_break() {
                    self.keep(sample);
                    return ControlFlow::Break(());
                }
            }
            SampleStatus::Duplicate => {
                self.stats.duplicates += 1;
                return ControlFlow::Continue(());
            }
            SampleStatus::Fenced => {
                self.stats.fenced += 1;
                return ControlFlow::Continue(());
            }
            SampleStatus::FencedFirst { newer } => {
                self.stats.fenced += 1;
                let (partition, producer) = (sample.partition, sample.producer.clone());
                let fenced = Fenced { partition, producer, newer };
                return sink(EventRef::Other(Event::Fenced(fenced)));
            }
        }
        self.deliver(sample, sink)
    }

    fn deliver(&mut self, sample: SampleRef<'_>, sink: Sink<'_>) -> ControlFlow<()> {
        let mut sample = sample;
        if !self.accepts(&sample) {
            return ControlFlow::Continue(());
        }
        if let Some(bytes) = sample.headers.refused_bytes() {
            self.stats.undecodable += 1;
            return sink(undecodable(&self.name, &sample, too_large_headers(bytes)));
        }
        // A null has no value to resolve.
        if let Some(resolver) = self.resolver.as_mut().filter(|_| !sample.is_null()) {
            match resolver.resolve(&*self.transport, sample.schema, sample.payload) {
                Ok((schema, payload)) => {
                    // A converted payload lies elsewhere, and cannot be pinned.
                    (sample.schema, sample.payload) = (schema, payload);
                }
                Err(Unreadable::Reported) => {
                    self.stats.undecodable += 1;
                    return ControlFlow::Continue(());
                }
                Err(Unreadable::Unreported(reason)) => {
                    self.stats.undecodable += 1;
                    return sink(undecodable(&self.name, &sample, reason));
                }
                Err(Unreadable::Lacking { schema, payload, reason }) => {
                    self.stats.undecodable += 1;
                    let wrote = sample.schema;
                    (sample.schema, sample.payload) = (schema, payload);
                    let sample = Sample::owned(&self.name, &sample);
                    let wrong = Undecodable { sample, schema: wrote, reason };
                    return sink(EventRef::Other(Event::Undecodable(wrong)));
                }
            }
        }
        self.stats.received += 1;
        sink(EventRef::Sample(sample))
    }

    /// The sink broke before this sample, which therefore stays pending.
    fn keep(&mut self, sample: SampleRef<'_>) {
        let name = self.name.clone();
        let mut kept = None;
        let _ = self.deliver(sample, &mut |event| {
            kept = Some(match event {
                EventRef::Sample(sample) => Event::Sample(Sample::owned(&name, &sample)),
                EventRef::Other(event) => event,
            });
            ControlFlow::Continue(())
        });
        self.pending.extend(kept);
    }

    fn accepts(&mut self, sample: &SampleRef<'_>) -> bool {
        if !self.keys.wants(sample.key) {
            self.stats.filtered += 1;
            return false;
        }
        if u16::from(sample.level) < self.shed_below {
            self.stats.shed += 1;
            return false;
        }
        if let Some(lifespan) = self.lifespan {
            let age = self.clock.now().nanos().saturating_sub(sample.time.nanos());
            if u128::try_from(age).unwrap_or(0) > lifespan.as_nanos() {
                self.stats.expired += 1;
                return false;
            }
        }
        if let Some(deadlines) = &mut self.deadlines {
            deadlines.restart(sample.key, self.clock.monotonic());
        }
        true
    }

    fn check_clock(&mut self, topic: &TopicCore) -> Result<(), ReadError> {
        if self.deadlines.is_none() && self.writers.is_none() {
            return Ok(());
        }
        let now = self.clock.monotonic();
        let pending = &mut self.pending;
        if let Some(deadlines) = &mut self.deadlines {
            self.stats.deadlines_missed += deadlines.check(now, |event| pending.push_back(event));
        }
        if let Some(writers) = self.writers.as_mut().filter(|writers| writers.next() <= now) {
            match topic.transport.writers() {
                Ok(known) => {
                    let time = self.clock.now();
                    writers.check(&known, now, time, |event| pending.push_back(event));
                }
                Err(TransportError::Outage { .. }) => writers.postpone(now),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Skips the samples that are more than `depth` behind.
    fn catch_up(&mut self, reader: &mut dyn Reader, depth: u64) -> Result<(), ReadError> {
        // A reader that is always behind receives at least one sample between two jumps. It jumps
        // further, so that it does not jump for each sample.
        if !self.past_history || self.since_jump == 0 || reader.lag() <= depth {
            return Ok(());
        }
        let left = if self.since_jump < depth { depth - depth / 4 } else { depth };
        let mut behind = Vec::new();
        reader.positions(&mut |at| {
            if at.end.saturating_sub(at.next) > depth {
                behind.push(at);
            }
        });
        for at in behind {
            let to = at.end - left;
            self.since_jump = 0;
            reader.seek(at.partition, to)?;
            self.tracker.explain(at.partition);
            self.stats.lost += to - at.next;
            let cause = GapCause::Overload { from: at.next, to };
            let gap = Gap { partition: at.partition, lost: to - at.next, cause };
            self.pending.push_back(Event::Gap(gap));
        }
        Ok(())
    }

    /// Reads all pending samples and keeps the newest of each key.
    fn conflate(&mut self, reader: &mut dyn Reader) -> Result<(), ReadError> {
        let mut gathered = std::mem::take(&mut self.gathered);
        let mut others = Vec::new();
        let outcome = self.gather(reader, &mut gathered, &mut others);
        let samples = gathered.drain().map(Event::Sample);
        self.pending.extend(others.into_iter().chain(samples));
        self.gathered = gathered;
        outcome
    }

    fn gather(
        &mut self,
        reader: &mut dyn Reader,
        gathered: &mut Conflated,
        others: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let name = self.name.clone();
        // Only what is pending at the start: newer samples must not prolong this.
        let mut left = reader.lag().max(1);
        while gathered.newest.len() < MAX_CONFLATED_KEYS && left > 0 {
            let mut replaced = 0;
            let taken = self.take(reader, CONFLATE_BATCH_ITEMS, &mut |event| {
                match event {
                    EventRef::Other(event) => others.push(event),
                    EventRef::Sample(sample) => {
                        replaced += u64::from(gathered.keep(Sample::owned(&name, &sample)));
                    }
                }
                ControlFlow::Continue(())
            });
            self.stats.conflated += replaced;
            self.stats.received -= replaced;
            gathered.compact();
            let taken = taken?;
            left = left.saturating_sub(taken as u64);
            if taken < CONFLATE_BATCH_ITEMS {
                break;
            }
        }
        Ok(())
    }
}

fn undecodable(topic: &TopicName, sample: &SampleRef<'_>, reason: String) -> EventRef<'static> {
    let (schema, sample) = (sample.schema, Sample::owned(topic, sample));
    EventRef::Other(Event::Undecodable(Undecodable { sample, schema, reason }))
}

fn too_large_headers(bytes: usize) -> String {
    format!(
        "its headers have {bytes} bytes, the limit is {MAX_HEADERS_BYTES}; they are left out here, \
         read them with a client of the engine"
    )
}

/// Levels below this one are shed: 1 beyond the depth, 2 beyond twice the depth, 3 beyond four
/// times…
fn shed_below(lag: u64, depth: u64) -> u16 {
    let times = lag / depth.max(1);
    if lag <= depth || times == 0 { 0 } else { 1 + times.ilog2() as u16 }
}

/// The next event of a subscription, for tasks.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Next<'a>(&'a mut Subscription);

impl Future for Next<'_> {
    type Output = Result<Event, ReadError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_event(context)
    }
}

impl Subscription {
    /// Returns the next event, or has the task woken when one may be pending.
    pub fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, ReadError>> {
        for _ in 0..2 {
            match self.try_next() {
                Ok(Some(event)) => return Poll::Ready(Ok(event)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            match self.park(context) {
                Ok(Armed::Ready) => {}
                Ok(_) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        // Yields to the executor's other tasks, however many samples are filtered out here.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn park(&mut self, context: &mut Context<'_>) -> Result<Armed, ReadError> {
        let reactor = match &self.reactor {
            Some(reactor) => Arc::clone(reactor),
            None => Arc::clone(self.reactor.insert(self.topic.bus.reactor()?)),
        };
        let due = self.due();
        reactor.register(self.token, context.waker(), due);
        let armed = self.arm(reactor.bell())?;
        if let Armed::Recheck(after) = armed {
            let due = sooner(due, Instant::now().checked_add(after));
            reactor.register(self.token, context.waker(), due);
        }
        Ok(armed)
    }
}

impl Stream for Subscription {
    type Item = Result<Event, ReadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = self.poll_event(context);
        self.ended = matches!(polled, Poll::Ready(Err(_)));
        polled.map(Some)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(reactor) = &self.reactor {
            reactor.forget(self.token);
        }
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("topic", &self.state.name)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
