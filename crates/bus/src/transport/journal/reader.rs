//! Reads a topic of the journal: one reader a partition, in turn.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use helio_core::{Producer, ProducerName};
use helio_journal::{
    From, Group, GroupPosition, JournalError, Member, PinLimit, PinnedSegment, Topic,
};

use super::super::{
    Armed, Begin, GroupRequest, Item, Origin, PinSource, Position, Reader, ReaderRequest,
    SampleRef, not_ours,
};
use super::bell::JournalBell;
use super::topic::group_name;
use super::{SCHEME, Shared, failed};
use crate::bell::Bell;
use crate::error::TransportError;
use crate::event::{Gap, GapCause};

pub(super) struct JournalReader {
    topic: Topic,
    cursors: Vec<Cursor>,
    turn: usize,
    shared: Arc<Shared>,
    armed: Option<(Arc<dyn Bell>, u64)>,
    group: Option<Membership>,
    /// Positions in other logs, to be reported.
    replaced: VecDeque<Gap>,
    /// An error after delivered items; the next poll returns it.
    failed: Option<TransportError>,
    /// The limit of pinned payloads, if there are any.
    pins: Option<Arc<PinLimit>>,
}

impl PinSource for Arc<PinnedSegment> {
    fn pin(&self, payload: &[u8]) -> Option<Bytes> {
        PinnedSegment::pin(self, payload).map(Bytes::from_owner)
    }
}

/// Membership of a group, which assigns partitions to this reader.
struct Membership {
    group: Group,
    member: Member,
    /// The start position of partitions without a committed one.
    from: Begin,
    /// The group's generation at the last query, and the time of the query.
    seen: Option<(u64, Instant)>,
}

/// How often a member checks whether another one has died.
const MEMBERSHIP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

impl Membership {
    fn join(topic: &Topic, group: &GroupRequest<'_>, from: &Begin) -> Result<Self, TransportError> {
        let name = group_name(group.name)?;
        let member = group_name(group.member)?;
        let group = topic.group(&name).map_err(failed("open the group"))?;
        let member = group.join(&member).map_err(failed("join the group"))?;
        Ok(Self { group, member, from: from.clone(), seen: None })
    }

    /// This member's partitions, if a query is due.
    fn poll(&mut self) -> Result<Option<Vec<u32>>, TransportError> {
        let due = self.seen.is_none_or(|(generation, at)| {
            generation != self.group.generation() || at.elapsed() >= MEMBERSHIP_CHECK_INTERVAL
        });
        if !due {
            return Ok(None);
        }
        let own = self.member.assigned().map_err(failed("query the group"))?;
        self.seen = Some((self.group.generation(), Instant::now()));
        Ok(Some(own))
    }
}

struct Cursor {
    partition: u32,
    reader: helio_journal::Reader,
    mapping: ItemConversion,
}

/// Converts the journal's items to the bus's.
struct ItemConversion {
    partition: u32,
    /// The last sample's producer, cached.
    producer: Option<Producer>,
    /// Samples below this offset belong to the history by key.
    history_below: u64,
    /// The offset after the last item. Holes that compaction left are not losses.
    expected: Option<u64>,
}

impl Cursor {
    fn open(topic: &Topic, partition: u32, from: &Begin) -> Result<Self, TransportError> {
        let begin = match from {
            Begin::Latest => From::Latest,
            Begin::Earliest => From::Earliest,
            Begin::LastPerKey(n) => From::LastPerKey(*n as usize),
            Begin::Offset(at, offset) if *at == partition => From::Offset(*offset),
            Begin::Offset(..) => From::Earliest,
            Begin::Time(time) => From::Time(*time),
        };
        let reader = topic.reader(partition, begin).map_err(failed("open a reader"))?;
        let history = matches!(from, Begin::LastPerKey(_));
        // After the history, the journal's reader continues at its offset.
        let history_below = if history { reader.offset() } else { 0 };
        let expected = history.then_some(history_below);
        let mapping = ItemConversion { partition, producer: None, history_below, expected };
        Ok(Self { partition, reader, mapping })
    }
}

