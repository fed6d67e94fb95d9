//! Repair by an operator: rebuilds what can be rebuilt in a running journal, lists what cannot be
//! read, and discards it on request. Nothing else removes damaged bytes of the log.

use std::fs;
use std::path::PathBuf;

use helio_core::TopicName;

use crate::control::RecoveryReport;
use crate::error::IoContext;
use crate::journal::Journal;
use crate::log_scan::LastUse;
use crate::partition::Partition;
use crate::rebuild::{DAMAGED_EXTENSION, HEADER_EXTENSION};
use crate::{JournalError, segment};

/// Extension of segments that programs of versions before 3 cut off.
const CUT_EXTENSION: &str = "cut";

/// The damage of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: u32,
    /// The number of records that are missing at segments' ends or with whole segments. Readers
    /// find damage within a segment, too.
    pub missing: u64,
    /// The first of them.
    pub missing_from: u64,
    /// Files that cannot be read, and copies of damaged parts. They are kept until they are
    /// discarded.
    pub files: Vec<PathBuf>,
}

/// What happens to files that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamagedFiles {
    /// They stay.
    Keep,
    /// They are removed for ever, and the damage is no longer reported. Readers still get a gap.
    Discard,
}

impl Journal {
    /// Rebuilds damaged headers of all topics, and returns the damage that is left.
    ///
    /// # Errors
    /// [`JournalError`] if files cannot be read or written, or the journal is open for reading.
    pub fn repair(&self, files: DamagedFiles) -> Result<Vec<Damage>, JournalError> {
        let mut all = Vec::new();
        for info in self.topics()? {
            let Some(topic) = self.topic(&info.name)? else { continue };
            for number in 0..info.config.partitions {
                let (report, files) = topic.opened(number)?.repair_files(files)?;
                if report.missing != 0 || !files.is_empty() {
                    let (missing, missing_from) = (report.missing, report.missing_from);
                    let (topic, partition) = (info.name.clone(), number);
                    all.push(Damage { topic, partition, missing, missing_from, files });
                }
            }
        }
        Ok(all)
    }
}

impl Partition {
    fn repair_files(
        &self,
        files: DamagedFiles,
    ) -> Result<(RecoveryReport, Vec<PathBuf>), JournalError> {
        if !self.env.writable() {
            return Err(JournalError::ReadOnly);
        }
        let guard = self.lock()?;
        let before = self.control.recovered();
        let rebuilt = self.rebuild_headers()?;
        if rebuilt && self.keeps_last() {
            self.rebuild_keys(&guard)?;
        }
        let (found, damaged) = (self.scan(LastUse::ThisBoot)?, self.damaged_files()?);
        let report = RecoveryReport { count: before.count, cut: before.cut, ..found.report() };
        let report = if rebuilt { report } else { report.merged(before, found.whole_from) };
        if files == DamagedFiles::Keep {
            self.control.set_recovered(report);
            return Ok((report, damaged));
        }
        for path in &damaged {
            fs::remove_file(path).at("remove", path)?;
        }
        self.control.set_recovered(RecoveryReport { missing: 0, missing_from: 0, ..report });
        drop(guard);
        self.env.sync_dir(&self.dir)?;
        self.sync_control()?;
        Ok((report, damaged))
    }

    /// Lists the segments that cannot be read, and the copies of damaged parts.
    fn damaged_files(&self) -> Result<Vec<PathBuf>, JournalError> {
        let mut found = Vec::new();
        let (first, last) = self.segments();
        for seq in self.files()?.into_iter().filter(|seq| (first..last).contains(seq)) {
            if self.segment(seq)?.is_none() {
                found.push(segment::path(&self.dir, seq));
            }
        }
        let kept = [HEADER_EXTENSION, DAMAGED_EXTENSION, CUT_EXTENSION];
        for entry in fs::read_dir(&self.dir).at("list", &self.dir)? {
            let path = entry.at("list", &self.dir)?.path();
            if path.extension().is_some_and(|e| kept.iter().any(|kept| e == *kept)) {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }
}
