//! Writes an archive: a folder with a lane per level, owned by one process.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_core::Tai;
use helio_logging::{Cursor, Lanes, Level, RecordPlace, RecordRef};

use crate::builder::RecordSource;
use crate::error::{ArchiveError, AtPath};
use crate::lane::LaneFiles;

const DAY: Duration = Duration::from_secs(86_400);
const GIB: u64 = 1 << 30;

/// The retention of a level's records, limited by age and bytes. Whole segments are removed, the
/// oldest first, but never the open one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// The age since archiving; none is unlimited.
    pub age: Option<Duration>,
    /// The bytes of files; none is unlimited.
    pub bytes: Option<u64>,
}

type Write = Arc<dyn Fn(&File, &[u8], u64) -> io::Result<()> + Send + Sync>;

/// The options of an archive.
#[derive(Clone)]
pub struct ArchiveOptions {
    retention: BTreeMap<Level, Retention>,
    pub(crate) segment_bytes: u64,
    pub(crate) block_age: Duration,
    pub(crate) write: Write,
}

impl Default for ArchiveOptions {
    fn default() -> Self {
        Self {
            retention: BTreeMap::new(),
            segment_bytes: 128 << 20,
            block_age: Duration::from_secs(1),
            write: Arc::new(|file, bytes, at| file.write_all_at(bytes, at)),
        }
    }
}

impl fmt::Debug for ArchiveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { retention, segment_bytes, block_age, .. } = self;
        write!(f, "ArchiveOptions({retention:?}, {segment_bytes} bytes, {block_age:?})")
    }
}

impl ArchiveOptions {
    /// How long records of a level are kept. Without this, below INFO for 7 days and 8 GiB, below
    /// WARNING for 90 days and 32 GiB, of WARNING and ERROR 32 GiB, and from CRITICAL on for ever.
    #[must_use]
    pub fn retention(mut self, level: Level, retention: Retention) -> Self {
        self.retention.insert(Lanes::lane(level), retention);
        self
    }

    /// Sets the size at which a segment is closed. The default is 128 MiB. Retention removes whole
    /// segments.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets the longest delay until records are written and can be found. The default is one
    /// second.
    #[must_use]
    pub fn block_age(mut self, age: Duration) -> Self {
        self.block_age = age;
        self
    }

    /// Replaces the function that writes blocks, so that tests can simulate a full disk.
    #[doc(hidden)]
    #[must_use]
    pub fn writing(
        mut self,
        write: impl Fn(&File, &[u8], u64) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.write = Arc::new(write);
        self
    }

    /// How long records of a level are kept.
    #[must_use]
    pub fn retention_of(&self, level: Level) -> Retention {
        let usual = match level {
            level if level < Level::INFO => Retention { age: Some(7 * DAY), bytes: Some(8 * GIB) },
            level if level < Level::WARNING => {
                Retention { age: Some(90 * DAY), bytes: Some(32 * GIB) }
            }
            level if level < Level::CRITICAL => Retention { age: None, bytes: Some(32 * GIB) },
            _ => Retention::default(),
        };
        self.retention.get(&Lanes::lane(level)).copied().unwrap_or(usual)
    }
}

/// An archive's notices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveEvent {
    /// Blocks were written.
    Written {
        /// The number of records.
        records: u64,
    },
    /// An incomplete block of a former process was truncated. Its records are read again from the
    /// bus.
    Cut {
        /// The level of the lane.
        lane: Level,
        /// The number of bytes.
        bytes: u64,
    },
    /// Retention has removed records.
    Removed {
        /// The level of the lane.
        lane: Level,
        /// The number of records.
        records: u64,
        /// The bytes of the removed files.
        bytes: u64,
    },
    /// An operation failed and is retried. While blocks wait, no records are read.
    Trouble(String),
    /// The failed operation has succeeded.
    Well,
    /// A notice of the reader: a gap, an outage.
    News(String),
}

impl fmt::Display for ArchiveEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written { records } => write!(f, "{records} records were written"),
            Self::Cut { lane, bytes } => {
                write!(f, "{lane}: {bytes} bytes of an unfinished block are cut off")
            }
            Self::Removed { lane, records, bytes } => {
                write!(f, "{lane}: retention removed {records} records, {bytes} bytes")
            }
            Self::Trouble(text) => write!(f, "{text}; it is tried again"),
            Self::Well => f.write_str("the archive can be written again"),
            Self::News(text) => f.write_str(text),
        }
    }
}

/// An archive open for writing. One process owns it at a time; others may search it meanwhile.
///
/// [`take`](Self::take) adds records; [`commit`](Self::commit) writes them together with the
/// reader's cursor after them.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    lanes: BTreeMap<Level, LaneFiles>,
    options: Arc<ArchiveOptions>,
    /// Held as long as the archive is open.
    _lock: File,
}

