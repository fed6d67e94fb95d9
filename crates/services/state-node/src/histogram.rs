//! A histogram of times, filled by any thread without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A histogram of times.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last is of what is above all of them.
    counts: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
}

/// What a [`Histogram`] held at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramReading {
    /// For each bound, in seconds: the times of at most so long.
    pub below: Vec<(f64, u64)>,
    /// All times.
    pub count: u64,
    /// Their sum, in seconds.
    pub sum_s: f64,
}

impl Histogram {
    /// An empty one, with ascending bounds in seconds.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum_ns: AtomicU64::new(0) }
    }

    /// Counts a time.
    pub fn observe(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// What it holds. Times that come meanwhile may be in the sum and not in the counts.
    #[must_use]
    pub fn read(&self) -> HistogramReading {
        let mut count = 0;
        let mut below = Vec::with_capacity(self.bounds.len());
        for (bound, of) in self.bounds.iter().zip(&self.counts) {
            count += of.load(Ordering::Relaxed);
            below.push((*bound, count));
        }
        count += self.counts[self.bounds.len()].load(Ordering::Relaxed);
        let sum_s = self.sum_ns.load(Ordering::Relaxed) as f64 * 1e-9;
        HistogramReading { below, count, sum_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_below_its_bound_and_all_above() {
        let histogram = Histogram::new(&[0.001, 0.01, 0.1]);
        for ms in [1, 5, 10, 11, 2000] {
            histogram.observe(Duration::from_millis(ms));
        }
        let reading = histogram.read();
        assert_eq!(reading.below, [(0.001, 1), (0.01, 3), (0.1, 4)]);
        assert_eq!(reading.count, 5);
        assert!((reading.sum_s - 2.027).abs() < 1e-9);
    }
}
