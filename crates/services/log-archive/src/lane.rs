//! The files of one lane: blocks are appended to the open segment, closed segments are removed by
//! retention.
//!
//! Operation. Records from the reader go into a builder. [`LaneFiles::seal`] makes blocks of them,
//! the last one with the cursor, and [`LaneFiles::write`] appends these to the open segment. If
//! writing fails, the blocks wait and no more records may be read. A segment that is large, old or
//! has many blocks is closed; small blocks are merged in a new file, which then replaces it.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_core::Tai;
use helio_logging::{Level, MAX_PACKET_BYTES, PushError, RecordRef};

use crate::archive::{ArchiveEvent, ArchiveOptions, Retention};
use crate::block::{ArchivedGap, Head, encode};
use crate::builder::{Builder, RecordSource, UncompressedBlock};
use crate::error::{ArchiveError, AtPath};
use crate::files;
use crate::removed::Removed;
use crate::segment::{Check, Index, SegmentStart, scan};

/// The most blocks of a segment. The heads of an open segment are read one by one.
const MAX_SEGMENT_BLOCKS: usize = 4_096;
/// Blocks below this many records and bytes are merged. The larger blocks of a flood are not worth
/// the time.
const SMALL_BLOCK_RECORDS: usize = 1_024;
const SMALL_BLOCK_BYTES: usize = 65_536;
/// The age at which a segment is closed, so that retention by age is not much later.
const MAX_SEGMENT_AGE: Duration = Duration::from_secs(86_400);

/// A closed segment.
#[derive(Debug)]
struct ClosedSegment {
    number: u64,
    bytes: u64,
    records: u64,
    sealed: Tai,
    until: Tai,
}

/// The open segment.
#[derive(Debug)]
struct OpenSegment {
    file: File,
    start: SegmentStart,
    index: Index,
}

/// Blocks to be written.
#[derive(Debug, Default)]
struct SealedBlocks {
    bytes: Vec<u8>,
    entries: Vec<crate::block::BlockEntry>,
    cursor: String,
    at: Tai,
}

/// The files of a lane, and the records to be written.
#[derive(Debug)]
pub(crate) struct LaneFiles {
    level: Level,
    folder: PathBuf,
    options: Arc<ArchiveOptions>,
    open: Option<OpenSegment>,
    closed: VecDeque<ClosedSegment>,
    removed: Removed,
    builder: Builder,
    full: Vec<UncompressedBlock>,
    gaps: Vec<ArchivedGap>,
    /// The newest record's time.
    newest: Option<Tai>,
    /// The time since which records wait for a block.
    since: Option<Instant>,
    sealed: Option<SealedBlocks>,
}

impl LaneFiles {
    /// Opens a lane: completes or truncates unfinished files.
    pub(crate) fn open(
        folder: &Path,
        level: Level,
        options: &Arc<ArchiveOptions>,
        told: &mut Vec<ArchiveEvent>,
    ) -> Result<Self, ArchiveError> {
        let folder = files::lane(folder, level);
        std::fs::create_dir_all(&folder).at(&folder)?;
        let removed = Removed::read(&folder)?;
        let mut lane = Self {
            level,
            folder,
            options: Arc::clone(options),
            open: None,
            closed: VecDeque::new(),
            removed,
            builder: Builder::default(),
            full: Vec::new(),
            gaps: Vec::new(),
            newest: None,
            since: None,
            sealed: None,
        };
        for (number, there) in files::segments(&lane.folder)? {
            lane.find(number, there, told)?;
        }
        Ok(lane)
    }

    fn find(
        &mut self,
        number: u64,
        there: files::SegmentFiles,
        told: &mut Vec<ArchiveEvent>,
    ) -> Result<(), ArchiveError> {
        let (open, closed) =
            (files::open(&self.folder, number), files::closed(&self.folder, number));
        files::remove(&files::new(&self.folder, number))?;
        if number < self.removed.below {
            files::remove(&open)?;
            return files::remove(&closed);
        }
        if there.closed {
            // It has replaced the open one.
            files::remove(&open)?;
            let file = File::open(&closed).at(&closed)?;
            let index = crate::segment::read(&file, &closed)?;
            return self.add_closed(number, &index, &file, &closed);
        }
        if !there.open {
            return Ok(());
        }
        if self.open.is_some() {
            self.close()?;
        }
        let file = OpenOptions::new().read(true).write(true).open(&open).at(&open)?;
        let (start, index) = scan(&file, &open, Check::Bodies)?;
        let cut = file.metadata().at(&open)?.len() - index.end;
        if cut > 0 {
            file.set_len(index.end).at(&open)?;
            told.push(ArchiveEvent::Cut { lane: self.level, bytes: cut });
        }
        self.open = Some(OpenSegment { file, start, index });
        Ok(())
    }

