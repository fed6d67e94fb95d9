//! The alerts of visits that are not read completely: which came before, and their digests.

use std::collections::{BTreeMap, HashMap, HashSet};

use helio_alerts::visit::{Audit, Closing, Digest, Finding, PayloadHash, Position, Visit};

use crate::{ExportError, VisitReport};

/// The most alerts of visits that are not read completely. Visits follow each other, so that these
/// are few; ten times the survey's stretch goal take 100 MB.
const MAX_OPEN_ALERTS: usize = 1_000_000;

/// The visits of a pass that are not read completely.
pub(crate) struct Tallies<'v> {
    visits: HashMap<i64, OpenVisit<'v>>,
    alerts: usize,
}

struct OpenVisit<'v> {
    visit: &'v Visit,
    closing: &'v Closing,
    ids: HashSet<i64>,
    digests: BTreeMap<i32, Digest>,
    exported: Digest,
    /// The first alert in each partition.
    first: BTreeMap<u32, u64>,
    repeated: u64,
    unreadable: u64,
}

/// An alert by its numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) visit: i64,
    pub(crate) detector: i32,
    pub(crate) id: i64,
    pub(crate) hash: PayloadHash,
    pub(crate) at: Position,
}

impl<'v> Tallies<'v> {
    /// The visits of a pass, with their decisions.
    pub(crate) fn new(visits: impl Iterator<Item = (&'v Visit, &'v Closing)>) -> Self {
        let open = |(visit, closing): (&'v Visit, &'v Closing)| {
            let open = OpenVisit {
                visit,
                closing,
                ids: HashSet::new(),
                digests: BTreeMap::new(),
                exported: Digest::default(),
                first: BTreeMap::new(),
                repeated: 0,
                unreadable: 0,
            };
            (closing.visit, open)
        };
        Self { visits: visits.map(open).collect(), alerts: 0 }
    }

    /// Whether an alert at a position is to be read: its visit is of the pass, not complete, and
    /// the alert not late.
    pub(crate) fn wants(&self, visit: i64, at: Position) -> bool {
        self.visits.get(&visit).is_some_and(|visit| !visit.closing.is_late(at))
    }

    /// Counts an alert that is wanted; true if it is the first with its identifier.
    pub(crate) fn add(&mut self, alert: &Seen) -> Result<bool, ExportError> {
        let Some(visit) = self.visits.get_mut(&alert.visit) else { return Ok(false) };
        visit.first.entry(alert.at.partition).or_insert(alert.at.offset);
        if !visit.ids.insert(alert.id) {
            visit.repeated += 1;
            return Ok(false);
        }
        visit.digests.entry(alert.detector).or_default().add(alert.id, alert.hash);
        self.alerts += 1;
        let (found, limit) = (self.alerts, MAX_OPEN_ALERTS);
        if found > limit { Err(ExportError::OpenAlerts { found, limit }) } else { Ok(true) }
    }

    /// Counts an alert that is in the files.
    pub(crate) fn exported(&mut self, alert: &Seen) {
        if let Some(visit) = self.visits.get_mut(&alert.visit) {
            visit.exported.add(alert.id, alert.hash);
        }
    }

    /// Counts an alert of a visit that cannot be read.
    pub(crate) fn unreadable(&mut self, visit: i64) {
        if let Some(visit) = self.visits.get_mut(&visit) {
            visit.unreadable += 1;
        }
    }

    /// The position of the first alert of these visits in a partition.
    pub(crate) fn first(&self, partition: u32) -> Option<u64> {
        self.visits.values().filter_map(|visit| visit.first.get(&partition)).min().copied()
    }

    /// Alerts of visits that are not complete.
    pub(crate) fn alerts(&self) -> usize {
        self.alerts
    }

    /// Ends a visit that is read completely.
    pub(crate) fn complete(&mut self, visit: i64) -> Option<VisitReport> {
        let open = self.visits.remove(&visit)?;
        self.alerts -= open.ids.len();
        Some(open.report())
    }
}

impl OpenVisit<'_> {
    fn report(self) -> VisitReport {
        let audit = Audit::of(self.visit, &self.digests);
        let closing = self.closing;
        let differs = audit.found != closing.totals;
        let differing = audit.detectors.iter().filter(|one| {
            differs && one.finding != Finding::Equal && !closing.short.contains(&one.detector)
        });
        VisitReport {
            visit: closing.visit,
            decided: closing.totals,
            found: audit.found,
            exported: self.exported,
            missing: closing.missing.clone(),
            short: closing.short.clone(),
            differing: differing.map(|one| one.detector).collect(),
            repeated: self.repeated,
            unreadable: self.unreadable,
        }
    }
}
