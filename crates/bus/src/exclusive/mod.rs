//! Exclusive logs: one process writes and reads a log of its own, in batches, by offset.
//!
//! A service keeps its history in an [`ExclusiveLog`], and a second one may mirror it. It is no
//! topic: it has no producers, keys, schemas or retention, and no subscriptions. ADR 47 gives the
//! reasons.
//!
//! Constraints. One live handle a log; a second one is refused with the holder's name and process.
//! Nothing is truncated, and an offset that was [committed](Watermark::Committed) names the same
//! record for ever. A batch exists whole or not at all after any crash.
//!
//! Offsets count records from 0, over all epochs. An **epoch** is a run of appends with a number, a
//! start offset and the owner's header, in files of its own. Each process begins one before its
//! first append. Its start says how much of the epoch before counts: records at or above it stay
//! on the disk and are *superseded*. A start above the end leaves a gap of offsets without records.
//!
//! ```
//! use std::ops::ControlFlow;
//! use helio_bus::{Bus, TopicName};
//! use helio_bus::exclusive::{LogOptions, NewEpoch, Watermark};
//!
//! let bus = Bus::connect("memory:docs-of-exclusive")?;
//! let name = TopicName::new("state/main")?;
//! let log = bus.exclusive_log(&name, &LogOptions::new("state-node"))?;
//! // What is stored after a crash counts, unless the owner decides otherwise.
//! let start = log.last_run().stored;
//! let number = log.epochs().last().map_or(1, |last| last.number + 1);
//! log.begin_epoch(&NewEpoch { number, start, header: b"zone A" })?;
//!
//! let batch = log.append(&[b"put a", b"put b"])?;
//! log.wait(Watermark::Durable, batch.end, None)?;
//! log.commit(batch.end)?;
//! assert_eq!(&log.read(batch.start, Watermark::Committed)?[..], b"put a");
//! log.scan(batch, Watermark::Committed, &mut |_offset, record| {
//!     assert!(record.starts_with(b"put"));
//!     ControlFlow::Continue(())
//! })?;
//! log.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Operation. `log` has the rules, once for all transports, above a small store; `waiters` has the
//! pending waits; `cursor` follows the committed records.

mod cursor;
mod log;
mod waiters;

use std::ops::{ControlFlow, Range};
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

use crate::error::TransportError;
pub use cursor::LogCursor;
pub(crate) use log::{Began, EpochStore, Log, OnSynced, Recovered};
pub use waiters::MAX_WAITS;

/// The most bytes of a batch: all records, and 4 bytes for each.
pub const MAX_BATCH_BYTES: usize = 63 << 20;
/// The most records of a batch.
pub const MAX_BATCH_RECORDS: usize = 1 << 20;
/// The longest header of an epoch, in bytes.
pub const MAX_EPOCH_HEADER_BYTES: usize = 64 << 10;
/// The interval of the background sync under [`LogDurability::Interval`].
pub const SYNC_INTERVAL: Duration = Duration::from_millis(50);

/// When appended batches are brought to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDurability {
    /// At once: each append requests a sync, and appends during a sync share the next one. The
    /// owner answers its clients once [`Watermark::Durable`] covers their records.
    Disk,
    /// In the background, every [`SYNC_INTERVAL`], and when somebody waits for
    /// [`Watermark::Durable`]. A power loss may take the newest records.
    Interval,
}

/// Options of opening an exclusive log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// The name reported to a second process, such as `state-node A`.
    pub owner: String,
    /// When batches are synced.
    pub durability: LogDurability,
    /// The size up to which files grow, in bytes; `None` for the transport's default. Trimming
    /// gives room back by whole files.
    pub segment_bytes: Option<u64>,
}

impl LogOptions {
    /// Options with [`LogDurability::Disk`].
    #[must_use]
    pub fn new(owner: &str) -> Self {
        Self { owner: owner.to_owned(), durability: LogDurability::Disk, segment_bytes: None }
    }
}

/// A promise about all records below an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Watermark {
    /// They survive the death of the process.
    Stored,
    /// They survive the loss of power.
    Durable,
    /// The owner's [`commit`](ExclusiveLog::commit) covers them: readers of the service may see
    /// them. Never above *stored*.
    Committed,
}

/// The offsets of the watermarks, and the oldest record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watermarks {
    /// The offset below which records were [trimmed](ExclusiveLog::trim).
    pub first: u64,
    /// See [`Watermark::Stored`]; the offset of the next record.
    pub stored: u64,
    /// See [`Watermark::Durable`].
    pub durable: u64,
    /// See [`Watermark::Committed`].
    pub committed: u64,
}

