//! An exclusive log as a source, and as a copy.
//!
//! Constraints: a copy has the records of the source's line at the source's offsets. A process of
//! the copy begins an epoch of its own before its first append, so its epochs have numbers of their
//! own; the header of each names the source's epoch.
//!
//! Format of a copy's epoch header, little-endian: `HELIOCPY`, version (4), CRC-32C of the source's
//! start and header (4), the source's number (8), its start (8), its header.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use bytes::Bytes;
use helio_bus::exclusive::{
    Epoch, ExclusiveError, ExclusiveLog, LogDurability, MAX_EPOCH_HEADER_BYTES, NewEpoch, Watermark,
};
use helio_bus::mirror::{
    CopiedEpoch, CopyMarks, CopyPosition, MirrorBatch, MirrorError, MirrorItem, MirrorSink,
    MirrorSource,
};
use helio_bus::transport::locked;

/// Bytes of records at which a batch is closed; a longer record is a batch of its own.
pub const BATCH_BYTES: usize = 512 << 10;
/// Records of a batch, at most.
pub const BATCH_RECORDS: usize = 4096;

const COPY_MAGIC: &[u8; 8] = b"HELIOCPY";
const COPY_VERSION: u32 = 1;
const COPY_HEAD_BYTES: usize = 32;

fn two_lines(reason: impl Into<String>) -> MirrorError {
    MirrorError::TwoLines { reason: reason.into() }
}

/// What identifies an epoch beside its number.
fn epoch_check(start: u64, header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&start.to_le_bytes()), header)
}

