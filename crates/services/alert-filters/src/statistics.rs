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
    /// The alerts in which an operation failed.
    pub errors: u64,
    /// The batches in which the filter failed as a whole, or did not run.
    pub failures: u64,
    /// Processor time, nanoseconds; work for several filters is shared evenly.
    pub cpu_ns: u64,
}

impl VisitStatistics {
    /// Adds another partition's, or batch's.
    pub fn add(&mut self, other: &Self) {
        self.alerts += other.alerts;
        self.matches += other.matches;
        self.capped += other.capped;
        self.errors += other.errors;
        self.failures += other.failures;
        self.cpu_ns += other.cpu_ns;
    }
}
