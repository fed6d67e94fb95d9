//! The threads that sync partitions in parallel; they start and end with the work.
//!
//! Constraints: a slow sync of one partition delays no other partition. Requested and periodic
//! syncs alternate, so neither kind starves the other. Under manual maintenance there are no
//! threads: the caller syncs at once.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Maintenance;
use crate::partition::Partition;

/// The limit of partitions that are synced at one time.
const MAX_THREADS: usize = 8;
/// The time after which an idle thread ends. Until then the next request needs no new thread.
const IDLE_THREAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The threads and their queue.
pub(crate) struct Syncers {
    maintenance: Maintenance,
    work: Mutex<SyncQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct SyncQueue {
    /// Partitions with pending callbacks, each once.
    asked: VecDeque<Arc<Partition>>,
    /// Partitions that are due for the background sync.
    due: VecDeque<Arc<Partition>>,
    /// Whether the last one taken was of `asked`.
    asked_last: bool,
    threads: usize,
    idle: usize,
    over: bool,
}

impl SyncQueue {
    fn left(&self) -> usize {
        self.asked.len() + self.due.len()
    }

    /// Returns the next partition, and whether callbacks are pending for it.
    fn pop(&mut self) -> Option<(Arc<Partition>, bool)> {
        self.asked_last = !self.asked_last;
        let asked = |work: &mut Self| Some((work.asked.pop_front()?, true));
        let due = |work: &mut Self| Some((work.due.pop_front()?, false));
        if self.asked_last {
            asked(self).or_else(|| due(self))
        } else {
            due(self).or_else(|| asked(self))
        }
    }
}

impl Syncers {
    pub(crate) fn new(maintenance: Maintenance) -> Arc<Self> {
        let (work, changed) = Default::default();
        Arc::new(Self { maintenance, work, changed })
    }

    fn work(&self) -> MutexGuard<'_, SyncQueue> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a partition with pending callbacks.
    pub(crate) fn ask(self: &Arc<Self>, partition: Arc<Partition>) {
        if self.maintenance == Maintenance::Manual {
            while partition.serve_durable() {}
            return;
        }
        let mut work = self.work();
        work.asked.push_back(partition);
        self.employ(work);
    }

    /// Returns whether no background sync is queued.
    pub(crate) fn have_done(&self) -> bool {
        self.work().due.is_empty()
    }

    /// Queues partitions for the background sync.
    pub(crate) fn take_turns(self: &Arc<Self>, due: impl Iterator<Item = Arc<Partition>>) {
        // A slow partition does not occupy a second thread.
        let due =
            due.filter(|partition| !partition.is_served() && !partition.in_turn.swap(true, AcqRel));
        if self.maintenance == Maintenance::Manual {
            return due.for_each(|partition| take_turn(&partition));
        }
        let due: Vec<_> = due.collect();
        let mut work = self.work();
        work.due.extend(due);
        self.employ(work);
    }

    /// Starts threads for the queued work, up to the limit.
    fn employ(self: &Arc<Self>, mut work: MutexGuard<'_, SyncQueue>) {
        let left = work.left();
        let hired = left.saturating_sub(work.idle).min(MAX_THREADS - work.threads);
        work.threads += hired;
        drop(work);
        (0..left).for_each(|_| self.changed.notify_one());
        for _ in 0..hired {
            let this = Arc::clone(self);
            let thread = std::thread::Builder::new().name("helio-sync".to_owned());
            if thread.spawn(move || this.run()).is_err() {
                // Tried again with the next request, at the latest by the background sync.
                self.work().threads -= 1;
            }
        }
    }

    fn run(self: Arc<Self>) {
        while let Some((partition, asked)) = self.next() {
            if !asked {
                take_turn(&partition);
            } else if partition.serve_durable() {
                self.ask(partition);
            }
        }
    }

    /// Returns the next partition, and whether callbacks are pending for it; `None` if the thread
    /// must end.
    fn next(&self) -> Option<(Arc<Partition>, bool)> {
        let mut work = self.work();
        if work.left() == 0 && !work.over {
            work.idle += 1;
            let waits = |work: &mut SyncQueue| work.left() == 0 && !work.over;
            let waited = self.changed.wait_timeout_while(work, IDLE_THREAD_TIMEOUT, waits);
            work = waited.unwrap_or_else(PoisonError::into_inner).0;
            work.idle -= 1;
        }
        let next = work.pop();
        if next.is_none() {
            work.threads -= 1;
        }
        next
    }

    /// Ends the idle threads. Queued partitions are still served.
    pub(crate) fn end(&self) {
        self.work().over = true;
        self.changed.notify_all();
    }
}

fn take_turn(partition: &Partition) {
    // A failure is stored in the partition and reported to its waiters.
    let _ = partition.take_turn();
    partition.in_turn.store(false, Release);
    partition.rewarm();
}
