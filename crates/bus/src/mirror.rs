//! Mirrors: a log copied to another machine, and its user's messages in the same order.
//!
//! A service receives a [`Mirror`] from its program and knows no transport below it. Two ends hold
//! one *session* at a time. In it travel the records of a [`MirrorSource`] to the peer's
//! [`MirrorSink`], the user's messages between them, and watermarks back. Beats travel beside it,
//! on a connection of their own, and so does the report of a guard that the peer ended.
//!
//! Constraints. Nothing of an older session is delivered after [`MirrorUser::opened`] of a newer
//! one. The source never waits for the peer: what is not copied yet lies in its log.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

use crate::exclusive::ExclusiveError;

/// The longest message of a user, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Messages of a session that wait to be sent, at most.
pub const MAX_QUEUED_MESSAGES: usize = 1024;

/// The name of a session: the random numbers of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SessionName {
    /// The number of the end that connected.
    pub dialer: u64,
    /// The number of the end that listens.
    pub listener: u64,
}

/// An epoch of the source, as it is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedEpoch {
    /// Its number at the source.
    pub number: u64,
    /// The offset of its first record.
    pub start: u64,
    /// The offset of the next record that is sent; records of the copy at or above are superseded.
    pub from: u64,
    /// What the source's owner stored with it.
    pub header: Bytes,
}

/// Where a copy ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyPosition {
    /// The offset of the next record.
    pub next: u64,
    /// The last epoch's number at the source; 0 for a blank copy.
    pub epoch: u64,
    /// The CRC-32C of that epoch's start and header.
    pub epoch_check: u32,
    /// The CRC-32C of the record before `next`; `None` if it was trimmed or never existed.
    pub record_check: Option<u32>,
}

/// Watermarks of a copy, as [`crate::exclusive::Watermark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyMarks {
    /// Records below survive the death of the copy's process.
    pub stored: u64,
    /// Records below survive the loss of the copy's power.
    pub durable: u64,
}

/// Consecutive records of one epoch; without records, a new committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorBatch {
    /// The offset of the first record.
    pub first: u64,
    /// The offset below which the source has committed records.
    pub committed: u64,
    /// The records.
    pub records: Vec<Bytes>,
}

/// What a source sends next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorItem {
    /// The epoch of the batches that follow.
    Epoch(CopiedEpoch),
    /// Records of the last epoch.
    Batch(MirrorBatch),
}

/// Why a session ended, or could not begin.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum MirrorError {
    /// The connection failed.
    #[error("{peer}: {reason}")]
    Connection {
        /// The peer's address.
        peer: String,
        /// The cause.
        reason: String,
    },
    /// The peer refused the session.
    #[error("{peer} refused the session: {reason}")]
    Refused {
        /// The peer's address.
        peer: String,
        /// Its reason.
        reason: String,
    },
    /// The peer is not admitted.
    #[error("{peer} is not admitted: its certificate has the names {names:?}; allow one of them")]
    NotAdmitted {
        /// The peer's address.
        peer: String,
        /// The names.
        names: Vec<String>,
    },
    /// Bytes that no peer of this version sends.
    #[error("{peer} sent what is no mirror's: {reason}; check versions and the path between them")]
    Protocol {
        /// The peer's address.
        peer: String,
        /// What is wrong.
        reason: String,
    },
    /// No beat came in time.
    #[error("{peer} has sent no beat for {silence:?}")]
    Silent {
        /// The peer's address.
        peer: String,
        /// The limit.
        silence: Duration,
    },
    /// The copy is none of this log.
    #[error("the copy is not one of this log: {reason}; copy it again into an empty log")]
    TwoLines {
        /// What differs.
        reason: String,
    },
    /// The records that the copy needs next are gone.
    #[error("the copy needs record {next}, and the oldest one is {first}; restore it from a copy")]
    Gone {
        /// The copy's next record.
        next: u64,
        /// The oldest record of the source.
        first: u64,
    },
    /// A log failed.
    #[error(transparent)]
    Log(#[from] ExclusiveError),
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
    /// A newer session replaced it.
    #[error("a newer session replaced this one")]
    Replaced,
    /// This end, or the peer, closed it.
    #[error("the session was closed")]
    Closed,
}

