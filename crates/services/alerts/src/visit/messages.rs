//! The records of the control topic.

use helio_core::schema::HasSchema;
use helio_core::schema::build::{TypeSpec, union};
use serde::{Deserialize, Serialize};

use super::Digest;

/// A record of the control topic. Its schema is the union of the three.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// A visit begins.
    Opening(Opening),
    /// A detector's alerts are all published.
    Manifest(Manifest),
    /// A visit ends.
    Closing(Closing),
}

/// A visit begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Opening {
    /// The visit.
    pub visit: i64,
    /// The detectors from which a manifest is expected; one without alerts sends one, too.
    pub detectors: Vec<i32>,
    /// When the shutter closed, TAI nanoseconds since 1970.
    pub shutter_close_ns: i64,
    /// How long after this record's arrival a reader may close the visit, nanoseconds. It is a
    /// duration, so that no clock of day that jumps closes a visit.
    pub window_ns: i64,
    /// The end of each partition of the topic of alerts before this record was published. Alerts of
    /// the visit that are published later lie behind. Empty if the ends are unknown.
    pub starts: Vec<i64>,
}

/// A detector's alerts are all published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The visit.
    pub visit: i64,
    /// The detector.
    pub detector: i32,
    /// Its producer.
    pub producer: String,
    /// The alerts, as on the topic of alerts.
    pub alerts: Digest,
    /// The stamps, where these have a topic of their own.
    pub stamps: Option<Digest>,
    /// When the last of them was published, TAI nanoseconds since 1970.
    pub published_ns: i64,
    /// Where they are. `None` without alerts, or if an attempt to publish failed, so that further
    /// copies may lie elsewhere.
    pub extent: Option<Extent>,
}

/// Where a detector's alerts of a visit are on the topic of alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// The partition.
    pub partition: i32,
    /// The offset of the first alert.
    pub first: i64,
    /// The offset behind the last alert. Alerts of other detectors may lie between.
    pub end: i64,
    /// The lowest identifier.
    pub lowest_id: i64,
    /// The highest identifier.
    pub highest_id: i64,
}

/// A visit ends. The first of a visit in the log decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// The visit.
    pub visit: i64,
    /// The process that proposes it.
    pub closer: String,
    /// The alerts that count.
    pub totals: Digest,
    /// The position in each partition of the topic of alerts at which alerts are late.
    pub ends: Vec<i64>,
    /// Detectors without manifest.
    pub missing: Vec<i32>,
    /// Detectors of whose alerts some are missing, or differ from the manifest.
    pub short: Vec<i32>,
    /// Detectors with alerts or manifests that came more than once. Each alert counts once.
    pub repeated: Vec<i32>,
}

helio_core::has_schema!(Opening, "helio.alerts.Opening", {
    visit: i64 [],
    detectors: Vec<i32> [description("detectors from which a manifest is expected")],
    shutter_close_ns: i64 [units("ns"), description("TAI since 1970")],
    window_ns: i64 [units("ns"), description("from this record's arrival to the deadline")],
    starts: Vec<i64> [description("ends of the partitions before this record; none is unknown")],
});

helio_core::has_schema!(Extent, "helio.alerts.Extent", {
    partition: i32 [],
    first: i64 [description("offset of the first alert")],
    end: i64 [description("offset behind the last alert")],
    lowest_id: i64 [],
    highest_id: i64 [],
});

helio_core::has_schema!(Manifest, "helio.alerts.Manifest", {
    visit: i64 [],
    detector: i32 [],
    producer: String [],
    alerts: Digest [description("distinct alerts on the topic of alerts")],
    stamps: Option<Digest> [description("the same of the topic of stamps, if there is one")],
    published_ns: i64 [units("ns"), description("TAI since 1970")],
    extent: Option<Extent> [description("where the alerts are, if known")],
});

helio_core::has_schema!(Closing, "helio.alerts.Closing", {
    visit: i64 [],
    closer: String [description("the process that proposes it")],
    totals: Digest [description("the alerts that count")],
    ends: Vec<i64> [description("a partition's position at which alerts are late")],
    missing: Vec<i32> [description("detectors without manifest")],
    short: Vec<i32> [description("detectors whose alerts do not match their manifest")],
    repeated: Vec<i32> [description("detectors with alerts or manifests that came twice")],
});

impl HasSchema for Control {
    fn type_spec() -> TypeSpec {
        union([Opening::type_spec(), Manifest::type_spec(), Closing::type_spec()])
    }
}

impl Control {
    /// The visit.
    #[must_use]
    pub fn visit(&self) -> i64 {
        match self {
            Self::Opening(opening) => opening.visit,
            Self::Manifest(manifest) => manifest.visit,
            Self::Closing(closing) => closing.visit,
        }
    }
}

impl Extent {
    /// Whether it names offsets of a partition.
    pub(super) fn is_valid(self) -> bool {
        self.partition >= 0 && self.first >= 0 && self.end > self.first
    }

    /// Returns the extent of two publishes; `None` if they are in several partitions.
    pub(super) fn and(self, other: Self) -> Option<Self> {
        (self.partition == other.partition).then(|| Self {
            partition: self.partition,
            first: self.first.min(other.first),
            end: self.end.max(other.end),
            lowest_id: self.lowest_id.min(other.lowest_id),
            highest_id: self.highest_id.max(other.highest_id),
        })
    }
}

impl Closing {
    /// Whether all manifests are there and match.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.short.is_empty()
    }

    /// Whether an alert at a position of the topic of alerts is late.
    #[must_use]
    pub fn is_late(&self, at: super::Position) -> bool {
        let end = self.ends.get(at.partition as usize).copied().unwrap_or_default();
        i64::try_from(at.offset).unwrap_or(i64::MAX) >= end
    }
}
