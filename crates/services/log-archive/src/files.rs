//! The names of an archive's files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use helio_logging::Level;

use crate::error::{ArchiveError, AtPath};

/// The extension of an open segment.
const OPEN_EXTENSION: &str = "open";
/// The extension of a closed segment.
const CLOSED_EXTENSION: &str = "seg";
/// The extension of an incomplete file.
const NEW_EXTENSION: &str = "new";

/// The folder of a lane.
pub(crate) fn lane(folder: &Path, level: Level) -> PathBuf {
    folder.join(level.name())
}

pub(crate) fn open(lane: &Path, number: u64) -> PathBuf {
    lane.join(format!("{number:010}.{OPEN_EXTENSION}"))
}

pub(crate) fn closed(lane: &Path, number: u64) -> PathBuf {
    lane.join(format!("{number:010}.{CLOSED_EXTENSION}"))
}

pub(crate) fn new(lane: &Path, number: u64) -> PathBuf {
    lane.join(format!("{number:010}.{NEW_EXTENSION}"))
}

/// The files present for a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SegmentFiles {
    pub(crate) open: bool,
    pub(crate) closed: bool,
    pub(crate) new: bool,
}

/// The segments of a lane by number; empty if there is no folder.
pub(crate) fn segments(lane: &Path) -> Result<BTreeMap<u64, SegmentFiles>, ArchiveError> {
    let mut found: BTreeMap<u64, SegmentFiles> = BTreeMap::new();
    let entries = match std::fs::read_dir(lane) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries.at(lane)?,
    };
    for entry in entries {
        let path = entry.at(lane)?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let Some(number) = name.and_then(|name| name.parse().ok()) else { continue };
        let there = found.entry(number).or_default();
        match path.extension().and_then(|name| name.to_str()) {
            Some(OPEN_EXTENSION) => there.open = true,
            Some(CLOSED_EXTENSION) => there.closed = true,
            Some(NEW_EXTENSION) => there.new = true,
            _ => {}
        }
    }
    Ok(found)
}

/// Removes a file that may be gone already.
pub(crate) fn remove(path: &Path) -> Result<(), ArchiveError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.at(path),
    }
}
