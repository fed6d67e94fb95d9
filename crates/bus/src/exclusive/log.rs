//! The rules of exclusive logs, above the store of a transport.
//!
//! Constraints: appends, commits and epochs change the state under one lock; reads take it only to
//! find the epoch. Callbacks run without it.

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::waiters::Waiters;
use super::{
    Epoch, ExclusiveError, ExclusiveLog, LastRun, LogDurability, MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS, MAX_EPOCH_HEADER_BYTES, NewEpoch, OnWatermark, Watermark, Watermarks,
};
use crate::bell::locked;

/// Called when a sync has ended.
pub(crate) type OnSynced = Box<dyn FnOnce(Result<(), ExclusiveError>) + Send>;

/// The storage of one exclusive log, held by this process. Epochs are known by their numbers, and
/// records by offsets; the caller keeps all rules.
pub(crate) trait EpochStore: Send + Sync + 'static {
    /// Creates an epoch on the disk, after all that was appended before.
    fn create(&self, epoch: &Epoch) -> Result<(), ExclusiveError>;
    /// Appends a batch to the newest epoch, its first record at an offset.
    fn append(&self, first: u64, records: &[&[u8]]) -> Result<(), ExclusiveError>;
    /// Brings all that was appended to the disk, then calls back, perhaps from another thread.
    fn sync(&self, call: OnSynced);
    /// The offset below which the newest epoch is on the disk, as far as known without a sync.
    fn durable(&self) -> u64;
    /// Visits the records of a range of one epoch; all of them were appended to it.
    fn scan(
        &self,
        epoch: u64,
        range: Range<u64>,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<(), ExclusiveError>;
    /// Stores the watermarks that outlive the process.
    fn save(&self, first: u64, committed: u64) -> Result<(), ExclusiveError>;
    /// Gives the room below an offset of an epoch back; all of it if there is none.
    fn drop_below(&self, epoch: u64, offset: Option<u64>) -> Result<(), ExclusiveError>;
    /// Syncs all, and marks the run as ended cleanly if an epoch has begun in it.
    fn close(&self, began: Began) -> Result<(), ExclusiveError>;
    /// Releases the log to the next owner.
    fn release(&self);
}

/// Whether this run has begun an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Began {
    Yes,
    No,
}

/// What a store found when it was opened.
pub(crate) struct Recovered {
    pub(crate) run: LastRun,
    /// The oldest offset that was not trimmed.
    pub(crate) first: u64,
    /// Oldest first.
    pub(crate) epochs: Vec<Epoch>,
}

struct State {
    epochs: Vec<Epoch>,
    marks: Watermarks,
    began: Began,
    closed: bool,
    /// A failed sync: no later record can become durable.
    failed: Option<ExclusiveError>,
}

struct Shared<S> {
    store: S,
    state: Mutex<State>,
    waiters: Waiters,
    durability: LogDurability,
    run: LastRun,
}

/// An exclusive log over a store.
pub(crate) struct Log<S: EpochStore>(Arc<Shared<S>>);

impl<S: EpochStore> Log<S> {
    pub(crate) fn new(store: S, durability: LogDurability, found: Recovered) -> Self {
        let run = found.run;
        let marks = Watermarks {
            first: found.first,
            stored: run.stored,
            durable: run.stored,
            committed: run.committed,
        };
        let (began, closed, failed) = (Began::No, false, None);
        let state = Mutex::new(State { epochs: found.epochs, marks, began, closed, failed });
        let waiters = Waiters::default();
        Self(Arc::new(Shared { store, state, waiters, durability, run }))
    }
}

impl<S: EpochStore> Drop for Log<S> {
    fn drop(&mut self) {
        let mut state = locked(&self.0.state);
        if !state.closed {
            state.closed = true;
            drop(state);
            self.0.store.release();
            self.0.waiters.fail(0, |_| ExclusiveError::Closed);
        }
    }
}

/// The parts of a range in the epochs that have its records: a child's start ends its parent.
fn parts(epochs: &[Epoch], range: &Range<u64>) -> Vec<(u64, Range<u64>)> {
    let mut parts = Vec::new();
    let mut end = u64::MAX;
    for epoch in epochs.iter().rev() {
        let within = range.start.max(epoch.start)..range.end.min(epoch.end).min(end);
        end = end.min(epoch.start);
        if !within.is_empty() {
            parts.push((epoch.number, within));
        }
    }
    parts.reverse();
    parts
}

impl State {
    fn check_open(&self) -> Result<(), ExclusiveError> {
        if self.closed { Err(ExclusiveError::Closed) } else { Ok(()) }
    }

    /// Refuses an epoch that contradicts the log.
    fn check_epoch(&self, new: &NewEpoch<'_>) -> Result<(), ExclusiveError> {
        let NewEpoch { number, start, header } = *new;
        let refused = |reason: String| Err(ExclusiveError::Epoch { number, start, reason });
        check_limit("bytes of an epoch's header", header.len(), MAX_EPOCH_HEADER_BYTES)?;
        if let Some(last) = self.epochs.last().filter(|last| last.number >= number) {
            return refused(format!("the log has epoch {}; use a higher number", last.number));
        }
        if start < self.marks.committed {
            let committed = self.marks.committed;
            return refused(format!("all below {committed} is committed; begin there or above"));
        }
        Ok(())
    }

