//! A store in this process: opening, reads, writes, status.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use helio_bus::exclusive::{
    Ended, ExclusiveError, ExclusiveLog, LogDurability, LogOptions, NewEpoch, Watermark,
};
use helio_bus::{Bus, TopicName};
use helio_state::{
    Alarm, AlarmState, Error, Image, KeyValue, LeaseStatus, Limits, RangeRequest, RangeResponse,
    Revision, Source, State, View, WriteRequest,
};
use rustix::time::ClockId;

use crate::batch::Queued;
use crate::histogram::Histogram;
use crate::locked;
use crate::slot::{Due, Pending};
use crate::snapshot::{self, Snapshot, SnapshotError};
use crate::space::{NO_SPACE_FILE, NoSpaceFile, Reserve};
use crate::watch::{Bell, Watcher};
use crate::worker::{self, Trim, Worker};

/// The log's name on the bus.
const LOG: &str = "state/log";
/// A jump goes to the next multiple of this.
pub const JUMP: Revision = 1 << 36;
/// Bytes of records between two notes of sizes.
const SIZE_MARK_BYTES: u64 = 16 << 10;
/// Bounds of the times of syncs, in seconds, as of etcd's `etcd_disk_wal_fsync_duration_seconds`.
const SYNC_BOUNDS_S: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192,
];

/// Options of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name reported to a second process, such as `state-node A`.
    pub owner: String,
    /// When writes are answered: after a sync, or before one that comes every 50 ms.
    pub durability: LogDurability,
    /// Limits of requests.
    pub limits: Limits,
    /// Bytes of log and snapshot above which the alarm NOSPACE is raised; etcd's default is 2 GiB.
    pub quota_bytes: u64,
    /// Bytes of the log that a snapshot must free to be worth its writing.
    pub snapshot_bytes: u64,
    /// How often the remaining times of leases are kept; leases with shorter times are not.
    pub lease_checkpoint: Duration,
    /// The size up to which the log's files grow, in bytes; `None` for the transport's default.
    pub segment_bytes: Option<u64>,
    /// Bytes on the disk that are held for deletions and compactions when it is full; 0 for none.
    pub reserve_bytes: u64,
}

impl Options {
    /// Writes are answered after a sync; 8 GiB of space.
    pub fn new(owner: &str) -> Self {
        Self {
            owner: owner.to_owned(),
            durability: LogDurability::Disk,
            limits: Limits::default(),
            quota_bytes: 8 << 30,
            snapshot_bytes: 64 << 20,
            lease_checkpoint: Duration::from_secs(60),
            segment_bytes: None,
            reserve_bytes: 32 << 20,
        }
    }
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be used.
    #[error("{path}: {source}; check the folder and its permissions")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] ExclusiveError),
    /// The snapshot cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The log does not continue the snapshot.
    #[error("records {from} to {first} of the log are missing; restore the store from a snapshot")]
    Gap {
        /// The first record that is needed.
        from: u64,
        /// The first one that is there.
        first: u64,
    },
    /// A record of the log is damaged.
    #[error("record {record} of the log is damaged; restore the store from a snapshot")]
    Damaged {
        /// Its number.
        record: u64,
    },
    /// A store that is to be restored exists.
    #[error("{path} is not empty; restore into a new folder")]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
}

/// What a store is at.
#[derive(Clone, Debug)]
pub struct Status {
    /// The revision of the last committed record.
    pub revision: Revision,
    /// Reads below are refused.
    pub compact_revision: Revision,
    /// Live keys.
    pub keys: usize,
    /// Records committed, ever.
    pub records: u64,
    /// Requests to write that wait for a batch.
    pub pending: usize,
    /// Bytes of log and snapshot.
    pub db_size: u64,
    /// Alarms raised.
    pub alarms: Vec<Alarm>,
    /// Why nothing is written any more, if so.
    pub failure: Option<String>,
}

/// Bytes of the log's records, noted now and then.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    total: u64,
    gone: u64,
    marks: VecDeque<(u64, u64)>,
}

impl Sizes {
    /// Notes records appended from a number on.
    pub(crate) fn appended(&mut self, first: u64, bytes: usize) {
        if self.marks.back().is_none_or(|(_, at)| self.total - at >= SIZE_MARK_BYTES) {
            self.marks.push_back((first, self.total));
        }
        self.total += bytes as u64;
    }

    /// Bytes of the records below a number, about.
    pub(crate) fn below(&self, number: u64) -> u64 {
        let at = self.marks.partition_point(|(record, _)| *record <= number);
        at.checked_sub(1).map_or(0, |at| self.marks[at].1 - self.gone)
    }