    fn add_closed(
        &mut self,
        number: u64,
        index: &Index,
        file: &File,
        path: &Path,
    ) -> Result<(), ArchiveError> {
        let bytes = file.metadata().at(path)?.len();
        let until = index.times().map_or(Tai::from_nanos(i64::MIN), |(_, last)| last);
        let (records, sealed) = (index.records(), index.sealed);
        self.closed.push_back(ClosedSegment { number, bytes, records, sealed, until });
        Ok(())
    }

    /// The cursor after the last block; none if there is no segment.
    pub(crate) fn cursor(&self) -> Result<Option<String>, ArchiveError> {
        if let Some(open) = &self.open {
            return Ok(Some(open.index.cursor.clone()));
        }
        let Some(last) = self.closed.back() else { return Ok(None) };
        let path = files::closed(&self.folder, last.number);
        let file = File::open(&path).at(&path)?;
        Ok(Some(crate::segment::read(&file, &path)?.cursor))
    }

    /// Creates an open segment that begins at a cursor, if there is none.
    pub(crate) fn begin(&mut self, cursor: &str, now: Tai) -> Result<(), ArchiveError> {
        if self.open.is_some() {
            return Ok(());
        }
        let last = self.closed.back().map(|last| last.number + 1);
        let number = last.unwrap_or(1).max(self.removed.below);
        let start = SegmentStart { lane: self.level, number, made: now, cursor: cursor.to_owned() };
        let (new, path) = (files::new(&self.folder, number), files::open(&self.folder, number));
        let bytes = start.bytes();
        let mut file = OpenOptions::new();
        let file = file.read(true).write(true).create(true).truncate(true).open(&new).at(&new)?;
        file.write_all_at(&bytes, 0).and_then(|()| file.sync_data()).at(&new)?;
        std::fs::rename(&new, &path).at(&path)?;
        let index = Index::of_start(&start, bytes.len() as u64);
        self.open = Some(OpenSegment { file, start, index });
        Ok(())
    }

    /// Begins a new segment at another cursor.
    pub(crate) fn restart(&mut self, cursor: &str, now: Tai) -> Result<(), ArchiveError> {
        self.close()?;
        self.begin(cursor, now)
    }

    /// Allows packets' identifiers to be reused.
    pub(crate) fn forget(&mut self) {
        self.builder.forget();
    }

    /// Takes a record.
    pub(crate) fn take(&mut self, record: RecordRef<'_>, source: RecordSource<'_>) {
        self.since.get_or_insert_with(Instant::now);
        self.newest = Some(record.time());
        let mut pushed = self.builder.push(record, source);
        if pushed == Err(PushError::Full) {
            self.full.extend(self.builder.finish());
            pushed = self.builder.push(record, source);
        }
        if let Err(error) = pushed {
            let text =
                format!("{}: 1 record of {} is missing: {error}", self.level, source.producer);
            self.gap(Some(1), text, record.time());
        }
    }

    /// Adds a gap.
    pub(crate) fn gap(&mut self, records: Option<u64>, text: String, now: Tai) {
        self.since.get_or_insert_with(Instant::now);
        self.gaps.push(ArchivedGap { time: self.newest.unwrap_or(now), records, text });
    }

    /// The bytes that wait for a block.
    pub(crate) fn waiting(&self) -> usize {
        let full: usize = self.full.iter().map(|raw| raw.packet.len()).sum();
        full + if self.builder.is_empty() { 0 } else { self.builder.bytes() }
    }

