//! Owned records, one by one.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use helio_bus::{Producer, WaitSetWaker};

use super::cursor::{Cursor, PacketProgress};
use super::gap::{Malformed, News};
use super::loss_accounting::LossAccounts;
use super::{Item, Reader, ReaderError, RecordPlace, Waited};
use crate::level::Level;
use crate::record::Record;

/// The items that are read at once: a packet is parsed once for this many records.
const PREFETCH_ITEMS: usize = 1_024;
/// The same for stored records, whose packets are parsed together.
const BACKLOG_PREFETCH_ITEMS: usize = 8_192;

/// The next item.
#[derive(Debug, Clone)]
pub enum Next {
    /// A record and its position. Its producer is filled in if the record has none.
    Record(Box<Record>, Producer),
    /// A notice.
    News(News),
    /// The timeout expired, or the reader was woken.
    TimeOver,
    /// The reader has ended.
    End,
}

#[derive(Debug)]
struct Prefetched {
    /// The position of the record.
    at: Option<Progress>,
    next: Next,
}

#[derive(Debug)]
struct Progress {
    lane: Level,
    partition: u32,
    offset: u64,
    begun: PacketProgress,
}

impl Progress {
    fn of(place: &RecordPlace<'_>) -> Self {
        let RecordPlace { lane, partition, offset, .. } = *place;
        let begun = match place.record + 1 {
            all if all == place.records => PacketProgress::Whole,
            some => PacketProgress::Records(u32::try_from(some).unwrap_or(u32::MAX)),
        };
        Self { lane, partition, offset, begun }
    }
}

/// Owned records of a [`Reader`], one by one.
///
/// ```
/// # use helio_bus::Bus;
/// # use helio_logging::{Follow, Lanes, Next, Reader, ReaderOptions, Start};
/// # use std::time::Duration;
/// let bus = Bus::connect("memory:")?;
/// let options = ReaderOptions::from(Start::Earliest).follow(Follow::No);
/// let mut records = Reader::open(&bus, &Lanes::default(), options)?.records();
/// while let Next::Record(record, _) = records.next(Duration::MAX)? {
///     println!("{} {} {}", record.time, record.level, record.message());
/// }
/// println!("to go on there: {}", records.cursor());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Records {
    reader: Reader,
    ahead: VecDeque<Prefetched>,
    /// The position while items are read ahead.
    handed: Cursor,
}

impl Records {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, ahead: VecDeque::new(), handed: Cursor::default() }
    }

    /// Returns the next item. Waits at most for `timeout`.
    ///
    /// # Errors
    /// [`ReaderError`].
    pub fn next(&mut self, timeout: Duration) -> Result<Next, ReaderError> {
        let until = Instant::now().checked_add(timeout);
        loop {
            if let Some(ahead) = self.ahead.pop_front() {
                return Ok(self.hand(ahead));
            }
            self.read_ahead()?;
            if !self.ahead.is_empty() {
                continue;
            }
            let now = Instant::now();
            let left = until.map_or(timeout, |until| until.saturating_duration_since(now));
            match self.reader.wait(left)? {
                Waited::Ready if until.is_none_or(|until| now < until) => {}
                Waited::Ready | Waited::TimeOver => return Ok(Next::TimeOver),
                Waited::Ended => return Ok(Next::End),
            }
        }
    }

    /// Whether [`next`](Self::next) has an item without reading from the bus.
    #[must_use]
    pub fn has_next(&self) -> bool {
        !self.ahead.is_empty()
    }

    fn hand(&mut self, ahead: Prefetched) -> Next {
        if let Some(Progress { lane, partition, offset, begun }) = ahead.at
            && let Some(lane) = self.handed.lanes.get_mut(&lane)
        {
            lane.entry(partition).or_default().advance(offset, begun);
        }
        ahead.next
    }

    fn read_ahead(&mut self) -> Result<(), ReaderError> {
        let past = self.reader.lanes.iter().any(|lane| lane.past.is_some());
        let max = if past { BACKLOG_PREFETCH_ITEMS } else { PREFETCH_ITEMS };
        self.handed = self.reader.cursor();
        let (ahead, mut malformed) = (&mut self.ahead, Vec::new());
        self.reader.visit(max, |item| {
            ahead.push_back(match item {
                Item::News(news) => Prefetched { at: None, next: Next::News(news.clone()) },
                Item::Record(record, place) => {
                    let producer = place.producer.clone();
                    let next = match record.to_record() {
                        Ok(mut record) => {
                            if record.producer.is_empty() {
                                producer.name.as_str().clone_into(&mut record.producer);
                            }
                            Next::Record(Box::new(record), producer)
                        }
                        Err(_) => {
                            let (lane, sequence) = (place.lane, record.sequence());
                            malformed.push((lane, producer.clone()));
                            Next::News(News::Malformed(Malformed { lane, producer, sequence }))
                        }
                    };
                    Prefetched { at: Some(Progress::of(&place)), next }
                }
            });
            ControlFlow::Continue(())
        })?;
        malformed.iter().for_each(|(lane, producer)| self.reader.malformed(*lane, producer));
        Ok(())
    }

    /// The position: a reader that begins there continues with the next item.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        if self.ahead.is_empty() { self.reader.cursor() } else { self.handed.clone() }
    }

    /// The loss accounting so far. Records that were read ahead are not yet included, but gaps
    /// among them are.
    #[must_use]
    pub fn account(&mut self) -> LossAccounts {
        let mut account = self.reader.account();
        for ahead in &self.ahead {
            if let (Next::Record(_, producer), Some(at)) = (&ahead.next, &ahead.at) {
                let mut rows = account.rows.iter_mut().filter(|row| row.lane == at.lane);
                let row = rows.find(|row| row.producer.as_ref() == Some(producer));
                row.into_iter().for_each(|row| {
                    row.tally.delivered = row.tally.delivered.saturating_sub(1);
                });
            }
        }
        account
    }

    /// A handle that ends a wait from another thread.
    #[must_use]
    pub fn waker(&self) -> WaitSetWaker {
        self.reader.waker()
    }
}
