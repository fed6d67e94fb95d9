//! Segments: files of frames, each a contiguous range of the log's positions.
//!
//! Constraints: a segment's file is fully allocated before it is mapped, and never truncated while
//! it may be mapped. Bytes below the committed tail do not change while the segment is pinned. File
//! contents are untrusted: all accesses are bounds-checked, and frames are checked by their CRC.
//!
//! Format: one header page ([`HEADER_BYTES`]) with the fixed fields, the seal, the pin count and a
//! sparse index of up to [`INDEX_ENTRIES`] positions; then the frames.
//!
//! Operation: *live* holds the segment's id while its contents are valid, and 0 once it is retired.
//! A reader pins, then reads *live*; the retiring process clears *live*, then reads the pins: at
//! least one of the two sees the other. A pinned segment is unlinked instead of recycled, so the
//! pin of a killed reader costs only one recycling.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use helio_core::Tai;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::JournalError;
use crate::env::Env;
use crate::error::IoContext;
use crate::file_id::FileId;
use crate::frame::{self, Body, FRAME_HEADER_BYTES, FrameHeader};
use crate::map::{Map, Mode, PAGE_BYTES, reserve};

/// Bytes before the frames.
pub(crate) const HEADER_BYTES: u64 = 4096;
pub(crate) const INDEX_ENTRIES: u32 = 160;
const MAGIC: &[u8; 8] = b"HELIOSEG";
/// The version of new segments: older programs refuse them.
pub(crate) const VERSION: u32 = 3;
/// The version from which on segments have running times and frames may be padded.
const VERSION_WITH_RUNNING_TIME: u32 = 3;
const FIXED_BYTES: usize = 96;
const CRC_AT: usize = 96;
const SEAL_END: usize = 128;
const SEAL_OFFSET: usize = 136;
const SEAL_TIME: usize = 144;
const SEAL_CRC: usize = 152;
const PINS: usize = 160;
const INDEX_COUNT: usize = 164;
const LIVE: usize = 168;
const SEAL_CLOSED: usize = 176;
const INDEX: usize = 256;
const INDEX_ENTRY_BYTES: usize = 24;
const FLAG_COMPACTED: u64 = 1;

/// The fixed part of a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Part of the frames' checksums; differs for each use of a file.
    pub id: u64,
    /// The segment's number in its partition; the next one's is one more.
    pub seq: u64,
    /// Log position of the first frame.
    pub base_pos: u64,
    /// Offset of the first frame.
    pub base_offset: u64,
    /// The latest time of any frame before this segment.
    pub base_time: Tai,
    /// Bytes that frames may take.
    pub capacity: u64,
    /// The former segment's id.
    pub prev_id: u64,
    /// Whether it replaces all earlier segments with their retained records: offsets then have
    /// holes.
    pub compacted: bool,
    /// The version of its format, which says what its frames may have.
    pub version: u32,
    /// The journal's running time when it was created, in nanoseconds; 0 before version 3.
    pub created: u64,
}