impl Watermarks {
    /// The offset of one of them.
    #[must_use]
    pub fn of(&self, mark: Watermark) -> u64 {
        match mark {
            Watermark::Stored => self.stored,
            Watermark::Durable => self.durable,
            Watermark::Committed => self.committed,
        }
    }
}

/// An epoch that is to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEpoch<'a> {
    /// Its number, above those of all epochs of this log.
    pub number: u64,
    /// The offset of its first record: at least *committed*. Below *stored*, the records from there
    /// on are superseded; above it, offsets are left out.
    pub start: u64,
    /// What the owner stores with it, at most [`MAX_EPOCH_HEADER_BYTES`].
    pub header: &'a [u8],
}

/// An epoch of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// Its number.
    pub number: u64,
    /// The offset of its first record.
    pub start: u64,
    /// The offset behind its last stored record, superseded ones included.
    pub end: u64,
    /// What the owner stored with it.
    pub header: Bytes,
    /// The durability with which it was written.
    pub durability: LogDurability,
}

/// How the last run of a log ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// There was none: the log is new.
    Never,
    /// By [`close`](ExclusiveLog::close): all that was stored is durable and here.
    Cleanly,
    /// The process ended without closing it, and the machine ran on: all that was stored is here.
    Killed,
    /// The machine was started again since: records above `durable` may be lost, and others may
    /// have been acknowledged with these offsets. Under [`LogDurability::Interval`] the owner must
    /// not continue its own numbering as if nothing had happened.
    PowerLost,
}

/// What is left of the last run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRun {
    /// How it ended.
    pub ended: Ended,
    /// The offset behind the last record that is here without a hole before it. It is durable now.
    pub stored: u64,
    /// The offset below which records are known to have been durable when it ended.
    pub durable: u64,
    /// The last *committed* watermark that is known: exact after a kill; after the loss of power
    /// possibly an earlier one.
    pub committed: u64,
}

