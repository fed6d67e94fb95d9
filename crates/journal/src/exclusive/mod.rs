//! Exclusive logs: a journal of its own for one process, with a topic for each epoch.
//!
//! Constraints: one process holds the folder; others are refused with its name. They open neither
//! its lock's file for long nor the journal in it for writing, so a stopped one holds no lock of
//! it. Nothing is truncated: an epoch's topic is written by one run, and never again. A batch is
//! one frame, so one checksum covers it. The caller has the rules of offsets (`helio-bus`).
//!
//! Format: `owner`, `marks` and the folder `log`, a journal, in which topic `epoch/NUMBER` has the
//! frames of an epoch: one that begins it, batches, and one that ends it if it was closed
//! (`docs/formats/journal.md`).
//!
//! Operation: an epoch counts once its first frame is on the disk. Opening reads the newest epoch:
//! what lies behind a hole, which a power loss can leave among records that were not durable, does
//! not count.

mod batch;
mod epoch;
mod index;
mod marks;
mod owner;

use std::collections::VecDeque;
use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use helio_core::{ProducerName, TopicName};

use crate::error::IoContext;
use crate::partition::OnDurable;
use crate::pins::PinnedBytes;
use crate::producers::{Ownership, WriterOptions};
use crate::writer::{Record, Writer};
use crate::{Access, AppendError, Journal, JournalError, JournalOptions, SyncPolicy};

use batch::Kind;
pub use batch::{MAX_BATCH_BYTES, MAX_BATCH_RECORDS};
use epoch::EpochFiles;
pub use epoch::{EpochInfo, MAX_EPOCH_HEADER_BYTES};
use marks::Marks;
use owner::Owner;

/// The folder of the journal in an exclusive log's folder.
const LOG: &str = "log";

/// Options of an exclusive log.
#[derive(Debug, Clone)]
pub struct ExclusiveOptions {
    /// The holder's name, for others that are refused.
    pub owner: String,
    /// When batches are synced.
    pub sync: SyncPolicy,
    /// The size up to which segments grow, in bytes; `None` for the default.
    pub segment_bytes: Option<u64>,
    /// The options of the journal in its folder.
    pub journal: JournalOptions,
}

/// How the last run of an exclusive log ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// There was none.
    Never,
    /// It was closed.
    Closed,
    /// The process ended; the machine ran on.
    Killed,
    /// The machine was started again since, or the folder is a copy.
    PowerLost,
}

/// What an exclusive log had when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExclusiveContents {
    /// How the last run ended.
    pub ended: RunEnd,
    /// The offset below which records are known to have been durable then. Above the newest
    /// epoch's end, the disk has lost what it had confirmed.
    pub durable: u64,
    /// The committed offset that was stored last.
    pub committed: u64,
    /// The offset below which records were dropped.
    pub first: u64,
    /// The epochs, oldest first.
    pub epochs: Vec<EpochInfo>,
}

/// The writer of the newest epoch.
#[derive(Default)]
struct Appender {
    writer: Option<Writer>,
    /// The ends of appended frames and of their records that are not known to be durable.
    pending: VecDeque<(u64, u64)>,
    durable: u64,
}

/// An exclusive log that this process holds until it is dropped or [released](Self::release).
pub struct ExclusiveLog {
    folder: PathBuf,
    options: ExclusiveOptions,
    journal: Mutex<Option<Journal>>,
    epochs: RwLock<Vec<Arc<EpochFiles>>>,
    appender: Mutex<Appender>,
    marks: Mutex<Marks>,
    owner: Mutex<Option<Owner>>,
}

impl std::fmt::Debug for ExclusiveLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExclusiveLog").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether a folder is that of the journal in an exclusive log.
pub(crate) fn is_inside(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == LOG)
        && path.parent().is_some_and(|folder| owner::path(folder).exists())
}

fn writer_options(owner: &str) -> Result<WriterOptions, JournalError> {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = owner.chars().take(64).map(legal).collect();
    let producer = ProducerName::new(&name).or_else(|_| ProducerName::new("owner"));
    let producer = producer.map_err(|_| JournalError::ReadOnly)?;
    Ok(WriterOptions { producer, ownership: Ownership::Shared })
}

