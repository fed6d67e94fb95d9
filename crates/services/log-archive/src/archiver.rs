//! The archiving service: reads log records from a bus and archives them.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use helio_bus::Bus;
use helio_logging::{Cursor, Item, Lanes, News, Reader, ReaderOptions, RecordRef, Start, Waited};

use crate::archive::{Archive, ArchiveEvent, ArchiveOptions};
use crate::error::ArchiveError;

/// The most records of a reader's visit, between two checks for due commits.
const VISIT_MAX_RECORDS: usize = 8_192;
/// The most bytes of a visit, which are in memory in addition to a block.
const VISIT_MAX_BYTES: usize = 4 << 20;
/// The delay before a failed operation is retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The interval of closing and removing segments.
const RETENTION_INTERVAL: Duration = Duration::from_secs(1);

/// Fills an archive with all log records of a bus, from its last position; a new archive begins
/// with the oldest stored records.
///
/// It runs in the caller's thread, in [`step`](Self::step)s.
///
/// ```
/// use std::time::Duration;
///
/// use helio_bus::Bus;
/// use helio_log_archive::{ArchiveOptions, Archiver, Search};
/// use helio_logging::{Lanes, Level, LogOptions, Logging, Predicate, Views, log};
///
/// let bus = Bus::connect("memory:")?;
/// let logging = Logging::start(bus.clone(), LogOptions::default())?;
/// let dome = logging.logger("DOME");
/// log!(dome, Level::NOTICE, "the dome is {}", "open");
/// drop(logging);
///
/// let folder = tempfile::tempdir()?;
/// let options = ArchiveOptions::default();
/// let mut keeper = Archiver::open(&bus, &Lanes::default(), folder.path(), options, None)?;
/// while keeper.step(Duration::ZERO, |_| {})? {}
/// keeper.finish(|_| {})?;
///
/// let open = "open".parse::<Predicate>()?.compile(bus.clock().now(), &Views::default())?;
/// assert_eq!(Search::open(folder.path(), open)?.count().records, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Archiver {
    bus: Bus,
    reader: Reader,
    archive: Archive,
    opened: Vec<ArchiveEvent>,
    /// The present error.
    trouble: Option<String>,
    tidied: Option<Instant>,
}

impl Archiver {
    /// Opens the archive and the bus's lanes. `start` overrides the archive's last position.
    ///
    /// # Errors
    /// [`ArchiveError`]; the reader's error if the archive is of another bus.
    pub fn open(
        bus: &Bus,
        lanes: &Lanes,
        folder: &Path,
        options: ArchiveOptions,
        start: Option<Start>,
    ) -> Result<Self, ArchiveError> {
        let (mut archive, opened) = Archive::open(folder, options)?;
        let ended = if start.is_none() { archive.cursor()? } else { None };
        let resumes = ended.is_some();
        let start = start.or(ended.map(Start::Cursor)).unwrap_or(Start::Earliest);
        // A process that was killed while it began has left lanes without a segment.
        let reader = ReaderOptions::from(start).unread(helio_bus::Start::Earliest);
        let reader = Reader::open(bus, lanes, reader)?;
        let (cursor, now) = (reader.cursor(), bus.clock().now());
        if resumes {
            archive.begin(&cursor, now)?
        } else {
            archive.restart(&cursor, now)?
        }
        let bus = bus.clone();
        Ok(Self { bus, reader, archive, opened, trouble: None, tidied: None })
    }

    /// Archives available records, or waits for some, at most for `timeout`. Returns false if none
    /// arrived in that time, or none will.
    ///
    /// # Errors
    /// Temporary failures of the disk or the bus are no errors: they are reported and retried.
    pub fn step(
        &mut self,
        timeout: Duration,
        mut tell: impl FnMut(ArchiveEvent),
    ) -> Result<bool, ArchiveError> {
        self.opened.drain(..).for_each(&mut tell);
        if self.archive.is_waiting_for_room() {
            self.commit(Some(Instant::now()), &mut tell);
            if self.archive.is_waiting_for_room() {
                std::thread::sleep(timeout.min(RETRY_INTERVAL));
                return Ok(true);
            }
        }
        let handed = self.visit(&mut tell);
        self.commit(Some(Instant::now()), &mut tell);
        self.tidy(&mut tell);
        match handed {
            Ok(0) => self.wait(timeout, &mut tell),
            Ok(_) => Ok(true),
            Err(error) => {
                self.trouble(&error.to_string(), &mut tell);
                std::thread::sleep(timeout.min(RETRY_INTERVAL));
                Ok(!self.reader.is_ended())
            }
        }
    }

