//! Blocks: a compressed packet of records, with the data by which a search skips it.
//!
//! The bytes are those of `docs/formats/log-archive.md`.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use helio_core::Tai;
use helio_logging::{IndexTerm, Level, MAX_PACKET_BYTES, MAX_RECORDS, Outline, Packet};

use crate::bloom;
use crate::builder::UncompressedBlock;
use crate::bytes::{Bytes, put_text, put_varint, unzigzag, zigzag};

const MAGIC: [u8; 4] = *b"HLAB";
/// The head's fixed part.
pub(crate) const FIXED_BYTES: usize = 72;
/// The largest head: a filter, a cursor, and the gaps of one visit of the reader.
const MAX_HEAD_BYTES: usize = 32 << 20;
/// A packet, and at most ten bytes for each record's number.
const MAX_RAW_BYTES: usize = MAX_PACKET_BYTES + 10 * MAX_RECORDS;
/// zstd's default level, which is fast enough for a flood.
const COMPRESSION_LEVEL: i32 = 3;

/// Records that the archive never received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedGap {
    /// The time of the newest record before the gap, or of its report.
    pub time: Tai,
    /// The number of records, if known.
    pub records: Option<u64>,
    /// The reader's description of the gap.
    pub text: String,
}

/// A block's entry in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    /// The offset in the segment.
    pub(crate) offset: u64,
    pub(crate) head_bytes: u32,
    pub(crate) body_bytes: u32,
    pub(crate) records: u32,
    /// A bit for each level.
    pub(crate) levels: u16,
    pub(crate) gaps: u16,
    /// The times of its records and gaps.
    pub(crate) first: Tai,
    pub(crate) last: Tai,
}

impl BlockEntry {
    pub(crate) fn end(&self) -> u64 {
        self.offset + u64::from(self.head_bytes) + u64::from(self.body_bytes)
    }
}

/// Appends a block to bytes that will be written at `start`.
pub(crate) fn encode(
    raw: &UncompressedBlock,
    gaps: &[ArchivedGap],
    cursor: &str,
    sealed: Tai,
    start: u64,
    into: &mut Vec<u8>,
) -> io::Result<BlockEntry> {
    let damaged = |_| io::Error::other("a packet that was just made cannot be read");
    let (mut body, mut filter, mut levels) = (Vec::new(), Vec::new(), 0);
    let mut times: Vec<Tai> = gaps.iter().map(|gap| gap.time).collect();
    let mut raw_bytes = 0;
    if !raw.sequences.is_empty() {
        let packet = Packet::parse(&raw.packet).map_err(damaged)?;
        filter = bloom::of_packet(&packet);
        for record in packet.records() {
            levels |= 1 << record.level().number();
            times.push(record.time());
        }
        let mut plain = raw.packet.clone();
        put_sequences(&packet, &raw.sequences, &mut plain);
        raw_bytes = plain.len();
        body = zstd::bulk::compress(&plain, COMPRESSION_LEVEL)?;
    }
    let (first, last) = (times.iter().min().copied(), times.iter().max().copied());
    let mut told = Vec::new();
    for gap in gaps {
        told.extend_from_slice(&gap.time.nanos().to_le_bytes());
        told.extend_from_slice(&gap.records.unwrap_or(u64::MAX).to_le_bytes());
        put_text(&mut told, &gap.text);
    }
    let entry = BlockEntry {
        offset: start + into.len() as u64,
        head_bytes: (FIXED_BYTES + cursor.len() + told.len() + filter.len()) as u32,
        body_bytes: body.len() as u32,
        records: raw.sequences.len() as u32,
        levels,
        gaps: gaps.len().min(usize::from(u16::MAX)) as u16,
        first: first.unwrap_or(sealed),
        last: last.unwrap_or(sealed),
    };
    let head = into.len();
    into.extend_from_slice(&MAGIC);
    into.extend_from_slice(&[0; 4]);
    let lengths = [cursor.len(), told.len(), filter.len(), raw.packet.len(), raw_bytes];
    let counts = [entry.head_bytes, entry.body_bytes, crc32c::crc32c(&body), entry.records];
    let numbers = counts.into_iter().chain(lengths.map(|length| length as u32));
    numbers.for_each(|number| into.extend_from_slice(&number.to_le_bytes()));
    into.extend_from_slice(&entry.levels.to_le_bytes());
    into.extend_from_slice(&entry.gaps.to_le_bytes());
    for time in [entry.first, entry.last, sealed] {
        into.extend_from_slice(&time.nanos().to_le_bytes());
    }
    [cursor.as_bytes(), &told, &filter].into_iter().for_each(|part| into.extend_from_slice(part));
    let sum = crc32c::crc32c(&into[head + 8..]).to_le_bytes();
    into[head + 4..head + 8].copy_from_slice(&sum);
    into.extend_from_slice(&body);
    Ok(entry)
}

