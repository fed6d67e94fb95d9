//! Snapshots: all keys as of a revision, sorted, in a mapped file. The byte table is
//! `docs/formats/state.md`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use helio_state::{Alarm, Error, Image, KeyValue, LeaseImage, Source, StoredPlace, View};

use crate::map::map;

const MAGIC: &[u8; 8] = b"HELIOSTA";
const VERSION: u32 = 1;
/// Bytes of the head without leases and alarms.
const HEAD: usize = 64;
/// Bytes before a key-value.
const ENTRY: usize = 24;
/// Bytes written at most before they are synced: a log on the same disk is synced meanwhile, and
/// would wait for all of them.
const SYNC_STEP_BYTES: usize = 8 << 20;

/// Why a snapshot cannot be used or written.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read or written.
    #[error("{path}: {source}; check the disk's space and the folder's permissions")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a snapshot of this version, or damaged.
    #[error("{path} is no intact snapshot of version {VERSION} ({what}); restore another one")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The store's log is damaged.
    #[error("a key cannot be read from the log ({0}); restore the store from a snapshot")]
    Store(#[from] Error),
}

/// A snapshot, mapped.
#[derive(Clone, Debug)]
pub struct Snapshot {
    path: PathBuf,
    bytes: Bytes,
    image: Image,
    keys: usize,
    index: usize,
}

/// The name of a snapshot in a store's folder.
pub(crate) fn file_name(revision: i64, next_record: u64) -> String {
    format!("snapshot-{revision:016x}-{next_record:016x}")
}

/// Snapshots of a folder, newest first.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("snapshot-") && path.extension().is_none() {
            found.push(path);
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    Ok(found)
}

/// Writes a snapshot of a view as of a revision; it has its name only when it is whole and synced.
pub(crate) fn write(
    path: &Path,
    image: &Image,
    view: &View,
    source: &dyn Source,
) -> Result<(), SnapshotError> {
    let mut writer = Writer::create(path, image.clone())?;
    view.scan(image.revision, source, |stored| writer.entry(&stored.kv, stored.place()))?;
    writer.finish()
}

/// Writes a snapshot key by key; the file has its name only when it is whole and synced. Without
/// [`finish`](Self::finish) nothing is left.
pub struct Writer {
    path: PathBuf,
    temporary: PathBuf,
    out: BufWriter<Stepwise>,
    image: Image,
    at: usize,
    index: Vec<u8>,
    last: Bytes,
}

impl Writer {
    /// Begins a snapshot.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn create(path: &Path, image: Image) -> Result<Self, SnapshotError> {
        let temporary = path.with_extension("new");
        let failed = |source| SnapshotError::Io { path: temporary.clone(), source };
        let file = File::create(&temporary).map_err(failed)?;
        let mut out = BufWriter::with_capacity(1 << 20, Stepwise { file, unsynced: 0 });
        let at = head(&image, 0, 0).len();
        out.write_all(&vec![0; at]).map_err(failed)?;
        let (index, last, path) = (Vec::new(), Bytes::new(), path.into());
        Ok(Self { path, temporary, out, image, at, index, last })
    }

    /// Adds a key that another store had; keys come in their order.
    ///
    /// # Errors
    ///
    /// The key is not above the last one, or the file cannot be written.
    pub fn push(&mut self, kv: &KeyValue) -> Result<(), SnapshotError> {
        let key = kv.key();
        if key <= self.last || key.is_empty() {
            return Err(SnapshotError::Damaged { path: self.path.clone(), what: "keys' order" });
        }
        self.last = Bytes::copy_from_slice(&key);
        // As if a trimmed record had held it: it is found by its key.
        let length = u32::try_from(kv.encoded().len()).unwrap_or(u32::MAX);
        let record = self.image.next_record.saturating_sub(1);
        self.entry(kv, StoredPlace { record, start: 0, length })
    }

    fn entry(&mut self, kv: &KeyValue, place: StoredPlace) -> Result<(), SnapshotError> {
        self.index.extend_from_slice(&(self.at as u64).to_le_bytes());
        let written = write_entry(&mut self.out, kv, &place);
        self.at += written.map_err(|source| self.failed(source))?;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> SnapshotError {
        SnapshotError::Io { path: self.path.clone(), source }
    }

    /// Writes the index and the head, syncs the file and names it.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<(), SnapshotError> {
        let checksum = crc32c::crc32c(&self.index);
        let head = head(&self.image, self.index.len() / 8, self.at);
        let mut finish = || -> io::Result<()> {
            self.out.write_all(&self.index)?;
            self.out.write_all(&checksum.to_le_bytes())?;
            self.out.seek(SeekFrom::Start(0))?;
            self.out.write_all(&head)?;
            self.out.flush()?;
            self.out.get_ref().file.sync_all()?;
            fs::rename(&self.temporary, &self.path)?;
            sync_folder(&self.path)
        };
        finish().map_err(|source| self.failed(source))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It has another name, if it was finished.
        drop(fs::remove_file(&self.temporary));
    }
}

/// A file that is synced as it grows.
struct Stepwise {
    file: File,
    unsynced: usize,
}

