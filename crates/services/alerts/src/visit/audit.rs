//! The proof that a consumer has what was announced.

use std::collections::BTreeMap;

use super::{Digest, Visit};

/// The finding of an audit about a detector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finding {
    /// Count and hash are those of the manifest.
    Equal,
    /// There is no manifest.
    NoManifest,
    /// Alerts are missing.
    Short,
    /// There are more alerts than announced.
    Excess,
    /// The count is right, and the hash another.
    Differs,
}

/// A detector in an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DetectorAudit {
    /// The detector.
    pub detector: i32,
    /// The manifest's digest.
    pub announced: Option<Digest>,
    /// The consumer's digest.
    pub found: Digest,
    /// What comes of it.
    pub finding: Finding,
}

/// A consumer's alerts of a visit against the manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// The detectors, in order.
    pub detectors: Vec<DetectorAudit>,
    /// The consumer's digest of all.
    pub found: Digest,
    /// The closing record's digest.
    pub decided: Option<Digest>,
}

impl Audit {
    /// Compares a consumer's digests, by detector, with a visit's manifests and closing record.
    /// Those of a group are the sums of its members'.
    #[must_use]
    pub fn of(visit: &Visit, found: &BTreeMap<i32, Digest>) -> Self {
        let mut detectors = visit.detectors();
        detectors.extend(found.keys());
        let detectors = detectors.into_iter().map(|detector| {
            let announced = visit.manifest(detector).map(|manifest| manifest.alerts);
            let found = found.get(&detector).copied().unwrap_or_default();
            DetectorAudit::new(detector, announced, found)
        });
        let decided = visit.closing().map(|closing| closing.totals);
        let total = found.values().fold(Digest::default(), |all, one| all.and(*one));
        Self { detectors: detectors.collect(), found: total, decided }
    }

    /// Whether the consumer has all that was announced and decided, and nothing else.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        let equal = self.detectors.iter().all(|one| one.finding == Finding::Equal);
        equal && self.decided.is_none_or(|decided| decided == self.found)
    }
}

impl DetectorAudit {
    fn new(detector: i32, announced: Option<Digest>, found: Digest) -> Self {
        let finding = match announced {
            None => Finding::NoManifest,
            Some(announced) if announced == found => Finding::Equal,
            Some(announced) if found.count() < announced.count() => Finding::Short,
            Some(announced) if found.count() > announced.count() => Finding::Excess,
            Some(_) => Finding::Differs,
        };
        Self { detector, announced, found, finding }
    }
}
