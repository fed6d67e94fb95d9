//! Counts of seconds by upper bounds.

/// The upper bounds, seconds: from the bus's own latency to the users' minute, and beyond it.
pub(crate) const BOUNDS_S: [f64; 16] =
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 39.0, 60.0, 120.0, 600.0];

/// A histogram of seconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// The values at most each bound and above the one before; the last are above all bounds.
    counts: [u64; BOUNDS_S.len() + 1],
    sum: f64,
}

impl Histogram {
    /// Counts a value. A negative one, of clocks that differ, counts as 0.
    pub fn add(&mut self, seconds: f64) {
        let seconds = seconds.max(0.0);
        let place = BOUNDS_S.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS_S.len());
        self.counts[place] += 1;
        self.sum += seconds;
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of the values, seconds.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Each bound, with the number of values at most as large.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut count = 0;
        BOUNDS_S.iter().zip(self.counts).map(move |(bound, own)| {
            count += own;
            (*bound, count)
        })
    }

    /// An upper bound of a quantile; infinite above all bounds, `None` without values.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let all = self.count();
        let wanted = (part * all as f64).ceil() as u64;
        let found = self.cumulative().find(|(_, count)| *count >= wanted.max(1));
        (all > 0).then(|| found.map_or(f64::INFINITY, |(bound, _)| bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_below_their_bounds() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for seconds in [-1.0, 0.005, 0.006, 30.0, 1e6] {
            histogram.add(seconds);
        }
        let cumulative: Vec<_> = histogram.cumulative().collect();
        assert_eq!(cumulative[0], (0.005, 2));
        assert_eq!(cumulative[1], (0.01, 3));
        assert_eq!(cumulative[12], (39.0, 4));
        assert_eq!(cumulative[15], (600.0, 4));
        assert_eq!((histogram.count(), histogram.sum()), (5, 1e6 + 30.011));
        assert_eq!(histogram.quantile(0.5), Some(0.01));
        assert_eq!(histogram.quantile(1.0), Some(f64::INFINITY));
    }
}
