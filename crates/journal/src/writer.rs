//! Appending: frames are serialised and checksummed outside the lock; under it, they are copied
//! behind the tail, and the tail moves.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use helio_core::{HeadersRef, Producer, SchemaId, Tai, TraceId};

use crate::control::LOCK;
use crate::error::{AppendError, JournalError};
use crate::frame::{self, Body, FrameHeader, MAX_KEY_BYTES, MAX_RECORD_BYTES, PAYLOAD_ALIGNMENT};
use crate::hash::KeyHash;
use crate::keys::{DELETED, Keys};
use crate::map::Map;
use crate::partition::{FrameDemand, Guard, POPULATE_BYTES, Partition};
use crate::producers::Claim;
use crate::segment::{self, Segment};

/// One sample to append.
#[derive(Debug, Clone, Copy, Default)]
pub struct Record<'a> {
    /// The key; empty for none. At most [`MAX_KEY_BYTES`].
    pub key: &'a [u8],
    /// The payload. With the key at most [`MAX_RECORD_BYTES`].
    pub payload: &'a [u8],
    /// Its time of publication.
    pub time: Tai,
    /// The payload's schema.
    pub schema: SchemaId,
    /// The routing byte.
    pub level: u8,
    /// Its trace, if it has one.
    pub trace: Option<TraceId>,
    /// Named values beside the payload; they do not count towards [`MAX_RECORD_BYTES`].
    pub headers: HeadersRef<'a>,
}

/// The outcome of [`Writer::append_batch`].
#[derive(Debug)]
pub struct AppendedBatch {
    /// The offsets of the appended records.
    pub offsets: Range<u64>,
    /// Why the record behind them failed; neither it nor a later one is in the log.
    pub failed: Option<AppendError>,
}

impl<'a> Record<'a> {
    #[inline]
    fn body(&self) -> Body<'a> {
        let Self { trace, headers, key, payload, .. } = *self;
        Body { trace, headers, key, payload, pad: 0 }
    }
}

/// A record with the parts of its frame that are known before the lock is taken.
struct PreparedFrame<'a> {
    record: Record<'a>,
    len: u32,
    flags: u8,
    crc: u32,
    hash: KeyHash,
}

impl<'a> PreparedFrame<'a> {
    fn new(record: &Record<'a>, partition: &Partition) -> Result<Self, AppendError> {
        if record.key.len() > MAX_KEY_BYTES {
            return Err(AppendError::KeyTooLong(record.key.len()));
        }
        let body = record.body();
        let Some((len, flags)) = body.plan() else {
            return Err(AppendError::TooLong(record.key.len() + record.payload.len()));
        };
        debug_assert!(record.payload.len() <= MAX_RECORD_BYTES);
        let crc = body.crc();
        let hash = partition.hash(record.key);
        Ok(Self { record: *record, len, flags, crc, hash })
    }

    fn stride(&self) -> u64 {
        frame::stride(self.len as usize) as u64
    }

    fn room(&self, aligned: bool) -> FrameDemand {
        match aligned {
            false => FrameDemand { bytes: self.stride(), version: frame::version(self.flags) },
            true => FrameDemand {
                bytes: self.stride() + PAYLOAD_ALIGNMENT as u64,
                version: segment::VERSION,
            },
        }
    }
}

/// Appends to one partition under a producer's claim.
pub struct Writer {
    partition: Arc<Partition>,
    number: u32,
    claim: Arc<Claim>,
    table: Arc<Map>,
    segment: Option<Arc<Segment>>,
    keys: Option<Arc<Keys>>,
    incarnation: u64,
    sequence: u64,
    /// The position behind this writer's last record.
    written: u64,
    /// A segment's number, and the position up to which its pages were made writable.
    ready: (u64, u64),
    /// Whether payloads begin at multiples of [`PAYLOAD_ALIGNMENT`] bytes.
    aligned: bool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("producer", &self.claim.producer).finish_non_exhaustive()
    }
}

impl Writer {
    pub(crate) fn new(partition: Arc<Partition>, number: u32, claim: Arc<Claim>) -> Self {
        let sequence = claim.sequence(number);
        let table = claim.map();
        let (segment, keys, written, ready) = (None, None, 0, (0, 0));
        let incarnation = claim.producer.incarnation;
        Self {
            partition,
            number,
            claim,
            table,
            segment,
            keys,
            incarnation,
            sequence,
            written,
            ready,
            aligned: false,
        }
    }

    /// Lets each later payload begin at a multiple of [`PAYLOAD_ALIGNMENT`] bytes of its segment's
    /// map, at the cost of up to 63 bytes a record. Compaction, which copies last values to other
    /// places, does not keep the alignment.
    pub fn align_payloads(&mut self) {
        self.aligned = true;
    }

    /// Returns the producer that this writer publishes as.
    #[must_use]
    pub fn producer(&self) -> &Producer {
        &self.claim.producer
    }