    /// The time at which a block is due; none if nothing waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        let since = self.since?;
        let is_full = !self.full.is_empty() || self.waiting() > MAX_PACKET_BYTES / 2;
        Some(if is_full { since } else { since + self.options.block_age })
    }

    /// Makes blocks of all waiting records. `cursor` is the reader's present position.
    pub(crate) fn seal(&mut self, cursor: &str, now: Tai) -> Result<(), ArchiveError> {
        if self.since.is_none() || self.sealed.is_some() {
            return Ok(());
        }
        let start = self.open.as_ref().map_or(0, |open| open.index.end);
        self.full.extend(self.builder.finish());
        if self.full.is_empty() {
            // Gaps only.
            self.full.push(UncompressedBlock::default());
        }
        let mut sealed =
            SealedBlocks { cursor: cursor.to_owned(), at: now, ..SealedBlocks::default() };
        let last = self.full.len() - 1;
        for (place, raw) in self.full.drain(..).enumerate() {
            let (gaps, cursor) =
                if place == last { (self.gaps.as_slice(), cursor) } else { (&[][..], "") };
            let entry = encode(&raw, gaps, cursor, now, start, &mut sealed.bytes);
            sealed.entries.push(entry.at(&self.folder)?);
        }
        self.gaps.clear();
        self.since = None;
        self.sealed = Some(sealed);
        Ok(())
    }

    /// Writes the sealed blocks. If that fails they wait for the next call, and the file is
    /// unchanged. Returns the number of records written.
    pub(crate) fn write(&mut self) -> Result<u64, ArchiveError> {
        let (Some(sealed), Some(open)) = (&self.sealed, &mut self.open) else { return Ok(0) };
        let written = (self.options.write)(&open.file, &sealed.bytes, open.index.end);
        if let Err(error) = written {
            let path = files::open(&self.folder, open.start.number);
            // The next start would truncate a partial block as well.
            _ = open.file.set_len(open.index.end);
            return Err(error).at(&path);
        }
        let records = sealed.entries.iter().map(|entry| u64::from(entry.records)).sum();
        open.index.end += sealed.bytes.len() as u64;
        open.index.sealed = sealed.at;
        open.index.cursor.clone_from(&sealed.cursor);
        open.index.entries.extend_from_slice(&sealed.entries);
        self.sealed = None;
        Ok(records)
    }

    /// Closes the open segment if it is large, old or has many blocks, and begins the next.
    pub(crate) fn roll(&mut self, now: Tai) -> Result<(), ArchiveError> {
        let Some(open) = &self.open else { return Ok(()) };
        let age =
            Duration::from_nanos(now.nanos().saturating_sub(open.start.made.nanos()).max(0) as u64);
        let old =
            self.retention().age.map_or(MAX_SEGMENT_AGE, |age| (age / 8).min(MAX_SEGMENT_AGE));
        let blocks = open.index.entries.len();
        let is_due = open.index.end >= self.options.segment_bytes
            || blocks >= MAX_SEGMENT_BLOCKS
            || age >= old;
        if blocks == 0 || !is_due || self.sealed.is_some() {
            return Ok(());
        }
        let cursor = open.index.cursor.clone();
        self.close()?;
        self.begin(&cursor, now)
    }

    /// Closes the open segment by writing its index. If that fails it stays open.
    fn close(&mut self) -> Result<(), ArchiveError> {
        let Some(open) = &self.open else { return Ok(()) };
        let number = open.start.number;
        let (path, closed) =
            (files::open(&self.folder, number), files::closed(&self.folder, number));
        let blocks = open.index.entries.len();
        let are_small = open.index.end < (SMALL_BLOCK_BYTES * blocks) as u64
            && open.index.records() < (SMALL_BLOCK_RECORDS * blocks) as u64;
        let file = if blocks > 1 && are_small {
            let new = files::new(&self.folder, number);
            let index = merge(open, &path, &new)?;
            std::fs::rename(&new, &closed).at(&closed)?;
            files::remove(&path)?;
            let file = File::open(&closed).at(&closed)?;
            self.add_closed(number, &index, &file, &closed)?;
            self.open = None;
            return Ok(());
        } else {
            &open.file
        };
        let written = file.write_all_at(&open.index.footer(), open.index.end);
        let written = written.and_then(|()| file.sync_data());
        if written.is_err() {
            _ = file.set_len(open.index.end);
        }
        written.at(&path)?;
        std::fs::rename(&path, &closed).at(&closed)?;
        let file = File::open(&closed).at(&closed)?;
        let index = open.index.clone();
        self.open = None;
        self.add_closed(number, &index, &file, &closed)
    }

    fn retention(&self) -> Retention {
        self.options.retention_of(self.level)
    }

    /// Applies retention to closed segments.
    pub(crate) fn retain(&mut self, now: Tai) -> Result<Option<ArchiveEvent>, ArchiveError> {
        let retention = self.retention();
        let open = self.open.as_ref().map_or(0, |open| open.index.end);
        let mut bytes = open + self.closed.iter().map(|segment| segment.bytes).sum::<u64>();
        let age = retention.age.and_then(|age| i64::try_from(age.as_nanos()).ok());
        let before = age.map(|age| now.nanos().saturating_sub(age));
        let mut removed = self.removed;
        for segment in &self.closed {
            let is_old = before.is_some_and(|before| segment.sealed.nanos() < before);
            if !is_old && retention.bytes.is_none_or(|most| bytes <= most) {
                break;
            }
            bytes -= segment.bytes;
            removed.below = segment.number + 1;
            removed.segments += 1;
            removed.records += segment.records;
            removed.bytes += segment.bytes;
            removed.until = removed.until.max(segment.until);
        }
        if removed == self.removed {
            return Ok(None);
        }
        removed.write(&self.folder)?;
        let records = removed.records - self.removed.records;
        let told = ArchiveEvent::Removed {
            lane: self.level,
            records,
            bytes: removed.bytes - self.removed.bytes,
        };
        self.removed = removed;
        while self.closed.front().is_some_and(|segment| segment.number < removed.below) {
            let number = self.closed.pop_front().map_or(0, |segment| segment.number);
            files::remove(&files::closed(&self.folder, number))?;
        }
        Ok(Some(told))
    }

    pub(crate) fn is_waiting_for_room(&self) -> bool {
        self.sealed.is_some()
    }
}