impl Head {
    fn bytes(&self) -> [u8; FIXED_BYTES + 4] {
        let mut out = [0; FIXED_BYTES + 4];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&self.version.to_le_bytes());
        out[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        let time = self.base_time.nanos() as u64;
        let flags = if self.compacted { FLAG_COMPACTED } else { 0 };
        let words = [
            self.id,
            self.seq,
            self.base_pos,
            self.base_offset,
            time,
            self.capacity,
            self.prev_id,
            flags,
            self.created,
        ];
        for (i, word) in words.iter().enumerate() {
            out[16 + i * 8..24 + i * 8].copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[..FIXED_BYTES]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Parses a header; distinguishes a newer version from damage.
    fn parse(bytes: &[u8; FIXED_BYTES + 4], path: &Path) -> Result<Self, JournalError> {
        let half = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if &bytes[..8] != MAGIC || half(CRC_AT) != crc32c::crc32c(&bytes[..FIXED_BYTES]) {
            return Err(JournalError::damaged(path, "segment header"));
        }
        if half(8) > VERSION {
            let path = path.to_owned();
            return Err(JournalError::Version { path, found: half(8), known: VERSION });
        }
        Ok(Self::unchecked(bytes))
    }

    /// Returns what the bytes of a header say, whether they are intact or not.
    pub(crate) fn unchecked(bytes: &[u8]) -> Self {
        let word = |i: usize| {
            let mut out = [0; 8];
            out.copy_from_slice(&bytes[16 + i * 8..24 + i * 8]);
            u64::from_le_bytes(out)
        };
        Self {
            id: word(0),
            seq: word(1),
            base_pos: word(2),
            base_offset: word(3),
            base_time: Tai::from_nanos(word(4) as i64),
            capacity: word(5),
            prev_id: word(6),
            compacted: word(7) & FLAG_COMPACTED != 0,
            version: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            created: word(8),
        }
    }

    /// Returns a header with the one wrong bit corrected that explains its wrong checksum, or an
    /// intact one.
    pub(crate) fn corrected(page: &[u8]) -> Option<Self> {
        let bytes = page.get(..FIXED_BYTES + 4)?;
        let parse = |bytes: &[u8]| Self::parse(bytes.try_into().ok()?, Path::new("")).ok();
        parse(bytes).or_else(|| parse(&crate::hash::correct_bit(bytes)?))
    }

    /// Returns whether it is of a version that has running times.
    pub(crate) fn has_running_time(&self) -> bool {
        self.version >= VERSION_WITH_RUNNING_TIME
    }

    /// Returns the position behind the last byte for frames.
    pub(crate) fn end(&self) -> u64 {
        self.base_pos.saturating_add(self.capacity)
    }
}

/// The end of a sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seal {
    /// Position behind the last frame.
    pub end: u64,
    /// Offset of the next segment's first frame.
    pub offset: u64,
    /// The latest time of any frame up to here.
    pub time: Tai,
    /// The journal's running time when it was closed, in nanoseconds; 0 before version 3.
    pub closed: u64,
}

/// What [`Segment::trim`] may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unused {
    /// Everything behind the last frame.
    All,
    /// Only pages of zeros, where recovery has closed the segment: what is behind the last frame
    /// may be all that is left of damaged ones.
    Zeros,
}

/// Whether a segment is held against recycling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentHold {
    /// Pinned: its bytes below the tail stay as they are.
    Pinned,
    /// Not pinned: contents are copied, and *live* is checked afterwards.
    Loose,
}

/// Why there is no frame at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameFault {
    /// No valid frame.
    Damaged,
    /// The segment was recycled meanwhile.
    Gone,
}

/// The place of bytes below the tail in a pinned segment's map.
#[derive(Debug)]
pub(crate) struct StableRange {
    at: usize,
    len: usize,
}

/// A mapped segment.
#[derive(Debug)]
pub(crate) struct Segment {
    map: Map,
    file: FileId,
    pub(crate) head: Head,
    hold: SegmentHold,
}

/// The file of a segment.
pub(crate) fn path(dir: &Path, seq: u64) -> PathBuf {
    dir.join(format!("{seq:016}.seg"))
}

