//! Segments: files of blocks, first written block by block, then closed with an index.
//!
//! The bytes are those of `docs/formats/log-archive.md`.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use helio_core::Tai;
use helio_logging::Level;

use crate::block::{BlockEntry, Head};
use crate::bytes::{Bytes, put_text};
use crate::error::{ArchiveError, AtPath};

const MAGIC: [u8; 4] = *b"HLAR";
const VERSION: u32 = 1;
const START_BYTES: usize = 32;
const FOOTER_MAGIC: [u8; 4] = *b"HLAF";
const END_MAGIC: [u8; 4] = *b"HLAE";
const ENTRY_BYTES: usize = 40;
/// Length, checksum and magic behind the footer.
const TAIL_BYTES: usize = 12;
/// The largest footer: the entries of the most blocks of a segment, and a cursor.
const MAX_FOOTER_BYTES: u64 = 64 << 20;
const MAX_CURSOR_BYTES: usize = 1 << 20;

/// The start of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentStart {
    pub(crate) lane: Level,
    pub(crate) number: u64,
    /// The time of creation.
    pub(crate) made: Tai,
    /// The reader's position.
    pub(crate) cursor: String,
}

impl SegmentStart {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[self.lane.number(), 0, 0, 0]);
        out.extend_from_slice(&(self.cursor.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.made.nanos().to_le_bytes());
        out.extend_from_slice(self.cursor.as_bytes());
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the start, and returns it with the offset of the first block.
    pub(crate) fn read(file: &File, path: &Path) -> Result<(Self, u64), ArchiveError> {
        let wrong = |what| ArchiveError::Format { path: path.to_owned(), what };
        let cut = || wrong("it is cut or damaged in its first bytes; move it away");
        let mut fixed = [0; START_BYTES];
        let length = file.metadata().at(path)?.len();
        if length < START_BYTES as u64 {
            return Err(cut());
        }
        file.read_exact_at(&mut fixed, 0).at(path)?;
        if !fixed.starts_with(&MAGIC) {
            return Err(wrong("it is not a segment of a log archive; move it away"));
        }
        if fixed[4..8] != VERSION.to_le_bytes() {
            return Err(wrong("it is of another version; use a newer program"));
        }
        let cursor = u32::from_le_bytes([fixed[12], fixed[13], fixed[14], fixed[15]]) as usize;
        let all = START_BYTES + cursor + 4;
        if cursor > MAX_CURSOR_BYTES || length < all as u64 {
            return Err(cut());
        }
        let mut bytes = vec![0; all];
        file.read_exact_at(&mut bytes, 0).at(path)?;
        Self::parse(&bytes).map(|start| (start, all as u64)).ok_or_else(cut)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (all, sum) = bytes.split_last_chunk::<4>()?;
        let mut rest = Bytes(all.get(12..)?);
        let (length, number, made) = (rest.u32()?, rest.u64()?, Tai::from_nanos(rest.i64()?));
        let cursor = std::str::from_utf8(rest.take(length as usize)?).ok()?.to_owned();
        let lane = Level::new(bytes[8])?;
        let whole = crc32c::crc32c(all) == u32::from_le_bytes(*sum);
        whole.then_some(Self { lane, number, made, cursor })
    }
}

/// The index of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) entries: Vec<BlockEntry>,
    /// The reader's cursor after it.
    pub(crate) cursor: String,
    /// When the last block was written.
    pub(crate) sealed: Tai,
    /// The end of the blocks.
    pub(crate) end: u64,
}

impl Index {
    pub(crate) fn of_start(start: &SegmentStart, end: u64) -> Self {
        Self { entries: Vec::new(), cursor: start.cursor.clone(), sealed: start.made, end }
    }

