//! The control topic, read in order: the state on which all readers agree.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Closing, Control, Digest, Manifest, Opening};

/// The most visits that are remembered: a night has a thousand. The oldest is forgotten first.
pub const MAX_VISITS: usize = 4_096;
/// The most detectors of a visit: Rubin's camera has 205 with guiders and wavefront sensors.
pub const MAX_EXPECTED_DETECTORS: usize = 65_536;

/// A visit as the control topic has it.
#[derive(Debug, Clone, Default)]
pub struct Visit {
    opening: Option<Opening>,
    /// The newest manifest of each detector.
    manifests: BTreeMap<i32, Manifest>,
    /// The number of alerts in the manifests, which may say anything.
    announced: u128,
    /// Detectors that sent more than one.
    repeated: BTreeSet<i32>,
    closing: Option<Closing>,
}

/// The effect of a record of the control topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A visit opened.
    Opened(i64),
    /// A manifest arrived.
    Manifest {
        /// The visit.
        visit: i64,
        /// The detector.
        detector: i32,
    },
    /// A visit is decided.
    Decided(Closing),
    /// The record has no effect.
    Rejected(Rejection),
}

/// Why a record of the control topic has no effect. Readers count these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rejection {
    /// The visit was opened before: a visit that comes twice.
    OpenedBefore,
    /// The visit is closed: a late manifest, or a second closing record.
    Closed,
    /// The visit does not expect alerts of the detector.
    UnexpectedDetector,
    /// The record is beyond a limit.
    Limit,
}

impl Rejection {
    /// All causes.
    pub const ALL: [Self; 4] =
        [Self::OpenedBefore, Self::Closed, Self::UnexpectedDetector, Self::Limit];

    /// The name, as metrics and JSON have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenedBefore => "opened_before",
            Self::Closed => "closed",
            Self::UnexpectedDetector => "unexpected_detector",
            Self::Limit => "limit",
        }
    }
}

impl Visit {
    /// The opening record.
    #[must_use]
    pub fn opening(&self) -> Option<&Opening> {
        self.opening.as_ref()
    }

    /// The first closing record.
    #[must_use]
    pub fn closing(&self) -> Option<&Closing> {
        self.closing.as_ref()
    }

    /// Returns the manifest of a detector.
    #[must_use]
    pub fn manifest(&self, detector: i32) -> Option<&Manifest> {
        self.manifests.get(&detector)
    }

    /// The number of alerts that the manifests announce.
    #[must_use]
    pub fn announced(&self) -> u64 {
        u64::try_from(self.announced).unwrap_or(u64::MAX)
    }

    /// The manifests, by detector.
    pub fn manifests(&self) -> impl Iterator<Item = &Manifest> {
        self.manifests.values()
    }

    /// The detectors that are expected or sent a manifest.
    #[must_use]
    pub fn detectors(&self) -> BTreeSet<i32> {
        let expected = self.opening.iter().flat_map(|opening| opening.detectors.iter());
        expected.chain(self.manifests.keys()).copied().collect()
    }

    /// Whether the visit is open, and all expected manifests are there.
    #[must_use]
    pub fn has_all_manifests(&self) -> bool {
        let has = |detector: &i32| self.manifests.contains_key(detector);
        self.opening.as_ref().is_some_and(|opening| opening.detectors.iter().all(has))
    }

    /// Whether a detector sent more than one manifest, so that copies of its alerts may lie before
    /// those that its newest one names.
    #[must_use]
    pub fn has_repeats(&self) -> bool {
        !self.repeated.is_empty()
    }

    pub(super) fn has_repeated(&self, detector: i32) -> bool {
        self.repeated.contains(&detector)
    }

    fn expects(&self, detector: i32) -> bool {
        self.opening.as_ref().is_none_or(|opening| opening.detectors.contains(&detector))
    }
}

/// The state of the control topic.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    visits: BTreeMap<i64, Visit>,
    /// The visits in the order of their first record.
    order: VecDeque<i64>,
}

impl Ledger {
    /// Takes the next record of the control topic.
    pub fn take(&mut self, record: Control) -> Fact {
        let visit = self.visit_mut(record.visit());
        if visit.closing.is_some() {
            let again = matches!(record, Control::Opening(_));
            return Fact::Rejected(if again { Rejection::OpenedBefore } else { Rejection::Closed });
        }
        match record {
            Control::Opening(_) if visit.opening.is_some() => {
                Fact::Rejected(Rejection::OpenedBefore)
            }
            Control::Opening(opening) if opening.detectors.len() > MAX_EXPECTED_DETECTORS => {
                Fact::Rejected(Rejection::Limit)
            }
            Control::Opening(opening) => {
                let id = opening.visit;
                visit.opening = Some(opening);
                // Manifests may overtake the opening record; of others nothing is expected.
                let unexpected: Vec<_> =
                    visit.manifests.keys().copied().filter(|d| !visit.expects(*d)).collect();
                for manifest in unexpected.iter().filter_map(|one| visit.manifests.remove(one)) {
                    visit.announced -= u128::from(manifest.alerts.count());
                }
                Fact::Opened(id)
            }
            Control::Manifest(manifest) => visit.take_manifest(manifest),
            Control::Closing(closing) => {
                visit.closing = Some(closing.clone());
                Fact::Decided(closing)
            }
        }
    }

    /// Returns a visit; `None` if no record of it was read, or if it is forgotten.
    #[must_use]
    pub fn visit(&self, visit: i64) -> Option<&Visit> {
        self.visits.get(&visit)
    }

    /// Returns the digest of a visit's alerts by its manifests.
    #[must_use]
    pub fn announced(&self, visit: i64) -> Digest {
        let manifests = self.visits.get(&visit).into_iter().flat_map(|v| v.manifests.values());
        manifests.fold(Digest::default(), |all, manifest| all.and(manifest.alerts))
    }

    /// The visits in the order of their first record.
    pub fn visits(&self) -> impl DoubleEndedIterator<Item = (i64, &Visit)> {
        self.order.iter().filter_map(|id| Some((*id, self.visits.get(id)?)))
    }

    fn visit_mut(&mut self, id: i64) -> &mut Visit {
        if !self.visits.contains_key(&id) {
            if self.order.len() == MAX_VISITS
                && let Some(oldest) = self.order.pop_front()
            {
                self.visits.remove(&oldest);
            }
            self.order.push_back(id);
        }
        self.visits.entry(id).or_default()
    }
}

impl Visit {
    fn take_manifest(&mut self, mut manifest: Manifest) -> Fact {
        let (visit, detector) = (manifest.visit, manifest.detector);
        if !self.expects(detector) {
            return Fact::Rejected(Rejection::UnexpectedDetector);
        }
        if self.manifests.len() >= MAX_EXPECTED_DETECTORS && !self.manifests.contains_key(&detector)
        {
            return Fact::Rejected(Rejection::Limit);
        }
        manifest.extent = manifest.extent.filter(|extent| extent.is_valid());
        self.announced += u128::from(manifest.alerts.count());
        // The alerts of the former lie where they were.
        if let Some(former) = self.manifests.get(&detector)
            && former.alerts.count() > 0
        {
            manifest.extent = former.extent.zip(manifest.extent).and_then(|(a, b)| a.and(b));
        }
        if let Some(former) = self.manifests.insert(detector, manifest) {
            self.announced -= u128::from(former.alerts.count());
            self.repeated.insert(detector);
        }
        Fact::Manifest { visit, detector }
    }
}
