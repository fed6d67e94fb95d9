//! The stamps of an alert as a sample of their own: packed, and built again byte for byte.
//!
//! Format: `docs/formats/stamps.md`. A stamp is a list of parts, each an HDU of its FITS file; one
//! that is no FITS file is a single part. A part's bytes are in the sample, or it refers to a
//! *shared part* by its hash: a sample of its own, published before. A PSF is equal in all stamps
//! of a CCD, and is stored once.
//!
//! Operation. [`SharedParts`] counts the parts of a batch and names those that occur often enough;
//! [`pack`] writes a sample, [`unpack`] reads it. Packing shuffles the bytes of pixels into planes
//! and compresses all with zstd; no bit is lost.

use std::collections::HashMap;

use crc32c::{crc32c, crc32c_append};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

use crate::fits;

const MAGIC: [u8; 4] = *b"HSTP";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 28;
const PART_BYTES: usize = 28;
/// Where the checksum is.
const SUM: std::ops::Range<usize> = 24..28;
/// The number of parts of a stamp that is absent.
const ABSENT: u16 = u16::MAX;
/// The most stamps of an alert: surveys send three.
pub const MAX_STAMPS: usize = 16;
/// The most parts of one stamp: Rubin's have three.
pub const MAX_PARTS: usize = 64;
/// The most shared parts of an alert: two for each of Rubin's stamps, with room in the headers.
pub const MAX_LINKED_PARTS: usize = 64;
/// The most bytes of all stamps of an alert: fifty times Rubin's largest.
pub const MAX_STAMPS_BYTES: usize = 64 << 20;

/// The identity of a part: XXH3-128 of its bytes.
pub type PartHash = u128;

/// How the bytes of parts are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Packing {
    /// As they are.
    #[default]
    Plain,
    /// Shuffled by the pixels' bytes and compressed with zstd.
    ShuffleZstd,
}

/// Why bytes are not a sample of stamps.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StampsError {
    /// The bytes are of another kind.
    #[error("no sample of stamps: it does not begin with HSTP")]
    Magic,
    /// The format is newer.
    #[error("a sample of stamps of version {0}; this program reads version 1")]
    Version(u8),
    /// The bytes are damaged.
    #[error("a damaged sample of stamps: {0}")]
    Damaged(&'static str),
    /// A shared part is not known.
    #[error("the shared part {0:032x} is missing; it is published before the stamps that need it")]
    Missing(PartHash),
    /// There are too many or too large stamps.
    #[error("stamps beyond the limit of {MAX_STAMPS_BYTES} bytes or {MAX_STAMPS} stamps")]
    Limit,
    /// This program cannot compress.
    #[error("packed stamps need zstd; build helio-alerts with its feature zstd")]
    NoZstd,
}

#[cfg(feature = "zstd")]
mod compression {
    use super::StampsError;

    /// The level of zstd: the highest that keeps up with a CCD's producer.
    const LEVEL: i32 = 3;

    pub(super) fn compress(body: &[u8]) -> Result<Vec<u8>, StampsError> {
        let packed = zstd::bulk::compress(body, LEVEL);
        Ok(packed.expect("zstd compresses any bytes into a buffer that it sizes"))
    }

    pub(super) fn decompress(packed: &[u8], bytes: usize) -> Result<Vec<u8>, StampsError> {
        let body = zstd::bulk::decompress(packed, bytes);
        body.map_err(|_| StampsError::Damaged("it cannot be decompressed"))
    }
}

#[cfg(not(feature = "zstd"))]
mod compression {
    use super::StampsError;

    pub(super) fn compress(_: &[u8]) -> Result<Vec<u8>, StampsError> {
        Err(StampsError::NoZstd)
    }

    pub(super) fn decompress(_: &[u8], _: usize) -> Result<Vec<u8>, StampsError> {
        Err(StampsError::NoZstd)
    }
}

/// The stamps of an alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamps {
    /// The alert; 0 for a shared part.
    pub alert_id: i64,
    /// The stamps' files, in the order of the schema.
    pub files: Vec<Option<Vec<u8>>>,
}

/// A part of a stamp.
struct Part<'a> {
    bytes: &'a [u8],
    /// Bytes that are no pixels, at the start.
    head: usize,
    /// Bytes of a pixel.
    width: usize,
}

