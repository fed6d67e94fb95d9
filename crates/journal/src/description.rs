//! A topic's description, `topic.json`: its configuration with a check, and the limits that may be
//! altered while the topic is open.
//!
//! Format: the configuration as JSON. Its last member is the check, a CRC of the bytes before the
//! comma that precedes it. A description without one is of a journal before version 3.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use crate::error::IoContext;
use crate::file_id::FileId;
use crate::options::{DEFAULT_SEGMENT_BYTES, MIN_SEGMENT_BYTES};
use crate::{JournalError, TopicConfig};

/// How many records the largest segments of long records have room for: few enough files for a
/// night, and small enough parts for retention.
const RECORDS_PER_SEGMENT: u64 = 1024;
/// The most bytes of a segment whose size follows the records.
const LARGEST_DERIVED_SEGMENT_BYTES: u64 = 128 << 20;

const CHECK: &str = "\"check\"";
/// The value of a limit that is none.
const UNLIMITED: u64 = u64::MAX;

/// The description's file in a topic's folder.
pub(crate) fn path(topic: &Path) -> PathBuf {
    topic.join("topic.json")
}

/// Returns the text of a description.
pub(crate) fn text(config: &TopicConfig, path: &Path) -> Result<String, JournalError> {
    let json = serde_json::to_string_pretty(config)
        .map_err(|e| JournalError::io("describe", path, e.into()))?;
    let begin = json.trim_end_matches(['\n', '}']);
    Ok(format!("{begin},\n  {CHECK}: \"{:08x}\"\n}}\n", crc32c::crc32c(begin.as_bytes())))
}

/// Returns whether a text has no check, or the right one.
fn is_whole(text: &str) -> bool {
    let Some(at) = text.rfind(CHECK) else { return true };
    let begin = text[..at].rfind(',').unwrap_or(0);
    let crc = format!("{:08x}", crc32c::crc32c(&text.as_bytes()[..begin]));
    text[at + CHECK.len()..].contains(&crc)
}

/// Reads the description in a topic's folder; `None` if there is none.
pub(crate) fn read(topic: &Path) -> Result<Option<TopicConfig>, JournalError> {
    let path = path(topic);
    let text = match fs::read_to_string(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            return Err(JournalError::damaged(&path, "not UTF-8"));
        }
        other => other.at("read", &path)?,
    };
    let config: TopicConfig =
        serde_json::from_str(&text).map_err(|_| JournalError::damaged(&path, "not our JSON"))?;
    if !is_whole(&text) {
        return Err(JournalError::Edited { path });
    }
    config.check().map_err(|_| JournalError::damaged(&path, "values outside the limits"))?;
    Ok(Some(config))
}

/// A file and when it was written: another one, or another time, is another description.
type Stamp = (FileId, i64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    let data = fs::metadata(path).ok()?;
    Some((FileId::of(&data), data.mtime(), data.mtime_nsec()))
}

/// The limits of bytes and age of an open topic.
pub(crate) struct Limits {
    topic: PathBuf,
    read: Mutex<Option<Stamp>>,
    bytes: AtomicU64,
    age: AtomicU64,
}

impl Limits {
    /// Of a description that was just read.
    pub(crate) fn new(topic: &Path, config: &TopicConfig) -> Self {
        let (topic, bytes, age) = (topic.to_owned(), AtomicU64::new(0), AtomicU64::new(0));
        let limits = Self { topic, read: Mutex::default(), bytes, age };
        limits.set(config);
        limits
    }

    fn set(&self, config: &TopicConfig) {
        self.bytes.store(config.retention_bytes.unwrap_or(UNLIMITED), Relaxed);
        self.age.store(config.retention_age_ns.unwrap_or(UNLIMITED), Relaxed);
    }

    /// Reads the description again if it was altered. A damaged one changes nothing.
    pub(crate) fn refresh(&self) {
        let now = stamp(&path(&self.topic));
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if *read != now
            && let Ok(Some(config)) = self::read(&self.topic)
        {
            self.set(&config);
            *read = now;
        }
    }

    /// The limit of a partition's retained bytes.
    pub(crate) fn bytes(&self) -> Option<u64> {
        Some(self.bytes.load(Relaxed)).filter(|bytes| *bytes != UNLIMITED)
    }

    /// The time for which records are retained after their segment was closed, in nanoseconds.
    pub(crate) fn age(&self) -> Option<u64> {
        Some(self.age.load(Relaxed)).filter(|age| *age != UNLIMITED)
    }

    /// Returns the size up to which segments grow, for records of an average length: large enough
    /// for [`RECORDS_PER_SEGMENT`], unless the topic names a size of its own, and small enough that
    /// retention can drop whole ones.
    pub(crate) fn largest_segment(&self, config: &TopicConfig, record_bytes: u64) -> u64 {
        let share = self.bytes().map_or(u64::MAX, |bytes| bytes / 4);
        let wanted = match config.segment_bytes {
            DEFAULT_SEGMENT_BYTES => {
                let all = record_bytes.saturating_mul(RECORDS_PER_SEGMENT);
                let most = LARGEST_DERIVED_SEGMENT_BYTES;
                all.clamp(DEFAULT_SEGMENT_BYTES, most).next_power_of_two()
            }
            named => named,
        };
        wanted.min(share).max(MIN_SEGMENT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edit_of_a_description_is_noticed() {
        let config = TopicConfig {
            retention_bytes: Some(4096),
            description: "a \"check\": of, \"quotes\"".to_owned(),
            ..TopicConfig::default()
        };
        let text = text(&config, Path::new("topic.json")).unwrap();
        let read = |text: &str| serde_json::from_str::<TopicConfig>(text);
        assert_eq!(read(&text).unwrap(), config);
        assert!(is_whole(&text));
        let old = serde_json::to_string_pretty(&config).unwrap();
        assert!(is_whole(&old), "of a journal before version 3");
        for at in 0..text.len() {
            let mut edited = text.clone().into_bytes();
            edited[at] ^= 1;
            let edited = String::from_utf8(edited).unwrap();
            let same = read(&edited).is_ok_and(|read| read == config);
            assert!(!is_whole(&edited) || same || read(&edited).is_err(), "{edited}");
        }
    }
}
