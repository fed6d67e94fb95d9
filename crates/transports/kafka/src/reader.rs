//! Reading a topic: a cursor a partition over what librdkafka has fetched, taken in turn.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::transport::{
    Armed, Begin, Item, Origin, Position, Producers, Reader, ReaderRequest, Visit, not_ours,
};
use helio_bus::{Bell, Gap, GapCause, Outage, Tai, TransportError};
use rdkafka::message::Message as _;

use crate::SCHEME;
use crate::anew::{Anew, Reads, Told};
use crate::context::Consumer;
use crate::error::{failed, is_gone, outage};
use crate::fetcher::{self, Lent, Place, Queue, Wake};
use crate::group::{Assigned, Joined, Member};
use crate::history;
use crate::native::{self, TopicId};
use crate::options::PATIENCE;
use crate::sample::{Foreign, Kept, Meta};
use crate::topic::TopicState;

/// How long a reader that lags may be held up to learn how far, once every [`ASK_EVERY`]: what was
/// fetched does not tell where the log ends by now. No event loop notices this.
const ASK: Duration = Duration::from_millis(20);
/// How often it is held up at the most.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// How long it is not, after a broker did not answer in time.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Where a reader begins in a partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    pub(crate) end: u64,
    /// Samples of before this, as far as it is the first ones, are passed over.
    after: Option<Tai>,
}

impl Start {
    /// With the first record of a partition, whose end is not known.
    pub(crate) fn first(partition: u32) -> Self {
        Self::at(partition, 0)
    }

    /// At an offset of a partition, whose end is not known.
    pub(crate) fn at(partition: u32, offset: u64) -> Self {
        Self { partition, offset, end: offset, after: None }
    }
}

/// Where a reader begins in partitions, as the brokers say now.
pub(crate) fn starts(
    topic: &TopicState,
    begin: &Begin,
    partitions: &[u32],
) -> Result<Vec<Start>, TransportError> {
    let mut starts = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let (first, end) = topic.connection.client.ends(&topic.kafka, *partition, PATIENCE)?;
        let offset = match begin {
            Begin::Latest | Begin::Time(_) => end,
            Begin::Earliest => first,
            Begin::LastPerKey(n) => end.saturating_sub(history::depth(topic, *n)).max(first),
            // What lies before the first is told as a gap.
            Begin::Offset(at, offset) if at == partition => (*offset).min(end),
            Begin::Offset(..) => first,
        };
        starts.push(Start { partition: *partition, offset, end, after: None });
    }
    // Of no partitions librdkafka asks nobody.
    if let (Begin::Time(time), false) = (begin, starts.is_empty()) {
        at_time(topic, *time, &mut starts)?;
    }
    Ok(starts)
}

/// Kafka finds the millisecond; within it the stamps themselves are looked at.
fn at_time(topic: &TopicState, time: Tai, starts: &mut [Start]) -> Result<(), TransportError> {
    let millis = u64::try_from(time.unix_nanos().div_euclid(1_000_000)).unwrap_or(0);
    let partitions: Vec<_> = starts.iter().map(|start| start.partition).collect();
    let client = &topic.connection.client;
    let found = client.at_time(&topic.kafka, (&partitions, millis), PATIENCE)?;
    for start in starts {
        start.after = Some(time);
        let found = found.iter().find(|(partition, _)| *partition == start.partition);
        if let Some((_, offset)) = found {
            start.offset = start.end.min(*offset);
        }
    }
    Ok(())
}

struct Cursor {
    partition: u32,
    queue: Queue,
    next: u64,
    /// The end as far as known: it only grows.
    end: Cell<u64>,
    after: Option<Tai>,
    foreign: Foreign,
    /// One that was fetched, and not taken after the gap before it was told, or whose schema is
    /// being asked for.
    held: Option<Kept>,
    /// What was fetched goes on with this, or behind it.
    fetched: u64,
    /// It was told that this is another log, or one that was cut: when it had been found so many
    /// times that the topic is the same.
    noticed: Option<u64>,
}