/// Rewrites a segment with merged blocks and its index.
fn merge(open: &OpenSegment, old: &Path, new: &Path) -> Result<Index, ArchiveError> {
    let bytes = open.start.bytes();
    let file = File::create(new).at(new)?;
    let mut out = io::BufWriter::with_capacity(MAX_PACKET_BYTES, file);
    out.write_all(&bytes).at(new)?;
    let mut index = Index::of_start(&open.start, bytes.len() as u64);
    (index.cursor, index.sealed) = (open.index.cursor.clone(), open.index.sealed);
    let (mut builder, mut gaps) = (Builder::default(), Vec::new());
    let mut put =
        |raw: Option<UncompressedBlock>, gaps: &mut Vec<ArchivedGap>| -> Result<(), ArchiveError> {
            let raw = match raw {
                None if gaps.is_empty() => return Ok(()),
                raw => raw.unwrap_or_default(),
            };
            let mut block = Vec::new();
            let entry =
                encode(&raw, gaps, &index.cursor, index.sealed, index.end, &mut block).at(new)?;
            gaps.clear();
            out.write_all(&block).at(new)?;
            index.end += block.len() as u64;
            index.entries.push(entry);
            Ok(())
        };
    for (place, entry) in open.index.entries.iter().enumerate() {
        let damaged = || {
            let what = format!("the block at {} is damaged; check the disk", entry.offset);
            io::Error::new(io::ErrorKind::InvalidData, what)
        };
        let head = Head::read(&open.file, entry.offset, open.index.end).at(old)?;
        let head = head.ok_or_else(damaged).at(old)?;
        let body = head.body(&open.file).at(old)?.ok_or_else(damaged).at(old)?;
        if let Some(packet) = body.packet() {
            let sequences = body.sequences(&packet).ok_or_else(damaged).at(old)?;
            for (record, sequence) in packet.records().zip(sequences) {
                let source = RecordSource { packet: (0, place as u64), producer: "", sequence };
                if builder.push(record, source) == Err(PushError::Full) {
                    put(builder.finish(), &mut gaps)?;
                    builder.push(record, source).map_err(io::Error::other).at(new)?;
                }
            }
        }
        gaps.extend(head.gaps());
    }
    put(builder.finish(), &mut gaps)?;
    out.write_all(&index.footer()).at(new)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error).at(new)?;
    file.sync_data().at(new)?;
    Ok(index)
}
