//! Sums of a filter's outcomes: selectivity, errors and cost.

use std::time::Duration;

use crate::plan::Outcome;

/// A filter's outcomes over several batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// The alerts seen.
    pub alerts: u64,
    /// The alerts that matched.
    pub matches: u64,
    /// The alerts in which an operation failed.
    pub errors: u64,
    /// The time by the clock given to the plan.
    pub time: Duration,
}

impl Statistics {
    /// Adds a batch of so many alerts.
    pub fn add(&mut self, alerts: usize, outcome: &Outcome) {
        self.alerts += alerts as u64;
        self.matches += outcome.rows.len() as u64;
        self.errors += outcome.errors.len() as u64;
        self.time += outcome.time;
    }

    /// The part of the alerts that matched, 0 to 1; `None` before the first alert.
    #[must_use]
    pub fn selectivity(&self) -> Option<f64> {
        (self.alerts > 0).then(|| self.matches as f64 / self.alerts as f64)
    }

    /// The time for a number of alerts at the mean seen so far; `None` before the first alert.
    #[must_use]
    pub fn time_for(&self, alerts: u64) -> Option<Duration> {
        (self.alerts > 0).then(|| self.time.mul_f64(alerts as f64 / self.alerts as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_add_up() {
        let mut sums = Statistics::default();
        assert_eq!((sums.selectivity(), sums.time_for(1)), (None, None));
        let time = Duration::from_millis(2);
        sums.add(100, &Outcome { rows: vec![1, 5], errors: vec![7], time });
        sums.add(100, &Outcome { rows: vec![], errors: vec![], time });
        assert_eq!((sums.matches, sums.errors), (2, 1));
        assert_eq!(sums.selectivity(), Some(0.01));
        assert_eq!(sums.time_for(10_000), Some(Duration::from_millis(200)));
    }
}
