//! Packets that a reader leaves out, by cause.

use std::fmt;

use crate::visit::Position;

/// Why a packet is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropCause {
    /// Its schema is unknown.
    UnknownSchema,
    /// It has no frame, or is no datum of its schema: truncated or damaged.
    Damaged,
    /// It has no identifier.
    NoIdentifier,
    /// Its stamps are missing or damaged, and the reader wants them inline; or they cannot be taken
    /// out.
    Stamps,
    /// It was read before.
    Duplicate,
    /// Another packet with its identifier was read before.
    Conflict,
    /// Its visit was closed without it.
    Late,
    /// Its visit has more alerts than a reader counts.
    Excess,
}

impl DropCause {
    /// All causes.
    pub const ALL: [Self; 8] = [
        Self::UnknownSchema,
        Self::Damaged,
        Self::NoIdentifier,
        Self::Stamps,
        Self::Duplicate,
        Self::Conflict,
        Self::Late,
        Self::Excess,
    ];

    /// The name, as metrics and JSON have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownSchema => "unknown_schema",
            Self::Damaged => "damaged",
            Self::NoIdentifier => "no_identifier",
            Self::Stamps => "stamps",
            Self::Duplicate => "duplicate",
            Self::Conflict => "conflict",
            Self::Late => "late",
            Self::Excess => "excess",
        }
    }

    /// Whether the packet itself is unusable; other causes are repetitions and late alerts.
    #[must_use]
    pub fn is_fault(self) -> bool {
        use DropCause::{Damaged, NoIdentifier, Stamps, UnknownSchema};
        matches!(self, UnknownSchema | Damaged | NoIdentifier | Stamps)
    }
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A packet that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Where it is.
    pub at: Position,
    /// The alert, if the packet has its identifier.
    pub id: Option<i64>,
    /// Why.
    pub cause: DropCause,
    /// The cause in words.
    pub reason: String,
}

/// The most unusable packets that one read names; all are counted.
pub const MAX_NAMED_DROPS: usize = 64;

/// Packets that were left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drops {
    counts: [u64; DropCause::ALL.len()],
    /// Alerts that were returned without their stamps, which are missing or damaged.
    pub without_stamps: u64,
    /// Unusable packets by name, and alerts whose stamps are missing: the first
    /// [`MAX_NAMED_DROPS`].
    pub named: Vec<Dropped>,
}

impl Drops {
    /// The number of packets with a cause.
    #[must_use]
    pub fn of(&self, cause: DropCause) -> u64 {
        self.counts[cause as usize]
    }

    /// The numbers of all causes.
    pub fn counts(&self) -> impl Iterator<Item = (DropCause, u64)> {
        DropCause::ALL.into_iter().zip(self.counts)
    }

    /// The number of packets that were left out.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Whether nothing was left out, and no stamps are missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total() == 0 && self.without_stamps == 0
    }

    pub(super) fn count(&mut self, cause: DropCause) {
        self.counts[cause as usize] += 1;
    }

    pub(super) fn name(&mut self, dropped: Dropped) {
        if self.named.len() < MAX_NAMED_DROPS {
            self.named.push(dropped);
        }
    }

    /// Adds the numbers of another, without names.
    pub(super) fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(all, one)| *all += one);
        self.without_stamps += other.without_stamps;
    }
}
