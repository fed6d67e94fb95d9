//! Reading: a position in the log, the segment that it lies in, and nothing else that anyone waits
//! for.
//!
//! Constraints: only bytes below the committed tail are looked at; each frame's checksum is
//! checked; no system call is made while there is something to read. Damage, retention and
//! compaction turn into explicit gaps: a reader gets every offset from its start on, as a sample or
//! in a gap, once, in order.

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
use crate::producers::Producers;
use crate::wake_hints::Hint;

/// Where a reader starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// At this offset; what was before it is not told.
    Offset(u64),
    /// At the oldest record that is kept.
    Earliest,
    /// Behind the newest record.
    Latest,
    /// At the first record of that time or later.
    Time(Tai),
    /// With the newest `n` records of each key, in the order of their offsets, then all that
    /// follows.
    LastPerKey(usize),
}

/// What a reader gives.
#[derive(Debug)]
pub enum Item<'a> {
    /// A record.
    Sample(SampleRef<'a>),
    /// Records that it does not get.
    Gap(Gap),
}

/// A record where it lies, borrowed until the reader goes on.
#[derive(Debug, Clone, Copy)]
pub struct SampleRef<'a> {
    /// Its place in the partition.
    pub offset: u64,
    /// When it was published.
    pub time: Tai,
    /// Its number among those of its producer's incarnation in this partition, from 1, without
    /// holes.
    pub sequence: u64,
    /// The payload's schema.
    pub schema: SchemaId,
    /// The producer's incarnation.
    pub incarnation: u64,
    /// The producer's number in this topic; [`Reader::producer_name`] tells its name.
    pub producer_id: u32,
    /// The producer's name.
    pub producer: &'a ProducerName,
    /// The routing byte.
    pub level: u8,
    /// The trace that it belongs to.
    pub trace: Option<TraceId>,
    /// Named values beside the contents.
    pub headers: HeadersRef<'a>,
    /// The key; empty for none.
    pub key: &'a [u8],
    /// The contents.
    pub payload: &'a [u8],
}

impl SampleRef<'_> {
    /// The sample's envelope, owned.
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
    /// Which of this process's readers, for the bells that it is armed with.
    id: Arc<u64>,
}

/// What an armed reader waits for, apart from the reader: a ring takes a bell off the partitions
/// that rang, so a thread with many readers arms the others again through their watches.
pub struct ReaderWatch {
    partition: Arc<Partition>,
    reader: Arc<u64>,
    pos: u64,
}

impl ReaderWatch {
    /// As [`Reader::arm`], for the place where the reader was.
    #[must_use]
    pub fn arm(&self, bell: &Bell) -> bool {
        bell.arm(&self.partition, &self.reader, self.pos)
    }

    /// By what a ring for its partition is known, see [`Bell::rung_for`].
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

impl ProducerNames {
    #[inline]
    fn get(&mut self, id: u32) -> &ProducerName {
        if self.last.as_ref().is_none_or(|l| l.0 != id) {
            let found = self.known.get(&id).cloned().or_else(|| self.producers.name(id));
            let name = found.unwrap_or_else(|| self.unknown.clone());
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
        Ok(Self { partition, names, cursor, latest, id })
    }

    /// The offset of the next record.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.cursor.next
    }

    /// The offset that the next appended record gets.
    #[must_use]
    pub fn end_offset(&self) -> u64 {
        self.partition.log_end().1
    }

    /// How many records are there to be read.
    #[must_use]
    pub fn lag(&self) -> u64 {
        let latest = self.latest.as_ref().map_or(0, |latest| latest.len() as u64);
        self.end_offset().saturating_sub(self.cursor.next) + latest
    }

    /// The name of a producer, by the number that samples carry.
    #[must_use]
    pub fn producer_name(&self, id: u32) -> Option<ProducerName> {
        self.names.producers.name(id)
    }

    /// Has the bell rung at the next append. True where there is something to read already: then do
    /// not sleep.
    #[must_use]
    pub fn arm(&mut self, bell: &Bell) -> bool {
        let picked = self.latest.as_ref().is_some_and(|latest| latest.len() > 0);
        if picked || self.cursor.has_more() {
            return true;
        }
        self.cursor.warm();
        bell.arm(&self.partition, &self.id, self.cursor.pos)
    }

    /// What this reader waits for, to be looked at by whoever holds its bell. Good where
    /// [`Reader::arm`] has just found nothing.
    #[must_use]
    pub fn watch(&self) -> ReaderWatch {
        let (partition, reader) = (Arc::clone(&self.partition), Arc::clone(&self.id));
        ReaderWatch { partition, reader, pos: self.cursor.pos }
    }

    /// The next record or gap; `None` where everything has been read.
    ///
    /// # Errors
    /// [`JournalError`] where files cannot be opened. Damage is no error but a gap.
    // Items borrow from the reader, which iterators cannot say.
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
                Ok(Some(Item::Sample(sample(&mut self.names, &header, body))))
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

    /// Gives what there is, at most `max` items, to `each`, until it breaks. Returns how many.
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
    let Body { trace, headers, key, payload } = frame::split(header, body);
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
    }
}
