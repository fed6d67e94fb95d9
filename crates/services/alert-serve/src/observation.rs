//! The state of a stream at a time.

use std::collections::{BTreeMap, BTreeSet};

use helio_alerts::reader::{Alert, DropCause, Drops};
use helio_alerts::visit::{Closing, Ledger, Rejection};
use helio_bus::GroupInfo;
use helio_core::Tai;

use crate::histogram::Histogram;

/// The stages whose time since shutter close is counted, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The producer received the packet; of each alert.
    Produced,
    /// The producer published it; of each alert.
    Published,
    /// The observer read it; of each alert.
    Read,
    /// All of a detector's alerts are published; of each manifest.
    Announced,
    /// The visit's end was read; of each visit.
    Decided,
}

impl Stage {
    /// All stages.
    pub const ALL: [Self; 5] =
        [Self::Produced, Self::Published, Self::Read, Self::Announced, Self::Decided];

    /// The name, as metrics and JSON have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Produced => "produced",
            Self::Published => "published",
            Self::Read => "read",
            Self::Announced => "announced",
            Self::Decided => "decided",
        }
    }
}

/// A topic of the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicState {
    /// Samples that were ever published, over all partitions.
    pub samples: u64,
    /// Stored bytes, where the engine reports them.
    pub bytes: Option<u64>,
}

/// A group of the stream's readers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Samples between the committed positions and the ends.
    pub lag: u64,
    /// Live members.
    pub members: usize,
}

/// The state of a visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisitState {
    /// The visit.
    pub visit: i64,
    /// Detectors that are expected.
    pub expected: usize,
    /// Detectors that sent their manifests.
    pub announced: usize,
    /// Alerts by these manifests.
    pub alerts: u64,
    /// The decision.
    pub closing: Option<Closing>,
}

/// The state of a stream. Numbers count from the start of the observer, unless noted.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// Whether the stream can be read: the bus is there, and the stream's topics are.
    pub is_up: bool,
    /// Why not.
    pub trouble: Option<String>,
    /// Alerts that were read.
    pub alerts: u64,
    /// Bytes of their packets; without stamps, if these have a topic of their own.
    pub bytes: u64,
    /// The time since shutter close, by stage.
    pub ages: BTreeMap<Stage, Histogram>,
    /// Visits that opened.
    pub opened: u64,
    /// The newest of them.
    pub(crate) counted: BTreeSet<i64>,
    /// Visits that were decided as complete.
    pub complete: u64,
    /// Visits that were decided as incomplete.
    pub incomplete: u64,
    /// Detectors without manifest, of decided visits.
    pub missing_detectors: u64,
    /// Detectors whose alerts do not match their manifests, of decided visits.
    pub short_detectors: u64,
    /// Visits whose alerts, as read, have another count or hash than the decision.
    pub differing: u64,
    /// Packets that were left out, by cause.
    pub dropped: BTreeMap<DropCause, u64>,
    /// Control records without effect, by cause.
    pub rejected: BTreeMap<Rejection, u64>,
    /// Samples that retention or damage removed before they were read, by topic.
    pub lost: BTreeMap<String, u64>,
    /// Topics of the stream, now.
    pub topics: BTreeMap<String, TopicState>,
    /// Groups, now.
    pub groups: BTreeMap<String, GroupState>,
    /// The newest visits, oldest first, now.
    pub visits: Vec<VisitState>,
}

/// The visits of an [`Observation`].
pub const SHOWN_VISITS: usize = 64;

impl Observation {
    pub(crate) fn alert(&mut self, alert: &Alert) {
        self.alerts += 1;
        self.bytes += alert.datum.len() as u64;
        let Some(shutter) = alert.stages.shutter_close else { return };
        self.age(Stage::Read, shutter, alert.stages.read);
        self.age(Stage::Published, shutter, alert.stages.published);
        if let Some(produced) = alert.stages.produced {
            self.age(Stage::Produced, shutter, produced);
        }
    }

    fn age(&mut self, stage: Stage, shutter: Tai, time: Tai) {
        let seconds = time.nanos().saturating_sub(shutter.nanos()) as f64 * 1e-9;
        self.ages.entry(stage).or_default().add(seconds);
    }

    pub(crate) fn drops(&mut self, drops: &Drops) {
        for (cause, count) in drops.counts().filter(|(_, count)| *count > 0) {
            *self.dropped.entry(cause).or_default() += count;
        }
    }

    /// Counts a visit's end, read at a time.
    pub(crate) fn decided(&mut self, closing: &Closing, ledger: &Ledger, now: Tai) {
        let count = if closing.is_complete() { &mut self.complete } else { &mut self.incomplete };
        *count += 1;
        self.missing_detectors += closing.missing.len() as u64;
        self.short_detectors += closing.short.len() as u64;
        let Some(visit) = ledger.visit(closing.visit) else { return };
        let Some(opening) = visit.opening() else { return };
        let shutter = Tai::from_nanos(opening.shutter_close_ns);
        self.age(Stage::Decided, shutter, now);
        for manifest in visit.manifests() {
            self.age(Stage::Announced, shutter, Tai::from_nanos(manifest.published_ns));
        }
    }

    pub(crate) fn ledger(&mut self, ledger: &Ledger) {
        let newest = ledger.visits().rev().take(SHOWN_VISITS);
        self.visits = newest
            .map(|(id, visit)| VisitState {
                visit: id,
                expected: visit.opening().map_or(0, |opening| opening.detectors.len()),
                announced: visit.manifests().count(),
                alerts: visit.manifests().map(|manifest| manifest.alerts.count()).sum(),
                closing: visit.closing().cloned(),
            })
            .collect();
        self.visits.reverse();
    }

    pub(crate) fn groups(&mut self, groups: Vec<GroupInfo>) {
        let state = |group: GroupInfo| {
            let (lag, members) = (group.lag(), group.members.len());
            (group.name, GroupState { lag, members })
        };
        self.groups = groups.into_iter().map(state).collect();
    }

    /// The shown visits that are open.
    pub fn open_visits(&self) -> impl Iterator<Item = &VisitState> {
        self.visits.iter().filter(|visit| visit.closing.is_none())
    }
}
