//! The totals of retention in a lane, which searches report.
//!
//! The file `removed` of a lane is one line of text: `HLRM1`, the number of the first segment that
//! is kept, how many segments, records and bytes were removed so far, the latest time of a record
//! among them in nanoseconds of TAI, and the CRC-32C of all that in hexadecimal digits. It is
//! replaced before the files go.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use helio_core::Tai;

use crate::error::{ArchiveError, AtPath};

const MAGIC: &str = "HLRM1";

/// The totals that retention has removed of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Segments of lower numbers were removed.
    pub(crate) below: u64,
    /// The number of segments.
    pub segments: u64,
    /// The number of records.
    pub records: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The latest time of a record among them.
    pub until: Tai,
}

impl Default for Removed {
    fn default() -> Self {
        Self { below: 0, segments: 0, records: 0, bytes: 0, until: Tai::from_nanos(i64::MIN) }
    }
}

fn path(lane: &Path) -> PathBuf {
    lane.join("removed")
}

impl Removed {
    pub(crate) fn read(lane: &Path) -> Result<Self, ArchiveError> {
        let path = path(lane);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.at(&path)?,
        };
        let what = "it is damaged; remove it, what was removed is not known then";
        Self::parse(text.trim_end()).ok_or(ArchiveError::Format { path, what })
    }

    fn parse(text: &str) -> Option<Self> {
        let (said, sum) = text.rsplit_once(' ')?;
        if format!("{:08x}", crc32c::crc32c(said.as_bytes())) != sum {
            return None;
        }
        let mut words = said.strip_prefix(MAGIC)?.split_whitespace();
        let mut number = || words.next()?.parse().ok();
        let (below, segments, records, bytes) = (number()?, number()?, number()?, number()?);
        let until = Tai::from_nanos(words.next()?.parse().ok()?);
        Some(Self { below, segments, records, bytes, until })
    }

    fn text(&self) -> String {
        let Self { below, segments, records, bytes, until } = self;
        let said = format!("{MAGIC} {below} {segments} {records} {bytes} {}", until.nanos());
        format!("{said} {:08x}\n", crc32c::crc32c(said.as_bytes()))
    }

    pub(crate) fn write(&self, lane: &Path) -> Result<(), ArchiveError> {
        let (path, new) = (path(lane), lane.join("removed.new"));
        let mut file = File::create(&new).at(&new)?;
        file.write_all(self.text().as_bytes()).and_then(|()| file.sync_data()).at(&new)?;
        std::fs::rename(&new, &path).at(&path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_damage_is_told() {
        let removed = Removed {
            below: 4,
            segments: 3,
            records: 20,
            bytes: 1_000,
            until: Tai::from_nanos(-5),
        };
        let text = removed.text();
        assert_eq!(text, "HLRM1 4 3 20 1000 -5 c18d2405\n");
        assert_eq!(Removed::parse(text.trim_end()), Some(removed));
        assert_eq!(Removed::parse(&text.trim_end().replace("20", "21")), None);
        assert_eq!(Removed::parse(""), None);
    }
}
