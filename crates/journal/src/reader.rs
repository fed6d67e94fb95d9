//! Reading: a position in the log and the segment around it. Readers take no lock.
//!
//! Constraints: only bytes below the committed tail are read, and each frame's checksum is checked.
//! While records are available, no system call is made. Damage, retention and compaction become
//! explicit gaps: a reader gets every offset from its start on, as a sample or in a gap, once, in
//! order.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use helio_core::{Header, HeadersRef, Producer, ProducerName, SchemaId, Tai, TraceId};

use crate::bell::Bell;
use crate::cursor::{Cursor, CursorStep, Gap};
use crate::error::JournalError;
use crate::frame::{self, Body, FrameHeader};
use crate::latest_by_key::{LatestByKey, LatestStep};
use crate::partition::Partition;
use crate::pins::{PinLimit, PinnedSegment, Pins};
use crate::producers::Producers;
use crate::wake_hints::Hint;

/// Where a reader starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// At this offset; earlier records are no gap.
    Offset(u64),
    /// At the oldest retained record.
    Earliest,
    /// Behind the newest record.
    Latest,
    /// At the first record with that time or a later one.
    Time(Tai),
    /// With the newest `n` records of each key, in the order of their offsets, then all later ones.
    LastPerKey(usize),
}

/// An item of a reader.
#[derive(Debug)]
pub enum Item<'a> {
    /// A record.
    Sample(SampleRef<'a>),
    /// Records that are missing.
    Gap(Gap),
}

/// A record in place, borrowed until the reader's next call.
#[derive(Debug, Clone, Copy)]
pub struct SampleRef<'a> {
    /// Its offset in the partition.
    pub offset: u64,
    /// When it was published.
    pub time: Tai,
    /// Its number among the records of its producer's incarnation in this partition, from 1,
    /// without holes.
    pub sequence: u64,
    /// The payload's schema.
    pub schema: SchemaId,
    /// The producer's incarnation.
    pub incarnation: u64,
    /// The producer's number in this topic; [`Reader::producer_name`] returns its name.
    pub producer_id: u32,
    /// The producer's name.
    pub producer: &'a ProducerName,
    /// The routing byte.
    pub level: u8,
    /// Its trace, if it has one.
    pub trace: Option<TraceId>,
    /// Named values beside the payload.
    pub headers: HeadersRef<'a>,
    /// The key; empty for none.
    pub key: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
    /// Its segment, if the reader [pins](Reader::pin_within) it.
    pub pin: Option<&'a Arc<PinnedSegment>>,
}

impl SampleRef<'_> {
    /// Returns an owned copy of the sample's header.
    #[must_use]
    pub fn header(&self) -> Header {
        let producer = Producer { name: self.producer.clone(), incarnation: self.incarnation };
        let (sequence, time, schema) = (self.sequence, self.time, self.schema);
        Header { producer, sequence, time, schema, level: self.level, trace: self.trace }
    }
}

/// Reads one partition.
pub struct Reader {
    partition: Arc<Partition>,
    names: ProducerNames,
    cursor: Cursor,
    latest: Option<LatestByKey>,
    pins: Option<Pins>,
    /// Identifies the reader, within this process, to the bells that it is armed with.
    id: Arc<u64>,
}

/// The armed state of a reader, detached from it. A ring disarms the partitions that rang; a thread
/// with many readers arms them again through their watches.
pub struct ReaderWatch {
    partition: Arc<Partition>,
    reader: Arc<u64>,
    pos: u64,
}

impl ReaderWatch {
    /// As [`Reader::arm`], at the reader's position when the watch was created.
    #[must_use]
    pub fn arm(&self, bell: &Bell) -> bool {
        bell.arm(&self.partition, &self.reader, self.pos)
    }

    /// Returns the hint of its partition's rings, see [`Bell::rung_for`].
    #[must_use]
    pub fn hint(&self) -> Hint {
        self.partition.hint()
    }
}

impl std::fmt::Debug for ReaderWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReaderWatch").field("pos", &self.pos).finish_non_exhaustive()
    }
}

/// Producers' names by id, looked up once each.
struct ProducerNames {
    producers: Arc<Producers>,
    known: HashMap<u32, ProducerName>,
    last: Option<(u32, ProducerName)>,
    unknown: ProducerName,
}

/// Returns the name of a producer whose own name is lost. Each has another one: readers would drop
/// the samples of two producers of one name as repeats.
fn unknown_name(id: u32) -> Option<ProducerName> {
    ProducerName::new(&format!("unknown-{id}")).ok()
}

impl ProducerNames {
    #[inline]
    fn get(&mut self, id: u32) -> &ProducerName {
        if self.last.as_ref().is_none_or(|l| l.0 != id) {
            let found = self.known.get(&id).cloned().or_else(|| self.producers.name(id));
            let name = found.or_else(|| unknown_name(id)).unwrap_or_else(|| self.unknown.clone());
            self.known.insert(id, name.clone());
            self.last = Some((id, name));
        }
        self.last.as_ref().map_or(&self.unknown, |l| &l.1)
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("offset", &self.cursor.next).finish_non_exhaustive()
    }
}