impl Write for Stepwise {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written;
        if self.unsynced >= SYNC_STEP_BYTES {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Stepwise {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn write_entry(out: &mut impl Write, kv: &KeyValue, place: &StoredPlace) -> io::Result<usize> {
    let kv = kv.encoded();
    let mut head = [0; ENTRY];
    head[4..8].copy_from_slice(&(kv.len() as u32).to_le_bytes());
    head[8..16].copy_from_slice(&place.record.to_le_bytes());
    head[16..20].copy_from_slice(&place.start.to_le_bytes());
    head[20..24].copy_from_slice(&place.length.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&head[4..]), kv);
    head[..4].copy_from_slice(&checksum.to_le_bytes());
    out.write_all(&head)?;
    out.write_all(kv)?;
    Ok(ENTRY + kv.len())
}

fn head(image: &Image, keys: usize, index: usize) -> Vec<u8> {
    let mut head = Vec::new();
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    head.extend_from_slice(&image.revision.to_le_bytes());
    head.extend_from_slice(&image.compact_revision.to_le_bytes());
    head.extend_from_slice(&image.next_record.to_le_bytes());
    head.extend_from_slice(&(keys as u64).to_le_bytes());
    head.extend_from_slice(&(index as u64).to_le_bytes());
    head.extend_from_slice(&(image.leases.len() as u32).to_le_bytes());
    head.extend_from_slice(&(image.alarms.len() as u32).to_le_bytes());
    for lease in &image.leases {
        for number in [lease.id, lease.ttl, lease.checkpoint] {
            head.extend_from_slice(&number.to_le_bytes());
        }
    }
    head.extend(image.alarms.iter().map(|alarm| *alarm as u8));
    let checksum = crc32c::crc32c(&head[16..]);
    head[12..16].copy_from_slice(&checksum.to_le_bytes());
    head
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    u64_at(bytes, at).map(u64::cast_signed)
}

/// The head and where the keys' index lies; `None` if it is damaged.
fn parse_head(bytes: &[u8]) -> Option<(Image, usize, usize)> {
    let leases = u32_at(bytes, 56)? as usize;
    let alarms = u32_at(bytes, 60)? as usize;
    let alarms_at = HEAD.checked_add(leases.checked_mul(24)?)?;
    let end = alarms_at.checked_add(alarms)?;
    (crc32c::crc32c(bytes.get(16..end)?) == u32_at(bytes, 12)?).then_some(())?;
    let lease = |n: usize| {
        let at = HEAD + 24 * n;
        let (id, ttl) = (i64_at(bytes, at)?, i64_at(bytes, at + 8)?);
        Some(LeaseImage { id, ttl, checkpoint: i64_at(bytes, at + 16)? })
    };
    let alarm = |byte: &u8| match byte {
        1 => Some(Alarm::NoSpace),
        2 => Some(Alarm::Corrupt),
        _ => None,
    };
    let image = Image {
        revision: i64_at(bytes, 16)?,
        compact_revision: i64_at(bytes, 24)?,
        next_record: u64_at(bytes, 32)?,
        leases: (0..leases).map(lease).collect::<Option<_>>()?,
        alarms: bytes.get(alarms_at..end)?.iter().map(alarm).collect::<Option<_>>()?,
    };
    let (keys, index) = (u64_at(bytes, 40)? as usize, u64_at(bytes, 48)? as usize);
    let index_end = index.checked_add(keys.checked_mul(8)?)?;
    let checksum = crc32c::crc32c(bytes.get(index..index_end)?);
    (checksum == u32_at(bytes, index_end)? && index_end + 4 == bytes.len()).then_some(())?;
    Some((image, keys, index))
}

impl Snapshot {
    /// Maps a snapshot, and checks its head and index; keys are checked as they are loaded.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is damaged.
    pub fn open(path: &Path) -> Result<Self, SnapshotError> {
        let failed = |source| SnapshotError::Io { path: path.into(), source };
        let bytes = File::open(path).and_then(|file| map(&file)).map_err(failed)?;
        let damaged = |what| SnapshotError::Damaged { path: path.into(), what };
        if bytes.get(..8) != Some(MAGIC.as_slice()) || u32_at(&bytes, 8) != Some(VERSION) {
            return Err(damaged("not its magic or version"));
        }
        let (image, keys, index) = parse_head(&bytes).ok_or(damaged("head or index"))?;
        Ok(Self { path: path.into(), bytes, image, keys, index })
    }

    /// The head.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Keys.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// The file's size, in bytes.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The key-value by its place in the order of keys, not checked.
    fn entry(&self, at: usize) -> Option<(usize, usize)> {
        let start = u64_at(&self.bytes, self.index + 8 * at)? as usize;
        let length = u32_at(&self.bytes, start + 4)? as usize;
        let kv = start + ENTRY;
        (kv.checked_add(length)? <= self.index).then_some((kv, length))
    }

    /// Calls `with` with each key-value, checked.
    pub(crate) fn load(
        &self,
        mut with: impl FnMut(&KeyValue, StoredPlace),
    ) -> Result<(), SnapshotError> {
        let damaged = || SnapshotError::Damaged { path: self.path.clone(), what: "a key" };
        for at in 0..self.keys {
            let (kv, length) = self.entry(at).ok_or_else(damaged)?;
            let head = kv - ENTRY;
            let sum = crc32c::crc32c(&self.bytes[head + 4..kv + length]);
            if u32_at(&self.bytes, head) != Some(sum) {
                return Err(damaged());
            }
            let place = StoredPlace {
                record: u64_at(&self.bytes, head + 8).ok_or_else(damaged)?,
                start: u32_at(&self.bytes, head + 16).ok_or_else(damaged)?,
                length: u32_at(&self.bytes, head + 20).ok_or_else(damaged)?,
            };
            with(&KeyValue::from_trusted(self.bytes.slice(kv..kv + length)), place);
        }
        Ok(())
    }

    /// A key's value.
    pub(crate) fn get(&self, key: &[u8]) -> Option<KeyValue> {
        let (mut low, mut high) = (0, self.keys);
        while low < high {
            let middle = low + (high - low) / 2;
            let (at, length) = self.entry(middle)?;
            let kv = KeyValue::from_trusted(self.bytes.slice(at..at + length));
            match kv.fields().key.cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(kv),
            }
        }
        None
    }
}
