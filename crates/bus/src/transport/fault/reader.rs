//! A reader that drops, duplicates, reorders, delays and corrupts samples as planned.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use helio_core::{Headers, ProducerName, TopicName};

use super::super::{Armed, Fence, Item, Origin, Position, Reader, SampleRef};
use super::{Dice, Faults};
use crate::bell::{Bell, locked};
use crate::error::TransportError;
use crate::event::{Gap, Incompatible, Outage, Sample};

/// The longest delay or outage, in polls.
const MAX_DELAY_POLLS: u64 = 5;

pub(super) struct FaultyReader {
    inner: Box<dyn Reader>,
    faults: Arc<Faults>,
    dice: Dice,
    topic: TopicName,
    queue: VecDeque<QueuedItem>,
    /// A sample to be delivered after its successor.
    overtaken: Option<Sample>,
    /// The newest sample of each producer, to be repeated as a zombie's.
    newest: HashMap<(u32, ProducerName), Sample>,
    /// The remaining polls of an outage or delay.
    pause: u64,
    down: bool,
}

enum QueuedItem {
    Sample(Sample),
    Gap(Gap),
    Recreated(u32),
    Behind,
    Assigned(Vec<u32>),
    Outage(Outage),
    Incompatible(Incompatible),
    Pause(u64),
}

impl FaultyReader {
    pub(super) fn new(inner: Box<dyn Reader>, faults: &Arc<Faults>, topic: TopicName) -> Self {
        let (dice, faults) = (faults.dice(), Arc::clone(faults));
        let (queue, newest) = (VecDeque::new(), HashMap::new());
        Self { inner, faults, dice, topic, queue, newest, overtaken: None, pause: 0, down: false }
    }

    /// Reports that the cable was pulled or put back; true while it is pulled.
    fn outage(&mut self) -> bool {
        let cut = self.faults.is_cut();
        if cut != self.down {
            self.down = cut;
            self.queue.push_front(QueuedItem::Outage(if cut {
                outage_lost()
            } else {
                Outage::Restored
            }));
        }
        cut
    }

    /// Fills the queue; polls until an item is admitted or the transport has no more.
    fn fetch(&mut self, max: usize) -> Result<(), TransportError> {
        while self.queue.len() < max {
            let wanted = max - self.queue.len();
            let Self { inner, faults, dice, topic, queue, overtaken, newest, .. } = self;
            let mut line = FaultInjection { faults, dice, topic, queue, overtaken, newest };
            let seen = inner.poll(wanted, &mut |item| {
                line.take(item);
                ControlFlow::Continue(())
            })?;
            if seen < wanted {
                self.queue.extend(self.overtaken.take().map(QueuedItem::Sample));
                break;
            }
        }
        Ok(())
    }
}

fn outage_lost() -> Outage {
    Outage::Lost { cause: "the cable is pulled".to_owned() }
}

/// Applies faults to the inner transport's items and queues them.
struct FaultInjection<'a> {
    faults: &'a Faults,
    dice: &'a mut Dice,
    topic: &'a TopicName,
    queue: &'a mut VecDeque<QueuedItem>,
    overtaken: &'a mut Option<Sample>,
    newest: &'a mut HashMap<(u32, ProducerName), Sample>,
}

impl FaultInjection<'_> {
    fn take(&mut self, item: Item<'_>) {
        match item {
            Item::Sample(sample) => self.sample(&sample),
            Item::Gap(gap) => self.queue.push_back(QueuedItem::Gap(gap)),
            Item::Recreated(partition) => self.queue.push_back(QueuedItem::Recreated(partition)),
            Item::Behind => self.queue.push_back(QueuedItem::Behind),
            Item::Assigned(own) => self.queue.push_back(QueuedItem::Assigned(own.to_vec())),
            Item::Outage(outage) => self.queue.push_back(QueuedItem::Outage(outage)),
            Item::Incompatible(policy) => self.queue.push_back(QueuedItem::Incompatible(policy)),
        }
    }

    fn sample(&mut self, sample: &SampleRef<'_>) {
        let plan = &self.faults.plan;
        if self.dice.throws(plan.drop) {
            return;
        }
        if self.dice.throws(plan.disconnect) {
            self.queue.push_back(QueuedItem::Outage(outage_lost()));
            self.queue.push_back(QueuedItem::Pause(self.dice.some(MAX_DELAY_POLLS)));
            self.queue.push_back(QueuedItem::Outage(Outage::Restored));
        }
        if self.dice.throws(plan.delay) {
            self.queue.push_back(QueuedItem::Pause(self.dice.some(MAX_DELAY_POLLS)));
        }
        let mut copy = Sample::owned(self.topic, sample);
        if self.dice.throws(plan.amnesia) {
            copy.header.producer.incarnation = 1;
        }
        if self.dice.throws(plan.corrupt) {
            copy.payload = self.damaged(&copy.payload);
        }
        if self.dice.throws(plan.strip) {
            copy.headers = Headers::new();
        }
        if self.dice.throws(plan.duplicate) {
            self.queue.push_back(QueuedItem::Sample(copy.clone()));
        }
        if self.overtaken.is_none() && self.dice.throws(plan.reorder) {
            *self.overtaken = Some(copy);
            return;
        }
        let zombie = self.zombie(&copy);
        self.queue.push_back(QueuedItem::Sample(copy));
        self.queue.extend(zombie.map(QueuedItem::Sample));
        self.queue.extend(self.overtaken.take().map(QueuedItem::Sample));
    }

    /// Another sample of the incarnation that this one replaces.
    fn zombie(&mut self, sample: &Sample) -> Option<Sample> {
        if self.faults.plan.zombie == 0.0 {
            return None;
        }
        let producer = &sample.header.producer;
        let key = (sample.partition, producer.name.clone());
        let mut before = self.newest.insert(key, sample.clone())?;
        let replaced = before.header.producer.incarnation < producer.incarnation;
        before.header.sequence += 1;
        (replaced && self.dice.throws(self.faults.plan.zombie)).then_some(before)
    }

    fn damaged(&mut self, payload: &Bytes) -> Bytes {
        let mut bytes = payload.to_vec();
        if !bytes.is_empty() {
            let bit = self.dice.next() as usize % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        bytes.into()
    }
}

