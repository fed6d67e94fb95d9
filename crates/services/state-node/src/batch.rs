//! Group commit: the caller that finds the writer free writes what all callers have queued. What
//! arrives while batches are in flight forms the next one.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};
use std::time::Instant;

use bytes::Bytes;
use helio_bus::exclusive::{ExclusiveError, LogDurability, Watermark};
use helio_state::{Alarm, AlarmState, Error, State, View, WriteRequest, WriteResponse};

use crate::locked;
use crate::slot::{Answer, Due};
use crate::store::{LogSource, Shared};

/// Batches whose sync is pending, at most.
pub(crate) const IN_FLIGHT: usize = 8;
/// Requests of a batch, at most: a batch stays below the log's limit of bytes with the largest
/// requests, too.
const BATCH_REQUESTS: usize = 1024;
/// Bytes of records at which a batch is closed: a read checks the whole batch of its record.
const BATCH_BYTES: usize = 16 << 10;
/// Requests that wait for a batch, at most.
const QUEUED: usize = 100_000;

/// A request and where its answer goes.
pub(crate) struct Queued {
    pub(crate) request: WriteRequest,
    pub(crate) due: Due,
}

type Answers = Vec<(Due, Answer)>;

/// Why nothing is written after a panic of a thread that had the writer's state.
const PANICKED: &str = "a thread panicked in a write, and the state may be half changed; \
                        restart the store: it reads its log";

impl Shared {
    pub(crate) fn enqueue(self: &Arc<Self>, request: WriteRequest, due: Due) {
        let mut queue = locked(&self.queue);
        // Under the queue's lock, which a failure takes, too, before it refuses what is queued.
        if self.failed.load(Ordering::Acquire) {
            drop(queue);
            return due.fill(Err(Error::Stopped));
        }
        if queue.len() >= QUEUED {
            drop(queue);
            return due.fill(Err(Error::TooManyRequests));
        }
        queue.push_back(Queued { request, due });
        drop(queue);
        self.drive();
    }

    /// Writes batches while there are requests, unless another thread does, or enough are in
    /// flight. Whoever holds the writer drives once more after it let go, so nothing is forgotten.
    pub(crate) fn drive(self: &Arc<Self>) {
        loop {
            if self.in_flight.load(Ordering::SeqCst) >= IN_FLIGHT || locked(&self.queue).is_empty()
            {
                return;
            }
            match self.writer.try_lock() {
                Ok(mut state) => self.batch(&mut state),
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(_)) => return self.fail(PANICKED),
            }
        }
    }

    /// Works with the writer's state, then drives. After a panic with it, only what reads comes
    /// here: `failed` is set before the state is shown.
    pub(crate) fn with_state<T>(self: &Arc<Self>, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.writer.lock().unwrap_or_else(|poisoned| {
            self.fail(PANICKED);
            poisoned.into_inner()
        });
        let result = work(&mut state);
        drop(state);
        self.drive();
        result
    }

    fn batch(self: &Arc<Self>, state: &mut State) {
        let source = LogSource(self);
        let now_ms = crate::store::now_ms();
        let savepoint = state.savepoint();
        let (mut records, mut answers) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        while answers.len() < BATCH_REQUESTS && bytes < BATCH_BYTES {
            let Some(Queued { request, due }) = locked(&self.queue).pop_front() else { break };
            let outcome = state.write(&request, now_ms, &source);
            bytes += outcome.record.as_ref().map_or(0, Bytes::len);
            records.extend(outcome.record);
            answers.push((due, outcome.response));
        }
        match self.append(state, &records) {
            Ok(()) => self.in_flight(state.view(), answers),
            Err(error) => {
                state.roll_back(savepoint);
                self.append_failed(state, &error, answers);
            }
        }
    }

    /// Appends records that the state has built; they can be read from the log then.
    pub(crate) fn append(
        &self,
        state: &mut State,
        records: &[Bytes],
    ) -> Result<(), ExclusiveError> {
        if !records.is_empty() {
            let slices: Vec<&[u8]> = records.iter().map(Bytes::as_ref).collect();
            let offsets = self.log.append(&slices)?;
            debug_assert_eq!(offsets.end, state.view().next_record(), "record numbers are offsets");
            locked(&self.sizes).appended(offsets.start, slices.iter().map(|r| r.len()).sum());
            if self.db_size() > self.options.quota_bytes {
                self.worker.kick(false);
            }
        }
        state.release(state.view().next_record());
        Ok(())
    }

    /// Answers when the log has all records up to the view.
    pub(crate) fn in_flight(self: &Arc<Self>, view: View, answers: Answers) {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let end = view.next_record();
        match self.options.durability {
            LogDurability::Interval => self.committed(view, answers),
            LogDurability::Disk => {
                let (shared, appended) = (Arc::clone(self), Instant::now());
                let call = move |result: Result<_, ExclusiveError>| match result {
                    Ok(_) => {
                        shared.syncs.observe(appended.elapsed());
                        shared.committed(view, answers);
                    }
                    Err(error) => shared.sync_failed(&error, answers),
                };
                self.log.notify(Watermark::Durable, end, Box::new(call));
            }
        }
    }

    fn committed(self: &Arc<Self>, view: View, answers: Answers) {
        let end = view.next_record();
        // Another batch's callback may have come first, with a later offset.
        if let Err(error) = self.log.commit(end)
            && self.log.watermarks().committed < end
        {
            return self.sync_failed(&error, answers);
        }
        self.publish(view);
        let compacted =
            |(_, answer): &(Due, Answer)| matches!(answer, Ok(WriteResponse::Compact(_)));
        let compacted = answers.iter().any(compacted);
        answers.into_iter().for_each(|(due, answer)| due.fill(answer));
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        if compacted || !locked(&self.queue).is_empty() {
            self.worker.kick(compacted);
        }
    }

    /// Shows a view to readers and watches.
    pub(crate) fn publish(&self, view: View) {
        let mut published = self.published.write().unwrap_or_else(|e| e.into_inner());
        if view.next_record() > published.next_record() {
            *published = view;
            drop(published);
            self.bell.ring();
        }
    }

    /// What was appended may be lost: nothing more is written, and outcomes are unknown.
    fn sync_failed(&self, error: &ExclusiveError, answers: Answers) {
        self.fail(&error.to_string());
        answers.into_iter().for_each(|(due, _)| due.fill(Err(Error::Stopped)));
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// Stops all writes.
    pub(crate) fn fail(&self, reason: &str) {
        locked(&self.failure).get_or_insert_with(|| reason.to_owned());
        self.failed.store(true, Ordering::Release);
        let queued: VecDeque<Queued> = std::mem::take(&mut *locked(&self.queue));
        queued.into_iter().for_each(|queued| queued.due.fill(Err(Error::Stopped)));
    }

    /// The batch is in no log: it is refused as a whole. A full disk raises the alarm.
    fn append_failed(&self, state: &mut State, error: &ExclusiveError, answers: Answers) {
        let answer = if is_full(error) {
            state.override_alarm(Alarm::NoSpace, AlarmState::Raised);
            self.no_space.set(AlarmState::Raised);
            // Deletions and compactions need room in the log, too.
            self.reserve.release();
            Error::NoSpace
        } else {
            self.fail(&error.to_string());
            Error::Stopped
        };
        answers.into_iter().for_each(|(due, _)| due.fill(Err(answer)));
    }
}

/// Whether an error says that the disk or a quota of it is full.
fn is_full(error: &ExclusiveError) -> bool {
    matches!(error, ExclusiveError::NoRoom { .. })
}
