//! Background work: two threads per journal, or the caller's thread under manual maintenance.
//!
//! The *syncer* queues the partitions that are due for a sync; [`crate::syncers`] syncs them. The
//! *keeper* completes the rings of killed writers, prepares segments, and applies retention.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::bell::{BellInner, SWEEP_INTERVAL};
use crate::budget;
use crate::env::Env;
use crate::groups::GroupInner;
use crate::options::SyncPolicy;
use crate::partition::Partition;
use crate::signal::Signal;
use crate::syncers::Syncers;

/// The interval at which retention is applied.
const RETENTION_INTERVAL: Duration = Duration::from_secs(1);

/// The open objects of one kind, held weakly.
pub(crate) struct OpenList<T>(Mutex<Vec<Weak<T>>>);

impl<T> Default for OpenList<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> OpenList<T> {
    pub(crate) fn push(&self, one: &Arc<T>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(one));
    }

    fn all(&self) -> Vec<Arc<T>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The partitions, groups and bells of a journal that this process has open, and their upkeep.
///
/// Its threads hold the journal's [`Env`] weakly, and end once no open object refers to it.
pub(crate) struct Housekeeper {
    /// Synced, prepared and retired in the background.
    pub(crate) partitions: OpenList<Partition>,
    /// Their commits are synced in the background.
    pub(crate) groups: OpenList<GroupInner>,
    /// Rung if a killed writer has not rung them.
    pub(crate) bells: OpenList<BellInner>,
    pub(crate) syncers: Arc<Syncers>,
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.syncers.end();
    }
}

impl Housekeeper {
    pub(crate) fn new(env: &Env) -> Self {
        Self {
            partitions: OpenList::default(),
            groups: OpenList::default(),
            bells: OpenList::default(),
            syncers: Syncers::new(env.options.maintenance),
        }
    }

    /// Starts the threads.
    pub(crate) fn start(self: &Arc<Self>, env: &Arc<Env>) -> std::io::Result<()> {
        let (this, weak, signal) = (Arc::clone(self), Arc::downgrade(env), Arc::clone(&env.syncer));
        let interval = env.options.sync_interval;
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        thread("helio-sync").spawn(move || this.run_syncer(&weak, &signal, interval))?;
        let (this, weak, signal) = (Arc::clone(self), Arc::downgrade(env), Arc::clone(&env.keeper));
        thread("helio-keep").spawn(move || this.run_keeper(&weak, &signal))?;
        Ok(())
    }

    fn run_syncer(&self, weak: &Weak<Env>, signal: &Signal, interval: Duration) {
        while signal.wait(interval).is_some() {
            let Some(_env) = weak.upgrade() else { return };
            self.sync();
        }
    }

    /// Queues unsynced partitions for a sync, unless earlier ones are still queued; syncs groups.
    fn sync(&self) {
        let all = self.partitions.all();
        let done = self.syncers.have_done();
        let is_due = |partition: &&Arc<Partition>| {
            done && partition.config.sync == SyncPolicy::Background && partition.is_our_turn()
        };
        self.syncers.take_turns(all.iter().filter(is_due).map(Arc::clone));
        all.iter().for_each(|partition| partition.rewarm());
        for group in self.groups.all() {
            // Tried again at the next turn; no commit was promised to be durable.
            let _ = group.sync();
        }
    }

    fn run_keeper(&self, weak: &Weak<Env>, signal: &Signal) {
        let mut last = Instant::now();
        if let Some(env) = weak.upgrade() {
            let folders = ["", "topics", "schemas"].map(|name| env.dir.join(name));
            // Left-overs only take space; the next process tries again.
            folders.iter().for_each(|folder| drop(env.remove_orphans(folder)));
        }
        while let Some(wanted) = signal.wait(SWEEP_INTERVAL) {
            let Some(env) = weak.upgrade() else { return };
            self.sweep_bells();
            if wanted {
                self.each(Partition::prepare);
            }
            if last.elapsed() >= RETENTION_INTERVAL {
                self.keep(&env);
                last = Instant::now();
            }
        }
    }

    /// Completes the rings of killed writers.
    fn sweep_bells(&self) {
        self.bells.all().iter().for_each(|bell| bell.sweep());
    }

    /// Runs a task for each partition. A failed task is tried again later.
    fn each(&self, work: impl Fn(&Partition) -> Result<(), crate::JournalError>) {
        for partition in self.partitions.all() {
            // No caller is there for the error; the writers meet a full disk or a stuck lock
            // themselves.
            let _ = work(&partition);
        }
    }

    /// Applies retention.
    fn keep(&self, env: &Arc<Env>) {
        env.running_time();
        self.each(Partition::keep);
        // As for `each`.
        let _ = budget::keep(env, &self.partitions.all());
    }

    /// Runs every task once, on the caller's thread.
    pub(crate) fn once(&self, env: &Arc<Env>) {
        self.sweep_bells();
        self.sync();
        self.each(Partition::prepare);
        self.keep(env);
    }
}