impl Reader for FaultyReader {
    fn poll(
        &mut self,
        max: usize,
        visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<usize, TransportError> {
        self.faults.check(&self.topic)?;
        let cut = self.outage();
        if !cut && self.faults.is_frozen() {
            return Ok(0);
        }
        if !cut {
            self.fetch(max)?;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return Ok(0);
        }
        let mut visited = 0;
        while visited < max {
            if cut && !matches!(self.queue.front(), Some(QueuedItem::Outage(_))) {
                break;
            }
            let Some(item) = self.queue.pop_front() else { break };
            let flow = match &item {
                QueuedItem::Sample(sample) => visit(Item::Sample(sample.as_ref())),
                QueuedItem::Gap(gap) => visit(Item::Gap(gap.clone())),
                QueuedItem::Recreated(partition) => visit(Item::Recreated(*partition)),
                QueuedItem::Behind => visit(Item::Behind),
                QueuedItem::Assigned(own) => visit(Item::Assigned(own)),
                QueuedItem::Outage(outage) => visit(Item::Outage(outage.clone())),
                QueuedItem::Incompatible(policy) => visit(Item::Incompatible(policy.clone())),
                QueuedItem::Pause(polls) => {
                    self.pause = *polls;
                    break;
                }
            };
            visited += 1;
            if flow.is_break() {
                break;
            }
        }
        Ok(visited)
    }

    fn arm(&mut self, bell: &Arc<dyn Bell>, token: u64) -> Result<Armed, TransportError> {
        locked(&self.faults.waiters).add(bell, token);
        if self.faults.check(&self.topic).is_err() {
            return Ok(Armed::Ready);
        }
        let cut = self.faults.is_cut();
        if !cut && self.faults.is_frozen() {
            return Ok(Armed::Waiting);
        }
        let queued = !self.queue.is_empty() || self.overtaken.is_some();
        if cut != self.down || (queued && !cut) {
            return Ok(Armed::Ready);
        }
        let armed = self.inner.arm(bell, token)?;
        Ok(if cut { Armed::Waiting } else { armed })
    }

    fn positions(&self, visit: &mut dyn FnMut(Position)) {
        self.inner.positions(&mut |mut position| {
            let held = self.queue.iter().filter_map(|item| match item {
                QueuedItem::Sample(sample) if sample.partition == position.partition => {
                    Some(sample.offset)
                }
                _ => None,
            });
            let overtaken =
                self.overtaken.iter().filter(|sample| sample.partition == position.partition);
            let held = held.chain(overtaken.map(|sample| sample.offset));
            position.next = held.min().unwrap_or(position.next).min(position.next);
            // A client that fetches nothing learns no new end.
            if self.faults.is_frozen() {
                position.end = position.next;
            }
            visit(position);
        });
    }

    fn fence(&self) -> Result<Fence, TransportError> {
        self.faults.check(&self.topic)?;
        self.inner.fence()
    }

    fn unread_history(&self) -> u64 {
        let queued = self.queue.iter().filter_map(|item| match item {
            QueuedItem::Sample(sample) => Some(sample),
            _ => None,
        });
        let queued = queued.chain(&self.overtaken);
        let history = queued.filter(|sample| sample.origin == Origin::History).count();
        self.inner.unread_history() + history as u64
    }

    fn seek(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        self.faults.answer();
        self.faults.check(&self.topic)?;
        let of_it = |queued: &QueuedItem| match queued {
            QueuedItem::Sample(sample) => sample.partition == partition,
            _ => false,
        };
        self.queue.retain(|item| !of_it(item));
        self.overtaken.take_if(|sample| sample.partition == partition);
        self.inner.seek(partition, offset)
    }

    fn commit(&mut self, partition: u32, offset: u64) -> Result<(), TransportError> {
        self.faults.answer();
        self.inner.commit(partition, offset)
    }
}
