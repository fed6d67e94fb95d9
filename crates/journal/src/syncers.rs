//! Who asks the disk: some threads beside each other, as many as there is work for.
//!
//! Constraints: a partition whose sync takes long holds up no other one. Those for which somebody
//! waits take turns with those that are only due, so that neither waits for the other's end.
//! Several that ask the disk at the same moment share what it does. Without threads of the
//! journal's own the caller does it at once.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Maintenance;
use crate::partition::Partition;

/// The most partitions that are brought to the disk at a time.
const MAX_THREADS: usize = 8;
/// How long a thread stays that has nothing to do: who waits next does not pay for a new one.
const IDLE_THREAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The threads, and what they are to do.
pub(crate) struct Syncers {
    maintenance: Maintenance,
    work: Mutex<SyncQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct SyncQueue {
    /// Partitions for which somebody waits, each once.
    asked: VecDeque<Arc<Partition>>,
    /// Those that are synced in the background.
    due: VecDeque<Arc<Partition>>,
    /// Whose turn it was last, where there are both.
    asked_last: bool,
    threads: usize,
    idle: usize,
    over: bool,
}

impl SyncQueue {
    fn left(&self) -> usize {
        self.asked.len() + self.due.len()
    }

    /// The next partition, and whether somebody waits for it.
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

    /// Somebody waits for a partition to be durable.
    pub(crate) fn ask(self: &Arc<Self>, partition: Arc<Partition>) {
        if self.maintenance == Maintenance::Manual {
            while partition.serve_durable() {}
            return;
        }
        let mut work = self.work();
        work.asked.push_back(partition);
        self.employ(work);
    }

    /// Whether no background sync is left to do.
    pub(crate) fn have_done(&self) -> bool {
        self.work().due.is_empty()
    }

    /// It is the turn of partitions to be synced in the background.
    pub(crate) fn take_turns(self: &Arc<Self>, due: impl Iterator<Item = Arc<Partition>>) {
        // One that is slow does not get a second thread.
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

    /// Sees that there are threads for what is to be done.
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
                // It is tried again when there is more to do, in the background at the latest.
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

    /// The next partition, and whether somebody waits for it; none where the thread is to end.
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

    /// The journal is over: those who waited for it have had their answer, since each partition
    /// that is asked for holds it.
    pub(crate) fn end(&self) {
        self.work().over = true;
        self.changed.notify_all();
    }
}

fn take_turn(partition: &Partition) {
    // A failure is kept in the partition, and told to whoever waits.
    let _ = partition.take_turn();
    partition.in_turn.store(false, Release);
    partition.rewarm();
}
