//! One writer, and the line of those who wait for room in its transport's queue.
//!
//! A full queue never reorders: while somebody waits, later publishes stand in line behind. The
//! line is bounded, and moves on by itself in the thread that tells of room, whether or not anybody
//! looks at the receipts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll};
use std::time::Duration;

use helio_core::qos::{Guarantee, Overload};
use helio_core::{Headers, Producer, SchemaId, Tai, TraceId};

use crate::bell::locked;
use crate::error::{PublishError, TransportError};
use crate::event::Incompatible;
use crate::promise::Promise;
use crate::receipts::{Outcome, PendingPublish, PendingReceipt};
use crate::transport::{BatchError, Published, Record, TransportTopic, Writer, WriterRequest};

/// The most publishes that stand in line at one writer; more are refused as full.
pub(crate) const MAX_BLOCKED_PUBLISHES: usize = 65_536;
/// The most bytes (payloads, keys and headers) that stand in line at one writer.
pub(crate) const MAX_BLOCKED_BYTES: usize = 64 << 20;

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
pub(crate) struct WriterSlot {
    line: Mutex<BlockedQueue>,
    /// There is room, and nobody has looked at the line since.
    room: AtomicBool,
    producer: Producer,
    transport: String,
    counters: Arc<Counters>,
}

struct BlockedQueue {
    writer: Box<dyn Writer>,
    waiting: VecDeque<BlockedPublish>,
    bytes: usize,
    tickets: u64,
}

struct BlockedPublish {
    ticket: u64,
    kept: OwnedRecord,
    guarantee: Guarantee,
    promise: Arc<Promise<Result<Published, PublishError>>>,
}

impl std::fmt::Debug for WriterSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriterSlot").field("producer", &self.producer).finish_non_exhaustive()
    }
}

impl WriterSlot {
    pub(crate) fn open(
        topic: &dyn TransportTopic,
        request: &WriterRequest<'_>,
        transport: &str,
        counters: Arc<Counters>,
    ) -> Result<Arc<Self>, TransportError> {
        let writer = topic.writer(request)?;
        let producer = writer.producer().clone();
        let line = BlockedQueue { writer, waiting: VecDeque::new(), bytes: 0, tickets: 0 };
        let slot = Arc::new(Self {
            line: Mutex::new(line),
            room: AtomicBool::new(false),
            producer,
            transport: transport.to_owned(),
            counters,
        });
        let told = Arc::downgrade(&slot);
        locked(&slot.line).writer.on_room(Arc::new(move || {
            if let Some(slot) = told.upgrade() {
                slot.room.store(true, Ordering::SeqCst);
                slot.move_on();
            }
        }));
        Ok(slot)
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
    ) -> PendingPublish {
        let mut line = locked(&self.line);
        let tried = if line.waiting.is_empty() {
            line.writer.publish(record, guarantee)
        } else {
            Err(self.full(line.waiting.len()))
        };
        self.settle(line, tried, record, guarantee, overload)
    }

    /// The same for threads that must not be held up; `None` where another thread or process would
    /// have to be waited for, and then nothing was done.
    pub(crate) fn try_publish(
        self: &Arc<Self>,
        record: &Record<'_>,
        guarantee: Guarantee,
        overload: Overload,
    ) -> Option<PendingPublish> {
        let mut line = match self.line.try_lock() {
            Ok(line) => line,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let tried = if line.waiting.is_empty() {
            line.writer.try_publish(record, guarantee).transpose()?
        } else {
            Err(self.full(line.waiting.len()))
        };
        Some(self.settle(line, tried, record, guarantee, overload))
    }

    fn settle(
        self: &Arc<Self>,
        mut line: MutexGuard<'_, BlockedQueue>,
        tried: Result<Published, PublishError>,
        record: &Record<'_>,
        guarantee: Guarantee,
        overload: Overload,
    ) -> PendingPublish {
        let publishing = match tried {
            Ok(published) => {
                self.counters.took(record);
                PendingPublish::from(Ok(published))
            }
            Err(PublishError::Full { queued, .. }) => {
                self.overloaded(&mut line, record, guarantee, overload, queued)
            }
            Err(error) => {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                PendingPublish::done(Err(error))
            }
        };
        drop(line);
        self.move_on();
        publishing
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
            drop(line);
            self.move_on();
            return Err(Box::new(BatchError { taken: 0, last: None, cause }));
        }
        let outcome = line.writer.publish_batch(records, guarantee);
        drop(line);
        let taken = outcome.as_ref().map_or_else(|error| error.taken, |_| records.len());
        records[..taken].iter().for_each(|record| self.counters.took(record));
        self.move_on();
        outcome
    }

    pub(crate) fn assert_alive(&self) -> Result<(), TransportError> {
        let asserted = locked(&self.line).writer.assert_alive();
        self.move_on();
        asserted
    }

    pub(crate) fn incompatible(&self) -> Vec<Incompatible> {
        let told = locked(&self.line).writer.incompatible();
        self.move_on();
        told
    }

    pub(crate) fn flush(
        &self,
        guarantee: Guarantee,
    ) -> Result<Option<PendingReceipt>, PublishError> {
        let flushed = locked(&self.line).writer.flush(guarantee);
        self.move_on();
        flushed
    }

    /// Tells all who stand in line that there will be no room any more.
    pub(crate) fn close(&self) {
        let mut line = locked(&self.line);
        line.bytes = 0;
        let waiting = std::mem::take(&mut line.waiting);
        drop(line);
        self.counters.failed.fetch_add(waiting.len() as u64, Ordering::Relaxed);
        for gone in waiting {
            gone.promise.keep(Err(TransportError::Closed.into()));
        }
    }

