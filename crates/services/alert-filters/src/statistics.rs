//! What a filter did in a visit.

use serde::{Deserialize, Serialize};

/// A filter in a visit. A filter that ran and found nothing has alerts, and no matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VisitStatistics {
    /// The alerts seen.
    pub alerts: u64,
    /// The alerts that matched.
    pub matches: u64,
    /// The matches that were not sent: the user had 20, there were better ones, or they were late.
    pub capped: u64,
    /// The chosen matches that were not sent, as the bus refused them; the visit's
    /// [causes](crate::records::Summary::causes) say why.
    #[serde(default)]
    pub refused: u64,
    /// The alerts in which an operation failed.
    pub errors: u64,
    /// The batches in which the filter failed as a whole, or did not run.
    pub failures: u64,
    /// Processor time, nanoseconds; work for several filters is shared evenly.
    pub cpu_ns: u64,
}

impl VisitStatistics {
    /// The matches that were sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.matches.saturating_sub(self.capped).saturating_sub(self.refused)
    }

    /// Adds another partition's, or batch's.
    pub fn add(&mut self, other: &Self) {
        self.alerts += other.alerts;
        self.matches += other.matches;
        self.capped += other.capped;
        self.refused += other.refused;
        self.errors += other.errors;
        self.failures += other.failures;
        self.cpu_ns += other.cpu_ns;
    }
}
