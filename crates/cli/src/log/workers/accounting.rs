//! Accounting of the offered records for one client, without I/O.

use helio_logging::RecordCounts;
use serde::{Deserialize, Serialize};

/// Counts of records in the lanes that a client reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientCounts {
    /// Logged, by the producers' counts.
    pub(crate) offered: u64,
    /// Received, by the client's count.
    pub(crate) delivered: u64,
    /// Skipped by the client's predicate.
    pub(crate) filtered: u64,
    /// Dropped by their producers, which reported it.
    pub(crate) shed: u64,
    /// Missing by their numbers, and reported to the client.
    pub(crate) lost: u64,
    /// With an unreadable body.
    pub(crate) malformed: u64,
}

impl ClientCounts {
    /// Combines a reader's counts with the offered and delivered ones.
    pub(crate) fn of(offered: u64, delivered: u64, told: &RecordCounts) -> Self {
        let RecordCounts { filtered, shed, lost, malformed, .. } = *told;
        Self { offered, delivered, filtered, shed, lost, malformed }
    }

    /// Counted drops.
    pub(crate) fn dropped(&self) -> u64 {
        self.shed + self.lost + self.malformed
    }

    /// Records with an unknown fate, or surplus ones.
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