/// Reads the log that is copied. One session at a time uses it.
pub trait MirrorSource: Send {
    /// Continues a copy, from its position.
    ///
    /// # Errors
    /// [`MirrorError::TwoLines`], [`MirrorError::Gone`]; the log's errors.
    fn seek(&mut self, copy: &CopyPosition) -> Result<(), MirrorError>;
    /// The next item with records below an offset only; without one, the waker is called once
    /// there may be one.
    ///
    /// # Errors
    /// [`MirrorError::Gone`]; the log's errors.
    fn poll(&mut self, below: u64, waker: &Waker) -> Result<Option<MirrorItem>, MirrorError>;
    /// The offset behind the last record, for the lag.
    fn end(&self) -> u64;
}

/// Writes the copy. One session at a time uses it.
pub trait MirrorSink: Send {
    /// Where the copy ends.
    ///
    /// # Errors
    /// The log's errors.
    fn position(&mut self) -> Result<CopyPosition, MirrorError>;
    /// An epoch of the source begins or continues.
    ///
    /// # Errors
    /// [`MirrorError::TwoLines`] if committed records would be superseded; the log's errors.
    fn begin(&mut self, epoch: &CopiedEpoch) -> Result<(), MirrorError>;
    /// Stores a batch; the waker is called when it is durable.
    ///
    /// # Errors
    /// [`MirrorError::TwoLines`] if it does not follow the copy's end; the log's errors.
    fn store(&mut self, batch: &MirrorBatch, durable: &Waker) -> Result<(), MirrorError>;
    /// Reads the watermarks, from any thread.
    fn marks(&self) -> Arc<dyn Fn() -> CopyMarks + Send + Sync>;
}

/// When a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Behind what was sent before.
    Next,
    /// Behind all records below an offset, and before any other.
    After(u64),
}

/// A session: all calls are for this one only.
pub trait MirrorSession: Send + Sync {
    /// Its name.
    fn name(&self) -> SessionName;
    /// Queues a message. Messages keep their order.
    ///
    /// # Errors
    /// [`MirrorError::Limit`], [`MirrorError::Closed`].
    fn send(&self, message: Bytes, order: Order) -> Result<(), MirrorError>;
    /// Sends bytes at once on the connection of the beats.
    ///
    /// # Errors
    /// [`MirrorError::Limit`], [`MirrorError::Closed`]; the connection's error.
    fn beat(&self, payload: &[u8]) -> Result<(), MirrorError>;
    /// The peer's watermarks, as acknowledged in this session.
    fn acknowledged(&self) -> CopyMarks;
    /// Ends it.
    fn close(&self);
}

/// Receives what happens in sessions. Calls for one session come from few threads and must not
/// block: `message` and the sink's calls come in the order of the peer.
pub trait MirrorUser: Send + Sync {
    /// A session stands. Messages sent here leave before the peer's first one is delivered.
    fn opened(&self, _session: &Arc<dyn MirrorSession>) {}
    /// A message of the peer.
    fn message(&self, _session: SessionName, _message: Bytes) {}
    /// Bytes that came with a beat.
    fn beat(&self, _session: SessionName, _payload: Bytes) {}
    /// The peer's watermarks.
    fn acknowledged(&self, _session: SessionName, _marks: CopyMarks) {}
    /// The guard of the peer reports that it ended.
    fn ended(&self, _message: Bytes) {}
    /// A session ended, or an attempt to begin one failed.
    fn closed(&self, _session: Option<SessionName>, _reason: &MirrorError) {}
}

/// A user that only copies.
impl MirrorUser for () {}

/// Figures of an end since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MirrorFigures {
    /// Sessions that stood.
    pub sessions: u64,
    /// Records sent, repetitions after a loss of the connection included.
    pub sent_records: u64,
    /// Records received.
    pub received_records: u64,
    /// Bytes of records sent and received.
    pub record_bytes: u64,
    /// The peer's watermarks, as acknowledged last.
    pub acknowledged: CopyMarks,
    /// Records of the source that the peer has not acknowledged as stored.
    pub lag_records: u64,
    /// The last time between a beat and its echo.
    pub round_trip: Option<Duration>,
}

/// One end of a mirror. Dropping it ends its session.
pub trait Mirror: Send + Sync {
    /// The present session.
    fn session(&self) -> Option<Arc<dyn MirrorSession>>;
    /// Counts of this end.
    fn figures(&self) -> MirrorFigures;
    /// Ends the session and begins no other.
    fn close(&self);
}
