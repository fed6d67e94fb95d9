//! Reading a topic: one cursor per partition over librdkafka's fetched samples, in turn.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::transport::{
    Armed, Begin, Fence, Item, Origin, Position, Producers, Reader, ReaderRequest, Visit, not_ours,
};
use helio_bus::{Bell, Gap, GapCause, Outage, Tai, TransportError};
use rdkafka::message::Message as _;

use crate::SCHEME;
use crate::client::context::Consumer;
use crate::client::error::{failed, is_gone, outage};
use crate::client::fetcher::{self, LentPartitions, SampleQueue, Sought};
use crate::client::ffi::{self, TopicId};
use crate::client::options::BROKER_TIMEOUT;
use crate::client::signal::ReaderSignal;
use crate::topic::connection::Connection;
use crate::topic::group::{AssignedPartition, GroupMember, GroupProgress, Member, ProcessedSample};
use crate::topic::history;
use crate::topic::reader_updates::{ReaderPosition, ReaderUpdates, ReplacementSource, Source};
use crate::topic::record_format::RecordFormat;
use crate::topic::sample::{NextForeignSequence, OwnedSample, SampleMeta};
use crate::topic::start::{StartPosition, starts};
use crate::topic::state::TopicState;
use crate::topic::topic_recreation::{PartitionSelection, ReaderRegistration};

/// How long a lagging reader may wait for its lag, once every [`LAG_QUERY_INTERVAL`]: fetched
/// samples do not contain the log's current end. The delay is too short to disturb an event loop.
const LAG_QUERY_TIMEOUT: Duration = Duration::from_millis(20);
/// The minimum time between two such queries.
const LAG_QUERY_INTERVAL: Duration = Duration::from_millis(50);
/// How long after a timeout no such query is sent.
const LAG_QUERY_BACKOFF: Duration = Duration::from_secs(2);

struct Cursor {
    partition: u32,
    queue: SampleQueue,
    next: u64,
    /// The end, as far as known: it only grows.
    end: Cell<u64>,
    after: Option<Tai>,
    foreign: NextForeignSequence,
    /// A fetched sample that was not delivered after the gap before it, or whose schema is being
    /// requested.
    held: Option<OwnedSample>,
    /// The next fetched sample is at this offset or behind it.
    fetched: u64,
    /// Whether the reader has moved it: it may stand before its group's position.
    is_sought: bool,
    progress: GroupProgress,
    /// How many checks had found the topic unchanged when it was reported that this log was
    /// recreated or truncated.
    noticed: Option<u64>,
}

impl Cursor {
    fn new(start: StartPosition, queue: SampleQueue) -> Self {
        let StartPosition { partition, offset, end, after } = start;
        let (foreign, held) = (NextForeignSequence::None, None);
        let (next, end) = (offset, Cell::new(end));
        let (fetched, noticed, progress) = (offset, None, GroupProgress::default());
        Self {
            partition,
            queue,
            next,
            end,
            after,
            foreign,
            held,
            fetched,
            is_sought: false,
            progress,
            noticed,
        }
    }

    /// The same, fetched from the sample before the start, which is compared.
    fn behind(self, processed: Option<ProcessedSample>) -> Self {
        let fetched = processed.map_or(self.fetched, |processed| processed.offset);
        let progress = GroupProgress { processed, ..self.progress };
        Self { fetched, progress, ..self }
    }

    /// Replaces the queue of the same log.
    fn with_queue(self, start: StartPosition, queue: SampleQueue) -> Self {
        let next = if self.is_sought { self.next } else { self.next.max(start.offset) };
        let fetched = start.offset;
        Self { queue, next, fetched, noticed: None, ..self }
    }

    /// Whether the cursor itself has detected that another log replaced this one, and reads that:
    /// the new log was shorter than its position. If a check has found the topic unchanged since,
    /// the log was truncated.
    fn has_noticed(&self, updates: &ReaderUpdates) -> bool {
        self.noticed == Some(updates.unchanged_checks())
    }