    /// Returns the parts of a read, or why its first record cannot be read.
    fn parts(
        &self,
        range: &Range<u64>,
        within: Watermark,
    ) -> Result<Vec<(u64, Range<u64>)>, ExclusiveError> {
        self.check_open()?;
        let first = self.marks.first;
        if range.start < first && range.start < range.end {
            return Err(ExclusiveError::Trimmed { offset: range.start, first });
        }
        let end = range.end.min(self.marks.of(within));
        Ok(parts(&self.epochs, &(range.start..end)))
    }
}

fn check_limit(what: &'static str, value: usize, limit: usize) -> Result<(), ExclusiveError> {
    let (value, limit) = (value as u64, limit as u64);
    if value <= limit { Ok(()) } else { Err(ExclusiveError::Limit { what, value, limit }) }
}

impl<S: EpochStore> Shared<S> {
    /// The present state, with what background syncs have made durable.
    fn now(&self) -> MutexGuard<'_, State> {
        let mut state = locked(&self.state);
        if state.began == Began::Yes && !state.closed {
            state.marks.durable = state.marks.durable.max(self.store.durable());
        }
        state
    }

    /// The state for a read: only one of durable records needs to know how far the disk is.
    fn seen(&self, within: Watermark) -> MutexGuard<'_, State> {
        if within == Watermark::Durable { self.now() } else { locked(&self.state) }
    }

    fn serve(&self) {
        let marks = self.now().marks;
        self.waiters.serve(&marks);
    }

    /// Requests a sync of all that is stored.
    fn sync(self: &Arc<Self>) {
        let this = Arc::clone(self);
        self.store.sync(Box::new(move |synced| match synced {
            Ok(()) => this.serve(),
            Err(error) => {
                this.waiters.fail_mark(Watermark::Durable, &error);
                locked(&this.state).failed = Some(error);
            }
        }));
    }

    fn appended(&self, records: &[&[u8]]) -> Result<Range<u64>, ExclusiveError> {
        let mut state = locked(&self.state);
        state.check_open()?;
        if state.began == Began::No {
            return Err(ExclusiveError::NoEpoch);
        }
        let first = state.marks.stored;
        if records.is_empty() {
            return Ok(first..first);
        }
        let end = first.checked_add(records.len() as u64).filter(|end| *end < u64::MAX);
        let limit = ExclusiveError::Limit { what: "offset", value: first, limit: u64::MAX };
        let end = end.ok_or(limit)?;
        self.store.append(first, records)?;
        state.marks.stored = end;
        if let Some(epoch) = state.epochs.last_mut() {
            epoch.end = end;
        }
        Ok(first..end)
    }
}

impl<S: EpochStore> ExclusiveLog for Log<S> {
    fn last_run(&self) -> LastRun {
        self.0.run
    }

    fn epochs(&self) -> Vec<Epoch> {
        locked(&self.0.state).epochs.clone()
    }

    fn begin_epoch(&self, new: &NewEpoch<'_>) -> Result<(), ExclusiveError> {
        let mut state = locked(&self.0.state);
        state.check_open()?;
        state.check_epoch(new)?;
        let NewEpoch { number, start, header } = *new;
        let (header, durability) = (Bytes::copy_from_slice(header), self.0.durability);
        let epoch = Epoch { number, start, end: start, header, durability };
        self.0.store.create(&epoch)?;
        state.epochs.push(epoch);
        state.began = Began::Yes;
        (state.marks.stored, state.marks.durable) = (start, start);
        drop(state);
        self.0.waiters.fail(start, |end| ExclusiveError::Superseded { end, start });
        self.0.serve();
        Ok(())
    }

    fn append(&self, records: &[&[u8]]) -> Result<Range<u64>, ExclusiveError> {
        check_limit("records of a batch", records.len(), MAX_BATCH_RECORDS)?;
        let bytes = records.iter().map(|record| record.len() + 4).sum();
        check_limit("bytes of a batch", bytes, MAX_BATCH_BYTES)?;
        let offsets = self.0.appended(records)?;
        if self.0.durability == LogDurability::Disk {
            self.0.sync();
        }
        self.0.serve();
        Ok(offsets)
    }

    fn watermarks(&self) -> Watermarks {
        self.0.now().marks
    }

    fn commit(&self, end: u64) -> Result<(), ExclusiveError> {
        let mut state = locked(&self.0.state);
        state.check_open()?;
        let (from, to) = (state.marks.committed, state.marks.stored);
        if !(from..=to).contains(&end) {
            return Err(ExclusiveError::OutOfRange { what: "commit", offset: end, from, to });
        }
        if end == from {
            return Ok(());
        }
        // Before anybody sees it: the next run must not begin below.
        self.0.store.save(state.marks.first, end)?;
        state.marks.committed = end;
        drop(state);
        self.0.serve();
        Ok(())
    }

