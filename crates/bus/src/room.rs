//! One writer, and who waits for room in its transport's queue: in order, without a thread of its own.
//!
//! A full queue never reorders: while somebody waits, later publishes queue up behind. A waiter keeps
//! its sample itself; only the one at the head of the line tries again.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use helio_core::qos::{Guarantee, Overload};
use helio_core::{Producer, SchemaId, Tai, TraceId};

use crate::bell::locked;
use crate::error::PublishError;
use crate::publishing::{PendingReceipt, Publishing};
use crate::transport::{BatchError, Published, Record, TransportTopic, Writer, WriterRequest};

/// The most publishes that wait for room at one writer; more are refused as full.
pub(crate) const MAX_WAITING: usize = 65_536;

/// What became of a publisher's samples, by counting.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) taken: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) abandoned: AtomicU64,
}

impl Counters {
    fn took(&self, record: &Record<'_>) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(record.payload.len() as u64, Ordering::Relaxed);
    }
}

/// One writer of one partition, shared by all publishers of a bus.
pub(crate) struct Slot {
    line: Mutex<Line>,
    room: Arc<Room>,
    producer: Producer,
    transport: String,
    counters: Arc<Counters>,
}

struct Line {
    writer: Box<dyn Writer>,
    waiting: VecDeque<u64>,
    tickets: u64,
}

#[derive(Default)]
struct Room {
    state: Mutex<RoomState>,
    changed: Condvar,
}

#[derive(Default)]
struct RoomState {
    generation: u64,
    wakers: HashMap<u64, Waker>,
}

impl Room {
    fn announce(&self) {
        let mut state = locked(&self.state);
        state.generation += 1;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.changed.notify_all();
        wakers.into_values().for_each(Waker::wake);
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("producer", &self.producer).finish_non_exhaustive()
    }
}

impl Slot {
    pub(crate) fn open(
        topic: &dyn TransportTopic,
        request: &WriterRequest<'_>,
        transport: &str,
        counters: Arc<Counters>,
    ) -> Result<Arc<Self>, crate::error::TransportError> {
        let mut writer = topic.writer(request)?;
        let room = Arc::new(Room::default());
        let told = Arc::downgrade(&room);
        writer.on_room(Arc::new(move || {
            if let Some(room) = told.upgrade() {
                room.announce();
            }
        }));
        let producer = writer.producer().clone();
        let line = Line { writer, waiting: VecDeque::new(), tickets: 0 };
        let (line, transport) = (Mutex::new(line), transport.to_owned());
        Ok(Arc::new(Self { line, room, producer, transport, counters }))
    }

    pub(crate) fn producer(&self) -> &Producer {
        &self.producer
    }

    /// Publishes, or does with a full queue what the policy says.
    pub(crate) fn publish(
        self: &Arc<Self>,
        record: &Record<'_>,
        guarantee: Guarantee,
        overload: Overload,
    ) -> Publishing {
        let mut line = locked(&self.line);
        let tried = if line.waiting.is_empty() {
            line.writer.publish(record, guarantee)
        } else {
            Err(self.full(line.waiting.len()))
        };
        match tried {
            Ok(published) => {
                drop(line);
                self.counters.took(record);
                Publishing::from(Ok(published))
            }
            Err(PublishError::Full { queued, .. }) => {
                self.overloaded(&mut line, record, (guarantee, overload), queued)
            }
            Err(error) => {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                Publishing::done(Err(error))
            }
        }
    }