impl Archive {
    /// Opens or creates an archive.
    ///
    /// # Errors
    /// [`ArchiveError::Locked`] if another process owns it, [`ArchiveError::Format`] and
    /// [`ArchiveError::File`].
    pub fn open(
        folder: &Path,
        options: ArchiveOptions,
    ) -> Result<(Self, Vec<ArchiveEvent>), ArchiveError> {
        std::fs::create_dir_all(folder).at(folder)?;
        let path = folder.join("lock");
        let mut lock = OpenOptions::new();
        let lock = lock.write(true).create(true).truncate(false).open(&path).at(&path)?;
        lock.try_lock().map_err(|_| ArchiveError::Locked(folder.to_owned()))?;
        let (options, mut told) = (Arc::new(options), Vec::new());
        let lane = |level| Ok((level, LaneFiles::open(folder, level, &options, &mut told)?));
        let lanes = Level::ALL.into_iter().map(lane).collect::<Result<_, ArchiveError>>()?;
        let folder = folder.to_owned();
        Ok((Self { folder, lanes, options, _lock: lock }, told))
    }

    /// The position at which the reader must continue; none for an empty archive.
    ///
    /// # Errors
    /// [`ArchiveError`]; [`ArchiveError::OtherBus`] if lanes are of several buses.
    pub fn cursor(&self) -> Result<Option<Cursor>, ArchiveError> {
        let mut joined: Option<Cursor> = None;
        for lane in self.lanes.values() {
            let Some(text) = lane.cursor()? else { continue };
            let wrong = || ArchiveError::OtherBus(self.folder.clone());
            let cursor: Cursor = text.parse().map_err(|_| wrong())?;
            joined = Some(match joined {
                None => cursor,
                Some(joined) => joined.joined(&cursor).ok_or_else(wrong)?,
            });
        }
        Ok(joined)
    }

    /// Begins new segments, as the reader continues at another position than the archive's end.
    ///
    /// # Errors
    /// [`ArchiveError::File`].
    pub fn restart(&mut self, cursor: &Cursor, now: Tai) -> Result<(), ArchiveError> {
        for (level, lane) in &mut self.lanes {
            lane.restart(&cursor.lane(*level).to_string(), now)?;
        }
        Ok(())
    }

    /// Invalidates the positions of packets seen so far: a new visit of the reader may reuse them.
    /// To be called before each visit.
    pub fn forget(&mut self) {
        self.lanes.values_mut().for_each(LaneFiles::forget);
    }

    /// Begins a segment in each lane without one, at the reader's position.
    ///
    /// # Errors
    /// [`ArchiveError::File`].
    pub fn begin(&mut self, cursor: &Cursor, now: Tai) -> Result<(), ArchiveError> {
        for (level, lane) in &mut self.lanes {
            lane.begin(&cursor.lane(*level).to_string(), now)?;
        }
        Ok(())
    }

    /// Takes a record of the reader.
    pub fn take(&mut self, record: RecordRef<'_>, place: RecordPlace<'_>) {
        let source = RecordSource {
            packet: (place.partition, place.offset),
            producer: place.producer.name.as_str(),
            sequence: record.sequence(),
        };
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.take(record, source);
        }
    }

    /// Adds a gap.
    pub fn gap(&mut self, lane: Level, records: Option<u64>, text: String, now: Tai) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.gap(records, text, now);
        }
    }

    /// The bytes that are not written yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lanes.values().map(LaneFiles::waiting).sum()
    }

    /// The time at which a commit is due; none if nothing waits.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.lanes.values().filter_map(LaneFiles::due).min()
    }

    /// Whether blocks wait because writing failed. No records may be taken meanwhile.
    #[must_use]
    pub fn is_waiting_for_room(&self) -> bool {
        self.lanes.values().any(LaneFiles::is_waiting_for_room)
    }

    /// Writes the blocks that are due, or all, with the reader's present position: exactly the
    /// records before it were taken. Returns the number of records written.
    ///
    /// # Errors
    /// [`ArchiveError::File`]: the blocks wait for the next call. Until it succeeds no records may
    /// be taken.
    pub fn commit(
        &mut self,
        cursor: &Cursor,
        now: Tai,
        until: Option<Instant>,
    ) -> Result<u64, ArchiveError> {
        let (mut records, mut failed) = (0, None);
        for (level, lane) in &mut self.lanes {
            let is_due = lane.due().is_some_and(|due| until.is_none_or(|until| due <= until));
            let mut write = || {
                if is_due {
                    lane.seal(&cursor.lane(*level).to_string(), now)?;
                }
                lane.write()
            };
            match write() {
                Ok(written) => records += written,
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(records), Err)
    }

    /// Closes segments that are large or old, and applies retention. Returns the removals.
    ///
    /// # Errors
    /// [`ArchiveError::File`]; the archive stays intact.
    pub fn tidy(&mut self, now: Tai) -> Result<Vec<ArchiveEvent>, ArchiveError> {
        let mut told = Vec::new();
        for lane in self.lanes.values_mut() {
            lane.roll(now)?;
            told.extend(lane.retain(now)?);
        }
        Ok(told)
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &ArchiveOptions {
        &self.options
    }
}