impl ItemConversion {
    fn convert(
        &mut self,
        item: helio_journal::Item<'_>,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match item {
            helio_journal::Item::Sample(sample) => self.sample(&sample, visit),
            helio_journal::Item::Gap(gap) => {
                self.expected = Some(gap.to.max(self.history_below));
                visit(Item::Gap(lost(self.partition, gap)))
            }
        }
    }

    #[inline]
    fn sample(
        &mut self,
        sample: &helio_journal::SampleRef<'_>,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let origin = if sample.offset < self.history_below {
            Origin::History
        } else {
            let whole = self.expected.is_none_or(|expected| expected == sample.offset);
            self.expected = Some(sample.offset + 1);
            if whole { Origin::Log } else { Origin::History }
        };
        let producer = match &mut self.producer {
            Some(last) if same(last, sample.producer, sample.incarnation) => last,
            last => last.insert(Producer {
                name: sample.producer.clone(),
                incarnation: sample.incarnation,
            }),
        };
        visit(Item::Sample(SampleRef {
            partition: self.partition,
            offset: sample.offset,
            key: sample.key,
            producer,
            sequence: sample.sequence,
            time: sample.time,
            schema: sample.schema,
            level: sample.level,
            trace: sample.trace,
            headers: sample.headers,
            payload: sample.payload,
            origin,
            pin: sample.pin.map(|pin| pin as &dyn PinSource),
        }))
    }
}

fn same(last: &Producer, name: &ProducerName, incarnation: u64) -> bool {
    last.incarnation == incarnation
        && (std::ptr::eq(last.name.as_str(), name.as_str()) || last.name == *name)
}

fn lost(partition: u32, gap: helio_journal::Gap) -> Gap {
    let (from, to) = (gap.from, gap.to);
    let cause = match gap.cause {
        helio_journal::GapCause::Retention => GapCause::Retention { from, to },
        helio_journal::GapCause::Damaged | helio_journal::GapCause::Cut => {
            GapCause::Damaged { from, to }
        }
    };
    Gap { partition, lost: to - from, cause }
}

/// A committed position in another log, which reading resumes before.
fn replaced(partition: u32, from: u64, to: u64) -> Gap {
    Gap { partition, lost: 0, cause: GapCause::Replaced { from, to } }
}

impl JournalReader {
    pub(super) fn open(
        topic: &Topic,
        request: &ReaderRequest<'_>,
        shared: &Arc<Shared>,
    ) -> Result<Self, TransportError> {
        let mut reader = Self {
            topic: topic.clone(),
            cursors: Vec::new(),
            turn: 0,
            shared: Arc::clone(shared),
            armed: None,
            group: None,
            replaced: VecDeque::new(),
            failed: None,
            pins: None,
        };
        if let Some(group) = &request.group {
            reader.group = Some(Membership::join(topic, group, &request.from)?);
            return Ok(reader);
        }
        let all: Vec<u32> = (0..topic.config().partitions).collect();
        let wanted = if request.partitions.is_empty() { &all } else { request.partitions };
        let open = |partition: &u32| Cursor::open(topic, *partition, &request.from);
        reader.cursors = wanted.iter().map(open).collect::<Result<_, _>>()?;
        Ok(reader)
    }

    /// Adopts the group's assignment; returns it if it changed.
    fn reassign(&mut self) -> Result<Option<Vec<u32>>, TransportError> {
        let Some(membership) = &mut self.group else { return Ok(None) };
        let Some(own) = membership.poll()? else { return Ok(None) };
        let before = self.cursors.len();
        self.cursors.retain(|cursor| own.contains(&cursor.partition));
        let mut changed = self.cursors.len() != before;
        for partition in &own {
            if self.cursors.iter().any(|cursor| cursor.partition == *partition) {
                continue;
            }
            changed = true;
            let position = membership.group.position(*partition);
            let from = match position.map_err(failed("read a position"))? {
                Some(GroupPosition { committed, resume }) => {
                    if resume < committed {
                        self.replaced.push_back(replaced(*partition, resume, committed));
                    }
                    Begin::Offset(*partition, resume)
                }
                None => membership.from.clone(),
            };
            let mut cursor = Cursor::open(&self.topic, *partition, &from)?;
            self.pins.iter().for_each(|limit| cursor.reader.pin_within(limit));
            self.cursors.push(cursor);
        }
        Ok(changed.then_some(own))
    }

    fn cursor(&mut self, partition: u32) -> Result<&mut Cursor, TransportError> {
        let found = self.cursors.iter_mut().find(|cursor| cursor.partition == partition);
        found.ok_or_else(|| not_ours(SCHEME, partition))
    }
}

