//! Statistics of latencies.

use std::time::Duration;

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Summary {
    /// Their number.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Their median.
    pub median_us: f64,
    /// Their standard deviation.
    pub sd_us: f64,
    /// That which one of a hundred exceeds.
    pub p99_us: f64,
}

impl Summary {
    /// Of some latencies.
    pub fn of(samples: &[Duration]) -> Self {
        let mut sorted: Vec<f64> = samples.iter().map(|one| one.as_secs_f64() * 1e6).collect();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() {
            return Self::default();
        }
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count.max(1.0);
        let squares: f64 = sorted.iter().map(|one| (one - mean).powi(2)).sum();
        let at = |part: f64| {
            let rank = (count * part).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Self {
            count: sorted.len() as u64,
            mean_us: mean,
            median_us: at(0.5),
            sd_us: (squares / (count - 1.0).max(1.0)).sqrt(),
            p99_us: at(0.99),
        }
    }

    /// Of several runs: mean and deviation of all latencies; the mean of the runs' quantiles.
    pub fn pooled(runs: &[Self]) -> Self {
        let count: f64 = runs.iter().map(|run| run.count as f64).sum();
        let weighed = |of: fn(&Self) -> f64| {
            let sum: f64 = runs.iter().map(|run| of(run) * run.count as f64).sum();
            sum / count.max(1.0)
        };
        let mean = weighed(|run| run.mean_us);
        let squares: f64 = runs
            .iter()
            .map(|run| {
                let (n, apart) = (run.count as f64, run.mean_us - mean);
                run.sd_us.powi(2) * (n - 1.0).max(0.0) + n * apart.powi(2)
            })
            .sum();
        Self {
            count: count as u64,
            mean_us: mean,
            median_us: weighed(|run| run.median_us),
            sd_us: (squares / (count - 1.0).max(1.0)).sqrt(),
            p99_us: weighed(|run| run.p99_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(us: impl IntoIterator<Item = u64>) -> Summary {
        Summary::of(&us.into_iter().map(Duration::from_micros).collect::<Vec<_>>())
    }

    #[test]
    fn latencies_have_a_mean_a_median_a_deviation_and_a_quantile() {
        let all = of(1..=100);
        assert_eq!((all.count, all.median_us, all.p99_us), (100, 50.0, 99.0));
        assert!((all.mean_us - 50.5).abs() < 1e-9 && (all.sd_us - 29.011).abs() < 1e-3, "{all:?}");
        assert_eq!(of([]), Summary::default());
        assert_eq!(
            of([7]),
            Summary { count: 1, mean_us: 7.0, median_us: 7.0, sd_us: 0.0, p99_us: 7.0 }
        );
    }

    #[test]
    fn runs_together_are_as_one() {
        let (whole, parts) = (of(1..=100), [of(1..=30), of(31..=100)]);
        let pooled = Summary::pooled(&parts);
        assert_eq!(pooled.count, whole.count);
        assert!((pooled.mean_us - whole.mean_us).abs() < 1e-9, "{pooled:?}");
        assert!((pooled.sd_us - whole.sd_us).abs() < 1e-9, "{pooled:?}");
    }
}
