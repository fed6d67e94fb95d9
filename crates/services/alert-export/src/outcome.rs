//! Reports of an export.

use std::fmt;

use helio_alerts::visit::Digest;
use serde::{Deserialize, Serialize};

/// A visit that was read completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VisitReport {
    /// The visit.
    pub visit: i64,
    /// The alerts that count, by the closing record.
    pub decided: Digest,
    /// The distinct alerts that were read.
    pub found: Digest,
    /// Those of them that are in the files.
    pub exported: Digest,
    /// Detectors without manifest when the visit was closed.
    pub missing: Vec<i32>,
    /// Detectors whose alerts did not match their manifests when the visit was closed.
    pub short: Vec<i32>,
    /// Detectors of which other alerts were read than the closing record counts.
    pub differing: Vec<i32>,
    /// Alerts that came again, and are exported once.
    pub repeated: u64,
    /// Alerts that match, but cannot be read.
    pub unreadable: u64,
}

/// The audit of a visit's export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// Count and hash are those of the closing record, and of all manifests.
    Equal,
    /// Count and hash are those of the closing record, which names detectors that are missing or
    /// short.
    Incomplete,
    /// Alerts are in the files but for some that cannot be read.
    Unreadable,
    /// The log does not have the alerts that the closing record counts.
    Differs,
}

impl VisitReport {
    /// The audit of its export.
    #[must_use]
    pub fn finding(&self) -> Finding {
        if self.found != self.decided {
            Finding::Differs
        } else if self.unreadable > 0 {
            Finding::Unreadable
        } else if self.missing.is_empty() && self.short.is_empty() {
            Finding::Equal
        } else {
            Finding::Incomplete
        }
    }
}

impl fmt::Display for VisitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (visit, found) = (self.visit, self.found.count());
        write!(f, "visit {visit}: {found} alerts, {} exported", self.exported.count())?;
        match self.finding() {
            Finding::Equal => f.write_str("; count and hash equal the closing record"),
            Finding::Incomplete => write!(
                f,
                "; count and hash equal the closing record, which names detectors without manifest \
                 {:?} and short ones {:?}",
                self.missing, self.short
            ),
            Finding::Unreadable => write!(f, "; {} cannot be read", self.unreadable),
            Finding::Differs => write!(
                f,
                "; the closing record counts {}: the log does not have them all; detectors {:?}",
                self.decided.count(),
                self.differing
            ),
        }
    }
}

/// The stage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// It reads alerts and writes files.
    Exporting,
    /// It reads finished files and compares their hashes.
    Verifying,
}

/// How far an export is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The stage.
    pub stage: Stage,
    /// Visits that are complete.
    pub visits: u64,
    /// All of them.
    pub visits_total: u64,
    /// Alerts read.
    pub alerts: u64,
    /// All of them, by the closing records.
    pub alerts_total: u64,
    /// Rows in the files, those in the making included.
    pub rows: u64,
    /// Bytes of finished files.
    pub bytes: u64,
    /// Bytes of finished files whose hash was compared.
    pub verified_bytes: u64,
    /// Finished files.
    pub files: u64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// All visits that are decided are in the files.
    Finished,
    /// It was finished before; the files are as they were written.
    Verified,
    /// It was stopped; the next run continues.
    Stopped,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// The exported visits, those of former runs included.
    pub visits: Vec<VisitReport>,
    /// Visits without closing record, which are not exported; a later run adds them.
    pub open: Vec<i64>,
    /// Samples that the log has no more, of whatever visit.
    pub lost: u64,
    /// The progress at the end.
    pub totals: Progress,
}

impl Outcome {
    /// Whether all visits are in the files, and equal their closing records and manifests.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        let equal = |visit: &VisitReport| visit.finding() == Finding::Equal;
        self.ended != Ended::Stopped && self.open.is_empty() && self.visits.iter().all(equal)
    }
}
