//! Appends to a partition of the journal.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use helio_core::Producer;
use helio_core::qos::Guarantee;
use helio_journal::{AppendError, JournalError, ProducerClaim, Topic};

use super::super::{BatchError, Published, Receipt, Record, Writer};
use super::topic::{Claims, unclaim};
use super::{SCHEME, Shared, failed};
use crate::error::{PublishError, SizeLimit, TransportError};
use crate::receipts::{PendingReceipt, pending_receipt};

/// The most records appended under one lock of a partition.
const MAX_BATCH_RECORDS: usize = 256;

/// How long a thread that must not block waits for other writers: longer than a running writer
/// holds the lock.
const LOCK_TIMEOUT: Duration = Duration::from_millis(1);

pub(super) struct JournalWriter {
    pub(super) writer: helio_journal::Writer,
    pub(super) topic: Topic,
    pub(super) partition: u32,
    pub(super) shared: Arc<Shared>,
    pub(super) claims: Arc<Mutex<Claims>>,
    pub(super) claim: ProducerClaim,
    /// Whether liveliness is by lease.
    pub(super) lease: bool,
    /// The offset of this writer's newest record.
    pub(super) newest: Option<u64>,
}

impl JournalWriter {
    /// Renews the lease.
    fn alive(&self) -> Result<(), AppendError> {
        let clock = &self.shared.clock;
        // The uptime first: a pause of this thread in between makes it older, never newer.
        let now = clock.uptime();
        self.claim.assert_alive(clock.now(), now)
    }

    fn receipt(&self, offset: u64, sequence: u64, guarantee: Guarantee) -> Receipt {
        let offset = Some(offset);
        Receipt { partition: self.partition, offset, sequence, guarantee }
    }

    fn published(&mut self, offset: u64, guarantee: Guarantee) -> Result<Published, PublishError> {
        self.newest = Some(offset);
        if self.lease {
            // The record is in the log; the next publish reports fencing.
            let _ = self.alive();
        }
        let sequence = self.writer.sequence();
        if guarantee < Guarantee::Durable {
            return Ok(Published::Done(self.receipt(offset, sequence, Guarantee::Stored)));
        }
        Ok(Published::Pending(self.durable(offset, sequence)?))
    }

    /// A receipt that is completed when all records up to an offset are on the disk.
    fn durable(&self, offset: u64, sequence: u64) -> Result<PendingReceipt, PublishError> {
        let (sender, pending) = pending_receipt();
        let receipt = self.receipt(offset, sequence, Guarantee::Durable);
        let call = Box::new(move |outcome: Result<(), JournalError>| {
            sender.complete(outcome.map(|()| receipt).map_err(not_synced));
        });
        let asked = self.topic.on_durable(self.partition, offset, call);
        // The record is in the log: only its durability is in doubt.
        asked.map_err(not_synced)?;
        Ok(pending)
    }

    /// Appends records in parts, between which other writers can append.
    fn append(&mut self, records: &[Record<'_>]) -> Result<(), AppendError> {
        for part in records.chunks(MAX_BATCH_RECORDS) {
            let batch: Vec<_> = part.iter().map(record).collect();
            let offsets = self.writer.append_batch(&batch)?;
            self.newest = offsets.end.checked_sub(1).or(self.newest);
        }
        Ok(())
    }

    fn refused(&self, error: AppendError) -> PublishError {
        PublishError::Transport(self.why(error))
    }

    fn why(&self, error: AppendError) -> TransportError {
        match error {
            AppendError::Fenced { newer, .. } => {
                TransportError::Fenced { producer: self.writer.producer().clone(), newer }
            }
            AppendError::TooLong(bytes) => too_large("the record", bytes),
            AppendError::KeyTooLong(bytes) => too_large("the key", bytes),
            AppendError::Journal(error) => failed("append")(error),
        }
    }
}

/// The record is in the log, but it may not survive power loss.
fn not_synced(error: JournalError) -> PublishError {
    match error {
        JournalError::TopicGone { .. } => PublishError::Transport(failed("sync")(error)),
        error => PublishError::Unknown { cause: error.to_string() },
    }
}

fn too_large(what: &'static str, bytes: usize) -> TransportError {
    let limit = match what {
        "the key" => helio_journal::MAX_KEY_BYTES,
        _ => helio_journal::MAX_RECORD_BYTES - helio_journal::MAX_KEY_BYTES,
    };
    let limit = SizeLimit::Bytes(limit);
    TransportError::TooLarge { what, bytes, limit, transport: SCHEME.to_owned() }
}

fn record<'a>(record: &Record<'a>) -> helio_journal::Record<'a> {
    helio_journal::Record {
        key: record.key,
        payload: record.payload,
        time: record.time,
        schema: record.schema,
        level: record.level,
        trace: record.trace,
        headers: record.headers,
    }
}