    pub(crate) fn trimmed(&mut self, below: u64) {
        self.gone += self.below(below);
        while self.marks.get(1).is_some_and(|(record, _)| *record <= below) {
            self.marks.pop_front();
        }
    }

    fn now(&self) -> u64 {
        self.total - self.gone
    }
}

/// What threads of a store share.
pub(crate) struct Shared {
    pub(crate) log: Arc<dyn ExclusiveLog>,
    pub(crate) folder: PathBuf,
    pub(crate) options: Options,
    pub(crate) writer: Mutex<State>,
    pub(crate) queue: Mutex<VecDeque<Queued>>,
    pub(crate) in_flight: AtomicUsize,
    pub(crate) published: RwLock<View>,
    snapshot: RwLock<Option<Arc<Snapshot>>>,
    pub(crate) trimming: Mutex<()>,
    pub(crate) bell: Bell,
    pub(crate) worker: Worker,
    pub(crate) sizes: Mutex<Sizes>,
    pub(crate) syncs: Histogram,
    pub(crate) no_space: NoSpaceFile,
    pub(crate) reserve: Reserve,
    pub(crate) failed: AtomicBool,
    pub(crate) failure: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn view(&self) -> View {
        self.published.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_snapshot(&self, snapshot: Snapshot) {
        let mut held = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        *held = Some(Arc::new(snapshot));
    }

    pub(crate) fn db_size(&self) -> u64 {
        locked(&self.sizes).now() + self.snapshot().map_or(0, |s| s.size())
    }
}

/// The log and the snapshot, for reads.
pub(crate) struct LogSource<'a>(pub(crate) &'a Shared);

impl Source for LogSource<'_> {
    fn record(&self, number: u64) -> Result<Option<Bytes>, Error> {
        read(self.0.log.as_ref(), number)
    }

    fn snapshot(&self, key: &[u8]) -> Option<KeyValue> {
        self.0.snapshot()?.get(key)
    }
}

fn read(log: &dyn ExclusiveLog, number: u64) -> Result<Option<Bytes>, Error> {
    match log.read(number, Watermark::Stored) {
        Ok(record) => Ok(Some(record)),
        Err(ExclusiveError::Trimmed { .. } | ExclusiveError::LeftOut { .. }) => Ok(None),
        Err(ExclusiveError::Closed) => Err(Error::Stopped),
        Err(_) => Err(Error::Corrupt),
    }
}

/// The log and the snapshot, while a store is opened.
struct Opening<'a> {
    log: &'a dyn ExclusiveLog,
    snapshot: Option<&'a Snapshot>,
}

impl Source for Opening<'_> {
    fn record(&self, number: u64) -> Result<Option<Bytes>, Error> {
        read(self.log, number)
    }

    fn snapshot(&self, key: &[u8]) -> Option<KeyValue> {
        self.snapshot?.get(key)
    }
}

/// Milliseconds of the machine's running time, suspension included.
pub(crate) fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// A number that no other start of a store has, for the ids of leases.
fn seed() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    (now.tv_sec as u64) << 30 ^ now.tv_nsec as u64 ^ u64::from(std::process::id()) << 40
}

/// A store. Clones of the handle are made with `Arc`; dropping it without
/// [`close`](Self::close) counts as the death of the process.
pub struct Store {
    shared: Arc<Shared>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

/// What was found when a store was opened.
struct Found {
    state: State,
    sizes: Sizes,
    snapshot: Option<Snapshot>,
}

impl Store {
    /// Opens the store of a folder, whose log the bus holds; creates an empty one.
    ///
    /// # Errors
    ///
    /// Another process has it open; the log or the snapshot is damaged; the disk fails.
    pub fn open(bus: &Bus, folder: &Path, options: &Options) -> Result<Self, OpenError> {
        Self::open_with(bus, folder, options, Jump::AfterPowerLoss)
    }

