//! The epochs of an exclusive log, each a topic of one partition.
//!
//! Format: the topic's description is JSON with the epoch's number, start and header, the end of
//! the epoch before it, and the boot under which it began.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::batch::{Batch, Kind};
use super::index::{Extent, Index, Place};
use super::{RunEnd, locked, topic_name};
use crate::control;
use crate::env::Env;
use crate::partition::{Partition, control_path};
use crate::pins::PinnedBytes;
use crate::topic::{self, Topic};
use crate::{Journal, JournalError, LastValue, SyncPolicy, TopicConfig};

/// The longest header of an epoch, in bytes.
pub const MAX_EPOCH_HEADER_BYTES: usize = 64 << 10;

/// An epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochInfo {
    /// Its number.
    pub number: u64,
    /// The offset of its first record.
    pub start: u64,
    /// The offset behind its last record.
    pub end: u64,
    /// The owner's header.
    pub header: Vec<u8>,
    /// When its batches were synced.
    pub sync: SyncPolicy,
}

/// An epoch in its topic's description.
#[derive(Serialize, Deserialize)]
struct Description {
    epoch: u64,
    start: u64,
    /// The end of the epoch before.
    before: Option<u64>,
    boot: String,
    header: String,
}

fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// What was known of a partition before it was opened in this run.
#[derive(Debug, Clone, Copy)]
struct Before {
    /// The offset below which frames were durable.
    durable: u64,
    recovered: bool,
}

/// An epoch's topic, and where its records lie.
pub(super) struct EpochFiles {
    pub(super) info: EpochInfo,
    pub(super) topic: Topic,
    partition: Arc<Partition>,
    index: Mutex<Index>,
    end: AtomicU64,
    boot: String,
    before: Before,
}

/// Creates the topic of an epoch.
pub(super) fn create(
    journal: &Journal,
    info: &EpochInfo,
    segment_bytes: Option<u64>,
    before: Option<u64>,
) -> Result<Topic, JournalError> {
    let description = Description {
        epoch: info.number,
        start: info.start,
        before,
        boot: to_hex(&journal.env().boot.0),
        header: to_hex(&info.header),
    };
    let name = topic_name(info.number)?;
    let damaged = |_| JournalError::damaged(&topic::dir(journal.env(), &name), "description");
    let description = serde_json::to_string(&description).map_err(damaged)?;
    let default = TopicConfig::default();
    let config = TopicConfig {
        segment_bytes: segment_bytes.unwrap_or(default.segment_bytes),
        last_value: LastValue::Forget,
        sync: info.sync,
        description,
        ..default
    };
    journal.create_topic(&name, &config)
}

/// Lists the epochs that have begun, oldest first. Removes those that have not, and those whose
/// records were all dropped.
pub(super) fn list(journal: &Journal, first: u64) -> Result<Vec<Arc<EpochFiles>>, JournalError> {
    let mut found = Vec::new();
    let mut befores = Vec::new();
    for topic in journal.topics()? {
        let path = topic::dir(journal.env(), &topic.name);
        let damaged = || JournalError::damaged(&path, "description of an epoch");
        let text: Description =
            serde_json::from_str(&topic.config.description).map_err(|_| damaged())?;
        let header = from_hex(&text.header).ok_or_else(damaged)?;
        let known = control::durable_at(&control_path(&path.join("0"))).unwrap_or(0);
        let opened = journal.topic(&topic.name)?.ok_or_else(damaged)?;
        if opened.info(0)?.end_offset == 0 {
            // The power was lost before it had begun; nobody has seen it.
            journal.remove_topic(&topic.name)?;
            continue;
        }
        let (number, start, sync) = (text.epoch, text.start, topic.config.sync);
        let info = EpochInfo { number, start, end: start, header, sync };
        let mut files = EpochFiles::new(opened, info, start)?;
        (files.boot, files.before.durable) = (text.boot, known);
        befores.push((number, text.before));
        found.push(files);
    }
    found.sort_by_key(|files| files.info.number);
    befores.sort_unstable();
    // Each one's end is in the description of the next.
    let ends: Vec<_> = befores.into_iter().skip(1).map(|(_, before)| before).collect();
    for (files, end) in found.iter().zip(ends) {
        files.set_end(end.unwrap_or(files.info.start));
    }
    let starts: Vec<_> = found.iter().skip(1).map(|files| files.info.start).collect();
    for (at, start) in starts.into_iter().enumerate().rev() {
        if first > 0 && start.min(found[at].end()) <= first {
            let dropped = found.remove(at);
            journal.remove_topic(dropped.topic.name())?;
        }
    }
    found.last().map_or(Ok(()), EpochFiles::find_end)?;
    Ok(found.into_iter().map(Arc::new).collect())
}

