//! A pending batch: an outcome for each of its samples.

use std::time::{Duration, Instant};

use crate::error::PublishError;
use crate::receipts::{Outcome, PendingPublish, Receipt};

/// A pending batch.
///
/// Within a partition, samples keep their order: behind one that is not accepted, none is tried,
/// and each of those has the outcome [`PublishError::Skipped`]. An engine may fail a sample after
/// it was accepted; later ones then have their own outcomes. The overload policies that drop
/// samples drop each for itself.
#[must_use = "without the receipts the outcome is unknown"]
#[derive(Debug, Default)]
pub struct PendingBatch {
    samples: usize,
    /// The sample at each place, if they are not in the caller's order.
    order: Vec<usize>,
    /// Accepted or blocked samples, in the order of partitions.
    runs: Vec<PendingRun>,
    /// Samples that were not accepted.
    failed: Vec<(usize, PublishError)>,
    taken: usize,
}

/// Samples at consecutive places with one pending receipt, which is the last one's.
#[derive(Debug)]
struct PendingRun {
    place: usize,
    samples: usize,
    last: PendingPublish,
}

impl PendingBatch {
    pub(crate) fn of(samples: usize) -> Self {
        Self { samples, ..Self::default() }
    }

    /// Sets the order in which samples are published from now on; returns the place of the first.
    pub(crate) fn next_places(&mut self, samples: &[usize]) -> usize {
        self.order.extend_from_slice(samples);
        self.order.len() - samples.len()
    }

    pub(crate) fn accept(&mut self, place: usize, samples: usize, last: PendingPublish) {
        self.taken += samples;
        self.wait_for(place, samples, last);
    }

    /// Adds a sample that is blocked, or met the overload policy.
    pub(crate) fn wait_for(&mut self, place: usize, samples: usize, last: PendingPublish) {
        self.runs.push(PendingRun { place, samples, last });
    }

    pub(crate) fn fail(&mut self, place: usize, error: PublishError) {
        self.fail_sample(self.sample(place), error);
    }

    pub(crate) fn fail_sample(&mut self, sample: usize, error: PublishError) {
        self.failed.push((sample, error));
    }

    /// The index of the sample at a place.
    fn sample(&self, place: usize) -> usize {
        self.order.get(place).copied().unwrap_or(place)
    }

    /// How many samples the transport accepted at once.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Why others were not accepted: the first failure.
    #[must_use]
    pub fn failed(&self) -> Option<&PublishError> {
        self.failed.first().map(|(_, error)| error)
    }

    /// Blocks until every sample has the guarantee; returns the last receipt of each partition.
    ///
    /// # Errors
    /// The first failure; [`PendingBatch::wait_each`] has the outcome of each sample.
    pub fn wait(mut self) -> Result<Vec<Receipt>, PublishError> {
        let runs = std::mem::take(&mut self.runs);
        self.last_receipts(runs.into_iter().map(|run| run.last.wait()).collect())
    }

    /// The same, for tasks.
    ///
    /// # Errors
    /// As [`PendingBatch::wait`].
    pub async fn receipts(mut self) -> Result<Vec<Receipt>, PublishError> {
        let mut outcomes = Vec::with_capacity(self.runs.len());
        for run in std::mem::take(&mut self.runs) {
            outcomes.push(run.last.await);
        }
        self.last_receipts(outcomes)
    }

    fn last_receipts(self, outcomes: Vec<Outcome>) -> Result<Vec<Receipt>, PublishError> {
        let mut last: Vec<Receipt> = Vec::new();
        for outcome in outcomes {
            let receipt = outcome?;
            match last.last_mut() {
                Some(former) if former.partition == receipt.partition => *former = receipt,
                _ => last.push(receipt),
            }
        }
        match self.failed.into_iter().next() {
            None => Ok(last),
            Some((_, error)) => Err(error),
        }
    }

    /// Blocks until the outcome of every sample is known; returns them in the order of the batch.
    #[must_use]
    pub fn wait_each(mut self) -> Vec<Outcome> {
        let runs = std::mem::take(&mut self.runs);
        let places = runs.iter().map(|run| (run.place, run.samples)).collect();
        self.each(places, runs.into_iter().map(|run| run.last.wait()).collect())
    }

    /// The same, at most for `timeout`. A sample whose outcome is not known by then has
    /// [`PublishError::Timeout`]; it may still be stored, unless it was blocked.
    #[must_use]
    pub fn wait_each_timeout(mut self, timeout: Duration) -> Vec<Outcome> {
        let until = Instant::now().checked_add(timeout);
        let left =
            || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        let runs = std::mem::take(&mut self.runs);
        let places = runs.iter().map(|run| (run.place, run.samples)).collect();
        self.each(places, runs.into_iter().map(|run| run.last.wait_timeout(left())).collect())
    }

    /// The same, for tasks.
    pub async fn outcomes(mut self) -> Vec<Outcome> {
        let runs = std::mem::take(&mut self.runs);
        let places = runs.iter().map(|run| (run.place, run.samples)).collect();
        let mut outcomes = Vec::with_capacity(runs.len());
        for run in runs {
            outcomes.push(run.last.await);
        }
        self.each(places, outcomes)
    }

    fn each(self, runs: Vec<(usize, usize)>, outcomes: Vec<Outcome>) -> Vec<Outcome> {
        let mut each = vec![Err(PublishError::Skipped); self.samples];
        for ((place, samples), last) in runs.into_iter().zip(outcomes) {
            for nth in 0..samples {
                each[self.sample(place + nth)] = before(&last, (samples - 1 - nth) as u64);
            }
        }
        for (sample, error) in self.failed {
            each[sample] = Err(error);
        }
        each
    }
}

/// The outcome of the sample so many before the last one of a run.
fn before(last: &Outcome, samples: u64) -> Outcome {
    let last = last.as_ref().map_err(Clone::clone)?;
    let offset = last.offset.map(|offset| offset - samples);
    Ok(Receipt { offset, sequence: last.sequence - samples, ..*last })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipts::{Published, pending_receipt};

    #[test]
    fn what_is_not_known_in_time_is_a_timeout_and_the_rest_its_own_outcome() {
        let guarantee = helio_core::qos::Guarantee::Stored;
        let receipt = Receipt { partition: 0, offset: Some(7), sequence: 8, guarantee };
        let done = || PendingPublish::from(Ok(Published::Done(receipt)));
        let (_sender, pending) = pending_receipt();
        let mut batch = PendingBatch::of(5);
        batch.accept(0, 2, done());
        batch.accept(2, 2, PendingPublish::from(Ok(Published::Pending(pending))));
        let outcomes = batch.wait_each_timeout(Duration::ZERO);
        let offsets: Vec<_> = outcomes[..2].iter().map(|one| one.clone().unwrap().offset).collect();
        assert_eq!(offsets, [Some(6), Some(7)]);
        let is_late = |one: &Outcome| matches!(one, Err(PublishError::Timeout));
        assert!(outcomes[2..4].iter().all(is_late));
        assert!(matches!(outcomes[4], Err(PublishError::Skipped)));
    }
}