    /// Delivers the held sample; returns the result of the poll if that ends with it.
    fn deliver_held(
        &mut self,
        format: &RecordFormat,
        signal: &Arc<ReaderSignal>,
        visit: &mut Visit<'_>,
    ) -> Option<ControlFlow<()>> {
        let mut held = self.held.take()?;
        if !format.knows(&mut held.meta, &held.payload, signal) {
            self.held = Some(held);
            return Some(ControlFlow::Continue(()));
        }
        self.next = held.offset + 1;
        self.progress.pass(held.offset, &held.meta);
        let flow = visit.item(Item::Sample(held.sample(Origin::Log)));
        flow.is_break().then_some(flow)
    }

    /// The gap to report before a record that is not the next one: retention was faster, the log
    /// was truncated, it was recreated and continues behind this record, or this record is in the
    /// place of a processed one. `None` if it is the next: compacted records and transaction
    /// markers leave holes too.
    fn gap_to(
        &self,
        offset: u64,
        is_replaced: bool,
        first: impl FnOnce() -> Option<u64>,
    ) -> Option<Gap> {
        let (partition, wanted) = (self.partition, self.next);
        if is_replaced || offset < self.fetched {
            self.end.set(offset);
            let cause = GapCause::Damaged { from: offset, to: wanted };
            return Some(Gap { partition, lost: 0, cause });
        }
        if offset <= wanted {
            return None;
        }
        let there = first()?.min(offset);
        (there > wanted).then(|| Gap::retention(partition, wanted, there))
    }

    /// The items to report when another log replaces this one. A gap is one of them only if this
    /// log had any records.
    fn replaced(&self, from: u64) -> impl Iterator<Item = Item<'static>> + use<> {
        let (partition, to) = (self.partition, self.next.max(self.end.get()));
        let gap = Gap { partition, lost: 0, cause: GapCause::Damaged { from, to } };
        let gap = (to > from).then_some(Item::Gap(gap));
        std::iter::once(Item::Recreated(partition)).chain(gap)
    }

    fn ends_at(&self, end: u64) {
        self.end.set(end.max(self.end.get()).max(self.next));
    }

    /// The next offset to be read. Transaction markers may follow the last sample; whether the
    /// reader has passed them is known to the consumer.
    fn place(&self, consumer: &Consumer, topic: &str) -> u64 {
        if self.held.is_some() || self.end.get() <= self.next {
            return self.next;
        }
        let passed = ffi::position(consumer, topic, self.partition);
        passed.map_or(self.next, |passed| passed.max(self.next))
    }
}

pub(crate) struct KafkaReader {
    topic: Arc<TopicState>,
    // Declared before the source: queues are dropped before the consumer that fills them.
    cursors: Vec<Cursor>,
    source: Source,
    /// The requested partitions; empty for all.
    named: Vec<u32>,
    history: VecDeque<OwnedSample>,
    /// To be reported before anything else.
    outages: VecDeque<Outage>,
    /// To be reported before anything else of the log.
    news: VecDeque<Item<'static>>,
    turn: usize,
    producers: Producers,
    updates: Arc<ReaderUpdates>,
    armed: Option<(Arc<dyn Bell>, u64)>,
    /// When the log's end may be queried next.
    query_at: Cell<Instant>,
    /// Kept open.
    _connection: Arc<Connection>,
}