/// An error of an exclusive log.
#[derive(Debug, Clone, Error)]
pub enum ExclusiveError {
    /// Another handle has the log open.
    #[error(
        "the exclusive log {log} is held by {owner} (process {pid}{}); stop that one first",
        if state.is_empty() { String::new() } else { format!(", {state}") }
    )]
    Held {
        /// The log.
        log: String,
        /// The holder's name.
        owner: String,
        /// Its process.
        pid: u32,
        /// Its program, and whether it is stopped, as far as the system shows it.
        state: String,
    },
    /// The records were trimmed.
    #[error("the record {offset} was trimmed; the oldest one is {first}")]
    Trimmed {
        /// The requested offset.
        offset: u64,
        /// The oldest offset.
        first: u64,
    },
    /// The watermark of the read does not cover the record yet.
    #[error("the record {offset} is not there yet; the watermark is {end}; wait for it")]
    Ahead {
        /// The requested offset.
        offset: u64,
        /// The watermark.
        end: u64,
    },
    /// An epoch began above the end of the one before: no record has the offset.
    #[error("no record has the offset {offset}; the next one is {next}")]
    LeftOut {
        /// The requested offset.
        offset: u64,
        /// The next epoch's start.
        next: u64,
    },
    /// The record cannot be read.
    #[error("the record {offset} is damaged ({what}); restore the log from a copy")]
    Damaged {
        /// Its offset.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// No epoch has begun in this run.
    #[error("no epoch has begun since the log was opened; begin one before the first append")]
    NoEpoch,
    /// The epoch cannot begin: its number or start contradicts the log.
    #[error("epoch {number} cannot begin at {start}: {reason}")]
    Epoch {
        /// Its number.
        number: u64,
        /// Its start.
        start: u64,
        /// The cause.
        reason: String,
    },
    /// The watermark cannot move there.
    #[error("cannot {what} {offset}: it must be within {from} and {to}")]
    OutOfRange {
        /// The operation.
        what: &'static str,
        /// The requested offset.
        offset: u64,
        /// The lowest one that is possible.
        from: u64,
        /// The highest one that is possible.
        to: u64,
    },
    /// A limit of sizes or numbers.
    #[error("{what}: {value} exceeds the limit of {limit}")]
    Limit {
        /// What exceeds it.
        what: &'static str,
        /// The value.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// A new epoch superseded the records that were waited for.
    #[error("the records below {end} were superseded by an epoch that began at {start}")]
    Superseded {
        /// The offset that was waited for.
        end: u64,
        /// The new epoch's start.
        start: u64,
    },
    /// The timeout passed.
    #[error("the watermark did not reach {end} within {waited:?}; it is {at}")]
    TimedOut {
        /// The offset that was waited for.
        end: u64,
        /// The watermark.
        at: u64,
        /// The time waited.
        waited: Duration,
    },
    /// The disk or the quota is full: nothing of the batch is in the log. Appends succeed again
    /// once there is room.
    #[error("{cause}")]
    NoRoom {
        /// The transport's message, with the place and the remedy.
        cause: String,
    },
    /// The log was closed.
    #[error("the exclusive log was closed; open it again")]
    Closed,
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// Called once with the watermarks, or with the error that made the wait pointless.
pub type OnWatermark = Box<dyn FnOnce(Result<Watermarks, ExclusiveError>) + Send>;

/// A log that one process owns. Dropping the handle without [`close`](Self::close) counts as the
/// death of the process. Handles may be shared by threads; appends come one after the other.
pub trait ExclusiveLog: Send + Sync + 'static {
    /// What was found when the log was opened.
    fn last_run(&self) -> LastRun;
    /// The epochs that have records, or had any, oldest first, without trimmed ones.
    fn epochs(&self) -> Vec<Epoch>;
    /// Begins an epoch: syncs all before it, then its header. All is on the disk when this returns.
    /// A process may begin several. *stored* and *durable* move to its start.
    ///
    /// # Errors
    /// [`ExclusiveError::Epoch`]: its number is not new, or it begins below *committed*.
    fn begin_epoch(&self, new: &NewEpoch<'_>) -> Result<(), ExclusiveError>;
    /// Appends records as one batch, which exists whole or not at all after any crash; returns
    /// their offsets. They are then *stored*. One checksum covers the batch.
    ///
    /// # Errors
    /// [`ExclusiveError::NoEpoch`], [`ExclusiveError::Limit`], [`ExclusiveError::NoRoom`]; the
    /// transport's error: nothing of the batch is in the log then.
    fn append(&self, records: &[&[u8]]) -> Result<Range<u64>, ExclusiveError>;
    /// The present watermarks.
    fn watermarks(&self) -> Watermarks;
    /// Moves *committed* up to an offset.
    ///
    /// # Errors
    /// [`ExclusiveError::OutOfRange`] below the present one, or above *stored*.
    fn commit(&self, end: u64) -> Result<(), ExclusiveError>;
    /// Blocks until a watermark has reached an offset. Waiting for [`Watermark::Durable`] requests
    /// a sync.
    ///
    /// # Errors
    /// [`ExclusiveError::TimedOut`], [`ExclusiveError::Superseded`], [`ExclusiveError::Closed`]; a
    /// failed sync.
    fn wait(
        &self,
        mark: Watermark,
        end: u64,
        timeout: Option<Duration>,
    ) -> Result<Watermarks, ExclusiveError>;
    /// The same without blocking: calls back once, at once or from another thread, which the
    /// callback must not block. At most [`MAX_WAITS`] may be pending.
    fn notify(&self, mark: Watermark, end: u64, call: OnWatermark);
    /// A record below a watermark, in place: its bytes stay as they are while they exist, also
    /// after a trim.
    ///
    /// # Errors
    /// [`ExclusiveError::Trimmed`], [`ExclusiveError::Ahead`], [`ExclusiveError::LeftOut`],
    /// [`ExclusiveError::Damaged`].
    fn read(&self, offset: u64, within: Watermark) -> Result<Bytes, ExclusiveError>;
    /// Visits the records of a range in order, up to a watermark, each as [`read`](Self::read)
    /// returns it; returns the offset behind the last visited one. Offsets that no record has are
    /// left out.
    ///
    /// # Errors
    /// As [`read`](Self::read), for the first record; an empty range is none.
    fn scan(
        &self,
        range: Range<u64>,
        within: Watermark,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<u64, ExclusiveError>;
    /// Makes records below an offset unreadable, for ever, and gives their room back as far as
    /// whole files allow. Pinned bytes stay.
    ///
    /// # Errors
    /// [`ExclusiveError::OutOfRange`] above *committed*; below the oldest record is none.
    fn trim(&self, below: u64) -> Result<(), ExclusiveError>;
    /// Syncs all, marks the run as ended cleanly, and releases the log. Pending waits and all later
    /// calls fail with [`ExclusiveError::Closed`].
    ///
    /// # Errors
    /// The transport's error: the run did not end cleanly.
    fn close(&self) -> Result<(), ExclusiveError>;
}