    pub(crate) fn records(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.records)).sum()
    }

    /// The earliest and latest time; none if it is empty.
    pub(crate) fn times(&self) -> Option<(Tai, Tai)> {
        let first = self.entries.iter().map(|entry| entry.first).min()?;
        Some((first, self.entries.iter().map(|entry| entry.last).max()?))
    }

    /// The footer of a closed segment.
    pub(crate) fn footer(&self) -> Vec<u8> {
        let mut out = FOOTER_MAGIC.to_vec();
        out.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.end.to_le_bytes());
        out.extend_from_slice(&self.sealed.nanos().to_le_bytes());
        put_text(&mut out, &self.cursor);
        for entry in &self.entries {
            out.extend_from_slice(&entry.offset.to_le_bytes());
            for number in [entry.head_bytes, entry.body_bytes, entry.records] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            out.extend_from_slice(&entry.levels.to_le_bytes());
            out.extend_from_slice(&entry.gaps.to_le_bytes());
            out.extend_from_slice(&entry.first.nanos().to_le_bytes());
            out.extend_from_slice(&entry.last.nanos().to_le_bytes());
        }
        let (sum, length) = (crc32c::crc32c(&out), out.len() as u32);
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&END_MAGIC);
        out
    }

    /// The index of a closed segment; none if its footer is damaged.
    pub(crate) fn read(file: &File, path: &Path) -> Result<Option<Self>, ArchiveError> {
        let length = file.metadata().at(path)?.len();
        let mut tail = [0; TAIL_BYTES];
        let Some(at) = length.checked_sub(TAIL_BYTES as u64) else { return Ok(None) };
        file.read_exact_at(&mut tail, at).at(path)?;
        let footer = u64::from(u32::from_le_bytes([tail[4], tail[5], tail[6], tail[7]]));
        if !tail.ends_with(&END_MAGIC) || footer > at.min(MAX_FOOTER_BYTES) {
            return Ok(None);
        }
        let mut bytes = vec![0; footer as usize];
        file.read_exact_at(&mut bytes, at - footer).at(path)?;
        let sum = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
        let whole = crc32c::crc32c(&bytes) == sum;
        Ok(Self::parse(&bytes).filter(|index| whole && index.end == at - footer))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = Bytes(bytes.strip_prefix(&FOOTER_MAGIC)?);
        let (count, end, sealed) = (rest.u32()?, rest.u64()?, Tai::from_nanos(rest.i64()?));
        let cursor = rest.text()?.to_owned();
        if rest.0.len() != count as usize * ENTRY_BYTES {
            return None;
        }
        let mut entry = || {
            let (offset, head_bytes, body_bytes) = (rest.u64()?, rest.u32()?, rest.u32()?);
            let (records, levels, gaps) = (rest.u32()?, rest.u16()?, rest.u16()?);
            let [first, last] = [rest.i64()?, rest.i64()?].map(Tai::from_nanos);
            let entry =
                BlockEntry { offset, head_bytes, body_bytes, records, levels, gaps, first, last };
            (entry.end() <= end).then_some(entry)
        };
        let entries = (0..count).map(|_| entry()).collect::<Option<_>>()?;
        Some(Self { entries, cursor, sealed, end })
    }
}

/// Whether a scan checks the bodies of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Only heads are checked. Bodies are checked when they are read.
    Heads,
    /// A block with a damaged body ends the scan.
    Bodies,
}

/// The index of a segment without a footer: its complete blocks up to the last one with a cursor.
/// Blocks after that one belong to an unfinished write.
pub(crate) fn scan(
    file: &File,
    path: &Path,
    check: Check,
) -> Result<(SegmentStart, Index), ArchiveError> {
    let (start, first) = SegmentStart::read(file, path)?;
    let end = file.metadata().at(path)?.len();
    let mut index = Index::of_start(&start, first);
    let (mut at, mut finished) = (first, 0);
    while let Some(head) = Head::read(file, at, end).at(path)? {
        if check == Check::Bodies && !head.body_is_whole(file).at(path)? {
            break;
        }
        at = head.entry.end();
        index.entries.push(head.entry);
        if !head.cursor().is_empty() {
            head.cursor().clone_into(&mut index.cursor);
            (index.sealed, index.end, finished) = (head.sealed, at, index.entries.len());
        }
    }
    index.entries.truncate(finished);
    Ok((start, index))
}

/// The index of a segment, closed or open. If the footer is damaged, the blocks are scanned.
pub(crate) fn read(file: &File, path: &Path) -> Result<Index, ArchiveError> {
    match Index::read(file, path)? {
        Some(index) => Ok(index),
        None => Ok(scan(file, path, Check::Heads)?.1),
    }
}
