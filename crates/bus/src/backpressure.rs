//! One writer, and the queue of the publishes that wait for room in the transport's queue.
//!
//! Samples keep their order: while a publish is blocked, later ones queue behind it. The queue is
//! bounded. The thread that reports room admits blocked publishes, whether or not their receipts
//! are polled.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use helio_core::Producer;
use helio_core::qos::{Guarantee, Overload};

use crate::bell::locked;
use crate::error::{PublishError, TransportError};
use crate::event::Incompatible;
use crate::pending_value::PendingValue;
use crate::receipts::{Admission, BlockedPublish, BlockedQueue, PendingPublish, PendingReceipt};
use crate::transport::{
    BatchAdmission, OwnedRecord, Record, TransportTopic, Writer, WriterRequest,
};

/// The most blocked publishes of one writer; more are refused as full.
pub(crate) const MAX_BLOCKED_PUBLISHES: usize = 65_536;
/// The most bytes (payloads, keys and headers) of one writer's blocked publishes.
pub(crate) const MAX_BLOCKED_BYTES: usize = 64 << 20;

/// A publisher's statistics.
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
    state: Mutex<SlotState>,
    /// The transport has reported room since blocked publishes were last admitted.
    room: AtomicBool,
    producer: Producer,
    transport: String,
    counters: Arc<Counters>,
}

struct SlotState {
    writer: Box<dyn Writer>,
    blocked: VecDeque<BlockedRecord>,
    blocked_bytes: usize,
    last_id: u64,
}

