//! The store's thread: expired leases, checkpoints, snapshots, and batches that callbacks of the
//! log must not write themselves.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use helio_bus::exclusive::ExclusiveError;
use helio_state::{Alarm, AlarmState, Error, WriteRequest};

use crate::locked;
use crate::slot::Due;
use crate::snapshot::{self, Snapshot, SnapshotError};
use crate::store::{LogSource, Shared, now_ms};

/// How often leases are looked at, as etcd does.
const TICK: Duration = Duration::from_millis(500);
/// The niceness of the thread that writes snapshots.
const SNAPSHOT_NICE: i32 = 15;

/// What the worker is to do next.
#[derive(Debug, Default)]
struct Orders {
    kicked: bool,
    compacted: bool,
    stop: bool,
}

/// The worker's door bell.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl Worker {
    pub(crate) fn kick(&self, compacted: bool) {
        let mut orders = locked(&self.orders);
        orders.kicked = true;
        orders.compacted |= compacted;
        drop(orders);
        self.changed.notify_one();
    }

    pub(crate) fn stop(&self) {
        locked(&self.orders).stop = true;
        self.changed.notify_one();
    }

    fn next(&self) -> Orders {
        let mut orders = locked(&self.orders);
        if !orders.kicked && !orders.stop {
            let waited = self.changed.wait_timeout(orders, TICK);
            orders = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let Orders { kicked, compacted, stop } = *orders;
        (orders.kicked, orders.compacted) = (false, false);
        Orders { kicked, compacted, stop }
    }
}

/// Starts the worker's thread.
pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<thread::JoinHandle<()>> {
    let shared = Arc::clone(shared);
    thread::Builder::new().name("state-worker".into()).spawn(move || {
        let _guard = Panics(&shared);
        run(&shared);
    })
}

/// Stops the writes if the worker panics: leases would never expire, in silence.
struct Panics<'a>(&'a Shared);

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail("the store's thread panicked; restart the store");
        }
    }
}

fn run(shared: &Arc<Shared>) {
    let mut checkpoint_ms = now_ms();
    let mut snapshot: Option<thread::JoinHandle<()>> = None;
    loop {
        let orders = shared.worker.next();
        if orders.stop {
            break;
        }
        shared.drive();
        expire(shared);
        let interval = shared.options.lease_checkpoint.as_millis() as u64;
        if now_ms().saturating_sub(checkpoint_ms) >= interval {
            checkpoint_ms = now_ms();
            checkpoint(shared);
        }
        if orders.compacted && snapshot.as_ref().is_none_or(thread::JoinHandle::is_finished) {
            let shared = Arc::clone(shared);
            let thread = thread::Builder::new().name("state-snapshot".into());
            snapshot = thread.spawn(move || snapshot_of(&shared)).ok();
        }
        watch_quota(shared);
        shared.keep_reserve();
    }
    if let Some(snapshot) = snapshot {
        let _ = snapshot.join();
    }
}

fn expire(shared: &Arc<Shared>) {
    let expired = shared.with_state(|state| state.expired_leases(now_ms()));
    for id in expired {
        shared.enqueue(WriteRequest::LeaseRevoke { id }, Due::new().0);
    }
}

/// Writes the remaining times of long leases.
fn checkpoint(shared: &Arc<Shared>) {
    let least = shared.options.lease_checkpoint.as_secs() as i64;
    shared.with_state(|state| {
        if shared.check().is_err() {
            return;
        }
        let savepoint = state.savepoint();
        let Some(record) = state.checkpoint_leases(now_ms(), least) else { return };
        match shared.append(state, &[record]) {
            Ok(()) => shared.in_flight(state.view(), Vec::new()),
            Err(_) => state.roll_back(savepoint),
        }
    });
}

fn watch_quota(shared: &Arc<Shared>) {
    let over = shared.db_size() > shared.options.quota_bytes;
    let raised = || shared.with_state(|state| state.alarms().contains(&Alarm::NoSpace));
    if over && !raised() {
        let request = WriteRequest::Alarm { alarm: Alarm::NoSpace, state: AlarmState::Raised };
        shared.enqueue(request, Due::new().0);
    }
}

/// Trims the log, with less of the processor than writers and readers get.
fn snapshot_of(shared: &Arc<Shared>) {
    // On Linux this is the thread's alone. Without it, the snapshot is only less polite.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), SNAPSHOT_NICE);
    let _ = trim(shared, Trim::IfWorthwhile);
}

/// Whether a small gain is worth a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trim {
    IfWorthwhile,
    Always,
}

/// Why the log was not trimmed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrimError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Log(#[from] ExclusiveError),
}

/// Writes a snapshot of what lies below the compact revision, and trims the log.
pub(crate) fn trim(shared: &Arc<Shared>, wish: Trim) -> Result<bool, TrimError> {
    let _one = locked(&shared.trimming);
    let view = shared.view();
    let compacted = view.compact_revision();
    // The revision before the compact one: previous values exist at the compact revision, too.
    let at = compacted - 1;
    let known = shared.snapshot().map_or(1, |s| s.image().revision);
    if at <= known {
        return Ok(false);
    }
    let image = shared.with_state(|state| {
        // Marks follow the writer; what it has compacted must be committed.
        let same = state.view().compact_revision() == compacted && shared.check().is_ok();
        same.then(|| state.image(at, state.record_of(compacted)))
    });
    let Some(image) = image else { return Ok(false) };
    let gain = locked(&shared.sizes).below(image.next_record);
    let size = shared.snapshot().map_or(0, |s| s.size());
    if wish == Trim::IfWorthwhile && gain < shared.options.snapshot_bytes.max(size / 2) {
        return Ok(false);
    }
    let path = shared.folder.join(snapshot::file_name(image.revision, image.next_record));
    snapshot::write(&path, &image, &view, &LogSource(shared))?;
    let snapshot = Snapshot::open(&path)?;
    shared.set_snapshot(snapshot);
    shared.log.trim(image.next_record)?;
    locked(&shared.sizes).trimmed(image.next_record);
    remove_old(shared, &path);
    Ok(true)
}

/// Removes older snapshots; readers keep what they have mapped.
fn remove_old(shared: &Shared, newest: &PathBuf) {
    let all = snapshot::list(&shared.folder).unwrap_or_default();
    for path in all.iter().filter(|path| *path != newest) {
        let _ = fs::remove_file(path);
    }
}

impl Shared {
    /// Holds room for the next full disk, unless there is one now.
    pub(crate) fn keep_reserve(self: &Arc<Self>) {
        let is_full = || self.with_state(|state| state.alarms().contains(&Alarm::NoSpace));
        if !self.reserve.is_held() && !is_full() {
            self.reserve.hold();
        }
    }

    /// Whether writes have stopped for good.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.failed.load(Ordering::Acquire) { Err(Error::Stopped) } else { Ok(()) }
    }
}