    /// Returns the sequence number of this writer's last record; 0 before the first.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Sets the incarnation and sequence number of the next record, for samples that were published
    /// elsewhere ([`Topic::adopt`](crate::Topic::adopt)).
    ///
    /// # Errors
    /// [`AppendError::Fenced`] if the name was claimed again.
    pub fn identify(&mut self, incarnation: u64, sequence: u64) -> Result<(), AppendError> {
        self.claim.raise(incarnation)?;
        (self.incarnation, self.sequence) = (incarnation, sequence.saturating_sub(1));
        Ok(())
    }

    /// Appends one record; returns its offset. It is then *stored*: it survives the death of any
    /// process.
    ///
    /// # Errors
    /// [`AppendError`]; nothing of the record is in the log then.
    #[inline]
    pub fn append(&mut self, record: &Record<'_>) -> Result<u64, AppendError> {
        self.append_within(record, self.partition.env.options.lock_timeout)
    }

    /// The same, but waits for other writers at most that long, for threads that must not block.
    /// After that it fails with [`JournalError::Stuck`].
    ///
    /// # Errors
    /// As [`Writer::append`].
    #[inline]
    pub fn append_within(
        &mut self,
        record: &Record<'_>,
        limit: Duration,
    ) -> Result<u64, AppendError> {
        let planned = PreparedFrame::new(record, &self.partition)?;
        let partition = Arc::clone(&self.partition);
        self.prefault(partition.control.tail(), planned.stride());
        let guard = partition.lock_within(LOCK, limit)?;
        self.claim.check_fence(&self.table)?;
        let offset = self.put(&guard, &planned)?;
        drop(guard);
        partition.ring();
        self.prefault(self.written, POPULATE_BYTES);
        Ok(offset)
    }

    /// Appends consecutive records under one lock. Not atomic: the records before a failed one are
    /// in the log.
    pub fn append_batch(&mut self, records: &[Record<'_>]) -> AppendedBatch {
        let mut offsets = 0..0;
        let failed = self.put_batch(records, &mut offsets).err();
        AppendedBatch { offsets, failed }
    }

    fn put_batch(
        &mut self,
        records: &[Record<'_>],
        offsets: &mut Range<u64>,
    ) -> Result<(), AppendError> {
        let planned: Result<Vec<_>, _> =
            records.iter().map(|r| PreparedFrame::new(r, &self.partition)).collect();
        let planned = planned?;
        let partition = Arc::clone(&self.partition);
        self.prefault(partition.control.tail(), planned.iter().map(PreparedFrame::stride).sum());
        let guard = partition.lock()?;
        self.claim.check_fence(&self.table)?;
        let first = partition.control.log_end().1;
        *offsets = first..first;
        let result = planned.iter().try_for_each(|p| {
            offsets.end = self.put(&guard, p)? + 1;
            Ok(())
        });
        drop(guard);
        partition.ring();
        self.prefault(self.written, POPULATE_BYTES);
        result
    }

    /// Copies a frame behind the tail and moves the tail.
    #[inline]
    fn put(&mut self, guard: &Guard<'_>, planned: &PreparedFrame<'_>) -> Result<u64, JournalError> {
        let partition = guard.partition;
        let segment = partition.room(guard, &mut self.segment, planned.room(self.aligned))?;
        let keys = match partition.keeps_last() {
            true => Some(partition.keys(guard, &mut self.keys)?),
            false => None,
        };
        let link = keys.as_ref().and_then(|keys| keys.get(planned.hash)).unwrap_or(0);
        let (pos, offset) = partition.certain_log_end()?;
        let record = &planned.record;
        let mut header = FrameHeader {
            len: planned.len,
            crc: 0,
            offset,
            time: record.time,
            sequence: self.sequence + 1,
            schema: record.schema,
            incarnation: self.incarnation,
            link,
            producer: self.claim.id,
            key_len: record.key.len() as u16,
            level: record.level,
            flags: planned.flags,
            pad: 0,
        };
        if self.aligned {
            header.align(segment.file_position(pos), record.payload.len());
        }
        let stride = header.stride() as u64;
        let bytes = header.seal(planned.crc, segment.head.id);
        segment.write(pos, &bytes, &Body { pad: header.pad, ..record.body() });
        let time = partition.advance_time(record.time);
        partition.control.commit(pos + stride, offset + 1);
        self.sequence += 1;
        if let Some(keys) = keys {
            let deletes = record.body().is_null();
            keys.put(planned.hash, if deletes { DELETED } else { pos });
            partition.control.keys_upto().store(pos + stride, Release);
        }
        segment.note(offset, pos, time);
        self.written = pos + stride;
        Ok(offset)
    }

    /// Makes pages writable outside the lock: before the append those of this record, after it
    /// those of the next.
    #[inline]
    fn prefault(&mut self, pos: u64, need: u64) {
        let Some(segment) = &self.segment else { return };
        let ready = if self.ready.0 == segment.head.seq { self.ready.1 } else { 0 };
        self.ready = (segment.head.seq, self.partition.prefault(segment, pos, need, ready));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Not left to the keeper's thread alone: the process may end with this writer. The next one
        // tries again.
        let _ = self.partition.settle_retention();
        self.claim.set_sequence(self.number, self.sequence);
    }
}