impl Reader {
    pub(crate) fn open(
        partition: Arc<Partition>,
        producers: Arc<Producers>,
        from: From,
    ) -> Result<Self, JournalError> {
        let unknown = ProducerName::new("unknown").map_err(|_| JournalError::ReadOnly)?;
        let names = ProducerNames { producers, known: HashMap::new(), last: None, unknown };
        let mut cursor = Cursor::at_end(&partition);
        let mut latest = None;
        match from {
            From::Latest => {}
            From::Earliest => cursor.rewind(&partition)?,
            From::Offset(offset) => cursor.seek_offset(&partition, offset)?,
            From::Time(time) => cursor.seek_time(&partition, time)?,
            From::LastPerKey(n) => {
                let found = LatestByKey::collect(&partition, n)?;
                cursor = Cursor::at_frame(&partition, found.upto())?;
                latest = Some(found);
            }
        }
        static IDS: AtomicU64 = AtomicU64::new(0);
        let id = Arc::new(IDS.fetch_add(1, Relaxed));
        Ok(Self { partition, names, cursor, latest, pins: None, id })
    }

    /// Lets records say which segment to [pin](PinnedSegment::pin) to keep their bytes in place.
    /// Those of last values, those beyond the limit, and those of a journal that is open for
    /// reading only do not.
    pub fn pin_within(&mut self, limit: &Arc<PinLimit>) {
        self.pins = Some(Pins::new(limit));
    }

    /// Returns the offset of the next record.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.cursor.next
    }

    /// Returns the offset that the next appended record will get.
    #[must_use]
    pub fn end_offset(&self) -> u64 {
        self.partition.log_end().1
    }

    /// Returns the number of records that are not read yet.
    #[must_use]
    pub fn lag(&self) -> u64 {
        let latest = self.latest.as_ref().map_or(0, |latest| latest.len() as u64);
        self.end_offset().saturating_sub(self.cursor.next) + latest
    }

    /// Returns the name of a producer, by the number that samples carry.
    #[must_use]
    pub fn producer_name(&self, id: u32) -> Option<ProducerName> {
        self.names.producers.name(id)
    }

    /// Arms a bell: the next append rings it. Returns true if records are available already: then
    /// do not wait.
    #[must_use]
    pub fn arm(&mut self, bell: &Bell) -> bool {
        let picked = self.latest.as_ref().is_some_and(|latest| latest.len() > 0);
        if picked || self.cursor.has_more() {
            return true;
        }
        self.cursor.warm();
        bell.arm(&self.partition, &self.id, self.cursor.pos)
    }

    /// Returns a watch on the reader's current position. Valid right after [`Reader::arm`] returned
    /// false.
    #[must_use]
    pub fn watch(&self) -> ReaderWatch {
        let (partition, reader) = (Arc::clone(&self.partition), Arc::clone(&self.id));
        ReaderWatch { partition, reader, pos: self.cursor.pos }
    }

    /// Returns the next record or gap; `None` at the end of the log.
    ///
    /// # Errors
    /// [`JournalError`] if files cannot be opened. Damage is no error but a gap.
    // Items borrow from the reader, which an iterator cannot express.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Item<'_>>, JournalError> {
        if self.latest.is_some() {
            return self.next_latest();
        }
        self.next_live()
    }

    #[inline]
    fn next_live(&mut self) -> Result<Option<Item<'_>>, JournalError> {
        match self.cursor.step(&self.partition)? {
            CursorStep::Nothing => Ok(None),
            CursorStep::Gap(gap) => Ok(Some(Item::Gap(gap))),
            CursorStep::Frame(pos, header) => {
                let body = self.cursor.body(pos, &header);
                let pin = match (&mut self.pins, self.cursor.segment()) {
                    (Some(pins), Some(segment)) => pins.of(segment),
                    _ => None,
                };
                let sample = sample(&mut self.names, &header, body);
                Ok(Some(Item::Sample(SampleRef { pin, ..sample })))
            }
        }
    }

    #[cold]
    fn next_latest(&mut self) -> Result<Option<Item<'_>>, JournalError> {
        let found = match &mut self.latest {
            Some(latest) => latest.next(&self.partition)?,
            None => None,
        };
        let Some(found) = found else {
            self.latest = None;
            return self.next_live();
        };
        Ok(Some(match (found, &self.latest) {
            (LatestStep::Frame(pos, header), Some(latest)) => {
                let body = latest.body(pos, &header);
                Item::Sample(sample(&mut self.names, &header, body))
            }
            (LatestStep::Gap(gap), _) => Item::Gap(gap),
            (LatestStep::Frame(_, header), None) => {
                Item::Sample(sample(&mut self.names, &header, &[]))
            }
        }))
    }

    /// Passes available items to `each`, at most `max`, until it breaks. Returns their number.
    ///
    /// # Errors
    /// As [`Reader::next`].
    pub fn poll(
        &mut self,
        max: usize,
        mut each: impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<usize, JournalError> {
        for count in 0..max {
            match self.next()? {
                None => return Ok(count),
                Some(item) => {
                    if each(item).is_break() {
                        return Ok(count + 1);
                    }
                }
            }
        }
        Ok(max)
    }
}

#[inline]
fn sample<'a>(names: &'a mut ProducerNames, header: &FrameHeader, body: &'a [u8]) -> SampleRef<'a> {
    let Body { trace, headers, key, payload, .. } = frame::split(header, body);
    SampleRef {
        offset: header.offset,
        time: header.time,
        sequence: header.sequence,
        schema: header.schema,
        incarnation: header.incarnation,
        producer_id: header.producer,
        producer: names.get(header.producer),
        level: header.level,
        trace,
        headers,
        key,
        payload,
        pin: None,
    }
}
