//! What a reader returns.

use std::sync::Arc;

use bytes::Bytes;
use helio_bus::{Gap, GapCause, Outage};
use helio_core::Tai;

use crate::layout::Layout;
use crate::visit::{Closing, Opening, Position, Rejection};

use super::drops::Drops;

/// The visit and detector of packets of which neither headers nor schema have them. They are
/// counted in no visit, so that repetitions are not noticed.
pub const UNKNOWN_VISIT: i64 = 0;

/// An alert.
#[derive(Debug, Clone)]
pub struct Alert {
    /// Its identifier.
    pub id: i64,
    /// The visit; [`UNKNOWN_VISIT`] if it is unknown.
    pub visit: i64,
    /// The detector.
    pub detector: i32,
    /// Where it was read.
    pub at: Position,
    /// The schema of the datum.
    pub layout: Arc<Layout>,
    /// The packet without frame: with stamps if the reader wants them inline, else without.
    pub datum: Bytes,
    /// The stamps' files in the order of [`Layout::stamps`], if the reader wants them linked.
    pub stamps: Option<Vec<Option<Bytes>>>,
    /// When it passed the stages.
    pub stages: Stages,
}

/// When an alert passed the stages from the camera to the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stages {
    /// The shutter closed: by the alert's header, else by the visit's opening record.
    pub shutter_close: Option<Tai>,
    /// The producer received the packet.
    pub produced: Option<Tai>,
    /// The producer published it.
    pub published: Tai,
    /// The reader read it.
    pub read: Tai,
}

/// Something that happened beside alerts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum VisitEvent {
    /// A visit opened.
    Opened(Opening),
    /// A visit is decided.
    Decided {
        /// The first closing record, which counts for all readers.
        closing: Closing,
        /// Alerts that this reader has returned before, and that do not count: detector and
        /// identifier.
        late: Vec<(i32, i64)>,
    },
    /// A record of the control topic has no effect.
    Rejected {
        /// The record's visit.
        visit: i64,
        /// Why.
        cause: Rejection,
    },
    /// Samples of a topic that this reader will never receive.
    Gap {
        /// The topic.
        topic: String,
        /// What is missing, and why.
        gap: Gap,
    },
    /// The partitions of this member of a group.
    Assigned(Vec<u32>),
    /// The engine became unreachable, or reachable again.
    Outage(Outage),
}

/// The outcome of a call of [`AlertReader::read`](super::AlertReader::read).
#[derive(Debug, Clone, Default)]
pub struct Read {
    /// The alerts.
    pub alerts: Vec<Alert>,
    /// What happened beside them.
    pub events: Vec<VisitEvent>,
    /// Packets that were dropped.
    pub dropped: Drops,
}

impl Read {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.alerts.is_empty() && self.events.is_empty() && self.dropped.is_empty()
    }
}

/// The offset behind a gap of stored samples.
pub(super) fn gap_end(gap: &Gap) -> Option<u64> {
    match gap.cause {
        GapCause::Retention { to, .. }
        | GapCause::Overload { to, .. }
        | GapCause::Damaged { to, .. } => Some(to),
        _ => None,
    }
}
