//! Appends to a partition of the journal.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helio_core::Producer;
use helio_core::qos::Guarantee;
use helio_journal::{AppendError, AppendedBatch, JournalError, ProducerClaim, Topic};

use super::super::{BatchAdmission, Published, Receipt, Record, Writer, parts};
use super::topic::{Claims, unclaim};
use super::{SCHEME, Shared, failed};
use crate::error::{PublishError, SizeLimit, TransportError};
use crate::receipts::{PendingReceipt, ReceiptSender, pending_receipt};

/// The most records appended under one lock of a partition.
const MAX_LOCKED_RECORDS: usize = 256;
/// The most bytes appended under one lock of a partition: other writers wait for their copy, a few
/// tenths of a millisecond.
const MAX_LOCKED_BYTES: usize = 1 << 20;

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

    /// Appends records in parts, between which other writers can append. Returns the error of the
    /// record behind the appended ones.
    fn append(
        &mut self,
        records: &[Record<'_>],
        runs: &mut Vec<AppendedRun>,
    ) -> Option<AppendError> {
        for part in parts(records, MAX_LOCKED_RECORDS, MAX_LOCKED_BYTES) {
            let batch: Vec<_> = part.iter().map(record).collect();
            let AppendedBatch { offsets, failed } = self.writer.append_batch(&batch);
            if !offsets.is_empty() {
                let sequence = self.writer.sequence();
                runs.push(AppendedRun { offsets, sequence });
            }
            if failed.is_some() {
                return failed;
            }
        }
        None
    }

    /// The receipts of appended runs. One sync makes all of them durable.
    fn published_runs(&mut self, runs: Vec<AppendedRun>, guarantee: Guarantee) -> BatchAdmission {
        let mut admission = BatchAdmission::default();
        let Some(newest) = runs.last().map(|run| run.offsets.end - 1) else { return admission };
        self.newest = Some(newest);
        if self.lease {
            // The records are in the log; the next publish reports fencing.
            let _ = self.alive();
        }
        let stored = guarantee < Guarantee::Durable;
        let reached = if stored { Guarantee::Stored } else { Guarantee::Durable };
        let mut senders = Vec::new();
        for AppendedRun { offsets, sequence } in runs {
            let samples = (offsets.end - offsets.start) as usize;
            let receipt = self.receipt(offsets.end - 1, sequence, reached);
            if stored {
                admission.accept(samples, Published::Done(receipt));
            } else {
                let (sender, pending) = pending_receipt();
                senders.push((sender, receipt));
                admission.accept(samples, Published::Pending(pending));
            }
        }
        if !stored {
            self.complete_when_durable(newest, senders);
        }
        admission
    }

    fn complete_when_durable(&self, newest: u64, senders: Vec<(ReceiptSender, Receipt)>) {
        let complete = move |outcome: Result<(), JournalError>| {
            let outcome = outcome.map_err(not_synced);
            for (sender, receipt) in senders {
                sender.complete(outcome.clone().map(|()| receipt));
            }
        };
        // If it fails, the callback is dropped, and each receipt is completed as unknown.
        let _ = self.topic.on_durable(self.partition, newest, Box::new(complete));
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

/// Records of a batch that were appended under one lock.
struct AppendedRun {
    offsets: Range<u64>,
    /// The sequence number of the last one.
    sequence: u64,
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

    fn publish_batch(&mut self, records: &[Record<'_>], guarantee: Guarantee) -> BatchAdmission {
        if let Err(error) = self.shared.check_open() {
            return BatchAdmission::refused(error.into());
        }
        // The journal refuses a part with a record that is too large; the bus accepts those before
        // it.
        let too_large = |record: &Record<'_>| check_size(record).err();
        let wrong = records.iter().enumerate().find_map(|(at, r)| Some((at, too_large(r)?)));
        let fitting = wrong.as_ref().map_or(records.len(), |(at, _)| *at);
        let mut runs = Vec::new();
        let failed = self.append(&records[..fitting], &mut runs);
        let mut admission = self.published_runs(runs, guarantee);
        let failed = failed.map(|error| self.refused(error));
        admission.failed = failed.or(wrong.map(|(_, error)| error));
        admission
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