    fn open_with(
        bus: &Bus,
        folder: &Path,
        options: &Options,
        jump: Jump,
    ) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Folder { path: folder.into(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let log = open_log(bus, options)?;
        let no_space = NoSpaceFile::open(folder).map_err(failed)?;
        let snapshots = snapshot::list(folder).map_err(failed)?;
        let snapshot = snapshots.first().map(|path| Snapshot::open(path)).transpose()?;
        let run = log.last_run();
        let next = snapshot.as_ref().map_or(0, |s| s.image().next_record);
        let lost = log.epochs().last().is_some_and(|e| e.durability == LogDurability::Interval)
            && run.ended == Ended::PowerLost;
        let number = log.epochs().last().map_or(1, |last| last.number + 1);
        // All that is stored counts: it may have been acknowledged.
        let start = run.stored.max(next);
        let mut found = recover(log.as_ref(), snapshot, options)?;
        log.begin_epoch(&NewEpoch { number, start, header: options.owner.as_bytes() })?;
        log.commit(start)?;
        if no_space.is_set() {
            found.state.override_alarm(Alarm::NoSpace, AlarmState::Raised);
        }
        let shared = Arc::new(Shared {
            log,
            folder: folder.into(),
            options: options.clone(),
            published: RwLock::new(found.state.view()),
            writer: Mutex::new(found.state),
            queue: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            snapshot: RwLock::new(found.snapshot.map(Arc::new)),
            trimming: Mutex::default(),
            bell: Bell::default(),
            worker: Worker::default(),
            sizes: Mutex::new(found.sizes),
            syncs: Histogram::new(SYNC_BOUNDS_S),
            no_space,
            reserve: Reserve::new(folder, options.reserve_bytes),
            failed: AtomicBool::new(false),
            failure: Mutex::default(),
        });
        if lost || jump == Jump::Now {
            jump_up(&shared)?;
        }
        shared.keep_reserve();
        let worker = worker::start(&shared).map_err(failed)?;
        Ok(Self { shared, worker: Mutex::new(Some(worker)) })
    }

    /// Reads keys, as of the last committed write.
    ///
    /// # Errors
    ///
    /// Those of [`View::range`].
    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        self.view().range(request, &LogSource(&self.shared))
    }

    /// The keys as of the last committed write; pages read with one view are of one moment.
    pub fn view(&self) -> View {
        self.shared.view()
    }

    /// Reads keys of a view.
    ///
    /// # Errors
    ///
    /// Those of [`View::range`].
    pub fn range_of(&self, view: &View, request: &RangeRequest) -> Result<RangeResponse, Error> {
        view.range(request, &LogSource(&self.shared))
    }

    /// Writes; the answer is due when it is committed.
    pub fn write(&self, request: WriteRequest) -> Pending {
        let (due, pending) = Due::new();
        let cleared = WriteRequest::Alarm { alarm: Alarm::NoSpace, state: AlarmState::Cleared };
        if request == cleared {
            self.shared.no_space.set(AlarmState::Cleared);
        }
        self.shared.enqueue(request, due);
        pending
    }

    /// A new stream of watches.
    pub fn watcher(&self) -> Watcher {
        Watcher::new(Arc::clone(&self.shared))
    }

    /// A lease's remaining time and keys.
    pub fn lease_status(&self, id: i64) -> LeaseStatus {
        self.shared.with_state(|state| state.lease_status(id, now_ms()))
    }

    /// Ids of all leases, ascending.
    pub fn leases(&self) -> Vec<i64> {
        self.shared.with_state(|state| state.leases())
    }

    /// Alarms raised.
    pub fn alarms(&self) -> Vec<Alarm> {
        self.shared.with_state(|state| state.alarms())
    }

    /// A checksum over all keys as of a revision; 0: the current one.
    ///
    /// # Errors
    ///
    /// The revision is compacted or in the future; the log is damaged.
    pub fn hash_kv(&self, revision: Revision) -> Result<u32, Error> {
        self.view().hash(revision, &LogSource(&self.shared))
    }

    /// Whether writes are possible.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] after a failure of the log.
    pub fn check(&self) -> Result<(), Error> {
        self.shared.check()
    }

    /// Revision, sizes, alarms.
    pub fn status(&self) -> Status {
        let view = self.view();
        // Its lock ends here: `alarms` takes it, too.
        let pending = locked(&self.shared.queue).len();
        Status {
            revision: view.revision(),
            compact_revision: view.compact_revision(),
            keys: view.len(),
            records: view.next_record(),
            pending,
            db_size: self.shared.db_size(),
            alarms: self.alarms(),
            failure: locked(&self.shared.failure).clone(),
        }
    }

    /// The times that batches took from the log's append to the end of their sync; none with
    /// [`LogDurability::Interval`], which answers before.
    pub fn sync_times(&self) -> &Histogram {
        &self.shared.syncs
    }

    /// Writes all keys as of now to a file, for [`restore`]. Writers are not blocked.
    ///
    /// # Errors
    ///
    /// The file cannot be written, the log is damaged.
    pub fn backup(&self, to: &Path) -> Result<Image, SnapshotError> {
        let (view, image) = self.shared.with_state(|state| {
            let view = self.shared.view();
            (view.clone(), state.image(view.revision(), view.next_record()))
        });
        snapshot::write(to, &image, &view, &LogSource(&self.shared))?;
        Ok(image)
    }