impl KafkaReader {
    pub(crate) fn open(
        connection: &Arc<Connection>,
        topic: &Arc<TopicState>,
        request: &ReaderRequest<'_>,
    ) -> Result<Self, TransportError> {
        let updates = Arc::<ReaderUpdates>::default();
        let (reads, patience) = match &request.group {
            // A member waits for a topic that does not exist.
            Some(group) => (PartitionSelection::Shared(GroupMember::new(group)), Duration::ZERO),
            None if request.partitions.is_empty() => (PartitionSelection::All, BROKER_TIMEOUT),
            None => (PartitionSelection::These(request.partitions.to_vec()), BROKER_TIMEOUT),
        };
        let described = topic.link.client.described(&topic.kafka, patience)?;
        if described.is_none() && request.group.is_none() {
            return Err(outage(format!("the topic {} does not exist", topic.kafka)));
        }
        let id = described.map(|described| described.id);
        connection.readers.add(ReaderRegistration::new(
            &updates,
            topic,
            (reads, &request.from, id),
        ));
        let (source, cursors, history) = match &request.group {
            Some(group) => {
                let begin = (&request.from, &updates.signal);
                let member = Member::join((topic, described), GroupMember::new(group), begin)?;
                (Source::Member(member), Vec::new(), VecDeque::new())
            }
            None => {
                let (lent, cursors, history) = lent((topic, id), request, &updates.signal)?;
                (Source::Lent(lent), cursors, history)
            }
        };
        updates.set_partitions(described.map_or(0, |described| described.partitions));
        updates.signal.keep_ready();
        Ok(Self {
            topic: Arc::clone(topic),
            cursors,
            source,
            named: request.partitions.to_vec(),
            history,
            outages: VecDeque::new(),
            news: VecDeque::new(),
            turn: 0,
            producers: Producers::default(),
            updates,
            armed: None,
            query_at: Cell::new(Instant::now()),
            _connection: Arc::clone(connection),
        })
    }

    /// Continues with the topic that was recreated in the place of this one.
    fn recreate(&mut self, ReplacementSource { queues, source }: ReplacementSource) {
        let mut before = std::mem::take(&mut self.cursors);
        // The newest samples by key are in the new topic.
        self.history.clear();
        for (start, queue) in queues {
            let place = before.iter().position(|old| old.partition == start.partition);
            self.cursors.push(match place.map(|place| before.swap_remove(place)) {
                Some(old) if old.has_noticed(&self.updates) => old.with_queue(start, queue),
                Some(old) => {
                    self.news.extend(old.replaced(start.offset));
                    Cursor::new(start, queue)
                }
                None => Cursor::new(start, queue),
            });
        }
        // For a group's member, the new partitions are assigned later.
        self.news.extend(before.iter().flat_map(|old| old.replaced(0)));
        drop(before);
        if let Source::Member(member) = std::mem::replace(&mut self.source, source) {
            member.quit();
        }
    }

    /// Resumes at its position with another consumer in the place of one that stopped fetching,
    /// unless it was moved meanwhile.
    fn resume(&mut self, instead: ReplacementSource) {
        let is_here = |(start, _): &(StartPosition, SampleQueue)| {
            let is_it = |cursor: &&Cursor| cursor.partition == start.partition;
            self.cursors.iter().find(is_it).is_some_and(|cursor| cursor.next >= start.offset)
        };
        let is_lent = matches!(instead.source, Source::Lent(_));
        let is_whole = instead.queues.len() == self.cursors.len();
        if is_lent && !(is_whole && instead.queues.iter().all(is_here)) {
            return;
        }
        let ReplacementSource { queues, source } = instead;
        // For a group's member, the partitions are assigned later.
        let mut before = std::mem::take(&mut self.cursors);
        for (start, queue) in queues {
            if let Some(place) = before.iter().position(|old| old.partition == start.partition) {
                self.cursors.push(before.swap_remove(place).with_queue(start, queue));
            }
        }
        drop(before);
        match std::mem::replace(&mut self.source, source) {
            Source::Lent(lent) => lent.fetcher.abandon(),
            Source::Member(member) => member.quit(),
        }
    }

    /// Its positions, if it has taken all fetched samples.
    fn stands(&self) -> Option<Vec<ReaderPosition>> {
        let (consumer, name) = (self.source.consumer(), &self.topic.kafka);
        let place = |cursor: &Cursor| {
            let Cursor { partition, next, .. } = *cursor;
            let fetched_end =
                ffi::fetched_ends(consumer, name, partition).map_or(0, |(_, end)| end);
            cursor.held.is_none().then_some(ReaderPosition { partition, next, fetched_end })
        };
        self.cursors.iter().map(place).collect()
    }