impl Reader for JournalReader {
    fn poll(
        &mut self,
        max: usize,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<usize, TransportError> {
        if self.shared.closed.load(Ordering::Acquire) {
            // A closed connection is not a member, even while a reader of it exists.
            self.group = None;
            return Err(TransportError::Closed);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut seen = 0;
        let mut stopped = false;
        if let Some(own) = self.reassign()? {
            seen = 1;
            stopped = visit(Item::Assigned(&own)).is_break();
        }
        while seen < max
            && !stopped
            && let Some(gap) = self.replaced.pop_front()
        {
            seen += 1;
            stopped = visit(Item::Gap(gap)).is_break();
        }
        for _ in 0..self.cursors.len() {
            if seen == max || stopped {
                break;
            }
            self.turn = if self.turn + 1 < self.cursors.len() { self.turn + 1 } else { 0 };
            let Cursor { reader, mapping, .. } = &mut self.cursors[self.turn];
            let polled = reader.poll(max - seen, |item| {
                seen += 1;
                let flow = mapping.convert(item, visit);
                stopped |= flow.is_break();
                flow
            });
            match polled.map_err(failed("read")) {
                Ok(_) => {}
                Err(error) if seen == 0 => return Err(error),
                Err(error) => {
                    // Items before it were delivered; the next poll returns it.
                    self.failed = Some(error);
                    break;
                }
            }
        }
        Ok(seen)
    }

    fn arm(&mut self, bell: &Arc<dyn Bell>, token: u64) -> Result<Armed, TransportError> {
        self.shared.check_open()?;
        let Some(own) = bell.as_any().downcast_ref::<JournalBell>() else {
            return Err(TransportError::Unsupported {
                transport: SCHEME.to_owned(),
                what: "ring another transport's bell".to_owned(),
                remedy: "use a bell of the same bus".to_owned(),
            });
        };
        let same = |(b, t): &(Arc<dyn Bell>, u64)| Arc::ptr_eq(b, bell) && *t == token;
        if !self.armed.as_ref().is_some_and(same) {
            self.disarm();
            self.armed = Some((Arc::clone(bell), token));
        }
        let ready = own.arm(token, self.cursors.iter_mut().map(|cursor| &mut cursor.reader));
        // Closing rings armed readers; check again in case it happened in between.
        let closed = self.shared.closed.load(Ordering::Acquire);
        Ok(match &self.group {
            _ if ready || closed || !self.replaced.is_empty() => Armed::Ready,
            None => Armed::Waiting,
            Some(membership) => Armed::Recheck(match membership.seen {
                Some((_, at)) => MEMBERSHIP_CHECK_INTERVAL.saturating_sub(at.elapsed()),
                None => Duration::ZERO,
            }),
        })
    }

    fn positions(&self, visit: &mut dyn FnMut(Position)) {
        for Cursor { partition, reader, .. } in &self.cursors {
            let (next, end) = (reader.offset(), reader.end_offset());
            visit(Position { partition: *partition, next, end });
        }
    }

    fn unread_history(&self) -> u64 {
        let unread = |Cursor { reader, .. }: &Cursor| {
            // The end first: a sample that is appended meanwhile counts once more, not once less.
            let ahead = reader.end_offset().saturating_sub(reader.offset());
            reader.lag().saturating_sub(ahead)
        };
        self.cursors.iter().map(unread).sum()
    }

    fn pin_payloads(&mut self, max_bytes: u64) {
        let limit = self.pins.insert(PinLimit::new(max_bytes));
        self.cursors.iter_mut().for_each(|cursor| cursor.reader.pin_within(limit));
    }

    fn seek(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        let to = Begin::Offset(partition, offset);
        let mut opened = Cursor::open(&self.topic, partition, &to)?;
        self.pins.iter().for_each(|limit| opened.reader.pin_within(limit));
        *self.cursor(partition)? = opened;
        Ok(())
    }

    fn commit(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        let membership = self.group.as_ref().ok_or_else(|| not_ours(SCHEME, partition))?;
        if self.topic.is_gone() {
            return Err(TransportError::TopicGone { topic: self.topic.name().to_string() });
        }
        membership.member.commit(partition, offset).map_err(|error| match error {
            JournalError::NotAssigned { .. } => not_ours(SCHEME, partition),
            error => failed("commit a position")(error),
        })
    }
}

impl JournalReader {
    fn disarm(&mut self) {
        if let Some((bell, token)) = self.armed.take()
            && let Some(bell) = bell.as_any().downcast_ref::<JournalBell>()
        {
            bell.disarm(token);
        }
    }
}

impl Drop for JournalReader {
    fn drop(&mut self) {
        self.disarm();
    }
}