    /// Moves the keys below the compact revision to a snapshot and trims the log, however little
    /// that frees; gives whether there was anything to do.
    ///
    /// # Errors
    ///
    /// The snapshot cannot be written.
    pub fn trim(&self) -> Result<bool, OpenError> {
        worker::trim(&self.shared, Trim::Always).map_err(|error| match error {
            worker::TrimError::Snapshot(error) => error.into(),
            worker::TrimError::Log(error) => error.into(),
        })
    }

    /// Stops the store after a full sync. Later calls fail.
    ///
    /// # Errors
    ///
    /// The log could not be closed: the next start treats this as a crash.
    pub fn close(&self) -> Result<(), ExclusiveError> {
        self.stop();
        self.shared.log.close()
    }

    fn stop(&self) {
        self.shared.worker.stop();
        if let Some(worker) = locked(&self.worker).take() {
            let _ = worker.join();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether the revision jumps when a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jump {
    /// If acknowledged writes may be lost.
    AfterPowerLoss,
    /// In any case: a restored store.
    Now,
}

fn open_log(bus: &Bus, options: &Options) -> Result<Arc<dyn ExclusiveLog>, ExclusiveError> {
    let name = TopicName::new(LOG).expect("a valid name");
    let log = LogOptions {
        owner: options.owner.clone(),
        durability: options.durability,
        segment_bytes: options.segment_bytes,
    };
    bus.exclusive_log(&name, &log)
}

/// Reads the snapshot and all that the log has.
fn recover(
    log: &dyn ExclusiveLog,
    snapshot: Option<Snapshot>,
    options: &Options,
) -> Result<Found, OpenError> {
    let now_ms = now_ms();
    let mut state = State::new(0, options.limits, seed());
    let mut sizes = Sizes::default();
    if let Some(snapshot) = &snapshot {
        state.restore(snapshot.image(), now_ms);
        snapshot.load(|kv, place| state.load(kv, place))?;
    }
    let (from, marks) = (state.view().next_record(), log.watermarks());
    if marks.first > from {
        return Err(OpenError::Gap { from, first: marks.first });
    }
    let source = Opening { log, snapshot: snapshot.as_ref() };
    let mut damaged = None;
    if from < marks.stored {
        log.scan(from..marks.stored, Watermark::Stored, &mut |number, record| {
            sizes.appended(number, record.len());
            match state.replay(number, record, now_ms, &source) {
                Ok(()) => std::ops::ControlFlow::Continue(()),
                Err(_) => {
                    damaged = Some(number);
                    std::ops::ControlFlow::Break(())
                }
            }
        })?;
    }
    match damaged {
        Some(record) => Err(OpenError::Damaged { record }),
        None => Ok(Found { state, sizes, snapshot }),
    }
}

/// Moves the revision above all that may have been acknowledged, and compacts what is older.
fn jump_up(shared: &Arc<Shared>) -> Result<(), ExclusiveError> {
    let mut state = locked(&shared.writer);
    let revision = (state.view().revision() / JUMP + 1) * JUMP;
    let record = state.jump(revision).expect("a jump goes up");
    shared.append(&mut state, &[record])?;
    let view = state.view();
    shared.log.wait(Watermark::Durable, view.next_record(), None)?;
    shared.log.commit(view.next_record())?;
    drop(state);
    shared.publish(view);
    Ok(())
}

/// What [`restore`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restore {
    /// The revision of the backup.
    pub from: Revision,
    /// The revision that the store has now; all older ones are compacted.
    pub to: Revision,
    /// Keys.
    pub keys: usize,
}

/// Makes a store in an empty folder from a [backup](Store::backup). Its revision jumps above all
/// that the old store may have used: no revision names two contents.
///
/// # Errors
///
/// The folder is not empty, the backup is damaged, the disk fails.
pub fn restore(
    bus: &Bus,
    backup: &Path,
    folder: &Path,
    options: &Options,
) -> Result<Restore, OpenError> {
    let failed = |source| OpenError::Folder { path: folder.into(), source };
    fs::create_dir_all(folder).map_err(failed)?;
    if !snapshot::list(folder).map_err(failed)?.is_empty() || folder.join(NO_SPACE_FILE).exists() {
        return Err(OpenError::NotEmpty { path: folder.into() });
    }
    let image = Snapshot::open(backup)?.image().clone();
    let path = folder.join(snapshot::file_name(image.revision, image.next_record));
    fs::copy(backup, &path).map_err(failed)?;
    fs::File::open(&path).and_then(|file| file.sync_all()).map_err(failed)?;
    let store = Store::open_with(bus, folder, options, Jump::Now)?;
    let status = store.status();
    store.close()?;
    Ok(Restore { from: image.revision, to: status.revision, keys: status.keys })
}