    /// Publishes in order, up to the first that cannot be taken.
    pub(crate) fn publish_batch(
        &self,
        records: &[Record<'_>],
        guarantee: Guarantee,
    ) -> Result<Option<Published>, Box<BatchError>> {
        let mut line = locked(&self.line);
        if !line.waiting.is_empty() {
            let cause = self.full(line.waiting.len());
            return Err(Box::new(BatchError { taken: 0, last: None, cause }));
        }
        let outcome = line.writer.publish_batch(records, guarantee);
        drop(line);
        let taken = outcome.as_ref().map_or_else(|error| error.taken, |_| records.len());
        records[..taken].iter().for_each(|record| self.counters.took(record));
        outcome
    }

    pub(crate) fn assert_alive(&self) -> Result<(), crate::error::TransportError> {
        locked(&self.line).writer.assert_alive()
    }

    pub(crate) fn flush(
        &self,
        guarantee: Guarantee,
    ) -> Result<Option<PendingReceipt>, PublishError> {
        locked(&self.line).writer.flush(guarantee)
    }

    fn full(&self, queued: usize) -> PublishError {
        PublishError::Full { transport: self.transport.clone(), queued }
    }

    fn overloaded(
        self: &Arc<Self>,
        line: &mut Line,
        record: &Record<'_>,
        (guarantee, overload): (Guarantee, Overload),
        queued: usize,
    ) -> Publishing {
        let block = overload == Overload::Block && line.waiting.len() < MAX_WAITING;
        if block {
            line.tickets += 1;
            let ticket = line.tickets;
            line.waiting.push_back(ticket);
            let kept = Kept::of(record);
            let slot = Arc::clone(self);
            return Publishing::waiting(Waiting { slot, ticket, kept, guarantee, gone: false });
        }
        if matches!(overload, Overload::Refuse | Overload::Block) {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return Publishing::done(Err(self.full(queued)));
        }
        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        Publishing::done(Err(PublishError::Dropped { level: record.level }))
    }

    /// Tries for the one at the head of the line; `None` where it still has to wait.
    fn attempt(
        &self,
        ticket: u64,
        kept: &Kept,
        guarantee: Guarantee,
    ) -> Option<Result<Published, PublishError>> {
        let mut line = locked(&self.line);
        if line.waiting.front() != Some(&ticket) {
            return None;
        }
        let tried = line.writer.publish(&kept.record(), guarantee);
        if matches!(tried, Err(PublishError::Full { .. })) {
            return None;
        }
        line.waiting.pop_front();
        drop(line);
        match &tried {
            Ok(_) => self.counters.took(&kept.record()),
            Err(_) => _ = self.counters.failed.fetch_add(1, Ordering::Relaxed),
        }
        self.room.announce();
        Some(tried)
    }

    fn give_up(&self, ticket: u64) {
        locked(&self.line).waiting.retain(|other| *other != ticket);
        self.counters.abandoned.fetch_add(1, Ordering::Relaxed);
        self.room.announce();
    }
}

/// A sample that waits for room.
#[derive(Debug)]
pub(crate) struct Waiting {
    slot: Arc<Slot>,
    ticket: u64,
    kept: Kept,
    guarantee: Guarantee,
    gone: bool,
}

impl Waiting {
    fn attempt(&mut self) -> Option<Result<Published, PublishError>> {
        let tried = self.slot.attempt(self.ticket, &self.kept, self.guarantee);
        self.gone = tried.is_some();
        tried
    }

    /// Tries until it is taken or the time is over.
    pub(crate) fn block(
        &mut self,
        timeout: Option<Duration>,
    ) -> Option<Result<Published, PublishError>> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let seen = locked(&self.slot.room.state).generation;
            if let Some(tried) = self.attempt() {
                return Some(tried);
            }
            let room = &self.slot.room;
            let mut state = locked(&room.state);
            while state.generation == seen {
                state = match until {
                    None => room.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                    Some(until) => {
                        let left = until.saturating_duration_since(Instant::now());
                        if left.is_zero() {
                            return None;
                        }
                        let waited = room.changed.wait_timeout(state, left);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
        }
    }

    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Published, PublishError>> {
        let waker = context.waker().clone();
        locked(&self.slot.room.state).wakers.insert(self.ticket, waker);
        let Some(tried) = self.attempt() else { return Poll::Pending };
        locked(&self.slot.room.state).wakers.remove(&self.ticket);
        Poll::Ready(tried)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.gone {
            locked(&self.slot.room.state).wakers.remove(&self.ticket);
            self.slot.give_up(self.ticket);
        }
    }
}

/// A record that owns its bytes.
#[derive(Debug)]
struct Kept {
    key: Vec<u8>,
    payload: Vec<u8>,
    time: Tai,
    schema: SchemaId,
    level: u8,
    trace: Option<TraceId>,
}

impl Kept {
    fn of(record: &Record<'_>) -> Self {
        Self {
            key: record.key.to_vec(),
            payload: record.payload.to_vec(),
            time: record.time,
            schema: record.schema,
            level: record.level,
            trace: record.trace,
        }
    }

    fn record(&self) -> Record<'_> {
        Record {
            key: &self.key,
            payload: &self.payload,
            time: self.time,
            schema: self.schema,
            level: self.level,
            trace: self.trace,
        }
    }
}