/// The parts of a stamp: its HDUs.
fn parts(stamp: &[u8]) -> Vec<Part<'_>> {
    let whole = || vec![Part { bytes: stamp, head: stamp.len(), width: 1 }];
    let Ok(hdus) = fits::hdus(stamp) else { return whole() };
    if hdus.len() > MAX_PARTS {
        return whole();
    }
    let mut rest = stamp;
    let part = |hdu: fits::Hdu<'_>| {
        let (bytes, after) = rest.split_at(hdu.size());
        rest = after;
        Part { bytes, head: hdu.header.len(), width: hdu.pixel_bytes }
    };
    hdus.into_iter().map(part).collect()
}

/// The parts that a batch of alerts shares.
#[derive(Debug, Clone, Default)]
pub struct SharedParts {
    counts: HashMap<PartHash, usize>,
}

/// The fewest occurrences in a batch for which a part is shared: below, a sample costs more than it
/// saves.
const MIN_OCCURRENCES: usize = 4;
/// The fewest bytes of a shared part.
const MIN_SHARED_BYTES: usize = 4_096;

impl SharedParts {
    /// Counts the parts of an alert's stamps.
    pub fn count(&mut self, stamps: &[Option<&[u8]>]) {
        let parts = stamps.iter().flatten().flat_map(|stamp| parts(stamp));
        for part in parts.filter(|part| part.bytes.len() >= MIN_SHARED_BYTES) {
            *self.counts.entry(xxh3_128(part.bytes)).or_default() += 1;
        }
    }

    /// Returns whether a part is shared.
    #[must_use]
    pub fn contains(&self, hash: PartHash) -> bool {
        self.counts.get(&hash).is_some_and(|count| *count >= MIN_OCCURRENCES)
    }

    /// Returns the shared parts of an alert's stamps: what to publish before them.
    #[must_use]
    pub fn of<'a>(&self, stamps: &[Option<&'a [u8]>]) -> Vec<(PartHash, &'a [u8])> {
        let parts = stamps.iter().flatten().flat_map(|stamp| parts(stamp));
        let large = parts.filter(|part| part.bytes.len() >= MIN_SHARED_BYTES);
        let hashed = large.map(|part| (xxh3_128(part.bytes), part.bytes));
        hashed.filter(|(hash, _)| self.contains(*hash)).collect()
    }
}

