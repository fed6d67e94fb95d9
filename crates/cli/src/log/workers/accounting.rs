//! What became of what was offered, for one client. Numbers in, verdicts out.

use helio_logging::RecordCounts;
use serde::{Deserialize, Serialize};

/// Records of the lanes that a client reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientCounts {
    /// What the producers say that they logged.
    pub(crate) offered: u64,
    /// What the client counted itself.
    pub(crate) delivered: u64,
    /// Passed over because of its predicate.
    pub(crate) filtered: u64,
    /// Dropped by their producers, who said so.
    pub(crate) shed: u64,
    /// Numbered, and never come: the client was told.
    pub(crate) lost: u64,
    /// With a body that cannot be read.
    pub(crate) malformed: u64,
}

impl ClientCounts {
    /// What a reader knows, beside what was counted and what was offered.
    pub(crate) fn of(offered: u64, delivered: u64, told: &RecordCounts) -> Self {
        let RecordCounts { filtered, shed, lost, malformed, .. } = *told;
        Self { offered, delivered, filtered, shed, lost, malformed }
    }

    /// Drops that were counted.
    pub(crate) fn dropped(&self) -> u64 {
        self.shed + self.lost + self.malformed
    }

    /// Records of which nobody knows what became of them, or of which there are too many.
    pub(crate) fn unaccounted(&self) -> u64 {
        self.offered.abs_diff(self.delivered + self.filtered + self.dropped())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_delivered_nor_told_is_unaccounted() {
        let told =
            RecordCounts { filtered: 5, shed: 3, lost: 2, malformed: 1, ..RecordCounts::default() };
        let books = ClientCounts::of(20, 9, &told);
        assert_eq!((books.dropped(), books.unaccounted()), (6, 0));
        assert_eq!(ClientCounts::of(21, 9, &told).unaccounted(), 1);
        assert_eq!(ClientCounts::of(20, 10, &told).unaccounted(), 1, "one came twice");
    }
}
