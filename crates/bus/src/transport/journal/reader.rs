//! Reading a topic of the journal: a reader a partition, taken in turn.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use helio_core::{Producer, ProducerName};
use helio_journal::{From, Topic};

use super::super::{
    Armed, Begin, Item, Origin, Position, Reader, ReaderRequest, SampleRef, not_ours,
};
use super::bell::JournalBell;
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
}

struct Cursor {
    partition: u32,
    reader: helio_journal::Reader,
    mapping: Mapping,
}

/// What is needed to show the journal's items as the bus's.
struct Mapping {
    partition: u32,
    /// The last sample's producer, so that its name is not looked at again.
    producer: Option<Producer>,
    /// Samples below this offset were asked for by key.
    history_below: u64,
    /// The offset behind the last item: compaction leaves holes that are nobody's loss.
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
        let history_below = if history { reader.end_offset() } else { 0 };
        let mapping = Mapping { partition, producer: None, history_below, expected: None };
        Ok(Self { partition, reader, mapping })
    }
}

impl Mapping {
    fn show(
        &mut self,
        item: helio_journal::Item<'_>,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match item {
            helio_journal::Item::Sample(sample) => self.sample(&sample, visit),
            helio_journal::Item::Gap(gap) => {
                self.expected = Some(gap.to);
                visit(Item::Gap(told(self.partition, gap)))
            }
        }
    }

    #[inline]
    fn sample(
        &mut self,
        sample: &helio_journal::SampleRef<'_>,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let whole = self.expected.is_none_or(|expected| expected == sample.offset);
        self.expected = Some(sample.offset + 1);
        let in_order = whole && sample.offset >= self.history_below;
        let origin = if in_order { Origin::Log } else { Origin::History };
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
            payload: sample.payload,
            origin,
        }))
    }
}

fn same(last: &Producer, name: &ProducerName, incarnation: u64) -> bool {
    last.incarnation == incarnation
        && (std::ptr::eq(last.name.as_str(), name.as_str()) || last.name == *name)
}

fn told(partition: u32, gap: helio_journal::Gap) -> Gap {
    let (from, to) = (gap.from, gap.to);
    let cause = match gap.cause {
        helio_journal::GapCause::Retention => GapCause::Retention { from, to },
        helio_journal::GapCause::Damaged | helio_journal::GapCause::Cut => {
            GapCause::Damaged { from, to }
        }
    };
    Gap { partition, lost: to - from, cause }
}

impl JournalReader {
    pub(super) fn open(
        topic: &Topic,
        request: &ReaderRequest<'_>,
        shared: &Arc<Shared>,
    ) -> Result<Self, TransportError> {
        let all: Vec<u32> = (0..topic.config().partitions).collect();
        let wanted = if request.partitions.is_empty() { &all } else { request.partitions };
        let open = |partition: &u32| Cursor::open(topic, *partition, &request.from);
        let cursors = wanted.iter().map(open).collect::<Result<_, _>>()?;
        let (topic, shared) = (topic.clone(), Arc::clone(shared));
        Ok(Self { topic, cursors, turn: 0, shared, armed: None })
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
            return Err(TransportError::Closed);
        }
        let mut seen = 0;
        let mut stopped = false;
        for _ in 0..self.cursors.len() {
            if seen == max || stopped {
                break;
            }
            self.turn = if self.turn + 1 < self.cursors.len() { self.turn + 1 } else { 0 };
            let Cursor { reader, mapping, .. } = &mut self.cursors[self.turn];
            let polled = reader.poll(max - seen, |item| {
                let flow = mapping.show(item, visit);
                stopped |= flow.is_break();
                flow
            });
            seen += polled.map_err(failed("read"))?;
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
        // Closing rings those who are armed; look again in case it came between.
        let closed = self.shared.closed.load(Ordering::Acquire);
        Ok(if ready || closed { Armed::Ready } else { Armed::Waiting })
    }

    fn positions(&self, visit: &mut dyn FnMut(Position)) {
        for Cursor { partition, reader, .. } in &self.cursors {
            let (next, end) = (reader.offset(), reader.end_offset());
            visit(Position { partition: *partition, next, end });
        }
    }

    fn seek(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        let to = Begin::Offset(partition, offset);
        let opened = Cursor::open(&self.topic, partition, &to)?;
        *self.cursor(partition)? = opened;
        Ok(())
    }

    fn commit(&mut self, partition: u32, _offset: u64) -> Result<(), TransportError> {
        Err(not_ours(SCHEME, partition))
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