    /// Whether nobody stands in line.
    pub(crate) fn is_clear(&self) -> bool {
        let clear = locked(&self.line).waiting.is_empty();
        self.move_on();
        clear
    }

    pub(crate) fn full(&self, queued: usize) -> PublishError {
        PublishError::Full { transport: self.transport.clone(), queued }
    }

    fn overloaded(
        self: &Arc<Self>,
        line: &mut BlockedQueue,
        record: &Record<'_>,
        guarantee: Guarantee,
        overload: Overload,
        queued: usize,
    ) -> PendingPublish {
        let bytes = line.bytes + bytes(record);
        let fits = line.waiting.len() < MAX_BLOCKED_PUBLISHES
            && (bytes <= MAX_BLOCKED_BYTES || line.waiting.is_empty());
        if overload == Overload::Block && fits {
            line.bytes = bytes;
            line.tickets += 1;
            let (ticket, promise) = (line.tickets, Arc::default());
            let kept = OwnedRecord::of(record);
            let in_line = BlockedPublish { ticket, kept, guarantee, promise: Arc::clone(&promise) };
            line.waiting.push_back(in_line);
            return PendingPublish::waiting(QueuedPublish {
                slot: Arc::clone(self),
                ticket,
                promise,
            });
        }
        if matches!(overload, Overload::Refuse | Overload::Block) {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return PendingPublish::done(Err(self.full(queued)));
        }
        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        PendingPublish::done(Err(PublishError::Dropped { level: record.level }))
    }

    /// Lets the line move on if there is room. Whoever holds the line calls this after letting go,
    /// so that no telling of room is missed: who finds it held may leave it to the holder.
    fn move_on(&self) {
        while self.room.load(Ordering::SeqCst) {
            let mut line = match self.line.try_lock() {
                Ok(line) => line,
                Err(TryLockError::Poisoned(line)) => PoisonError::into_inner(line),
                Err(TryLockError::WouldBlock) => return,
            };
            self.room.store(false, Ordering::SeqCst);
            let served = self.serve(&mut line);
            drop(line);
            for (promise, published) in served {
                promise.keep(published);
            }
        }
    }

    /// Publishes from the head of the line on until the queue is full again.
    fn serve(&self, line: &mut BlockedQueue) -> Vec<Completed> {
        let mut served = Vec::new();
        while let Some(first) = line.waiting.front() {
            let record = first.kept.record();
            let tried = line.writer.publish(&record, first.guarantee);
            match &tried {
                Err(PublishError::Full { .. }) => break,
                Ok(_) => self.counters.took(&record),
                Err(_) => _ = self.counters.failed.fetch_add(1, Ordering::Relaxed),
            }
            line.bytes -= first.kept.bytes();
            served.extend(line.waiting.pop_front().map(|first| (first.promise, tried)));
        }
        served
    }

    fn give_up(&self, ticket: u64) {
        let mut line = locked(&self.line);
        if let Ok(place) = line.waiting.binary_search_by_key(&ticket, |other| other.ticket) {
            let bytes = line.waiting.remove(place).map_or(0, |gone| gone.kept.bytes());
            line.bytes -= bytes;
            self.counters.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        drop(line);
        self.move_on();
    }
}

type Completed = (Arc<Promise<Result<Published, PublishError>>>, Result<Published, PublishError>);

/// A publish that stands in line.
#[derive(Debug)]
pub(crate) struct QueuedPublish {
    slot: Arc<WriterSlot>,
    ticket: u64,
    promise: Arc<Promise<Result<Published, PublishError>>>,
}

impl QueuedPublish {
    /// What is known without having been awaited.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.promise.look(|kept| match kept.as_ref()? {
            Ok(Published::Done(receipt)) => Some(Ok(*receipt)),
            Ok(Published::Pending(pending)) => pending.outcome(),
            Err(error) => Some(Err(error.clone())),
        })
    }

    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> Option<Result<Published, PublishError>> {
        self.promise.wait(timeout, Option::take)
    }

    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Published, PublishError>> {
        self.promise.poll(context, Option::take)
    }
}

impl Drop for QueuedPublish {
    fn drop(&mut self) {
        self.slot.give_up(self.ticket);
    }
}

fn bytes(record: &Record<'_>) -> usize {
    record.payload.len() + record.key.len() + record.headers.as_bytes().len()
}

/// A record that owns its bytes.
#[derive(Debug)]
pub(crate) struct OwnedRecord {
    key: Vec<u8>,
    payload: Vec<u8>,
    time: Tai,
    schema: SchemaId,
    level: u8,
    trace: Option<TraceId>,
    headers: Headers,
}

impl OwnedRecord {
    pub(crate) fn of(record: &Record<'_>) -> Self {
        Self {
            key: record.key.to_vec(),
            payload: record.payload.to_vec(),
            time: record.time,
            schema: record.schema,
            level: record.level,
            trace: record.trace,
            headers: record.headers.into(),
        }
    }

    pub(crate) fn record(&self) -> Record<'_> {
        Record {
            key: &self.key,
            payload: &self.payload,
            time: self.time,
            schema: self.schema,
            level: self.level,
            trace: self.trace,
            headers: self.headers.as_ref(),
        }
    }

    fn bytes(&self) -> usize {
        bytes(&self.record())
    }
}
