//! A partition: its control page, its segments, and the lock under which it grows.
//!
//! Constraints: a partition changes only under its lock, and any holder may die at any instruction.
//! So each step leaves either the old or the new state, or one that [`Partition::repair`]
//! recognises.
//!
//! Operation: an append writes frames behind the tail, then stores the tail. A roll puts the next
//! segment's file in place, seals the current segment, then stores the next one's number in the
//! control page. A process that finds a sealed current segment completes the roll.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use helio_core::Tai;

use crate::control::{self, Beginning, CONTROL_BYTES, Control, LOCK, LogId};
use crate::description::Limits;
use crate::env::Env;
use crate::error::IoContext;
use crate::file_id::{FileId, birth};
use crate::group_positions::{self, LogChange};
use crate::hash::KeyHash;
use crate::location;
use crate::lock::{self, Acquired};
use crate::log_scan::LogScan;
use crate::map::{Map, MapWord, Mode, reserve};
use crate::mark::Mark;
use crate::options::{LastValue, MIN_SEGMENT_BYTES, SyncPolicy};
use crate::rebuild::{self, segment_id};
use crate::segment::{self, Head, Seal, Segment, SegmentHold};
use crate::waiters;
use crate::wake_hints::Hint;
use crate::{JournalError, Maintenance, TopicConfig};

/// Bytes that one call to the kernel makes writable ahead of the tail: some dozens of pages.
pub(crate) const POPULATE_BYTES: u64 = 256 << 10;

/// Bytes that are made writable again after a sync.
const REPOPULATE_BYTES: u64 = 32 << 10;

/// The limit of segments that are tried one by one before the folder is listed.
const MAX_TRIED_SEGMENTS: u64 = 10_000;

/// How often the folder is looked at, to notice that it was removed by hand.
pub(crate) const FOLDER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The requirements of a frame on its segment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FrameDemand {
    /// Bytes of the frame, with padding.
    pub(crate) bytes: u64,
    /// The oldest version of segments that may have the frame.
    pub(crate) version: u32,
}

/// Called once a record is durable, or cannot become durable.
pub type OnDurable = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

/// The callbacks that wait for a partition's records to become durable.
#[derive(Default)]
pub(crate) struct DurabilityWaiters {
    pub(crate) calls: Vec<(u64, OnDurable)>,
    /// Whether a thread serves them, or will.
    pub(crate) served: bool,
}

/// A partition that this process has open.
pub(crate) struct Partition {
    pub(crate) env: Arc<Env>,
    pub(crate) dir: PathBuf,
    pub(crate) config: Arc<TopicConfig>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) control: Control,
    /// The hash of the empty key, the only one of most topics.
    pub(crate) unkeyed: KeyHash,
    hint: Hint,
    current: Mutex<Option<Arc<Segment>>>,
    waiting: Mutex<DurabilityWaiters>,
    /// The last durable position that is itself on the disk.
    pub(crate) checkpoint_saved: AtomicU64,
    /// The log as a scan found it, if recovery is needed and write access is missing.
    pub(crate) recovered_view: Option<LogScan>,
    pub(crate) opened_at_recovery: u64,
    /// Whether a writer has requested the next segment from the keeper.
    pub(crate) wants_keeper: AtomicBool,
    /// Whether this process has closed a segment and not applied retention since.
    pub(crate) owes_retention: AtomicBool,
    /// Held while this process applies retention.
    pub(crate) retiring: Mutex<()>,
    /// The durable position at the last rewarming of pages.
    warmed_for: AtomicU64,
    /// The durable position at the last turn of the background sync; all ones if nothing was
    /// unsynced.
    pub(crate) last_turn: AtomicU64,
    /// Whether a background sync of this partition is queued or running.
    pub(crate) in_turn: AtomicBool,
    /// The first segment's number and seal, cached because retention checks it every second.
    pub(crate) oldest_seal: Mutex<Option<(u64, Seal)>>,
    /// The current segment's number, first position and creation, cached likewise.
    pub(crate) current_begin: Mutex<Option<(u64, u64, u64)>>,
    /// The segments that this process has closed and not trimmed yet: their numbers, and whether
    /// recovery had closed them.
    untrimmed: Mutex<Vec<(u64, bool)>>,
    /// The control page's file.
    file: FileId,
    /// Whether this process found that the folder was removed or replaced by hand.
    lost: AtomicBool,
    /// When a process without write access, which has no maintenance, last looked at the folder.
    looked: Mutex<Option<Instant>>,
    /// Whether the left-overs of dead processes were removed from the folder.
    pub(crate) swept: AtomicBool,
}