/// Writes each number as the difference to its producer's previous one, which is mostly one.
fn put_sequences(packet: &Packet<'_>, sequences: &[u64], into: &mut Vec<u8>) {
    let mut before: HashMap<&str, u64> = HashMap::new();
    for (record, sequence) in packet.records().zip(sequences) {
        let before = before.entry(record.producer()).or_default();
        put_varint(into, zigzag(sequence.wrapping_sub(*before).cast_signed()));
        *before = *sequence;
    }
}

/// A block's head, read and checked.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) entry: BlockEntry,
    pub(crate) sealed: Tai,
    body_sum: u32,
    packet_bytes: usize,
    raw_bytes: usize,
    cursor_bytes: usize,
    gaps_bytes: usize,
    bytes: Vec<u8>,
}

impl Head {
    /// Reads the head of the block at an offset; none if it is incomplete.
    pub(crate) fn read(file: &File, offset: u64, end: u64) -> io::Result<Option<Self>> {
        let mut fixed = [0; FIXED_BYTES];
        if end.saturating_sub(offset) < FIXED_BYTES as u64 {
            return Ok(None);
        }
        file.read_exact_at(&mut fixed, offset)?;
        let length = u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]) as usize;
        let whole = (FIXED_BYTES..=MAX_HEAD_BYTES).contains(&length)
            && fixed.starts_with(&MAGIC)
            && length as u64 <= end - offset;
        if !whole {
            return Ok(None);
        }
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(Self::parse(bytes, offset).filter(|head| head.entry.end() <= end))
    }

    fn parse(bytes: Vec<u8>, offset: u64) -> Option<Self> {
        let mut rest = Bytes(bytes.get(4..)?);
        if rest.u32()? != crc32c::crc32c(rest.0) {
            return None;
        }
        let [head_bytes, body_bytes, body_sum, records] =
            [rest.u32()?, rest.u32()?, rest.u32()?, rest.u32()?];
        let lengths = [rest.u32()?, rest.u32()?, rest.u32()?, rest.u32()?, rest.u32()?];
        let [cursor_bytes, gaps_bytes, filter_bytes, packet_bytes, raw_bytes] =
            lengths.map(|length| length as usize);
        let (levels, gaps) = (rest.u16()?, rest.u16()?);
        let times = [rest.i64()?, rest.i64()?, rest.i64()?];
        let [first, last, sealed] = times.map(Tai::from_nanos);
        let right = head_bytes as usize == bytes.len()
            && FIXED_BYTES + cursor_bytes + gaps_bytes + filter_bytes == bytes.len()
            && packet_bytes <= raw_bytes
            && body_bytes as usize <= 2 * MAX_RAW_BYTES
            && raw_bytes <= MAX_RAW_BYTES;
        let entry =
            BlockEntry { offset, head_bytes, body_bytes, records, levels, gaps, first, last };
        right.then_some(Self {
            entry,
            sealed,
            body_sum,
            packet_bytes,
            raw_bytes,
            cursor_bytes,
            gaps_bytes,
            bytes,
        })
    }

    /// The reader's cursor after this block; empty if the next block has it.
    pub(crate) fn cursor(&self) -> &str {
        let bytes = &self.bytes[FIXED_BYTES..FIXED_BYTES + self.cursor_bytes];
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    pub(crate) fn gaps(&self) -> Vec<ArchivedGap> {
        let start = FIXED_BYTES + self.cursor_bytes;
        let mut rest = Bytes(&self.bytes[start..start + self.gaps_bytes]);
        let mut gap = || {
            let (time, records) = (Tai::from_nanos(rest.i64()?), rest.u64()?);
            let records = Some(records).filter(|count| *count != u64::MAX);
            Some(ArchivedGap { time, records, text: rest.text()?.to_owned() })
        };
        std::iter::from_fn(&mut gap).collect()
    }

    fn filter(&self) -> &[u8] {
        &self.bytes[FIXED_BYTES + self.cursor_bytes + self.gaps_bytes..]
    }

    /// Reads the body; none if it is damaged.
    pub(crate) fn body(&self, file: &File) -> io::Result<Option<Body>> {
        if self.entry.records == 0 {
            return Ok(Some(Body::default()));
        }
        let mut packed = vec![0; self.entry.body_bytes as usize];
        let at = self.entry.offset + u64::from(self.entry.head_bytes);
        file.read_exact_at(&mut packed, at)?;
        if crc32c::crc32c(&packed) != self.body_sum {
            return Ok(None);
        }
        let raw = zstd::bulk::decompress(&packed, self.raw_bytes).ok();
        let raw = raw.filter(|raw| raw.len() == self.raw_bytes);
        Ok(raw.map(|raw| Body { raw, packet_bytes: self.packet_bytes }))
    }

    /// Whether the body is undamaged.
    pub(crate) fn body_is_whole(&self, file: &File) -> io::Result<bool> {
        let mut packed = vec![0; self.entry.body_bytes as usize];
        file.read_exact_at(&mut packed, self.entry.offset + u64::from(self.entry.head_bytes))?;
        Ok(crc32c::crc32c(&packed) == self.body_sum)
    }
}