impl Cursor {
    fn new(start: Start, queue: Queue) -> Self {
        let Start { partition, offset, end, after } = start;
        let (foreign, held) = (Foreign::None, None);
        let (next, end) = (offset, Cell::new(end));
        let (fetched, noticed) = (offset, None);
        Self { partition, queue, next, end, after, foreign, held, fetched, noticed }
    }

    /// Another queue in the place of the one that this went on with all the time.
    fn go_on(self, start: Start, queue: Queue) -> Self {
        let (next, fetched) = (self.next.max(start.offset), start.offset);
        Self { queue, next, fetched, noticed: None, ..self }
    }

    /// Whether it has noticed by itself that another log takes this one's place, and reads that:
    /// the new log was shorter than it had come. Where the topic was found to be the same since,
    /// the log was cut.
    fn has_noticed(&self, wake: &Wake) -> bool {
        self.noticed == Some(wake.same())
    }

    /// What is to be told before a record that is not the next one: retention was faster, or the
    /// log was cut, or is another one, made anew, and goes on behind this record. None where it is
    /// the next: what was compacted away and the marks of transactions leave holes too.
    fn gap_to(&self, offset: u64, first: impl FnOnce() -> Option<u64>) -> Option<Gap> {
        let (partition, wanted) = (self.partition, self.next);
        if offset < self.fetched {
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

    /// What is to be told where another log takes its place: the gap only where there was anything
    /// in this one.
    fn replaced(&self, from: u64) -> impl Iterator<Item = Item<'static>> + use<> {
        let (partition, to) = (self.partition, self.next.max(self.end.get()));
        let gap = Gap { partition, lost: 0, cause: GapCause::Damaged { from, to } };
        let gap = (to > from).then_some(Item::Gap(gap));
        std::iter::once(Item::Anew(partition)).chain(gap)
    }

    fn ends_at(&self, end: u64) {
        self.end.set(end.max(self.end.get()).max(self.next));
    }

    /// The place that is read next. What lies behind the last sample may be marks of transactions,
    /// which nobody gets: where the reader has passed them the consumer knows.
    fn place(&self, consumer: &Consumer, topic: &str) -> u64 {
        if self.held.is_some() || self.end.get() <= self.next {
            return self.next;
        }
        let passed = native::position(consumer, topic, self.partition);
        passed.map_or(self.next, |passed| passed.max(self.next))
    }
}

/// Whose partitions a reader reads.
pub(crate) enum Source {
    Lent(Lent),
    Member(Member),
}

impl Source {
    fn consumer(&self) -> &Arc<Consumer> {
        match self {
            Self::Lent(lent) => &lent.fetcher.consumer,
            Self::Member(member) => member.consumer(),
        }
    }
}

pub(crate) struct KafkaReader {
    topic: Arc<TopicState>,
    // Before the source: queues go before the consumer that fills them.
    cursors: Vec<Cursor>,
    source: Source,
    /// The partitions that were asked for; none where that is all.
    named: Vec<u32>,
    history: VecDeque<Kept>,
    /// To be told before anything else.
    outages: VecDeque<Outage>,
    /// To be told before anything else of the log.
    news: VecDeque<Item<'static>>,
    turn: usize,
    producers: Producers,
    wake: Arc<Wake>,
    armed: Option<(Arc<dyn Bell>, u64)>,
    /// When the brokers may be asked where the log ends.
    ask_at: Cell<Instant>,
}

impl KafkaReader {
    pub(crate) fn open(
        topic: &Arc<TopicState>,
        request: &ReaderRequest<'_>,
    ) -> Result<Self, TransportError> {
        let wake = Arc::<Wake>::default();
        let (reads, patience) = match &request.group {
            // A member waits for a topic that is not there.
            Some(group) => (Reads::Shared(Joined::new(group)), Duration::ZERO),
            None if request.partitions.is_empty() => (Reads::All, PATIENCE),
            None => (Reads::These(request.partitions.to_vec()), PATIENCE),
        };
        let described = topic.connection.described(&topic.kafka, patience)?;
        if described.is_none() && request.group.is_none() {
            return Err(outage(format!("the topic {} is not there", topic.kafka)));
        }
        let id = described.map(|described| described.id);
        topic.connection.add_reader(Told::new(&wake, topic, (reads, &request.from, id)));
        let (source, cursors, history) = match &request.group {
            Some(group) => {
                let begin = (&request.from, &wake);
                let member = Member::join((topic, described), Joined::new(group), begin)?;
                (Source::Member(member), Vec::new(), VecDeque::new())
            }
            None => {
                let (lent, cursors, history) = lent((topic, id), request, &wake)?;
                (Source::Lent(lent), cursors, history)
            }
        };
        wake.has(described.map_or(0, |described| described.partitions));
        wake.more();
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
            wake,
            armed: None,
            ask_at: Cell::new(Instant::now()),
        })
    }

    /// Goes on with the topic that others have made in the place of this one.
    fn renew(&mut self, Anew { queues, source }: Anew) {
        let mut before = std::mem::take(&mut self.cursors);
        // What is the last of each key is in the new one.
        self.history.clear();
        for (start, queue) in queues {
            let place = before.iter().position(|old| old.partition == start.partition);
            self.cursors.push(match place.map(|place| before.swap_remove(place)) {
                Some(old) if old.has_noticed(&self.wake) => old.go_on(start, queue),
                Some(old) => {
                    self.news.extend(old.replaced(start.offset));
                    Cursor::new(start, queue)
                }
                None => Cursor::new(start, queue),
            });
        }
        // Of a group's member: what is read instead is assigned later.
        self.news.extend(before.iter().flat_map(|old| old.replaced(0)));
        drop(before);
        if let Source::Member(member) = std::mem::replace(&mut self.source, source) {
            member.quit();
        }
    }

    /// Goes on where this one stands, with a consumer in the place of one that hears nothing; not
    /// where it has gone elsewhere meanwhile.
    fn go_on(&mut self, instead: Anew) {
        let is_here = |(start, _): &(Start, Queue)| {
            let is_it = |cursor: &&Cursor| cursor.partition == start.partition;
            self.cursors.iter().find(is_it).is_some_and(|cursor| cursor.next >= start.offset)
        };
        let is_lent = matches!(instead.source, Source::Lent(_));
        let is_whole = instead.queues.len() == self.cursors.len();
        if is_lent && !(is_whole && instead.queues.iter().all(is_here)) {
            return;
        }
        let Anew { queues, source } = instead;
        // Of a group's member: what it reads then is assigned later.
        let mut before = std::mem::take(&mut self.cursors);
        for (start, queue) in queues {
            if let Some(place) = before.iter().position(|old| old.partition == start.partition) {
                self.cursors.push(before.swap_remove(place).go_on(start, queue));
            }
        }
        drop(before);
        match std::mem::replace(&mut self.source, source) {
            Source::Lent(lent) => lent.fetcher.give_up(),
            Source::Member(member) => member.quit(),
        }
    }

    /// Where it stands, where it has taken all that was fetched.
    fn stands(&self) -> Option<Vec<Place>> {
        let (consumer, name) = (self.source.consumer(), &self.topic.kafka);
        let place = |cursor: &Cursor| {
            let Cursor { partition, next, .. } = *cursor;
            let heard = native::fetched_ends(consumer, name, partition).map_or(0, |(_, end)| end);
            cursor.held.is_none().then_some(Place { partition, next, heard })
        };
        self.cursors.iter().map(place).collect()
    }

    /// Takes over what the group has assigned, if that has changed.
    fn reassign(&mut self, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, TransportError> {
        let Source::Member(member) = &self.source else { return Ok(ControlFlow::Continue(())) };
        let Some(news) = member.news() else { return Ok(ControlFlow::Continue(())) };
        let mut before = std::mem::take(&mut self.cursors);
        for Assigned { start, queue, kept } in news? {
            let place = before.iter().position(|old| old.partition == start.partition);
            let old = place.map(|place| before.swap_remove(place)).filter(|_| kept);
            self.cursors.push(match old {
                // The log is shorter than it had come: it is another one, or was cut.
                Some(old) if start.end < old.next => {
                    self.news.extend(old.replaced(start.offset));
                    Cursor::new(start, queue)
                }
                Some(old) => old.go_on(start, queue),
                None => Cursor::new(start, queue),
            });
        }
        drop(before);
        self.cursors.iter_mut().for_each(|cursor| fetcher::rings(&mut cursor.queue, &self.wake));
        self.cursors.sort_unstable_by_key(|cursor| cursor.partition);
        let own: Vec<u32> = self.cursors.iter().map(|cursor| cursor.partition).collect();
        Ok(visit.item(Item::Assigned(&own)))
    }

    /// Reads the partitions that others have added too, from their first records on.
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
        for queue in lent.widen(&added, &self.wake)?.into_iter().flatten().zip(added) {
            let (queue, partition) = queue;
            self.cursors.push(Cursor::new(Start::first(partition), queue));
        }
        Ok(())
    }

    fn poll_cursor(
        &mut self,
        turn: usize,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, TransportError> {
        let Self { cursors, producers, topic, wake, source, .. } = self;
        let (consumer, name) = (source.consumer(), &topic.kafka);
        let cursor = &mut cursors[turn];
        if let Some(mut held) = cursor.held.take() {
            if !topic.wire.knows(&mut held.meta, &held.payload, wake) {
                cursor.held = Some(held);
                return Ok(ControlFlow::Continue(()));
            }
            cursor.next = held.offset + 1;
            if visit.item(Item::Sample(held.sample(Origin::Log))).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        while let Some(message) = cursor.queue.poll(Duration::ZERO) {
            let message = match message {
                Ok(message) => message,
                Err(error) if is_gone(&error) => {
                    // Its consumer goes on when it is there again.
                    wake.gone(&format!("the topic {name}"));
                    continue;
                }
                Err(error) => return Err(failed("read a topic")(error)),
            };
            wake.there();
            let offset = u64::try_from(message.offset()).unwrap_or(0);
            let first =
                || native::fetched_ends(consumer, name, cursor.partition).map(|ends| ends.0);
            let gap = cursor.gap_to(offset, first);
            cursor.fetched = offset + 1;
            if let Some(gap) = gap {
                if matches!(gap.cause, GapCause::Damaged { .. }) {
                    cursor.noticed = Some(wake.same());
                }
                cursor.next = offset;
                if visit.item(Item::Gap(gap)).is_break() {
                    cursor.held = Some(Kept::of(&message, producers, &mut cursor.foreign));
                    return Ok(ControlFlow::Break(()));
                }
            }
            if offset < cursor.next {
                continue;
            }
            // What compaction has taken out explains what is missing of anybody's numbers.
            let hole = topic.wire.is_sal() && offset > cursor.next;
            let origin = if hole { Origin::History } else { Origin::Log };
            cursor.next = offset + 1;
            let mut meta = Meta::of(&message, producers, &mut cursor.foreign);
            if cursor.after.is_some_and(|after| meta.time < after) {
                continue;
            }
            cursor.after = None;
            let parts = (message.key().unwrap_or_default(), message.payload().unwrap_or_default());
            if !topic.wire.knows(&mut meta, parts.1, wake) {
                // Those behind it wait with it; it rings when it is known.
                cursor.next = offset;
                cursor.held = Some(Kept::with(&message, meta));
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
        self.outages.extend(self.wake.outages());
        while let Some(outage) = self.outages.pop_front() {
            if visit.item(Item::Outage(outage)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let (anew, instead, there) = self.wake.topic();
        match (anew, instead) {
            (Some(anew), _) => self.renew(anew),
            (None, Some(instead)) => self.go_on(instead),
            (None, None) => {}
        }
        self.widen(there)?;
        if self.reassign(visit)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        while let Some(told) = self.news.pop_front() {
            if visit.item(told).is_break() {
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
        if self.wake.is_watched()
            && let Some(places) = self.stands()
        {
            self.wake.stands_at(places);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Learns where the log ends: from what was fetched and, where that says that this reader lags,
    /// from the brokers.
    fn look_for_ends(&self) {
        let (consumer, name) = (self.source.consumer(), &self.topic.kafka);
        for cursor in &self.cursors {
            let fetched = native::fetched_ends(consumer, name, cursor.partition);
            cursor.ends_at(fetched.map_or(0, |(_, end)| end));
        }
        let now = Instant::now();
        let lags = |cursor: &&Cursor| cursor.place(consumer, name) + 1 < cursor.end.get();
        let health = &self.topic.connection.health;
        if now < self.ask_at.get() || health.is_lost() || health.is_doubted() {
            return;
        }
        for cursor in self.cursors.iter().filter(lags) {
            self.ask_at.set(now + ASK_EVERY);
            // So long for all of them: those that are left have their turn another time.
            let Some(left) = ASK.checked_sub(now.elapsed()).filter(|left| !left.is_zero()) else {
                return;
            };
            match self.topic.connection.client.ends(name, cursor.partition, left) {
                Ok((_, end)) => cursor.ends_at(end),
                Err(_) => return health.doubt(ASK_AGAIN),
            }
        }
    }

    fn disarm(&mut self) {
        if let Some((bell, token)) = self.armed.take() {
            self.wake.disarm(&bell, token);
        }
    }

    fn check_open(&self) -> Result<(), TransportError> {
        self.topic.connection.check_open()
    }
}

/// Opens partitions that no group shares.
fn lent(
    (topic, id): (&Arc<TopicState>, Option<TopicId>),
    request: &ReaderRequest<'_>,
    wake: &Arc<Wake>,
) -> Result<(Lent, Vec<Cursor>, VecDeque<Kept>), TransportError> {
    let partitions = topic.partitions(request.partitions)?;
    let last = match request.from {
        Begin::LastPerKey(n) => Some((n, history::companions(topic, &partitions)?)),
        _ => None,
    };
    let mut lent = topic.connection.pool.lend((&topic.kafka, id), &partitions, topic.pace())?;
    let mut starts = starts(topic, &request.from, &partitions)?;
    let mut history = VecDeque::new();
    if let Some(last) = last {
        history = history::of(topic, &starts, last)?;
        starts.iter_mut().for_each(|start| start.offset = start.end);
    }
    let places: Vec<_> = starts.iter().map(|start| (start.partition, start.offset)).collect();
    let queues = lent.assign(&places, wake)?;
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
        self.wake.looking();
        let polled = self.poll_all(&mut visit);
        if !matches!(polled, Ok(ControlFlow::Continue(()))) {
            self.wake.more();
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
        self.wake.arm(bell, token);
        let news = matches!(&self.source, Source::Member(member) if member.has_news());
        // Closing rings for those who are armed; look again in case it came between.
        if news || self.wake.is_rung() || self.topic.connection.is_closed() {
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

    fn seek(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        self.check_open()?;
        let (consumer, name) = (Arc::clone(self.source.consumer()), &self.topic.kafka);
        let found = self.cursors.iter_mut().find(|cursor| cursor.partition == partition);
        let cursor = found.ok_or_else(|| not_ours(SCHEME, partition))?;
        if offset > cursor.end.get() {
            let (_, end) = self.topic.connection.client.ends(name, partition, PATIENCE)?;
            cursor.ends_at(end);
        }
        let offset = offset.min(cursor.end.get());
        fetcher::seek(&consumer, name, partition, offset)?;
        (cursor.next, cursor.after, cursor.held, cursor.fetched) = (offset, None, None, offset);
        cursor.foreign = Foreign::None;
        self.history.retain(|kept| kept.partition != partition);
        Ok(())
    }

    fn commit(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        self.check_open()?;
        match &self.source {
            Source::Member(member) => member.commit(partition, offset),
            Source::Lent(_) => Err(not_ours(SCHEME, partition)),
        }
    }
}

impl Drop for KafkaReader {
    fn drop(&mut self) {
        self.wake.end();
        self.disarm();
    }
}