    /// Applies the group's assignment if that has changed.
    fn reassign(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, TransportError> {
        let Source::Member(member) = &self.source else { return Ok(ControlFlow::Continue(())) };
        let Some(news) = member.news() else { return Ok(ControlFlow::Continue(())) };
        let mut before = std::mem::take(&mut self.cursors);
        let mut sought = Vec::new();
        for AssignedPartition { start, processed, queue, kept } in news? {
            let place = before.iter().position(|old| old.partition == start.partition);
            let old = place.map(|place| before.swap_remove(place)).filter(|_| kept);
            let cursor = match old {
                // The log is shorter than its position: it was recreated or truncated.
                Some(old) if start.end < old.next => {
                    self.news.extend(old.replaced(start.offset));
                    Cursor::new(start, queue)
                }
                Some(old) => {
                    // It is fetched from the group's position, and was moved to an earlier one.
                    let is_behind = old.is_sought && old.next < start.offset;
                    sought.extend(is_behind.then_some((old.partition, old.next)));
                    old.with_queue(start, queue)
                }
                None => Cursor::new(start, queue),
            };
            self.cursors.push(cursor.behind(processed));
        }
        drop(before);
        self.cursors.iter_mut().for_each(|cursor| {
            fetcher::signal_when_nonempty(&mut cursor.queue, &self.updates.signal)
        });
        self.cursors.sort_unstable_by_key(|cursor| cursor.partition);
        sought.into_iter().try_for_each(|(partition, offset)| self.seek(partition, offset))?;
        let own: Vec<u32> = self.cursors.iter().map(|cursor| cursor.partition).collect();
        Ok(visit.item(Item::Assigned(&own)))
    }

    /// Also reads partitions that were added, from their first records.
    fn widen(&mut self, there: u32) -> Result<(), TransportError> {
        let Self { cursors, named, source: Source::Lent(lent), .. } = self else { return Ok(()) };
        let wanted = match named.is_empty() {
            true => there as usize,
            false => named.iter().filter(|named| **named < there).count(),
        };
        if wanted <= cursors.len() {
            return Ok(());
        }
        let is_wanted = |partition: &u32| named.is_empty() || named.contains(partition);
        let is_read = |partition: &u32| cursors.iter().any(|cursor| cursor.partition == *partition);
        let added: Vec<u32> = (0..there).filter(|n| is_wanted(n) && !is_read(n)).collect();
        for queue in lent.widen(&added, &self.updates.signal)?.into_iter().flatten().zip(added) {
            let (queue, partition) = queue;
            self.cursors.push(Cursor::new(StartPosition::first(partition), queue));
        }
        Ok(())
    }

    fn poll_cursor(
        &mut self,
        turn: usize,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, TransportError> {
        let Self { cursors, producers, topic, updates, source, .. } = self;
        let signal = &updates.signal;
        let (consumer, name) = (source.consumer(), &topic.kafka);
        let cursor = &mut cursors[turn];
        if let Some(flow) = cursor.deliver_held(&topic.format, signal, visit) {
            return Ok(flow);
        }
        while let Some(message) = cursor.queue.poll(Duration::ZERO) {
            let message = match message {
                Ok(message) => message,
                Err(error) if is_gone(&error) => {
                    // Its consumer continues when the topic exists again.
                    signal.topic_missing(&format!("the topic {name}"));
                    continue;
                }
                Err(error) => return Err(failed("read a topic")(error)),
            };
            signal.topic_exists();
            let offset = u64::try_from(message.offset()).unwrap_or(0);
            let order = || SampleMeta::of(&message, producers, &mut None).order();
            let is_replaced = cursor.progress.is_replaced(offset, order);
            let first = || ffi::fetched_ends(consumer, name, cursor.partition).map(|ends| ends.0);
            let gap = cursor.gap_to(offset, is_replaced, first);
            cursor.fetched = offset + 1;
            if let Some(gap) = gap {
                if matches!(gap.cause, GapCause::Damaged { .. }) {
                    cursor.noticed = Some(updates.unchanged_checks());
                }
                cursor.next = offset;
                if visit.item(Item::Gap(gap)).is_break() {
                    cursor.held = Some(OwnedSample::of(&message, producers, &mut cursor.foreign));
                    return Ok(ControlFlow::Break(()));
                }
            }
            if offset < cursor.next {
                continue;
            }
            // Compaction explains missing sequence numbers.
            let hole = topic.format.is_sal() && offset > cursor.next;
            let origin = if hole { Origin::History } else { Origin::Log };
            let mut meta = SampleMeta::of(&message, producers, &mut cursor.foreign);
            cursor.next = offset + 1;
            cursor.progress.pass(offset, &meta);
            if cursor.after.is_some_and(|after| meta.time < after) {
                continue;
            }
            cursor.after = None;
            let parts = (message.key().unwrap_or_default(), message.payload().unwrap_or_default());
            if !topic.format.knows(&mut meta, parts.1, signal) {
                // Samples behind it wait with it; the reader is woken when it is known.
                cursor.next = offset;
                cursor.held = Some(OwnedSample::with(&message, meta));
                break;
            }
            let sample = meta.sample((cursor.partition, offset), parts, origin);
            if visit.item(Item::Sample(sample)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn poll_all(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, TransportError> {
        self.outages.extend(self.updates.signal.outages());
        while let Some(outage) = self.outages.pop_front() {
            if visit.item(Item::Outage(outage)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let (recreated, instead, there) = self.updates.topic();
        match (recreated, instead) {
            (Some(recreated), _) => self.recreate(recreated),
            (None, Some(instead)) => self.resume(instead),
            (None, None) => {}
        }
        self.widen(there)?;
        if self.reassign(visit)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        while let Some(item) = self.news.pop_front() {
            if visit.item(item).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        while let Some(kept) = self.history.pop_front() {
            if visit.item(Item::Sample(kept.sample(Origin::History))).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        for _ in 0..self.cursors.len() {
            self.turn = (self.turn + 1) % self.cursors.len();
            if self.poll_cursor(self.turn, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if self.updates.is_watched()
            && let Some(places) = self.stands()
        {
            self.updates.stands_at(places);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Learns the log's end: from fetched samples and, if those show that this reader lags, from
    /// the brokers.
    fn look_for_ends(&self) {
        let (consumer, name) = (self.source.consumer(), &self.topic.kafka);
        for cursor in &self.cursors {
            let fetched = ffi::fetched_ends(consumer, name, cursor.partition);
            cursor.ends_at(fetched.map_or(0, |(_, end)| end));
        }
        let now = Instant::now();
        let lags = |cursor: &&Cursor| cursor.place(consumer, name) + 1 < cursor.end.get();
        let health = &self.topic.link.health;
        if now < self.query_at.get() || health.is_lost() || health.is_unresponsive() {
            return;
        }
        for cursor in self.cursors.iter().filter(lags) {
            self.query_at.set(now + LAG_QUERY_INTERVAL);
            // The time limit is for all partitions together; the rest are queried another time.
            let Some(left) =
                LAG_QUERY_TIMEOUT.checked_sub(now.elapsed()).filter(|left| !left.is_zero())
            else {
                return;
            };
            match self.topic.link.client.ends(name, cursor.partition, left) {
                Ok((_, end)) => cursor.ends_at(end),
                Err(_) => return health.doubt(LAG_QUERY_BACKOFF),
            }
        }
    }

    fn disarm(&mut self) {
        if let Some((bell, token)) = self.armed.take() {
            self.updates.signal.disarm(&bell, token);
        }
    }

    fn check_open(&self) -> Result<(), TransportError> {
        self.topic.link.check_open()
    }
}

/// Opens partitions outside of a group.
fn lent(
    (topic, id): (&Arc<TopicState>, Option<TopicId>),
    request: &ReaderRequest<'_>,
    signal: &Arc<ReaderSignal>,
) -> Result<(LentPartitions, Vec<Cursor>, VecDeque<OwnedSample>), TransportError> {
    let partitions = topic.partitions(request.partitions)?;
    let last = match request.from {
        Begin::LastPerKey(n) => Some((n, history::companions(topic, &partitions)?)),
        _ => None,
    };
    let mut lent = topic.link.pool.lend((&topic.kafka, id), &partitions, topic.pace())?;
    let mut starts = starts(topic, &request.from, &partitions)?;
    let mut history = VecDeque::new();
    if let Some(last) = last {
        history = history::of(topic, &starts, last)?;
        starts.iter_mut().for_each(|start| start.offset = start.end);
    }
    let places: Vec<_> = starts.iter().map(|start| (start.partition, start.offset)).collect();
    let queues = lent.assign(&places, signal)?;
    let cursors = starts.into_iter().zip(queues).map(|(start, queue)| Cursor::new(start, queue));
    Ok((lent, cursors.collect(), history))
}

impl Reader for KafkaReader {
    fn poll(
        &mut self,
        max: usize,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<usize, TransportError> {
        self.check_open()?;
        if max == 0 {
            return Ok(0);
        }
        let mut visit = Visit::new(visit, max);
        self.updates.signal.begin_poll();
        let polled = self.poll_all(&mut visit);
        if !matches!(polled, Ok(ControlFlow::Continue(()))) {
            self.updates.signal.keep_ready();
        }
        polled.map(|_| max - visit.left())
    }

    fn arm(&mut self, bell: &Arc<dyn Bell>, token: u64) -> Result<Armed, TransportError> {
        self.check_open()?;
        let same = self.armed.as_ref().is_some_and(|(b, t)| Arc::ptr_eq(b, bell) && *t == token);
        if !same {
            self.disarm();
            self.armed = Some((Arc::clone(bell), token));
        }
        self.updates.signal.arm(bell, token);
        let news = matches!(&self.source, Source::Member(member) if member.has_news());
        // Closing wakes armed readers; check again in case it came in between.
        if news || self.updates.signal.is_rung() || self.topic.link.is_closed() {
            return Ok(Armed::Ready);
        }
        Ok(Armed::Waiting)
    }

    fn positions(&self, visit: &mut dyn FnMut(Position)) {
        self.look_for_ends();
        for cursor in &self.cursors {
            let next = cursor.place(self.source.consumer(), &self.topic.kafka);
            let end = cursor.end.get().max(next);
            visit(Position { partition: cursor.partition, next, end });
        }
    }

    fn fence(&self) -> Result<Fence, TransportError> {
        self.check_open()?;
        let (consumer, topic) = (self.source.consumer(), Arc::clone(&self.topic));
        let place = |cursor: &Cursor| (cursor.partition, cursor.place(consumer, &topic.kafka));
        let places: Vec<_> = self.cursors.iter().map(place).collect();
        let query = move || history::newest_ends(&topic, &places).map(Fence::Ends);
        Ok(Fence::Query(Box::new(query)))
    }

    fn unread_history(&self) -> u64 {
        self.history.len() as u64
    }

    fn seek(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        self.check_open()?;
        let (consumer, name) = (Arc::clone(self.source.consumer()), &self.topic.kafka);
        let found = self.cursors.iter_mut().find(|cursor| cursor.partition == partition);
        let cursor = found.ok_or_else(|| not_ours(SCHEME, partition))?;
        if offset > cursor.end.get() {
            let (_, end) = self.topic.link.client.ends(name, partition, BROKER_TIMEOUT)?;
            cursor.ends_at(end);
        }
        let offset = offset.min(cursor.end.get());
        let sought = fetcher::seek(&consumer, name, partition, offset)?;
        // A member whose group is between two assignments gets there if it keeps the partition.
        if sought == Sought::Unassigned && matches!(self.source, Source::Lent(_)) {
            return Err(not_ours(SCHEME, partition));
        }
        (cursor.next, cursor.after, cursor.held, cursor.fetched) = (offset, None, None, offset);
        cursor.is_sought = true;
        cursor.foreign = NextForeignSequence::None;
        self.history.retain(|kept| kept.partition != partition);
        Ok(())
    }

    fn commit(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        self.check_open()?;
        match &self.source {
            Source::Member(member) => {
                let cursor = self.cursors.iter().find(|cursor| cursor.partition == partition);
                let delivered = cursor.and_then(|cursor| cursor.progress.delivered);
                let before = delivered.filter(|delivered| delivered.offset < offset);
                member.commit((partition, offset), before)
            }
            Source::Lent(_) => Err(not_ours(SCHEME, partition)),
        }
    }
}

impl Drop for KafkaReader {
    fn drop(&mut self) {
        self.updates.end();
        self.disarm();
    }
}
