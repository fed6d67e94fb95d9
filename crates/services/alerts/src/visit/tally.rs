//! The alerts of a visit that a reader has read.

use std::collections::{BTreeMap, HashMap};

use super::{Closing, Digest, PayloadHash};

/// The most alerts of a visit that a reader counts: ten times the survey's stretch goal.
pub const MAX_ALERTS: usize = 1_000_000;

/// A place in the topic of alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The partition.
    pub partition: u32,
    /// The offset in it.
    pub offset: u64,
}

/// An alert as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadAlert {
    /// The visit.
    pub visit: i64,
    /// The detector.
    pub detector: i32,
    /// The alert's identifier.
    pub id: i64,
    /// The hash of its payload.
    pub payload: PayloadHash,
    /// Where it was read.
    pub at: Position,
}

/// What an alert is to a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seen {
    /// It is new, and counts.
    New,
    /// It was read before, and does not count again.
    Duplicate,
    /// Another alert with its identifier was read before; that one counts.
    Conflict,
    /// The visit was closed without it.
    Late,
    /// The visit has more alerts than a reader counts.
    Excess,
    /// The reader counts no more alerts of the visit, as it has counted those of many others since.
    Forgotten,
}

/// The alerts of a visit.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    detectors: BTreeMap<i32, DetectorTally>,
    alerts: usize,
}

#[derive(Debug, Clone, Default)]
struct DetectorTally {
    /// Where its first alert was read. All of a detector's alerts are in one partition.
    partition: u32,
    alerts: HashMap<i64, (PayloadHash, Position)>,
    digest: Digest,
    /// Where duplicates and conflicts were read.
    repeats: Vec<Position>,
}

/// The most repeats of a detector whose places are noted.
const MAX_REPEATS: usize = 1_000;

impl Tally {
    /// Counts an alert.
    pub fn add(&mut self, alert: &ReadAlert) -> Seen {
        let detector = self.detectors.entry(alert.detector).or_insert_with(|| DetectorTally {
            partition: alert.at.partition,
            ..DetectorTally::default()
        });
        if let Some((payload, _)) = detector.alerts.get(&alert.id) {
            if detector.repeats.len() < MAX_REPEATS {
                detector.repeats.push(alert.at);
            }
            return if *payload == alert.payload { Seen::Duplicate } else { Seen::Conflict };
        }
        if self.alerts == MAX_ALERTS {
            return Seen::Excess;
        }
        self.alerts += 1;
        detector.alerts.insert(alert.id, (alert.payload, alert.at));
        detector.digest.add(alert.id, alert.payload);
        Seen::New
    }

    /// Takes out the alerts that a decision leaves late, and returns their identifiers, by
    /// detector.
    pub fn close(&mut self, closing: &Closing) -> Vec<(i32, i64)> {
        let mut late = Vec::new();
        for (number, detector) in &mut self.detectors {
            detector.repeats.retain(|at| !closing.is_late(*at));
            let before = late.len();
            detector.alerts.retain(|id, (_, at)| {
                let is_late = closing.is_late(*at);
                if is_late {
                    late.push((*number, *id));
                }
                !is_late
            });
            if late.len() > before {
                detector.digest = Digest::default();
                let alerts = detector.alerts.iter();
                alerts.for_each(|(id, (payload, _))| detector.digest.add(*id, *payload));
            }
        }
        self.alerts -= late.len();
        late.sort_unstable();
        late
    }

    /// The number of alerts that count.
    #[must_use]
    pub fn len(&self) -> usize {
        self.alerts
    }

    /// Whether no alert counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.alerts == 0
    }

    /// Returns the digest of a detector's alerts.
    #[must_use]
    pub fn digest(&self, detector: i32) -> Digest {
        self.detectors.get(&detector).map_or_else(Digest::default, |tally| tally.digest)
    }

    /// Returns the digest of all alerts.
    #[must_use]
    pub fn total(&self) -> Digest {
        self.detectors.values().fold(Digest::default(), |all, tally| all.and(tally.digest))
    }

    /// Returns the digests of the detectors of which alerts were read.
    #[must_use]
    pub fn digests(&self) -> BTreeMap<i32, Digest> {
        self.detectors.iter().map(|(number, tally)| (*number, tally.digest)).collect()
    }

    /// Returns the digests of the detectors whose alerts are in a partition.
    #[must_use]
    pub fn digests_in(&self, partition: u32) -> BTreeMap<i32, Digest> {
        let detectors = self.detectors.iter().filter(|(_, tally)| tally.partition == partition);
        detectors.map(|(number, tally)| (*number, tally.digest)).collect()
    }

    /// Forgets the alerts of a partition: they are read again, or by another member of the group.
    pub fn forget_partition(&mut self, partition: u32) {
        self.detectors.retain(|_, tally| {
            let is_kept = tally.partition != partition;
            self.alerts -= if is_kept { 0 } else { tally.alerts.len() };
            is_kept
        });
    }

    /// The identifiers of the alerts that count, by detector.
    pub fn ids(&self) -> impl Iterator<Item = (i32, i64)> {
        let detectors = self.detectors.iter();
        detectors.flat_map(|(number, tally)| tally.alerts.keys().map(|id| (*number, *id)))
    }

    /// Returns whether alerts of a detector came more than once.
    #[must_use]
    pub fn has_repeats(&self, detector: i32) -> bool {
        self.detectors.get(&detector).is_some_and(|tally| !tally.repeats.is_empty())
    }
}