/// Packs an alert's stamps and appends the sample to `out`. Shared parts become references.
///
/// # Errors
/// [`StampsError::Limit`].
pub fn pack(
    alert_id: i64,
    stamps: &[Option<&[u8]>],
    shared: &SharedParts,
    packing: Packing,
    out: &mut Vec<u8>,
) -> Result<(), StampsError> {
    let total: usize = stamps.iter().flatten().map(|stamp| stamp.len()).sum();
    if stamps.len() > MAX_STAMPS || total > MAX_STAMPS_BYTES {
        return Err(StampsError::Limit);
    }
    let start = out.len();
    out.extend(MAGIC);
    out.extend([VERSION, u8::from(packing == Packing::ShuffleZstd), stamps.len() as u8, 0]);
    out.extend(alert_id.to_le_bytes());
    out.extend([0; HEAD_BYTES - 16]);
    let mut body = Vec::with_capacity(total);
    for stamp in stamps {
        let parts = stamp.map(parts);
        let count = parts.as_ref().map_or(ABSENT, |parts| parts.len() as u16);
        out.extend(count.to_le_bytes());
        for part in parts.iter().flatten() {
            put_part(part, shared, packing, out, &mut body);
        }
    }
    match packing {
        Packing::Plain => out.extend_from_slice(&body),
        Packing::ShuffleZstd => {
            out.extend(compression::compress(&body)?);
        }
    }
    let sample = &mut out[start..];
    let size = sample.len() as u32;
    sample[16..20].copy_from_slice(&size.to_le_bytes());
    sample[20..24].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let sum = crc32c_append(crc32c(&sample[..SUM.start]), &sample[SUM.end..]);
    sample[SUM].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// Packs a shared part as a sample of its own.
///
/// # Errors
/// [`StampsError::Limit`].
pub fn pack_shared(part: &[u8], packing: Packing, out: &mut Vec<u8>) -> Result<(), StampsError> {
    pack(0, &[Some(part)], &SharedParts::default(), packing, out)
}

fn put_part(
    part: &Part<'_>,
    shared: &SharedParts,
    packing: Packing,
    out: &mut Vec<u8>,
    body: &mut Vec<u8>,
) {
    let hash = if part.bytes.len() >= MIN_SHARED_BYTES { xxh3_128(part.bytes) } else { 0 };
    let is_shared = hash != 0 && shared.contains(hash);
    out.extend([u8::from(is_shared), part.width as u8, 0, 0]);
    out.extend((part.head as u32).to_le_bytes());
    out.extend((part.bytes.len() as u32).to_le_bytes());
    out.extend((if is_shared { hash } else { 0 }).to_le_bytes());
    if is_shared {
        return;
    }
    let (head, pixels) = part.bytes.split_at(part.head);
    body.extend_from_slice(head);
    match packing {
        Packing::Plain => body.extend_from_slice(pixels),
        Packing::ShuffleZstd => shuffle(pixels, part.width, body),
    }
}

/// Appends the first bytes of all pixels, then the second ones, and so on.
fn shuffle(pixels: &[u8], width: usize, out: &mut Vec<u8>) {
    for plane in 0..width {
        out.extend(pixels.iter().skip(plane).step_by(width));
    }
}

/// The inverse of [`shuffle`].
fn unshuffle(planes: &[u8], width: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + planes.len(), 0);
    for (plane, bytes) in planes.chunks_exact((planes.len() / width).max(1)).enumerate() {
        for (place, byte) in out[start + plane..].iter_mut().step_by(width).zip(bytes) {
            *place = *byte;
        }
    }
}

/// Where an alert's stamps are: offsets in the partition of the topic of stamps that has the number
/// of the alert's own partition. The header [`LINK_HEADER`](crate::topics::LINK_HEADER) has them,
/// separated by spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The sample with the stamps.
    pub stamps: u64,
    /// The samples with the shared parts to which it refers.
    pub parts: Vec<u64>,
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.stamps)?;
        self.parts.iter().try_for_each(|part| write!(f, " {part}"))
    }
}

impl Link {
    /// Reads the header's value; `None` if it is no link, or has too many parts.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut offsets = std::str::from_utf8(value).ok()?.split(' ').map(str::parse);
        let stamps = offsets.next()?.ok()?;
        let parts = offsets.take(MAX_LINKED_PARTS + 1).collect::<Result<Vec<_>, _>>().ok()?;
        (parts.len() <= MAX_LINKED_PARTS).then_some(Self { stamps, parts })
    }
}

/// Reads the alert of a sample of stamps, without its checksum.
#[must_use]
pub fn alert_of(sample: &[u8]) -> Option<i64> {
    let id = sample.strip_prefix(&MAGIC)?.get(4..12)?;
    Some(i64::from_le_bytes(id.try_into().ok()?))
}

/// Reads a sample of stamps. `shared` returns the bytes of a shared part.
///
/// # Errors
/// [`StampsError`] if the sample is damaged, or a shared part unknown.
pub fn unpack<'s>(
    sample: &[u8],
    mut shared: impl FnMut(PartHash) -> Option<&'s [u8]>,
) -> Result<Stamps, StampsError> {
    let (packing, count, body_bytes) = check(sample)?;
    let alert_id = i64::from_le_bytes(array(sample, 8)?);
    let mut table = &sample[HEAD_BYTES..];
    let entries = (0..count).map(|_| entries(&mut table)).collect::<Result<Vec<_>, _>>()?;
    let body = match packing {
        Packing::Plain => table.to_vec(),
        Packing::ShuffleZstd => compression::decompress(table, body_bytes)?,
    };
    if body.len() != body_bytes {
        return Err(StampsError::Damaged("its parts have another size"));
    }
    let mut rest = &body[..];
    let mut total = 0_usize;
    let mut file = |entries: Vec<Entry>| {
        let mut file = Vec::new();
        for entry in entries {
            total = total.saturating_add(entry.bytes);
            if total > MAX_STAMPS_BYTES {
                return Err(StampsError::Limit);
            }
            match entry.shared {
                Some(hash) => {
                    let part = shared(hash).filter(|part| xxh3_128(part) == hash);
                    file.extend_from_slice(part.ok_or(StampsError::Missing(hash))?);
                }
                None => entry.restore(&mut rest, packing, &mut file)?,
            }
        }
        Ok(file)
    };
    let files = entries.into_iter().map(|stamp| stamp.map(&mut file).transpose());
    let files = files.collect::<Result<Vec<_>, _>>()?;
    if !rest.is_empty() {
        return Err(StampsError::Damaged("bytes are left"));
    }
    Ok(Stamps { alert_id, files })
}

