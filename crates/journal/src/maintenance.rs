//! Keeping house: two threads a journal, or the caller's where it prefers so.
//!
//! The *syncer* sees what is to be synced in the background, which is done by [`crate::syncers`].
//! The *keeper* wakes whom a killed writer did not, and sees to segments, snapshots and retention.
//! Both end with the journal.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::bell::SWEEP_INTERVAL;
use crate::journal::Shared;
use crate::options::SyncPolicy;
use crate::partition::Partition;

/// How often retention is looked at.
const RETENTION_INTERVAL: Duration = Duration::from_secs(1);

/// Tells a thread that there is work, or that it is over.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    wanted: bool,
    over: bool,
}

impl Signal {
    pub(crate) fn want(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).wanted = true;
        self.changed.notify_one();
    }

    pub(crate) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        self.changed.notify_all();
    }

    /// Waits for work, at most `limit`. `None` when it is over, else whether there is work.
    fn wait(&self, limit: Duration) -> Option<bool> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, limit, |s| !s.wanted && !s.over);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let wanted = std::mem::take(&mut state.wanted);
        (!state.over).then_some(wanted)
    }
}

/// Starts a journal's threads. They hold it weakly.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<()> {
    let (weak, signal) = (Arc::downgrade(shared), Arc::clone(&shared.syncer));
    let interval = shared.options.sync_interval;
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    thread("helio-sync").spawn(move || run_syncer(&weak, &signal, interval))?;
    let (weak, signal) = (Arc::downgrade(shared), Arc::clone(&shared.keeper));
    thread("helio-keep").spawn(move || run_keeper(&weak, &signal))?;
    Ok(())
}

fn run_syncer(weak: &Weak<Shared>, signal: &Signal, interval: Duration) {
    while signal.wait(interval).is_some() {
        let Some(shared) = weak.upgrade() else { return };
        background(&shared);
    }
}

/// Has synced what has not been synced, unless that is still being done.
fn background(shared: &Shared) {
    let all = shared.partitions();
    let done = shared.syncers.have_done();
    let is_due = |partition: &&Arc<Partition>| {
        done && partition.config.sync == SyncPolicy::Background && partition.is_our_turn()
    };
    shared.syncers.take_turns(all.iter().filter(is_due).map(Arc::clone));
    all.iter().for_each(|partition| partition.rewarm());
    for group in shared.groups() {
        // Tried again at the next turn; nobody was promised anything yet.
        let _ = group.sync();
    }
}

fn run_keeper(weak: &Weak<Shared>, signal: &Signal) {
    let mut last = Instant::now();
    if let Some(shared) = weak.upgrade() {
        let folders = ["", "topics", "schemas"].map(|name| shared.dir.join(name));
        // Left-overs only take room; the next process tries again.
        folders.iter().for_each(|folder| drop(shared.remove_orphans(folder)));
    }
    while let Some(wanted) = signal.wait(SWEEP_INTERVAL) {
        let Some(shared) = weak.upgrade() else { return };
        shared.sweep_bells();
        if wanted {
            each(&shared, Partition::prepare);
        }
        if last.elapsed() >= RETENTION_INTERVAL {
            each(&shared, Partition::keep);
            last = Instant::now();
        }
    }
}

/// Does a piece of work for each partition; what cannot be done now is tried again later.
fn each(shared: &Shared, work: impl Fn(&Partition) -> Result<(), crate::JournalError>) {
    for partition in shared.partitions() {
        // Housekeeping has nobody to tell: a full disk or a stuck lock meets the writers
        // themselves.
        let _ = work(&partition);
    }
}

/// One round of everything, by the caller.
pub(crate) fn once(shared: &Shared) {
    shared.sweep_bells();
    background(shared);
    each(shared, Partition::prepare);
    each(shared, Partition::keep);
}