struct BlockedRecord {
    id: u64,
    record: OwnedRecord,
    guarantee: Guarantee,
    admission: Arc<PendingValue<Admission>>,
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
        let state = SlotState { writer, blocked: VecDeque::new(), blocked_bytes: 0, last_id: 0 };
        let slot = Arc::new(Self {
            state: Mutex::new(state),
            room: AtomicBool::new(false),
            producer,
            transport: transport.to_owned(),
            counters,
        });
        let weak = Arc::downgrade(&slot);
        locked(&slot.state).writer.on_room(Arc::new(move || {
            if let Some(slot) = weak.upgrade() {
                slot.room.store(true, Ordering::SeqCst);
                slot.admit_blocked();
            }
        }));
        Ok(slot)
    }

    pub(crate) fn producer(&self) -> &Producer {
        &self.producer
    }

    /// Publishes, or applies the overload policy if the queue is full.
    pub(crate) fn publish(
        self: &Arc<Self>,
        record: &Record<'_>,
        guarantee: Guarantee,
        overload: Overload,
    ) -> PendingPublish {
        let mut state = locked(&self.state);
        let tried = if state.blocked.is_empty() {
            state.writer.publish(record, guarantee)
        } else {
            Err(self.full(state.blocked.len()))
        };
        self.settle(state, tried, record, guarantee, overload)
    }

    /// The same for threads that must not block. `None`: it would wait for another thread or
    /// process, and nothing was done.
    pub(crate) fn try_publish(
        self: &Arc<Self>,
        record: &Record<'_>,
        guarantee: Guarantee,
        overload: Overload,
    ) -> Option<PendingPublish> {
        let mut state = self.try_state()?;
        let tried = if state.blocked.is_empty() {
            state.writer.try_publish(record, guarantee).transpose()?
        } else {
            Err(self.full(state.blocked.len()))
        };
        Some(self.settle(state, tried, record, guarantee, overload))
    }

    fn settle(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, SlotState>,
        tried: Admission,
        record: &Record<'_>,
        guarantee: Guarantee,
        overload: Overload,
    ) -> PendingPublish {
        let pending = match tried {
            Ok(published) => {
                self.counters.took(record);
                PendingPublish::from(Ok(published))
            }
            Err(full @ PublishError::Full { .. }) => {
                self.overloaded(&mut state, record, guarantee, overload, full)
            }
            Err(error) => {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                PendingPublish::done(Err(error))
            }
        };
        drop(state);
        self.admit_blocked();
        pending
    }

    /// Publishes in order, up to the first failure.
    pub(crate) fn publish_batch(
        &self,
        records: &[Record<'_>],
        guarantee: Guarantee,
    ) -> BatchAdmission {
        let mut state = locked(&self.state);
        if !state.blocked.is_empty() {
            let cause = self.full(state.blocked.len());
            drop(state);
            self.admit_blocked();
            return BatchAdmission::refused(cause);
        }
        let admission = state.writer.publish_batch(records, guarantee);
        drop(state);
        records[..admission.accepted()].iter().for_each(|record| self.counters.took(record));
        self.admit_blocked();
        admission
    }

    pub(crate) fn assert_alive(&self) -> Result<(), TransportError> {
        let asserted = locked(&self.state).writer.assert_alive();
        self.admit_blocked();
        asserted
    }

    pub(crate) fn incompatible(&self) -> Vec<Incompatible> {
        let incompatible = locked(&self.state).writer.incompatible();
        self.admit_blocked();
        incompatible
    }

    pub(crate) fn flush(
        &self,
        guarantee: Guarantee,
    ) -> Result<Option<PendingReceipt>, PublishError> {
        let flushed = locked(&self.state).writer.flush(guarantee);
        self.admit_blocked();
        flushed
    }

    /// Fails all blocked publishes.
    pub(crate) fn close(&self) {
        let mut state = locked(&self.state);
        state.blocked_bytes = 0;
        let blocked = std::mem::take(&mut state.blocked);
        drop(state);
        self.counters.failed.fetch_add(blocked.len() as u64, Ordering::Relaxed);
        for publish in blocked {
            publish.admission.complete(Err(TransportError::Closed.into()));
        }
    }

    /// Whether publishes are blocked.
    pub(crate) fn is_blocked(&self) -> bool {
        let blocked = !locked(&self.state).blocked.is_empty();
        self.admit_blocked();
        blocked
    }

    pub(crate) fn full(&self, queued: usize) -> PublishError {
        PublishError::Full { transport: self.transport.clone(), queued, waits_for: None }
    }

    fn overloaded(
        self: &Arc<Self>,
        state: &mut SlotState,
        record: &Record<'_>,
        guarantee: Guarantee,
        overload: Overload,
        full: PublishError,
    ) -> PendingPublish {
        let bytes = state.blocked_bytes + record.bytes();
        let fits = state.blocked.len() < MAX_BLOCKED_PUBLISHES
            && (bytes <= MAX_BLOCKED_BYTES || state.blocked.is_empty());
        if overload == Overload::Block && fits {
            state.blocked_bytes = bytes;
            state.last_id += 1;
            let (id, admission) = (state.last_id, Arc::default());
            let record = OwnedRecord::of(record);
            let ours = Arc::clone(&admission);
            state.blocked.push_back(BlockedRecord { id, record, guarantee, admission: ours });
            let queue = Arc::clone(self) as Arc<dyn BlockedQueue>;
            return PendingPublish::blocked(BlockedPublish { id, queue, admission });
        }
        if matches!(overload, Overload::Refuse | Overload::Block) {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return PendingPublish::done(Err(full));
        }
        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        PendingPublish::done(Err(PublishError::Dropped { level: record.level }))
    }

    /// Admits blocked publishes if room was reported. Every holder of the lock calls this after
    /// releasing it: a report of room that finds the lock taken is left to its holder.
    fn admit_blocked(&self) {
        while self.room.load(Ordering::SeqCst) {
            let Some(mut state) = self.try_state() else { return };
            self.room.store(false, Ordering::SeqCst);
            let admitted = self.admit(&mut state);
            drop(state);
            for (pending, admission) in admitted {
                pending.complete(admission);
            }
        }
    }

    /// `None` while another thread holds the lock.
    fn try_state(&self) -> Option<MutexGuard<'_, SlotState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Publishes blocked records in order until the transport's queue is full again.
    fn admit(&self, state: &mut SlotState) -> Vec<(Arc<PendingValue<Admission>>, Admission)> {
        let mut admitted = Vec::new();
        while let Some(first) = state.blocked.front() {
            let record = first.record.as_ref();
            let admission = state.writer.publish(&record, first.guarantee);
            match &admission {
                Err(PublishError::Full { .. }) => break,
                Ok(_) => self.counters.took(&record),
                Err(_) => _ = self.counters.failed.fetch_add(1, Ordering::Relaxed),
            }
            state.blocked_bytes -= record.bytes();
            admitted.extend(state.blocked.pop_front().map(|first| (first.admission, admission)));
        }
        admitted
    }
}

impl BlockedQueue for WriterSlot {
    fn abandon(&self, id: u64) {
        let mut state = locked(&self.state);
        if let Ok(at) = state.blocked.binary_search_by_key(&id, |blocked| blocked.id) {
            let removed = state.blocked.remove(at);
            state.blocked_bytes -= removed.map_or(0, |blocked| blocked.record.as_ref().bytes());
            self.counters.abandoned.fetch_add(1, Ordering::Relaxed);
        }
        drop(state);
        self.admit_blocked();
    }
}