/// The CRC of a record; `None` if there is none.
fn record_check(log: &dyn ExclusiveLog, next: u64) -> Result<Option<u32>, ExclusiveError> {
    let Some(offset) = next.checked_sub(1) else { return Ok(None) };
    match log.read(offset, Watermark::Stored) {
        Ok(record) => Ok(Some(crc32c::crc32c(&record))),
        Err(ExclusiveError::Trimmed { .. } | ExclusiveError::LeftOut { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The source's epochs, with how much of each counts.
struct Line(Vec<(Epoch, u64)>);

impl Line {
    fn of(log: &dyn ExclusiveLog) -> Self {
        let mut line: Vec<_> = log.epochs().into_iter().map(|epoch| (epoch, 0)).collect();
        let mut least = u64::MAX;
        for (epoch, end) in line.iter_mut().rev() {
            *end = epoch.end.min(least);
            least = least.min(epoch.start);
        }
        Self(line)
    }

    fn at(&self, number: u64) -> Option<usize> {
        self.0.iter().position(|(epoch, _)| epoch.number == number)
    }

    fn newest(&self) -> Option<u64> {
        self.0.last().map(|(epoch, _)| epoch.number)
    }
}

/// One wake-up for any number of polls, however often sessions change.
#[derive(Default)]
struct Armed(Arc<Mutex<(bool, Option<ExclusiveError>)>>);

impl Armed {
    /// Wakes once a watermark has reached an offset, or was set back.
    fn notify(
        &self,
        log: &dyn ExclusiveLog,
        mark: Watermark,
        end: u64,
        waker: &Waker,
    ) -> Result<(), ExclusiveError> {
        let mut state = locked(&self.0);
        if let Some(error) = &state.1 {
            return Err(error.clone());
        }
        if std::mem::replace(&mut state.0, true) {
            return Ok(());
        }
        drop(state);
        let (armed, waker) = (Arc::clone(&self.0), waker.clone());
        let call = move |reached| {
            let failed = match reached {
                Err(error) if !matches!(error, ExclusiveError::Superseded { .. }) => Some(error),
                _ => None,
            };
            *locked(&armed) = (false, failed);
            waker.wake();
        };
        log.notify(mark, end, Box::new(call));
        Ok(())
    }
}

/// Reads an exclusive log, up to *stored*.
pub struct LogSource {
    log: Arc<dyn ExclusiveLog>,
    /// The epoch's number, and whether it was announced.
    epoch: Option<(u64, bool)>,
    next: u64,
    committed: u64,
    stored_armed: Armed,
    committed_armed: Armed,
    waker: Arc<Forwarding>,
}

/// The waker of the session that polls now: a wait may outlive the session that began it.
#[derive(Default)]
struct Forwarding(Mutex<Option<Waker>>);

impl std::task::Wake for Forwarding {
    fn wake(self: Arc<Self>) {
        let waker = locked(&self.0).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl LogSource {
    /// A source at the start of a log that this process owns.
    #[must_use]
    pub fn new(log: Arc<dyn ExclusiveLog>) -> Self {
        Self {
            log,
            epoch: None,
            next: 0,
            committed: 0,
            stored_armed: Armed::default(),
            committed_armed: Armed::default(),
            waker: Arc::default(),
        }
    }

    /// Checks that the copy is one of this log, and returns where it continues.
    fn check(&self, copy: &CopyPosition, line: &Line) -> Result<(u64, u64), MirrorError> {
        let first = self.log.watermarks().first;
        let Some(at) = line.at(copy.epoch) else {
            let oldest = line.0.first().map_or(0, |(epoch, _)| epoch.number);
            return match copy.epoch {
                epoch if epoch < oldest => Err(MirrorError::Gone { next: copy.next, first }),
                epoch => Err(two_lines(format!("it has epoch {epoch}, which never began here"))),
            };
        };
        let (epoch, end) = &line.0[at];
        if epoch_check(epoch.start, &epoch.header) != copy.epoch_check {
            return Err(two_lines(format!("its epoch {} is another one", copy.epoch)));
        }
        let next = copy.next.min(*end);
        if next < first {
            return Err(MirrorError::Gone { next, first });
        }
        if next == copy.next
            && let (Some(theirs), Some(ours)) =
                (copy.record_check, record_check(self.log.as_ref(), next)?)
            && theirs != ours
        {
            return Err(two_lines(format!("its record {} is another one", next - 1)));
        }
        Ok((copy.epoch, next))
    }

    fn announce(&mut self, epoch: &Epoch) -> MirrorItem {
        self.epoch = Some((epoch.number, true));
        self.next = self.next.max(epoch.start);
        let (number, start, header) = (epoch.number, epoch.start, epoch.header.clone());
        MirrorItem::Epoch(CopiedEpoch { number, start, from: self.next, header })
    }

    fn read(&self, end: u64) -> Result<(u64, Vec<Bytes>), MirrorError> {
        let (mut first, mut records, mut bytes) = (self.next, Vec::new(), 0);
        let scanned = self.log.scan(self.next..end, Watermark::Stored, &mut |offset, record| {
            if records.is_empty() {
                first = offset;
            } else if bytes + record.len() > BATCH_BYTES || records.len() == BATCH_RECORDS {
                return ControlFlow::Break(());
            }
            bytes += record.len();
            records.push(record);
            ControlFlow::Continue(())
        });
        match scanned {
            Ok(_) => Ok((first, records)),
            Err(ExclusiveError::Trimmed { offset, first }) => {
                Err(MirrorError::Gone { next: offset, first })
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl MirrorSource for LogSource {
    fn seek(&mut self, copy: &CopyPosition) -> Result<(), MirrorError> {
        self.committed = 0;
        let line = Line::of(self.log.as_ref());
        if copy.epoch == 0 {
            self.next = self.log.watermarks().first;
            self.epoch = None;
            return match copy.next {
                0 => Ok(()),
                _ => Err(two_lines("it has records of no epoch of a source")),
            };
        }
        let (epoch, next) = self.check(copy, &line)?;
        (self.epoch, self.next) = (Some((epoch, false)), next);
        Ok(())
    }

    fn poll(&mut self, below: u64, waker: &Waker) -> Result<Option<MirrorItem>, MirrorError> {
        *locked(&self.waker.0) = Some(waker.clone());
        loop {
            let line = Line::of(self.log.as_ref());
            let at = match self.epoch {
                None => line.0.iter().position(|(epoch, end)| {
                    *end > self.next || Some(epoch.number) == line.newest()
                }),
                Some((number, _)) => match line.at(number) {
                    Some(at) => Some(at),
                    None => {
                        let first = self.log.watermarks().first;
                        return Err(MirrorError::Gone { next: self.next, first });
                    }
                },
            };
            let marks = self.log.watermarks();
            if let Some(at) = at {
                let (epoch, end) = &line.0[at];
                if !self.epoch.is_some_and(|(_, announced)| announced) {
                    return Ok(Some(self.announce(epoch)));
                }
                if self.next >= *end
                    && let Some((next, _)) = line.0.get(at + 1)
                {
                    // Records above its start were superseded.
                    self.next = next.start;
                    return Ok(Some(self.announce(next)));
                }
                let end = (*end).min(below);
                if self.next < end {
                    let (first, records) = self.read(end)?;
                    if Line::of(self.log.as_ref()).newest() != line.newest() {
                        // Records of the new epoch may be among them.
                        continue;
                    }
                    let committed = marks.committed;
                    (self.next, self.committed) = (first + records.len() as u64, committed);
                    return Ok(Some(MirrorItem::Batch(MirrorBatch { first, committed, records })));
                }
                if marks.committed > self.committed && marks.committed <= self.next {
                    let (first, committed) = (self.next, marks.committed);
                    self.committed = committed;
                    let records = Vec::new();
                    return Ok(Some(MirrorItem::Batch(MirrorBatch { first, committed, records })));
                }
            }
            let waker = Waker::from(Arc::clone(&self.waker));
            let log = self.log.as_ref();
            self.stored_armed.notify(log, Watermark::Stored, marks.stored + 1, &waker)?;
            self.committed_armed.notify(log, Watermark::Committed, marks.committed + 1, &waker)?;
            let now = log.watermarks();
            if (now.stored, now.committed) == (marks.stored, marks.committed)
                && Line::of(log).newest() == line.newest()
            {
                return Ok(None);
            }
        }
    }

    fn end(&self) -> u64 {
        self.log.watermarks().stored
    }
}

/// Writes a copy to an exclusive log that this process owns.
pub struct LogSink {
    log: Arc<dyn ExclusiveLog>,
    durability: LogDurability,
    /// The source's number of the epoch that this process began.
    began: Option<u64>,
}

/// The source's epoch that an epoch of a copy continues; `None`: it is no copy's.
#[must_use]
pub fn source_epoch(epoch: &Epoch) -> Option<CopiedEpoch> {
    let head = epoch.header.get(..COPY_HEAD_BYTES)?;
    let word = |at: usize| head[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
    let half = |at: usize| head[at..].first_chunk().map(|half| u32::from_le_bytes(*half));
    let (number, start) = (word(16)?, word(24)?);
    let header = epoch.header.slice(COPY_HEAD_BYTES..);
    let whole = &head[..8] == COPY_MAGIC
        && half(8)? == COPY_VERSION
        && half(12)? == epoch_check(start, &header);
    whole.then_some(CopiedEpoch { number, start, from: epoch.start, header })
}

impl LogSink {
    /// A copy in a log that is empty, or was a copy before.
    ///
    /// # Errors
    /// [`MirrorError::TwoLines`] if the log has epochs of its own.
    pub fn new(log: Arc<dyn ExclusiveLog>, durability: LogDurability) -> Result<Self, MirrorError> {
        if let Some(own) = log.epochs().iter().find(|epoch| source_epoch(epoch).is_none()) {
            return Err(two_lines(format!("its epoch {} was written by no mirror", own.number)));
        }
        Ok(Self { log, durability, began: None })
    }
}

impl MirrorSink for LogSink {
    fn position(&mut self) -> Result<CopyPosition, MirrorError> {
        let Some(last) = self.log.epochs().last().and_then(source_epoch) else {
            return Ok(CopyPosition::default());
        };
        let next = self.log.watermarks().stored;
        let record_check = record_check(self.log.as_ref(), next)?;
        let epoch_check = epoch_check(last.start, &last.header);
        Ok(CopyPosition { next, epoch: last.number, epoch_check, record_check })
    }

    fn begin(&mut self, epoch: &CopiedEpoch) -> Result<(), MirrorError> {
        let CopiedEpoch { number, start, from, header } = epoch;
        let marks = self.log.watermarks();
        let last = self.log.epochs().last().cloned();
        let newest = last.as_ref().and_then(source_epoch).map_or(0, |last| last.number);
        if *number < newest {
            return Err(two_lines(format!("epoch {number} comes after epoch {newest}")));
        }
        if self.began == Some(*number) && marks.stored == *from {
            return Ok(());
        }
        if *from < marks.committed {
            let committed = marks.committed;
            let reason = format!("it has committed {committed}, and epoch {number} is at {from}");
            return Err(two_lines(reason));
        }
        if header.len() + COPY_HEAD_BYTES > MAX_EPOCH_HEADER_BYTES {
            let limit = (MAX_EPOCH_HEADER_BYTES - COPY_HEAD_BYTES) as u64;
            let (what, value) = ("bytes of a copied epoch's header", header.len() as u64);
            return Err(MirrorError::Limit { what, value, limit });
        }
        let mut bytes = COPY_MAGIC.to_vec();
        bytes.extend_from_slice(&COPY_VERSION.to_le_bytes());
        bytes.extend_from_slice(&epoch_check(*start, header).to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&start.to_le_bytes());
        bytes.extend_from_slice(header);
        let local = last.map_or(1, |last| last.number + 1);
        self.log.begin_epoch(&NewEpoch { number: local, start: *from, header: &bytes })?;
        self.began = Some(*number);
        Ok(())
    }

    fn store(&mut self, batch: &MirrorBatch, durable: &Waker) -> Result<(), MirrorError> {
        let marks = self.log.watermarks();
        if self.began.is_none() || batch.first != marks.stored {
            let (first, next) = (batch.first, marks.stored);
            return Err(two_lines(format!("records from {first} on came, and {next} is next")));
        }
        let records: Vec<&[u8]> = batch.records.iter().map(Bytes::as_ref).collect();
        let end = self.log.append(&records)?.end;
        let committed = batch.committed.min(end);
        if committed > marks.committed {
            self.log.commit(committed)?;
        }
        if self.durability == LogDurability::Disk && !records.is_empty() {
            let durable = durable.clone();
            self.log.notify(Watermark::Durable, end, Box::new(move |_| durable.wake()));
        }
        Ok(())
    }

    fn marks(&self) -> Arc<dyn Fn() -> CopyMarks + Send + Sync> {
        let log = Arc::clone(&self.log);
        Arc::new(move || {
            let marks = log.watermarks();
            CopyMarks { stored: marks.stored, durable: marks.durable }
        })
    }
}