impl ExclusiveLog {
    /// Opens the log in a folder of its own; creates it if there is none. All that it returns is on
    /// the disk.
    ///
    /// # Errors
    /// [`JournalError::Held`] if another handle has it open; the errors of
    /// [`Journal::open`](crate::Journal::open).
    pub fn open(
        folder: &Path,
        options: ExclusiveOptions,
    ) -> Result<(Self, ExclusiveContents), JournalError> {
        if options.journal.access == Access::ReadOnly {
            return Err(JournalError::ReadOnly);
        }
        fs::create_dir_all(folder).at("create", folder)?;
        let owner = Owner::acquire(folder, &options.owner)?;
        let journal = Journal::open_inside(&folder.join(LOG), options.journal.clone())?;
        let (marks, fresh) = Marks::open(folder, journal.env())?;
        if fresh {
            let parents = folder.ancestors().take(3).filter(|path| !path.as_os_str().is_empty());
            parents.take_while(|path| path.exists()).try_for_each(|p| journal.env().sync_dir(p))?;
        }
        let epochs = epoch::list(&journal, marks.first())?;
        let contents = contents(&journal, &marks, &epochs)?;
        let stored = contents.epochs.last().map_or(0, |epoch| epoch.end);
        let log = Self {
            folder: folder.to_owned(),
            options,
            journal: Mutex::new(Some(journal)),
            epochs: RwLock::new(epochs),
            appender: Mutex::new(Appender { durable: stored, ..Appender::default() }),
            marks: Mutex::new(marks),
            owner: Mutex::new(Some(owner)),
        };
        Ok((log, contents))
    }

    fn journal(&self) -> Result<Journal, JournalError> {
        let journal = locked(&self.journal).clone();
        journal.ok_or_else(|| JournalError::Released { path: self.folder.clone() })
    }

    fn newest(&self) -> Option<Arc<EpochFiles>> {
        self.epochs.read().unwrap_or_else(PoisonError::into_inner).last().cloned()
    }

    fn epoch(&self, number: u64) -> Option<Arc<EpochFiles>> {
        let epochs = self.epochs.read().unwrap_or_else(PoisonError::into_inner);
        epochs.iter().find(|epoch| epoch.info.number == number).cloned()
    }