/// Returns the numbers of the segments' files in a partition's folder, in order.
pub(crate) fn files(dir: &Path) -> Result<Vec<u64>, JournalError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).at("list", dir)? {
        let name = entry.at("list", dir)?.file_name();
        let number = name.to_str().and_then(|n| n.strip_suffix(".seg"));
        found.extend(number.and_then(|n| n.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// Reads the head of a file that begins like a segment.
pub(crate) fn peek(path: &Path) -> Option<Head> {
    let mut bytes = [0; FIXED_BYTES + 4];
    let read = File::open(path).and_then(|mut f| io::Read::read_exact(&mut f, &mut bytes));
    read.ok().and_then(|()| Head::parse(&bytes, path).ok())
}

/// Creates and allocates a file for a segment's frames.
pub(crate) fn allocate(path: &Path, capacity: u64) -> Result<File, JournalError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path);
    let file = file.at("create", path)?;
    if let Err(e) = reserve(&file, HEADER_BYTES + capacity) {
        // An incomplete file must not stay; the first error is the one to report.
        let _ = std::fs::remove_file(path);
        return Err(JournalError::io("allocate", path, e));
    }
    Ok(file)
}

/// Returns the id in *live* of a header's page.
pub(crate) fn live(page: &[u8; HEADER_BYTES as usize]) -> u64 {
    page[LIVE..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Returns whether a segment's file has a valid frame where a header says that the first one is.
pub(crate) fn begins_with_frame(map: &Map, head: &Head) -> bool {
    let room = (map.len() as u64).saturating_sub(HEADER_BYTES).min(head.capacity);
    let at = HEADER_BYTES as usize;
    if room < FRAME_HEADER_BYTES as u64 || !head.base_pos.is_multiple_of(8) {
        return false;
    }
    let raw: [u8; FRAME_HEADER_BYTES] = map.array(at);
    let Some(header) = FrameHeader::parse(&raw).filter(|h| h.stride() as u64 <= room) else {
        return false;
    };
    let mut body = vec![0; header.len as usize - FRAME_HEADER_BYTES];
    map.read(at + FRAME_HEADER_BYTES, &mut body);
    let first =
        header.offset == head.base_offset || head.compacted && header.offset > head.base_offset;
    first && frame::verify(&raw, &header, &body, head.id)
}

/// Returns the version with which a segment's seal is intact; the newest one if there is none.
pub(crate) fn sealed_version(map: &Map, head: Head) -> u32 {
    let words = [SEAL_END, SEAL_OFFSET, SEAL_TIME, SEAL_CLOSED].map(|at| map.u64(at).load(Relaxed));
    let (end, offset, closed) = (words[0], words[1], words[3]);
    let seal = Seal { end, offset, time: Tai::from_nanos(words[2] as i64), closed };
    let crc = map.u32(SEAL_CRC).load(Relaxed);
    let fits = |version: &u32| seal_crc(&Head { version: *version, ..head }, seal) == crc;
    let version = [VERSION, VERSION_WITH_RUNNING_TIME - 1].into_iter().find(fits);
    version.unwrap_or(VERSION)
}

fn seal_crc(head: &Head, seal: Seal) -> u32 {
    let words = [seal.end, seal.offset, seal.time.nanos() as u64, head.id, seal.closed];
    let count = if head.has_running_time() { words.len() } else { words.len() - 1 };
    words[..count].iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()))
}

impl Segment {
    /// Stores a rebuilt header in a segment's file.
    pub(crate) fn restore(map: &Map, head: Head) {
        map.write(0, &head.bytes());
        map.u64(LIVE).store(head.id, Release);
    }

    /// Creates a segment in an allocated file without readers: a new one, or a retired one.
    pub(crate) fn create(file: &File, head: Head, path: &Path) -> Result<Self, JournalError> {
        let len = map_len(&head, path)?;
        let map = Map::of(file, len, Mode::Write).at("map", path)?;
        map.u64(LIVE).store(0, SeqCst);
        map.u32(INDEX_COUNT).store(0, Relaxed);
        map.write(SEAL_END, &[0; 32]);
        map.u64(SEAL_CLOSED).store(0, Relaxed);
        map.write(0, &head.bytes());
        map.u64(LIVE).store(head.id, Release);
        let file = FileId::of(&file.metadata().at("look at", path)?);
        Ok(Self { map, file, head, hold: SegmentHold::Loose })
    }

    /// Opens the segment of that number. `None` if it is gone.
    pub(crate) fn open(
        dir: &Path,
        seq: u64,
        mode: Mode,
        hold: SegmentHold,
    ) -> Result<Option<Self>, JournalError> {
        let path = path(dir, seq);
        let file = OpenOptions::new().read(true).write(mode == Mode::Write).open(&path);
        let file = match file {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.at("open", &path)?,
        };
        let data = file.metadata().at("look at", &path)?;
        let (id, len) = (FileId::of(&data), data.len());
        let len = usize::try_from(len).map_err(|_| JournalError::damaged(&path, "file size"))?;
        if (len as u64) < HEADER_BYTES {
            return Err(JournalError::damaged(&path, "segment shorter than its header"));
        }
        let map = Map::of(&file, len, mode).at("map", &path)?;
        Self::attach(map, id, seq, hold, &path)
    }

    fn attach(
        map: Map,
        file: FileId,
        seq: u64,
        hold: SegmentHold,
        path: &Path,
    ) -> Result<Option<Self>, JournalError> {
        let pinned = hold == SegmentHold::Pinned && map.mode() == Mode::Write;
        let hold = if pinned { SegmentHold::Pinned } else { SegmentHold::Loose };
        if pinned {
            map.u32(PINS).fetch_add(1, SeqCst);
            fence(SeqCst);
        }
        let live = map.u64(LIVE).load(Acquire);
        let parsed = Head::parse(&map.array(0), path);
        let still = map.u64(LIVE).load(SeqCst) == live && live != 0;
        // From here on, dropping `segment` unpins.
        let nothing = Head { id: 0, seq: 0, base_pos: 0, base_offset: 0, ..EMPTY };
        let mut segment = Self { map, file, head: nothing, hold };
        if !still {
            return Ok(None);
        }
        let mut head = parsed?;
        if head.seq != seq || head.id != live {
            return Ok(None);
        }
        // A file that was cut short has the frames that are left.
        let room = segment.map.len() as u64 - HEADER_BYTES;
        head.capacity = head.capacity.min(room / 8 * 8);
        if head.base_pos.checked_add(head.capacity).is_none() || !head.base_pos.is_multiple_of(8) {
            return Err(JournalError::damaged(path, "segment position"));
        }
        segment.head = head;
        Ok(Some(segment))
    }

    /// Writes the segment to the disk: the file that was mapped, which must still have its name.
    pub(crate) fn sync(&self, env: &Env, dir: &Path) -> Result<(), JournalError> {
        let path = path(dir, self.head.seq);
        env.sync_map(&self.map, &path)?;
        match self.file.is_at(&path) {
            true => Ok(()),
            false => Err(JournalError::damaged(&path, "removed or replaced while in use")),
        }
    }

    /// Returns whether so much of the segment is unused that its file gives room back, and is not
    /// used again.
    pub(crate) fn is_trimmed(&self, seal: Seal) -> bool {
        self.head.end().saturating_sub(seal.end) > self.head.capacity / 4
    }

    /// Gives the room behind the last frame of a closed segment back to the disk. The file keeps
    /// its size: it may be mapped.
    pub(crate) fn trim(&self, dir: &Path, unused: Unused) -> Result<(), JournalError> {
        let seal = self.sealed().ok().flatten().filter(|seal| self.is_trimmed(*seal));
        let Some(seal) = seal else { return Ok(()) };
        let path = path(dir, self.head.seq);
        let file = OpenOptions::new().read(true).write(true).open(&path).at("open", &path)?;
        let begin = self.place(seal.end) as u64;
        let begin = match unused {
            Unused::All => begin,
            Unused::Zeros => end_of_bytes(&file, begin).at("read", &path)?,
        };
        let from = begin.next_multiple_of(PAGE_BYTES as u64);
        let len = (HEADER_BYTES + self.head.capacity).saturating_sub(from);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if len == 0 || FileId::of(&file.metadata().at("look at", &path)?) != self.file {
            return Ok(());
        }
        match fallocate(&file, flags, from, len) {
            // Not every file system can; the room comes back when the segment is retired.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            punched => punched.at("trim", &path),
        }
    }

    /// Returns whether the contents are still those of this segment.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        fence(Acquire);
        self.map.u64(LIVE).load(SeqCst) == self.head.id
    }

    /// Retires the segment. Returns true if it is not pinned, so that the file may be reused.
    pub(crate) fn retire(&self) -> bool {
        self.map.u64(LIVE).store(0, SeqCst);
        fence(SeqCst);
        self.map.u32(PINS).load(SeqCst) == 0
    }

    #[inline]
    fn place(&self, pos: u64) -> usize {
        (HEADER_BYTES + (pos - self.head.base_pos)) as usize
    }

    /// Returns the byte of the file at which a position's frame lies.
    pub(crate) fn file_position(&self, pos: u64) -> u64 {
        self.place(pos) as u64
    }

    /// Writes a frame at a position. The caller holds the partition's lock and has checked the
    /// room.
    #[inline]
    pub(crate) fn write(&self, pos: u64, header: &[u8; FRAME_HEADER_BYTES], body: &Body<'_>) {
        self.map.write(self.place(pos), header);
        let mut at = self.place(pos) + FRAME_HEADER_BYTES;
        body.write(|part| {
            self.map.write(at, part);
            at += part.len();
        });
    }

    /// Makes the pages from a position on writable.
    pub(crate) fn populate(&self, pos: u64, len: u64) {
        if self.head.base_pos <= pos {
            self.map.populate(self.place(pos), len as usize);
        }
    }

    /// Makes the pages from a position on present for reading.
    pub(crate) fn populate_read(&self, pos: u64, len: u64) {
        if self.head.base_pos <= pos {
            self.map.populate_read(self.place(pos), len as usize);
        }
    }

    /// Makes the header and the pages from a position on writable again after a sync; otherwise the
    /// next write would fault.
    pub(crate) fn rewarm(&self, pos: u64, len: u64) {
        self.map.populate(0, HEADER_BYTES as usize);
        self.populate(pos, len);
    }

    /// Returns the header of a frame that was checked before, as far as it fits in its log.
    pub(crate) fn checked(&self, pos: u64, limit: u64) -> Option<FrameHeader> {
        self.head_at(pos, limit).ok().flatten().map(|(_, header)| header)
    }

    #[inline]
    fn head_at(
        &self,
        pos: u64,
        limit: u64,
    ) -> Result<Option<([u8; FRAME_HEADER_BYTES], FrameHeader)>, FrameFault> {
        let limit = limit.min(self.head.end());
        let room = limit.checked_sub(pos).filter(|_| pos >= self.head.base_pos);
        let room =
            room.filter(|room| *room >= FRAME_HEADER_BYTES as u64).ok_or(FrameFault::Damaged)?;
        let raw: [u8; FRAME_HEADER_BYTES] = self.map.array(self.place(pos));
        let header = FrameHeader::parse(&raw).filter(|h| h.stride() as u64 <= room);
        Ok(header.map(|header| (raw, header)))
    }

    /// Checks the frame at a position, in a log that ends at `limit`; copies a loose segment's body
    /// to `scratch`.
    #[inline]
    pub(crate) fn check(
        &self,
        pos: u64,
        limit: u64,
        scratch: &mut Vec<u8>,
    ) -> Result<FrameHeader, FrameFault> {
        let Some((raw, header)) = self.head_at(pos, limit)? else { return Err(self.fault()) };
        if self.hold == SegmentHold::Loose {
            scratch.resize(header.len as usize - FRAME_HEADER_BYTES, 0);
            self.map.read(self.place(pos) + FRAME_HEADER_BYTES, scratch);
        }
        if !frame::verify(&raw, &header, self.body(pos, &header, scratch), self.head.id) {
            return Err(self.fault());
        }
        Ok(header)
    }

    /// Returns the end of the valid frames from the segment's start on.
    pub(crate) fn end_of_frames(&self) -> Seal {
        let head = &self.head;
        self.end_of_frames_from(head.base_pos, head.base_offset)
    }

    /// Returns the end of the valid frames from a position on, whose frame has that offset or more.
    pub(crate) fn end_of_frames_from(&self, pos: u64, offset: u64) -> Seal {
        let mut scratch = Vec::new();
        let mut found = Seal { end: pos, offset, time: self.head.base_time, closed: 0 };
        while let Ok(header) = self.check(found.end, self.head.end(), &mut scratch) {
            if header.offset < found.offset {
                break;
            }
            found.end += header.stride() as u64;
            (found.offset, found.time) = (header.offset + 1, found.time.max(header.time));
        }
        found
    }

    /// Calls `each` for every valid frame of the file, wherever the log ends.
    pub(crate) fn frames(&self, mut each: impl FnMut(&FrameHeader)) {
        let (mut at, mut scratch) = (self.head.base_pos, Vec::new());
        let limit = match self.sealed() {
            Ok(Some(seal)) => seal.end,
            _ => self.head.end(),
        };
        while at < limit {
            match self.check(at, limit, &mut scratch) {
                Ok(header) => {
                    each(&header);
                    at += header.stride() as u64;
                }
                Err(_) => at = self.resume(at, limit, None).map_or(limit, |found| found.0),
            }
        }
    }

    /// Returns the body of a frame that was just checked, in place or in `scratch`.
    #[inline]
    pub(crate) fn body<'a>(
        &'a self,
        pos: u64,
        header: &FrameHeader,
        scratch: &'a [u8],
    ) -> &'a [u8] {
        let len = header.len as usize - FRAME_HEADER_BYTES;
        match self.hold {
            // SAFETY: pinned, and below the committed tail.
            SegmentHold::Pinned => unsafe {
                self.map.stable(self.place(pos) + FRAME_HEADER_BYTES, len)
            },
            SegmentHold::Loose => scratch.get(..len).unwrap_or_default(),
        }
    }

    /// Returns where bytes lie that [`Segment::body`] has returned; `None` if they are not in this
    /// segment's map.
    pub(crate) fn stable_range(&self, bytes: &[u8]) -> Option<StableRange> {
        let pinned = self.hold == SegmentHold::Pinned;
        let at = self.map.place_of(bytes).filter(|_| pinned)?;
        Some(StableRange { at, len: bytes.len() })
    }

    /// Returns the bytes of a range.
    pub(crate) fn stable(&self, range: &StableRange) -> &[u8] {
        assert!(self.hold == SegmentHold::Pinned, "a range of a segment that is not pinned");
        // SAFETY: pinned. A range is that of a plain slice over this map, and `body` makes those of
        // bytes below the committed tail only.
        unsafe { self.map.stable(range.at, range.len) }
    }

    fn fault(&self) -> FrameFault {
        if self.is_live() { FrameFault::Damaged } else { FrameFault::Gone }
    }

    /// Seals the segment; readers continue in the next one.
    pub(crate) fn seal(&self, seal: Seal) {
        self.map.u64(SEAL_OFFSET).store(seal.offset, Relaxed);
        self.map.u64(SEAL_TIME).store(seal.time.nanos() as u64, Relaxed);
        self.map.u64(SEAL_CLOSED).store(seal.closed, Relaxed);
        self.map.u32(SEAL_CRC).store(seal_crc(&self.head, seal), Relaxed);
        self.map.u64(SEAL_END).store(seal.end, Release);
    }

    /// Returns whether there is no seal, not even a damaged one.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.map.u64(SEAL_END).load(Acquire) == 0
    }

    /// Returns the seal: `None` while the segment is open, an error if the seal is damaged.
    pub(crate) fn sealed(&self) -> Result<Option<Seal>, FrameFault> {
        let end = self.map.u64(SEAL_END).load(Acquire);
        if end == 0 {
            return Ok(None);
        }
        let offset = self.map.u64(SEAL_OFFSET).load(Relaxed);
        let time = Tai::from_nanos(self.map.u64(SEAL_TIME).load(Relaxed) as i64);
        let closed = self.map.u64(SEAL_CLOSED).load(Relaxed);
        let closed = if self.head.has_running_time() { closed } else { 0 };
        let seal = Seal { end, offset, time, closed };
        let whole = self.map.u32(SEAL_CRC).load(Relaxed) == seal_crc(&self.head, seal)
            && (self.head.base_pos..=self.head.end()).contains(&end);
        if whole { Ok(Some(seal)) } else { Err(self.fault()) }
    }

    /// Adds a frame to the index if it is the first of its stride. The caller holds the lock.
    #[inline]
    pub(crate) fn note(&self, offset: u64, pos: u64, time: Tai) {
        let count = self.map.u32(INDEX_COUNT).load(Relaxed);
        let due = u64::from(count) * self.stride();
        if count < INDEX_ENTRIES && pos - self.head.base_pos >= due {
            let at = INDEX + count as usize * INDEX_ENTRY_BYTES;
            self.map.u64(at).store(offset, Relaxed);
            self.map.u64(at + 8).store(pos, Relaxed);
            self.map.u64(at + 16).store(time.nanos() as u64, Relaxed);
            self.map.u32(INDEX_COUNT).store(count + 1, Release);
        }
    }

    fn stride(&self) -> u64 {
        (self.head.capacity / u64::from(INDEX_ENTRIES)).max(1)
    }

    /// Iterates over the index's unchecked entries in ascending order: (offset, position, time).
    fn entries(&self) -> impl DoubleEndedIterator<Item = (u64, u64, Tai)> {
        let count = self.map.u32(INDEX_COUNT).load(Acquire).min(INDEX_ENTRIES) as usize;
        (0..count).map(|i| {
            let at = INDEX + i * INDEX_ENTRY_BYTES;
            let word = |n: usize| self.map.u64(at + n * 8).load(Relaxed);
            (word(0), word(1), Tai::from_nanos(word(2) as i64))
        })
    }

    /// Drops the index's entries at or behind a position (after a cut).
    pub(crate) fn forget_index(&self, pos: u64) {
        let keep = self.entries().take_while(|e| e.1 < pos).count();
        self.map.u32(INDEX_COUNT).store(keep as u32, Release);
    }

    /// Returns the position of a valid frame at or before the wanted one: by the index if its entry
    /// is valid, else the segment's start.
    pub(crate) fn seek(&self, limit: u64, before: impl Fn(u64, Tai) -> bool) -> u64 {
        let mut scratch = Vec::new();
        for (offset, pos, time) in self.entries().rev() {
            if before(offset, time)
                && self.check(pos, limit, &mut scratch).is_ok_and(|f| f.offset == offset)
            {
                return pos;
            }
        }
        self.head.base_pos
    }

    /// Returns the first valid frame behind damage at `pos`, with its offset, to resume reading.
    /// `next` is the offset at the damage, if it is known: then a copy of a former frame in a later
    /// payload is never taken for a frame.
    #[cold]
    pub(crate) fn resume(&self, pos: u64, limit: u64, next: Option<u64>) -> Option<(u64, u64)> {
        let mut scratch = Vec::new();
        let limit = limit.min(self.head.end());
        let mut at = pos.max(self.head.base_pos) + 8;
        while at + FRAME_HEADER_BYTES as u64 <= limit {
            let raw: [u8; FRAME_HEADER_BYTES] = self.map.array(self.place(at));
            let plausible = FrameHeader::parse(&raw).is_some_and(|header| {
                let lost = next.map(|next| header.offset.checked_sub(next));
                let most = (at - pos) / FRAME_HEADER_BYTES as u64;
                lost.is_none_or(|lost| lost.is_some_and(|lost| self.head.compacted || lost <= most))
            });
            if plausible && let Ok(header) = self.check(at, limit, &mut scratch) {
                return Some((at, header.offset));
            }
            at += 8;
        }
        None
    }
}

/// Returns the byte behind the last one of a file that is not zero, at least `least`.
fn end_of_bytes(file: &File, least: u64) -> io::Result<u64> {
    let mut chunk = vec![0; 16 * PAGE_BYTES];
    let mut end = file.metadata()?.len();
    while end > least {
        let from = end.saturating_sub(chunk.len() as u64).max(least);
        let part = &mut chunk[..(end - from) as usize];
        file.read_exact_at(part, from)?;
        if let Some(last) = part.iter().rposition(|byte| *byte != 0) {
            return Ok(from + last as u64 + 1);
        }
        end = from;
    }
    Ok(least)
}

const EMPTY: Head = Head {
    id: 0,
    seq: 0,
    base_pos: 0,
    base_offset: 0,
    base_time: Tai::from_nanos(0),
    capacity: 0,
    prev_id: 0,
    compacted: false,
    version: VERSION,
    created: 0,
};

fn map_len(head: &Head, path: &Path) -> Result<usize, JournalError> {
    usize::try_from(HEADER_BYTES + head.capacity)
        .map_err(|_| JournalError::damaged(path, "segment size"))
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.hold == SegmentHold::Pinned {
            self.map.u32(PINS).fetch_sub(1, SeqCst);
        }
    }
}