fn check_size(record: &Record<'_>) -> Result<(), PublishError> {
    let limit = helio_journal::MAX_RECORD_BYTES - helio_journal::MAX_KEY_BYTES;
    if record.payload.len() > limit {
        return Err(too_large("the payload", record.payload.len()).into());
    }
    if record.key.len() > helio_journal::MAX_KEY_BYTES {
        return Err(too_large("the key", record.key.len()).into());
    }
    Ok(())
}

impl Writer for JournalWriter {
    fn producer(&self) -> &Producer {
        self.writer.producer()
    }

    fn identify(&mut self, incarnation: u64, sequence: u64) -> Result<(), TransportError> {
        self.writer.identify(incarnation, sequence).map_err(|error| self.why(error))
    }

    fn publish(
        &mut self,
        sample: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Published, PublishError> {
        self.shared.check_open()?;
        check_size(sample)?;
        match self.writer.append(&record(sample)) {
            Ok(offset) => self.published(offset, guarantee),
            Err(error) => Err(self.refused(error)),
        }
    }

    fn try_publish(
        &mut self,
        sample: &Record<'_>,
        guarantee: Guarantee,
    ) -> Result<Option<Published>, PublishError> {
        self.shared.check_open()?;
        check_size(sample)?;
        match self.writer.append_within(&record(sample), LOCK_TIMEOUT) {
            Ok(offset) => self.published(offset, guarantee).map(Some),
            Err(AppendError::Journal(JournalError::Stuck { .. })) => Ok(None),
            Err(error) => Err(self.refused(error)),
        }
    }

    fn publish_batch(
        &mut self,
        records: &[Record<'_>],
        guarantee: Guarantee,
    ) -> Result<Option<Published>, Box<BatchError>> {
        let wrong = |cause| Box::new(BatchError { taken: 0, last: None, cause });
        self.shared.check_open().map_err(|error| wrong(error.into()))?;
        // The journal refuses a batch with a record that is too large; the bus accepts those before
        // it.
        let fitting = records.iter().position(|record| check_size(record).is_err());
        let fitting = &records[..fitting.unwrap_or(records.len())];
        let before = self.writer.sequence();
        let appended = self.append(fitting);
        let taken = (self.writer.sequence() - before) as usize;
        if let Err(error) = appended {
            // Only their number is known; a flush covers them all.
            let end = self.topic.info(self.partition).map(|info| info.end_offset);
            if let (Ok(end), 1..) = (end, taken) {
                self.newest = end.checked_sub(1).or(self.newest);
            }
            let cause = self.refused(error);
            return Err(Box::new(BatchError { taken, last: None, cause }));
        }
        let last = match self.newest {
            Some(offset) if taken > 0 => self.published(offset, guarantee).map(Some),
            _ => Ok(None),
        };
        let too_large = records.get(taken).and_then(|record| check_size(record).err());
        match (too_large, last) {
            (None, Ok(last)) => Ok(last),
            (Some(cause), last) => {
                Err(Box::new(BatchError { taken, last: last.ok().flatten(), cause }))
            }
            (None, Err(cause)) => Err(Box::new(BatchError { taken, last: None, cause })),
        }
    }

    fn assert_alive(&mut self) -> Result<(), TransportError> {
        self.shared.check_open()?;
        self.alive().map_err(|error| self.why(error))
    }

    fn flush(&mut self, guarantee: Guarantee) -> Result<Option<PendingReceipt>, PublishError> {
        match self.newest {
            Some(offset) if guarantee == Guarantee::Durable => {
                Ok(Some(self.durable(offset, self.writer.sequence())?))
            }
            _ => Ok(None),
        }
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        unclaim(&self.claims, &self.writer.producer().name);
    }
}