impl EpochFiles {
    pub(super) fn new(topic: Topic, info: EpochInfo, end: u64) -> Result<Self, JournalError> {
        let partition = topic.opened(0)?;
        let recovered = partition.control.recovered().count != partition.opened_at_recovery;
        let (index, end) = (Mutex::default(), AtomicU64::new(end));
        let (boot, before) = (String::new(), Before { durable: 0, recovered });
        Ok(Self { info, topic, partition, index, end, boot, before })
    }

    /// The offset behind its last record.
    pub(super) fn end(&self) -> u64 {
        self.end.load(Acquire)
    }

    pub(super) fn set_end(&self, end: u64) {
        self.end.store(end, Release);
    }

    /// Brings all of it to the disk.
    pub(super) fn sync(&self) -> Result<(), JournalError> {
        match self.topic.info(0)?.end_offset {
            0 => Ok(()),
            frames => self.topic.wait_durable(0, frames - 1, None),
        }
    }

    fn path(&self) -> &Path {
        &self.partition.dir
    }

    /// Reads it to its end: all of it if it was recovered, since a power loss can leave holes, else
    /// its last segments.
    fn find_end(&self) -> Result<(), JournalError> {
        let mut index = locked(&self.index);
        let recovered = self.before.recovered || self.partition.recovery().count > 0;
        let extent = if recovered { Extent::Whole } else { Extent::Newest };
        index.open(&self.partition, extent)?;
        index.extend(&self.partition)?;
        self.set_end(index.end().unwrap_or(self.info.start));
        Ok(())
    }

    /// Returns how its run ended, and the offset below which its records were durable then.
    pub(super) fn last_run(&self, env: &Env) -> Result<(RunEnd, u64), JournalError> {
        let index = locked(&self.index);
        let same_boot = self.boot == to_hex(&env.boot.0);
        let ended = match index.last_kind() {
            Some(Kind::End) => RunEnd::Closed,
            _ if same_boot && !self.before.recovered => RunEnd::Killed,
            _ => RunEnd::PowerLost,
        };
        let durable = match ended {
            RunEnd::PowerLost => index.records_below(self.before.durable).unwrap_or_else(|| {
                // Frames that were durable are missing: their records are not known.
                self.end().saturating_add(1)
            }),
            _ => self.end(),
        };
        Ok((ended, durable.max(self.info.start)))
    }

    /// The offset of the oldest record that is there.
    pub(super) fn first(&self) -> Result<u64, JournalError> {
        let mut index = locked(&self.index);
        index.open(&self.partition, Extent::Newest)?;
        Ok(index.first().unwrap_or(self.info.start))
    }

    /// Visits the records of a range.
    pub(super) fn scan(
        &self,
        range: Range<u64>,
        visit: &mut dyn FnMut(u64, PinnedBytes) -> ControlFlow<()>,
    ) -> Result<(), JournalError> {
        let damaged = || JournalError::damaged(self.path(), "a batch of an exclusive log");
        let mut next = range.start;
        let mut place: Option<Place> = None;
        while next < range.end {
            let here = match place.take() {
                Some(place) => place,
                None => locked(&self.index).find(&self.partition, next)?.ok_or_else(damaged)?,
            };
            if let Some(batch) = here.batch() {
                let batch: Batch<'_> = batch.ok_or_else(damaged)?;
                while next < batch.end().min(range.end) {
                    let record = batch.get(next).ok_or_else(damaged)?;
                    let pinned = here.pin(record).ok_or_else(damaged)?;
                    next += 1;
                    if visit(next - 1, pinned).is_break() {
                        return Ok(());
                    }
                }
            }
            place = if next < range.end { here.next() } else { None };
        }
        Ok(())
    }

    /// Gives the room below a record back, by whole segments.
    pub(super) fn drop_below(&self, offset: u64) -> Result<(), JournalError> {
        let found = match offset < self.end() {
            true => locked(&self.index).find(&self.partition, offset)?.map(|place| place.frame()),
            false => Some(self.topic.info(0)?.end_offset),
        };
        let Some(frame) = found.filter(|_| offset > self.info.start) else { return Ok(()) };
        self.topic.compact_below(0, frame)?;
        let forgotten = locked(&self.index).forget(self.partition.segments().0);
        drop(forgotten);
        Ok(())
    }
}