/// The partition's lock, held by this thread.
pub(crate) struct Guard<'a> {
    pub(crate) partition: &'a Partition,
    at: usize,
    // The C library's locks belong to threads.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        lock::unlock(&self.partition.control.map, self.at);
    }
}

pub(crate) fn control_path(dir: &Path) -> PathBuf {
    dir.join("control")
}

/// Returns the identity of a log whose control page lies in a file.
fn log_id(id: u64, file: &File, path: &Path) -> Result<LogId, JournalError> {
    let found = file.metadata().at("look at", path)?;
    // Unlike a device's number, it stays over boots.
    let file_system = rustix::fs::fstatvfs(file).at("look at", path)?.f_fsid;
    Ok(LogId { id, file_system, inode: found.ino(), born: birth(&found) })
}

/// Creates a partition's folder in a topic that is not in place yet.
pub(crate) fn create(env: &Env, dir: &Path) -> Result<(), JournalError> {
    fs::create_dir(dir).at("create", dir)?;
    let path = control_path(dir);
    let file = create_control(env, &path, |env| env.random() | 1)?;
    let map = Map::of(&file, CONTROL_BYTES, Mode::Write).at("map", &path)?;
    let control = Control::attach(map, &path)?;
    // Nothing can have been lost before.
    control.set_beginning(Beginning { seq: 1, pos: control::FIRST_POS, offset: 0 });
    control.set_mark(Mark::of(env.boot, &file).at("look at", &path)?);
    Ok(())
}

/// Creates a control page that claims nothing about segments and needs recovery, with the log's
/// identity; 0 is unknown.
fn create_control(
    env: &Env,
    path: &Path,
    id: impl FnOnce(&Env) -> u64,
) -> Result<File, JournalError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path).at("create", path)?;
    reserve(&file, CONTROL_BYTES as u64).at("allocate", path)?;
    let map = Map::of(&file, CONTROL_BYTES, Mode::Write).at("map", path)?;
    let seed = env.random();
    let log = log_id(id(env), &file, path)?;
    Control::create(map, seed, log).at("prepare", path)?;
    Ok(file)
}