/// Checks the head: packing, number of stamps, bytes of the unpacked body.
fn check(sample: &[u8]) -> Result<(Packing, usize, usize), StampsError> {
    if !sample.starts_with(&MAGIC) {
        return Err(StampsError::Magic);
    }
    if sample.len() < HEAD_BYTES || u32::from_le_bytes(array(sample, 16)?) as usize != sample.len()
    {
        return Err(StampsError::Damaged("its length is another"));
    }
    let sum = crc32c_append(crc32c(&sample[..SUM.start]), &sample[SUM.end..]);
    let body_bytes = u32::from_le_bytes(array(sample, 20)?) as usize;
    match (sample[4], sample[5], usize::from(sample[6])) {
        (version, ..) if version != VERSION => Err(StampsError::Version(version)),
        _ if sample[SUM] != sum.to_le_bytes() => {
            Err(StampsError::Damaged("its checksum is another"))
        }
        (_, _, count) if count > MAX_STAMPS || body_bytes > MAX_STAMPS_BYTES => {
            Err(StampsError::Limit)
        }
        (_, 0, count) => Ok((Packing::Plain, count, body_bytes)),
        (_, 1, count) => Ok((Packing::ShuffleZstd, count, body_bytes)),
        _ => Err(StampsError::Damaged("its packing is unknown")),
    }
}

/// A part in the table of a sample.
struct Entry {
    width: usize,
    head: usize,
    bytes: usize,
    shared: Option<PartHash>,
}

/// Reads the parts of the next stamp; `None` for one that is absent.
fn entries(table: &mut &[u8]) -> Result<Option<Vec<Entry>>, StampsError> {
    let count = u16::from_le_bytes(array(table, 0)?);
    *table = &table[2..];
    if count == ABSENT {
        return Ok(None);
    }
    if usize::from(count) > MAX_PARTS {
        return Err(StampsError::Limit);
    }
    let entry = |_| {
        let [kind, width] = array(table, 0)?;
        let head = u32::from_le_bytes(array(table, 4)?) as usize;
        let bytes = u32::from_le_bytes(array(table, 8)?) as usize;
        let hash = u128::from_le_bytes(array(table, 12)?);
        *table = &table[PART_BYTES..];
        let width = usize::from(width);
        let is_whole = bytes.checked_sub(head).is_some_and(|pixels| pixels % width.max(1) == 0);
        match (kind, width, is_whole) {
            (0, 1..=8, true) => Ok(Entry { width, head, bytes, shared: None }),
            (1, 1..=8, true) => Ok(Entry { width, head, bytes, shared: Some(hash) }),
            _ => Err(StampsError::Damaged("a part is of an unknown kind")),
        }
    };
    (0..count).map(entry).collect::<Result<Vec<_>, _>>().map(Some)
}

impl Entry {
    fn restore(
        &self,
        rest: &mut &[u8],
        packing: Packing,
        file: &mut Vec<u8>,
    ) -> Result<(), StampsError> {
        let split = rest.split_at_checked(self.bytes);
        let (part, after) = split.ok_or(StampsError::Damaged("a part is cut short"))?;
        *rest = after;
        let (head, pixels) = part.split_at(self.head);
        file.extend_from_slice(head);
        match packing {
            Packing::Plain => file.extend_from_slice(pixels),
            Packing::ShuffleZstd => unshuffle(pixels, self.width, file),
        }
        Ok(())
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], StampsError> {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().ok_or(StampsError::Damaged("it is cut short"))
}