impl Outline for Head {
    fn may_have_level(&self, level: Level) -> bool {
        self.entry.levels & (1 << level.number()) != 0
    }

    fn times(&self) -> (Tai, Tai) {
        (self.entry.first, self.entry.last)
    }

    fn may_have(&self, key: IndexTerm<'_>) -> bool {
        bloom::may_have(self.filter(), bloom::hash(key))
    }
}

/// The outline of a block before its head is read: its index terms are unknown.
impl Outline for BlockEntry {
    fn may_have_level(&self, level: Level) -> bool {
        self.levels & (1 << level.number()) != 0
    }

    fn times(&self) -> (Tai, Tai) {
        (self.first, self.last)
    }

    fn may_have(&self, _: IndexTerm<'_>) -> bool {
        true
    }
}

/// A block's records.
#[derive(Debug, Default)]
pub(crate) struct Body {
    raw: Vec<u8>,
    packet_bytes: usize,
}

impl Body {
    /// The packet; none if it is empty or damaged.
    pub(crate) fn packet(&self) -> Option<Packet<'_>> {
        Packet::parse(&self.raw[..self.packet_bytes]).ok()
    }

    /// The records' sequences.
    pub(crate) fn sequences(&self, packet: &Packet<'_>) -> Option<Vec<u64>> {
        let mut rest = Bytes(&self.raw[self.packet_bytes..]);
        let mut before: HashMap<&str, u64> = HashMap::new();
        let mut sequence = |producer| {
            let before = before.entry(producer).or_default();
            *before = before.wrapping_add_signed(unzigzag(rest.varint()?));
            Some(*before)
        };
        packet.records().map(|record| sequence(record.producer())).collect()
    }
}