impl Partition {
    pub(crate) fn open(
        env: &Arc<Env>,
        dir: PathBuf,
        config: &Arc<TopicConfig>,
        limits: &Arc<Limits>,
    ) -> Result<Self, JournalError> {
        let path = control_path(&dir);
        location::check_no_link(&dir)?;
        if env.writable() {
            rebuild::restore_control(env, &path, |at| create_control(env, at, |_| 0).map(drop))?;
        }
        let file = OpenOptions::new().read(true).write(env.writable()).open(&path);
        let file = file.at("open", &path)?;
        let map = match Map::of(&file, CONTROL_BYTES, env.mode()) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(JournalError::damaged(&path, "control page is short"));
            }
            map => map.at("map", &path)?,
        };
        let control = Control::attach(map, &path)?;
        let (env, config, limits) = (Arc::clone(env), Arc::clone(config), Arc::clone(limits));
        let mark = Mark::of(env.boot, &file).at("look at", &path)?;
        let id = FileId::of(&file.metadata().at("look at", &path)?);
        let mut partition = Self {
            env,
            dir,
            config,
            limits,
            unkeyed: KeyHash::of(&[], control.seed()),
            hint: Hint::of(control.seed()),
            control,
            current: Mutex::default(),
            waiting: Mutex::default(),
            checkpoint_saved: AtomicU64::new(0),
            recovered_view: None,
            opened_at_recovery: 0,
            wants_keeper: AtomicBool::new(false),
            owes_retention: AtomicBool::new(false),
            retiring: Mutex::default(),
            warmed_for: AtomicU64::new(0),
            last_turn: AtomicU64::new(u64::MAX),
            in_turn: AtomicBool::new(false),
            oldest_seal: Mutex::default(),
            current_begin: Mutex::default(),
            untrimmed: Mutex::default(),
            file: id,
            lost: AtomicBool::new(false),
            looked: Mutex::default(),
            swept: AtomicBool::new(false),
        };
        partition.note_recoveries();
        let known = partition.control.log_id().id;
        partition.recover_if_needed(&path, mark)?;
        partition.identify(&file, &path, known)?;
        Ok(partition)
    }

    /// Gives the log a new identity if it has none, or is a copy: cursors of the original do not
    /// fit what is appended here. An identity other than the `known` one is new already.
    fn identify(&self, file: &File, path: &Path, known: u64) -> Result<(), JournalError> {
        let found = self.control.log_id();
        let here = log_id(found.id, file, path)?;
        let fits = found.id != 0 && found.is_same_file(&here);
        let is_complete = found.born != 0 || here.born == 0;
        let is_current = fits && is_complete && self.control.beginning().is_some();
        if !self.env.writable() || is_current {
            return Ok(());
        }
        let guard = self.lock()?;
        if self.control.log_id() == found && !(fits && is_complete) {
            self.control.set_log_id(here);
            if !fits && found.id == known {
                self.begin_new_log(self.control.log_end().1)?;
            }
        }
        if self.control.beginning().is_none() {
            self.control.set_beginning(self.first());
        }
        drop(guard);
        Ok(())
    }

    /// Gives the log a new identity from an end offset on: records of the former one may have had
    /// the offsets that come next. Positions of groups that fit are carried over. Under the lock.
    pub(crate) fn begin_new_log(&self, end: u64) -> Result<(), JournalError> {
        let former = self.control.log_id();
        let id = self.env.random() | 1;
        self.control.set_log_id(LogId { id, ..former });
        self.control.set_former_log(former.id, end);
        self.carry_positions(former.id, end).map(drop)
    }

    /// Gives the positions of groups that fit the log its identity. Returns whether one that has it
    /// already lies above the end.
    pub(crate) fn carry_positions(&self, former: u64, end: u64) -> Result<bool, JournalError> {
        let number = self.dir.file_name().and_then(|n| n.to_str()?.parse().ok());
        let (Some(topic), Some(number)) = (self.dir.parent(), number) else { return Ok(false) };
        let log = LogChange { former, id: self.control.log_id().id, end };
        group_positions::carry(&self.env, &topic.join("groups"), number, log)
    }

    /// Returns the offset up to which a cursor of the log with an identity fits this log.
    pub(crate) fn fits_up_to(&self, log_id: u64) -> u64 {
        match self.control.former_log() {
            _ if log_id != 0 && self.control.log_id().id == log_id => u64::MAX,
            Some((former, end)) if former == log_id && log_id != 0 => end,
            _ => 0,
        }
    }

    /// Returns whether the newest record of each key is indexed and retained.
    #[inline]
    pub(crate) fn keeps_last(&self) -> bool {
        self.config.last_value == LastValue::Keep
    }

    pub(crate) fn waiting_durable(&self) -> MutexGuard<'_, DurabilityWaiters> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The committed tail, as a log position.
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.recovered_view().map_or_else(|| self.control.tail(), |view| view.pos)
    }

    /// Advances the latest time, by which records are sought. A time that is far ahead of the time
    /// of day does not. Under the lock.
    #[inline]
    pub(crate) fn advance_time(&self, time: Tai) -> Tai {
        match self.env.is_plausible(time) {
            true => self.control.advance_time(time),
            false => self.control.max_time(),
        }
    }

    /// Returns the latest time of any record that was not ahead of the time of day.
    pub(crate) fn newest_time(&self) -> Tai {
        match self.recovered_view() {
            None => self.control.max_time(),
            Some(_) => Tai::from_nanos(i64::MAX),
        }
    }

    /// Takes the partition's lock; completes or undoes the work of a dead holder first.
    pub(crate) fn lock(&self) -> Result<Guard<'_>, JournalError> {
        self.lock_at(LOCK)
    }

    fn lock_at(&self, at: usize) -> Result<Guard<'_>, JournalError> {
        self.lock_within(at, self.env.options.lock_timeout)
    }

    /// Takes one of the partition's locks; waits at most this long.
    pub(crate) fn lock_within(
        &self,
        at: usize,
        waited: Duration,
    ) -> Result<Guard<'_>, JournalError> {
        let map = &self.control.map;
        let stuck = |failure| JournalError::not_locked(failure, control_path(&self.dir), waited);
        let acquired = lock::lock(map, at, waited).map_err(stuck)?;
        let guard = Guard { partition: self, at, _not_send: std::marker::PhantomData };
        self.check_gone()?;
        if at == LOCK {
            if acquired == Acquired::OwnerDied {
                self.control.dirty().store(1, Release);
            }
            if self.control.dirty().load(Acquire) != 0 {
                self.repair(&guard)?;
            }
        }
        Ok(guard)
    }

    /// Fails if the topic was deleted, or was found to be removed by hand.
    #[inline]
    pub(crate) fn check_gone(&self) -> Result<(), JournalError> {
        if self.is_gone() { Err(self.gone()) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.control.is_gone() || self.lost.load(Relaxed)
    }

    #[cold]
    fn gone(&self) -> JournalError {
        JournalError::gone(self.dir.parent().unwrap_or(&self.dir))
    }

    /// The same, and looks at the folder. The mark in the control page is for deletions only: a
    /// journal's folder may be moved while it is open, and must be whole at its new place.
    pub(crate) fn check_present(&self) -> Result<(), JournalError> {
        if !self.is_gone() && !self.file.is_at(&control_path(&self.dir)) {
            self.lost.store(true, Relaxed);
            self.ring();
        }
        self.check_gone()
    }

    /// Returns whether a waiting reader must be woken for the topic's end. Without write access no
    /// maintenance looks at the folder: then this does, once a second.
    pub(crate) fn has_ended(&self) -> bool {
        if self.env.writable() {
            return self.is_gone();
        }
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.is_none_or(|at| at.elapsed() >= FOLDER_CHECK_INTERVAL) {
            *looked = Some(Instant::now());
            return self.check_present().is_err();
        }
        self.is_gone()
    }

    /// Marks the partition as deleted: no append and no sync succeeds from now on, and waiting
    /// readers are woken. An earlier mark is no error.
    pub(crate) fn delete(&self) -> Result<(), JournalError> {
        match self.lock() {
            Ok(_guard) => self.control.set_gone(),
            Err(JournalError::TopicGone { .. }) => {}
            Err(e) => return Err(e),
        }
        self.ring();
        Ok(())
    }

    /// Completes or undoes the work of a dead holder, and wakes the waiters that it may not have
    /// woken.
    #[cold]
    fn repair(&self, guard: &Guard<'_>) -> Result<(), JournalError> {
        if self.control.seq() != 0
            && let Some(segment) = self.open_current()?
            && let Some(seal) = segment.sealed().ok().flatten()
        {
            self.finish_roll(&segment, seal)?;
        }
        self.replay_keys(guard)?;
        self.finish_compaction(guard)?;
        self.control.dirty().store(0, Release);
        self.ring();
        Ok(())
    }

    /// Stores the next segment's number if its file was in place when its creator died.
    fn finish_roll(&self, segment: &Segment, seal: Seal) -> Result<(), JournalError> {
        let next = segment.head.seq + 1;
        if let Some(found) = self.segment(next)?
            && found.head.base_pos == seal.end
            && found.head.prev_id == segment.head.id
        {
            self.control.set_seq(next);
        }
        Ok(())
    }

    fn cached(&self) -> MutexGuard<'_, Option<Arc<Segment>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this process has written since it opened the partition.
    pub(crate) fn writes(&self) -> bool {
        self.cached().is_some()
    }

    /// Returns the segment of that number if this process writes to it.
    pub(crate) fn written(&self, seq: u64) -> Option<Arc<Segment>> {
        let cached = self.cached();
        cached.as_ref().filter(|s| s.head.seq == seq && s.is_live()).map(Arc::clone)
    }

    /// Opens the current segment; `None` if it is missing or damaged.
    fn open_current(&self) -> Result<Option<Arc<Segment>>, JournalError> {
        let seq = self.control.seq();
        if let Some(segment) = self.written(seq) {
            return Ok(Some(segment));
        }
        let found = match Segment::open(&self.dir, seq, Mode::Write, SegmentHold::Loose) {
            Err(JournalError::Damaged { .. }) => None,
            other => other?.map(Arc::new),
        };
        self.cached().clone_from(&found);
        Ok(found)
    }

    /// Returns a segment with the required room behind the tail. Under the lock.
    pub(crate) fn room(
        &self,
        guard: &Guard<'_>,
        seen: &mut Option<Arc<Segment>>,
        need: FrameDemand,
    ) -> Result<Arc<Segment>, JournalError> {
        let seq = self.control.seq();
        if seq == 0 {
            let first = self.roll(guard, None, need)?;
            *seen = Some(Arc::clone(&first));
            return Ok(first);
        }
        let known = seen.take().filter(|segment| segment.head.seq == seq);
        let (current, open) = match known {
            // Recovery in another process may have sealed it.
            Some(segment) => {
                let open = segment.is_open();
                (Some(segment), open)
            }
            None => {
                let segment = self.open_current()?;
                // Recovery seals the last segment. A segment with a damaged seal must not grow.
                let open = segment.as_ref().is_some_and(|s| matches!(s.sealed(), Ok(None)));
                (segment, open)
            }
        };
        let tail = self.tail();
        let has_room = |s: &Arc<Segment>| {
            let end = tail.checked_add(need.bytes).filter(|_| tail >= s.head.base_pos);
            open && s.head.version >= need.version && end.is_some_and(|end| end <= s.head.end())
        };
        let segment = match current {
            Some(current) if has_room(&current) => current,
            current => self.roll(guard, current.as_deref(), need)?,
        };
        *seen = Some(Arc::clone(&segment));
        Ok(segment)
    }

    /// Puts the next segment in place.
    #[cold]
    pub(crate) fn roll(
        &self,
        _guard: &Guard<'_>,
        current: Option<&Segment>,
        need: FrameDemand,
    ) -> Result<Arc<Segment>, JournalError> {
        let (tail, end) = self.certain_log_end()?;
        let seq = self.control.seq() + 1;
        let time = self.control.max_time();
        let closed = self.env.running_time();
        // No id is used twice, though recovery reuses the numbers of segments that it removed.
        let epoch = self.control.recovered().count;
        let used = |c: &Segment| tail.saturating_sub(c.head.base_pos).min(c.head.capacity);
        let used = current.map_or(0, used);
        let capacity = self.next_capacity(used).max(round_up(need.bytes));
        let head = Head {
            id: segment_id(self.control.seed(), seq, epoch),
            seq,
            base_pos: tail,
            base_offset: end,
            base_time: time,
            capacity,
            prev_id: current.map_or(0, |c| c.head.id),
            compacted: false,
            version: segment::VERSION,
            created: closed,
        };
        let next = Arc::new(self.place(head, round_up(need.bytes))?);
        // Recovery has sealed the last segment where its records end.
        if let Some(current) = current {
            let recovered = matches!(current.sealed(), Ok(Some(_)));
            if !recovered {
                current.seal(Seal { end: tail, offset: end, time, closed });
            }
            self.untrimmed().push((current.head.seq, recovered));
            self.owes_retention.store(true, Relaxed);
        }
        self.control.set_seq(seq);
        next.populate(tail, POPULATE_BYTES);
        *self.cached() = Some(Arc::clone(&next));
        self.want_keeper();
        Ok(next)
    }

    pub(crate) fn untrimmed(&self) -> MutexGuard<'_, Vec<(u64, bool)>> {
        self.untrimmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the capacity of the segment after one of which this many bytes were used: twice
    /// that, so that segments follow the rate of appends.
    pub(crate) fn next_capacity(&self, used: u64) -> u64 {
        let grown = used.saturating_mul(2).checked_next_power_of_two().unwrap_or(u64::MAX);
        grown.min(self.largest_segment()).max(MIN_SEGMENT_BYTES)
    }

    /// Returns the size up to which segments grow at present.
    pub(crate) fn largest_segment(&self) -> u64 {
        let (first, (tail, end)) = (self.first(), self.log_end());
        let records = end.saturating_sub(first.offset);
        let average = tail.saturating_sub(first.pos).checked_div(records).unwrap_or(0);
        self.limits.largest_segment(&self.config, average)
    }

    /// Creates a segment's file, or takes the prepared one, and renames it into place. On a full
    /// disk it tries smaller ones, down to the required size.
    fn place(&self, mut head: Head, need: u64) -> Result<Segment, JournalError> {
        let path = segment::path(&self.dir, head.seq);
        if let Some(segment) = self.take_spare(head, &path)? {
            return Ok(segment);
        }
        let temporary = self.temporary();
        let file = loop {
            match segment::allocate(&temporary, head.capacity) {
                Err(JournalError::NoRoom { .. }) if head.capacity > need.max(MIN_SEGMENT_BYTES) => {
                    head.capacity = (head.capacity / 2).max(need).max(MIN_SEGMENT_BYTES);
                }
                other => break other?,
            }
        };
        let segment = Segment::create(&file, head, &temporary)?;
        fs::rename(&temporary, &path).at("name", &path)?;
        Ok(segment)
    }

    fn take_spare(&self, head: Head, path: &Path) -> Result<Option<Segment>, JournalError> {
        let (number, capacity) = self.control.spare();
        if number == 0 {
            return Ok(None);
        }
        let spare = self.spare_path(number);
        self.control.set_spare(0, 0);
        let opened = OpenOptions::new().read(true).write(true).open(&spare);
        let whole = |file: &File| {
            file.metadata().is_ok_and(|data| data.len() == segment::HEADER_BYTES + capacity)
        };
        let file = match opened {
            Ok(file) if capacity >= head.capacity && whole(&file) => file,
            _ => {
                // The spare is too small, or not ours. It would only block the next spare.
                let _ = fs::remove_file(&spare);
                return Ok(None);
            }
        };
        let segment = Segment::create(&file, Head { capacity, ..head }, &spare)?;
        fs::rename(&spare, path).at("name", path)?;
        Ok(Some(segment))
    }

    fn want_keeper(&self) {
        self.wants_keeper.store(true, Relaxed);
        if self.env.options.maintenance == Maintenance::Background {
            self.env.keeper.want();
        }
    }

    /// Returns a unique name for an unfinished file.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.env.temporary(&self.dir)
    }

    /// Returns the tail and the end offset of one moment.
    #[inline]
    pub(crate) fn log_end(&self) -> (u64, u64) {
        self.recovered_view().map_or_else(|| self.control.log_end(), |view| (view.pos, view.end))
    }

    /// Returns the tail and the end offset for an append. Under the lock.
    #[inline]
    pub(crate) fn certain_log_end(&self) -> Result<(u64, u64), JournalError> {
        self.control.certain_log_end().ok_or_else(|| {
            JournalError::damaged(&control_path(&self.dir), "the words of the log's end")
        })
    }

    /// Returns the numbers of the first and the last segment; an empty range if there is none.
    pub(crate) fn segments(&self) -> (u64, u64) {
        match self.recovered_view() {
            Some(view) => (view.first.seq, view.seq),
            None => (self.control.first_seq(), self.control.seq()),
        }
    }

    /// Returns where the log begins.
    pub(crate) fn first(&self) -> Beginning {
        if let Some(view) = self.recovered_view() {
            return view.first;
        }
        let (seq, control) = (self.control.first_seq(), &self.control);
        Beginning { seq, pos: control.first_pos(), offset: control.first_offset() }
    }

    /// Opens a segment for reading. `None` if it is missing or damaged.
    pub(crate) fn segment(&self, seq: u64) -> Result<Option<Segment>, JournalError> {
        match Segment::open(&self.dir, seq, self.env.mode(), SegmentHold::Pinned) {
            Err(JournalError::Damaged { .. }) => Ok(None),
            other => other,
        }
    }

    /// The oldest segment.
    pub(crate) fn first_segment(&self) -> Result<Option<Segment>, JournalError> {
        self.segment_at(0)
    }

    /// Opens the segment with the first frame at or behind a position.
    pub(crate) fn segment_at(&self, pos: u64) -> Result<Option<Segment>, JournalError> {
        self.segment_from(pos, 0)
    }

    /// The same among the segments from a number on. Calls with increasing numbers terminate,
    /// whatever the files contain.
    pub(crate) fn segment_from(
        &self,
        pos: u64,
        least: u64,
    ) -> Result<Option<Segment>, JournalError> {
        let (first, last) = self.segments();
        let found = self.last_before(|head| head.base_pos <= pos)?;
        let from = found.map_or(first, |segment| segment.head.seq).max(least);
        for seq in self.numbers(from, last)? {
            if let Some(segment) = self.segment(seq)? {
                let over = matches!(segment.sealed(), Ok(Some(seal)) if seal.end <= pos);
                if !over {
                    return Ok(Some(segment));
                }
            }
        }
        Ok(None)
    }

    /// Returns the segments' numbers of a range. Where it is too long to be tried one by one, which
    /// only damage causes, the folder is listed.
    fn numbers(&self, from: u64, to: u64) -> Result<Vec<u64>, JournalError> {
        if to.saturating_sub(from) < MAX_TRIED_SEGMENTS {
            return Ok((from..=to).collect());
        }
        Ok(self.files()?.into_iter().filter(|seq| (from..=to).contains(seq)).collect())
    }

    /// Returns the last readable segment for whose head `before` is true: it is true for all up to
    /// some segment, and for none behind it.
    pub(crate) fn last_before(
        &self,
        before: impl Fn(&Head) -> bool,
    ) -> Result<Option<Segment>, JournalError> {
        let (mut low, mut high) = self.segments();
        let mut found = None;
        while low <= high {
            let middle = low + (high - low) / 2;
            let mut at = middle;
            let mut segment = self.segment(at)?;
            // A segment that cannot be read says nothing about those before it.
            while segment.is_none() && at > low && middle - at < MAX_TRIED_SEGMENTS {
                at -= 1;
                segment = self.segment(at)?;
            }
            match segment {
                Some(s) if before(&s.head) => {
                    low = middle + 1;
                    found = Some(s);
                }
                Some(_) => high = at - 1,
                None => low = middle + 1,
            }
        }
        Ok(found)
    }

    /// Wakes all waiters of this partition. Called without the lock, after a commit.
    #[inline]
    pub(crate) fn ring(&self) {
        let map = &self.control.map;
        let words = |word: usize| MapWord(map, control::BITMAP + word * 8);
        let full = || fence(SeqCst);
        let doorbells = &self.env.doorbells;
        waiters::collect(words, &MapWord(map, control::SUMMARY), full, |slot| {
            doorbells.ring(slot, [self.hint()]);
        });
    }

    /// The hint of this partition's rings.
    pub(crate) fn hint(&self) -> Hint {
        self.hint
    }

    /// Registers a doorbell for the next commit, if the control page is writable.
    pub(crate) fn arm(&self, slot: usize) {
        let map = &self.control.map;
        if map.mode() == Mode::Write {
            let words = |word: usize| MapWord(map, control::BITMAP + word * 8);
            waiters::arm(words, &MapWord(map, control::SUMMARY), slot, || fence(SeqCst));
        }
    }

    /// Makes the pages of the next appends writable again after a sync, if this process has
    /// written.
    pub(crate) fn rewarm(&self) {
        let current = self.cached().as_ref().map(Arc::clone);
        let durable = self.control.durable().0;
        if let Some(segment) = current.filter(|s| s.head.seq == self.control.seq())
            && self.warmed_for.swap(durable, Relaxed) != durable
        {
            segment.rewarm(self.tail(), REPOPULATE_BYTES);
        }
    }

    /// Makes the pages of the next `need` bytes from a position writable, and some more. Returns
    /// the position up to which they are writable. Outside the lock.
    #[inline]
    pub(crate) fn prefault(&self, segment: &Segment, pos: u64, need: u64, ready: u64) -> u64 {
        if pos + need <= ready { ready } else { self.prefault_next(segment, pos, need) }
    }

    #[cold]
    fn prefault_next(&self, segment: &Segment, pos: u64, need: u64) -> u64 {
        segment.populate(pos, need + POPULATE_BYTES);
        let used = pos.saturating_sub(segment.head.base_pos);
        // From the middle of a segment on, the next one is prepared.
        if used >= segment.head.capacity / 2 && self.control.spare().0 == 0 {
            self.want_keeper();
        }
        pos + need + POPULATE_BYTES
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        let background = self.config.sync == SyncPolicy::Background;
        if self.env.writable() && background && self.is_unsynced() {
            // No caller is left for an error; another process's background sync, or the next one,
            // tries again.
            let _ = self.sync_present();
        }
        for (_, call) in self.waiting_durable().calls.drain(..) {
            let waited = std::time::Duration::ZERO;
            call(Err(JournalError::TimedOut { waited }));
        }
    }
}

fn round_up(need: u64) -> u64 {
    need.div_ceil(4096) * 4096
}