    fn wait(
        &self,
        mark: Watermark,
        end: u64,
        timeout: Option<Duration>,
    ) -> Result<Watermarks, ExclusiveError> {
        let begin = Instant::now();
        let slot = Arc::new((Mutex::new(None), Condvar::new()));
        let filled = Arc::clone(&slot);
        self.notify(
            mark,
            end,
            Box::new(move |result| {
                *locked(&filled.0) = Some(result);
                filled.1.notify_one();
            }),
        );
        let mut result = locked(&slot.0);
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            let left = timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
            result = match left {
                None => slot.1.wait(result).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => {
                    let (at, waited) = (self.watermarks().of(mark), begin.elapsed());
                    return Err(ExclusiveError::TimedOut { end, at, waited });
                }
                Some(left) => {
                    let waited = slot.1.wait_timeout(result, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn notify(&self, mark: Watermark, end: u64, call: OnWatermark) {
        let state = self.0.now();
        let failed = match (state.check_open(), &state.failed) {
            (Err(closed), _) => Some(closed),
            (_, Some(error)) if mark == Watermark::Durable => Some(error.clone()),
            _ => None,
        };
        let marks = state.marks;
        drop(state);
        if let Some(error) = failed {
            return call(Err(error));
        }
        if marks.of(mark) >= end {
            return call(Ok(marks));
        }
        self.0.waiters.add(mark, end, call);
        if mark == Watermark::Durable {
            self.0.sync();
        }
        // It may have been reached, and the log closed, before the wait was added.
        self.0.serve();
        if self.0.now().closed {
            self.0.waiters.fail(0, |_| ExclusiveError::Closed);
        }
    }

    fn read(&self, offset: u64, within: Watermark) -> Result<Bytes, ExclusiveError> {
        let state = self.0.seen(within);
        let part = state.parts(&(offset..offset.saturating_add(1)), within)?;
        let Some((epoch, range)) = part.into_iter().next() else {
            let end = state.marks.of(within);
            let next = state.epochs.iter().map(|epoch| epoch.start).find(|start| *start > offset);
            return Err(match next.filter(|next| *next < end || offset < end) {
                Some(next) => ExclusiveError::LeftOut { offset, next },
                None => ExclusiveError::Ahead { offset, end },
            });
        };
        drop(state);
        let mut found = None;
        self.0.store.scan(epoch, range, &mut |_, record| {
            found = Some(record);
            ControlFlow::Break(())
        })?;
        let what = || "not where the log has it".to_owned();
        found.ok_or_else(|| ExclusiveError::Damaged { offset, what: what() })
    }

    fn scan(
        &self,
        range: Range<u64>,
        within: Watermark,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<u64, ExclusiveError> {
        let state = self.0.seen(within);
        let parts = state.parts(&range, within)?;
        let end = range.end.min(state.marks.of(within)).max(range.start);
        drop(state);
        let mut broke = None;
        for (epoch, part) in parts {
            self.0.store.scan(epoch, part, &mut |offset, record| {
                let flow = visit(offset, record);
                broke = flow.is_break().then_some(offset + 1);
                flow
            })?;
            if let Some(next) = broke {
                return Ok(next);
            }
        }
        Ok(end)
    }

    fn trim(&self, below: u64) -> Result<(), ExclusiveError> {
        let mut state = locked(&self.0.state);
        state.check_open()?;
        let (from, to) = (state.marks.first, state.marks.committed);
        if below > to {
            return Err(ExclusiveError::OutOfRange { what: "trim", offset: below, from, to });
        }
        if below <= from {
            return Ok(());
        }
        // First the mark: a trim that dies in between is completed by the next one.
        self.0.store.save(below, state.marks.committed)?;
        state.marks.first = below;
        let newest = state.epochs.last().map(|epoch| epoch.number);
        let starts: Vec<_> = state.epochs.iter().skip(1).map(|epoch| epoch.start).collect();
        let mut ends = starts.into_iter();
        let mut dropped = Vec::new();
        state.epochs.retain(|epoch| {
            let end = ends.next().map_or(epoch.end, |start| epoch.end.min(start));
            let stays = end > below || Some(epoch.number) == newest;
            dropped.push((epoch.number, stays.then_some(below)));
            stays
        });
        drop(state);
        dropped.into_iter().try_for_each(|(epoch, at)| self.0.store.drop_below(epoch, at))
    }

    fn close(&self) -> Result<(), ExclusiveError> {
        let mut state = locked(&self.0.state);
        state.check_open()?;
        state.closed = true;
        let began = state.began;
        drop(state);
        let closed = self.0.store.close(began);
        self.0.store.release();
        self.0.waiters.fail(0, |_| ExclusiveError::Closed);
        closed
    }
}