    fn visit(&mut self, tell: &mut impl FnMut(ArchiveEvent)) -> Result<usize, ArchiveError> {
        let (archive, now) = (&mut self.archive, self.bus.clock().now());
        archive.forget();
        let mut bytes = 0;
        let handed = self.reader.visit(VISIT_MAX_RECORDS, |item| {
            match item {
                Item::Record(record, place) => {
                    archive.take(record, place);
                    bytes += size(record);
                }
                Item::News(news) => {
                    match news {
                        News::Gap(gap) => archive.gap(gap.lane, gap.records, gap.to_string(), now),
                        News::Damaged(damaged) => {
                            archive.gap(damaged.lane, None, damaged.to_string(), now);
                        }
                        News::Malformed(_) | News::Bus { .. } => {}
                    }
                    tell(ArchiveEvent::News(news.to_string()));
                }
            }
            if bytes < VISIT_MAX_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        Ok(handed?)
    }

    /// Waits for records, at most until a commit is due.
    fn wait(
        &mut self,
        timeout: Duration,
        tell: &mut impl FnMut(ArchiveEvent),
    ) -> Result<bool, ArchiveError> {
        let due = self.archive.due().map(|due| due.saturating_duration_since(Instant::now()));
        let until = due.unwrap_or(timeout).min(timeout);
        match self.reader.wait(until) {
            Ok(Waited::Ready) => Ok(true),
            Ok(Waited::TimeOver) => {
                self.commit(Some(Instant::now()), tell);
                Ok(until < timeout)
            }
            Ok(Waited::Ended) => Ok(false),
            Err(error) => {
                self.trouble(&error.to_string(), tell);
                std::thread::sleep(timeout.min(RETRY_INTERVAL));
                Ok(true)
            }
        }
    }

    fn commit(&mut self, until: Option<Instant>, tell: &mut impl FnMut(ArchiveEvent)) {
        let is_due = |due| until.is_none_or(|until| due <= until);
        if !self.archive.is_waiting_for_room() && !self.archive.due().is_some_and(is_due) {
            return;
        }
        let (cursor, now) = (self.reader.cursor(), self.bus.clock().now());
        match self.archive.commit(&cursor, now, until) {
            Ok(0) => {}
            Ok(records) => {
                if self.trouble.take().is_some() {
                    tell(ArchiveEvent::Well);
                }
                tell(ArchiveEvent::Written { records });
            }
            Err(error) => self.trouble(&error.to_string(), tell),
        }
    }

    fn tidy(&mut self, tell: &mut impl FnMut(ArchiveEvent)) {
        if self.tidied.is_some_and(|last| last.elapsed() < RETENTION_INTERVAL) {
            return;
        }
        self.tidied = Some(Instant::now());
        match self.archive.tidy(self.bus.clock().now()) {
            Ok(told) => told.into_iter().for_each(tell),
            Err(error) => self.trouble(&error.to_string(), tell),
        }
    }

    /// Reports an error once as long as it is the same.
    fn trouble(&mut self, text: &str, tell: &mut impl FnMut(ArchiveEvent)) {
        if self.trouble.as_deref() != Some(text) {
            self.trouble = Some(text.to_owned());
            tell(ArchiveEvent::Trouble(text.to_owned()));
        }
    }

    /// Writes all records that were read.
    ///
    /// # Errors
    /// [`ArchiveError::File`]: the next archiver reads the unwritten records again.
    pub fn finish(mut self, mut tell: impl FnMut(ArchiveEvent)) -> Result<(), ArchiveError> {
        let (cursor, now) = (self.reader.cursor(), self.bus.clock().now());
        let records = self.archive.commit(&cursor, now, None)?;
        if records > 0 {
            tell(ArchiveEvent::Written { records });
        }
        Ok(())
    }

    /// Whether the bus was closed.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.reader.is_ended()
    }

    /// The reader's position.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.reader.cursor()
    }
}

/// The approximate size of a record.
fn size(record: RecordRef<'_>) -> usize {
    record.body().len() + 32
}