    /// Begins an epoch, whose number must be new and the highest. All before it, its header and its
    /// name are on the disk when this returns.
    ///
    /// # Errors
    /// [`AppendError`]; the epoch did not begin then.
    pub fn begin(&self, number: u64, start: u64, header: &[u8]) -> Result<(), AppendError> {
        let journal = self.journal()?;
        let mut appender = locked(&self.appender);
        if let Some(before) = self.newest() {
            before.sync()?;
        }
        let parent_end = self.newest().map(|epoch| epoch.end());
        let (sync, segment_bytes) = (self.options.sync, self.options.segment_bytes);
        let info = EpochInfo { number, start, end: start, header: header.to_vec(), sync };
        let topic = epoch::create(&journal, &info, segment_bytes, parent_end)?;
        let mut writer = topic.writer(0, &writer_options(&self.options.owner)?)?;
        append(&journal, &mut writer, Kind::Begin, &[])?;
        topic.wait_durable(0, 0, None)?;
        let files = EpochFiles::new(topic, info, start)?;
        self.epochs.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(files));
        *appender = Appender { writer: Some(writer), pending: VecDeque::new(), durable: start };
        Ok(())
    }

    /// Appends records, the first one at an offset, as one batch. They are then *stored*.
    ///
    /// # Errors
    /// [`AppendError`]; nothing of the batch is in the log then.
    pub fn append(&self, first: u64, records: &[&[u8]]) -> Result<(), AppendError> {
        let payload = batch::encode(first, records);
        let journal = self.journal()?;
        let mut appender = locked(&self.appender);
        let released = || JournalError::Released { path: self.folder.clone() };
        let epoch = self.newest().ok_or_else(released)?;
        let writer = appender.writer.as_mut().ok_or_else(released)?;
        let frame = append(&journal, writer, Kind::Batch, &payload)?;
        let end = first + records.len() as u64;
        epoch.set_end(end);
        appender.pending.push_back((frame + 1, end));
        Ok(())
    }

    /// Calls back once all that was appended is durable, or cannot become durable: at once, or from
    /// one of the journal's threads. Calls that come during a sync share the next one.
    pub fn on_synced(&self, call: OnDurable) {
        let end = self.newest().map(|epoch| Ok((epoch.topic.info(0)?.end_offset, epoch)));
        match end {
            None => call(Ok(())),
            Some(Err(error)) => call(Err(error)),
            Some(Ok((frames, epoch))) => {
                // It fails only before the partition is open, and then does not call back.
                let _ = epoch.topic.on_durable(0, frames.saturating_sub(1), call);
            }
        }
    }

    /// Returns the offset below which the newest epoch is on the disk.
    #[must_use]
    pub fn durable(&self) -> u64 {
        let mut appender = locked(&self.appender);
        let frames = self.newest().map_or(0, |epoch| epoch.topic.durable(0).unwrap_or(0));
        while let Some((frame, end)) = appender.pending.front().copied()
            && frame <= frames
        {
            appender.durable = end;
            appender.pending.pop_front();
        }
        appender.durable
    }

    /// Visits the records of a range that was appended to an epoch, in place.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] at a record that cannot be read.
    pub fn scan(
        &self,
        epoch: u64,
        range: Range<u64>,
        visit: &mut dyn FnMut(u64, PinnedBytes) -> ControlFlow<()>,
    ) -> Result<(), JournalError> {
        let dropped = || JournalError::damaged(&self.folder, "the epoch was dropped");
        self.epoch(epoch).ok_or_else(dropped)?.scan(range, visit)
    }

    /// Stores the offset below which records are dropped, and the committed one. They survive the
    /// process; a sync brings them to the disk later.
    ///
    /// # Errors
    /// [`JournalError`] if the file cannot be written.
    pub fn save(&self, first: u64, committed: u64) -> Result<(), JournalError> {
        locked(&self.marks).store(first, committed)
    }

    /// Gives the room of records below an offset of an epoch back, to within a segment; all of it
    /// without an offset. Bytes that are pinned stay.
    ///
    /// # Errors
    /// [`JournalError`] if files cannot be changed.
    pub fn drop_below(&self, epoch: u64, offset: Option<u64>) -> Result<(), JournalError> {
        let journal = self.journal()?;
        let Some(files) = self.epoch(epoch) else { return Ok(()) };
        match offset {
            Some(offset) => files.drop_below(offset),
            None => {
                let mut epochs = self.epochs.write().unwrap_or_else(PoisonError::into_inner);
                epochs.retain(|files| files.info.number != epoch);
                drop(epochs);
                journal.remove_topic(files.topic.name()).map(drop)
            }
        }
    }

    /// Syncs all, and marks the newest epoch as ended if this run began it.
    ///
    /// # Errors
    /// [`AppendError`]; the run counts as killed then.
    pub fn close(&self) -> Result<(), AppendError> {
        let journal = self.journal()?;
        let mut appender = locked(&self.appender);
        if let (Some(epoch), Some(writer)) = (self.newest(), appender.writer.as_mut()) {
            append(&journal, writer, Kind::End, &[])?;
            epoch.sync()?;
        }
        Ok(locked(&self.marks).sync(journal.env())?)
    }

    /// Releases the log to the next holder. Pinned bytes stay.
    pub fn release(&self) {
        *locked(&self.appender) = Appender::default();
        self.epochs.write().unwrap_or_else(PoisonError::into_inner).clear();
        let journal = locked(&self.journal).take();
        drop(journal);
        locked(&self.owner).take();
    }

    /// Runs all maintenance tasks once, for logs opened with
    /// [`Maintenance::Manual`](crate::Maintenance::Manual).
    pub fn maintain(&self) {
        if let Ok(journal) = self.journal() {
            journal.maintain();
        }
    }
}

fn append(
    journal: &Journal,
    writer: &mut Writer,
    kind: Kind,
    payload: &[u8],
) -> Result<u64, AppendError> {
    let time = (journal.env().options.clock)();
    writer.append(&Record { payload, time, level: kind as u8, ..Record::default() })
}

/// Returns what a log has, after its newest epoch was read and synced.
fn contents(
    journal: &Journal,
    marks: &Marks,
    epochs: &[Arc<EpochFiles>],
) -> Result<ExclusiveContents, JournalError> {
    let (mut ended, mut durable) = (RunEnd::Never, 0);
    if let Some(newest) = epochs.last() {
        (ended, durable) = newest.last_run(journal.env())?;
        newest.sync()?;
    }
    let info = |epoch: &Arc<EpochFiles>| EpochInfo { end: epoch.end(), ..epoch.info.clone() };
    let oldest = epochs.first().map(|epoch| epoch.first()).transpose()?;
    Ok(ExclusiveContents {
        ended,
        durable,
        committed: marks.committed(),
        first: marks.first().max(oldest.unwrap_or(0)),
        epochs: epochs.iter().map(info).collect(),
    })
}

/// The topic of an epoch.
fn topic_name(number: u64) -> Result<TopicName, JournalError> {
    let name = TopicName::new(&format!("epoch/{number:020}"));
    name.map_err(|_| JournalError::ReadOnly)
}
