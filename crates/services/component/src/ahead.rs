//! Telemetry goes ahead of its receipts: where these take their time, as brokers' do, a sample does
//! not wait for those before it.

use std::collections::VecDeque;

use helio_bus::{PublishError, Publishing, Receipt};

/// The most samples of a topic whose receipts have not come: seconds of the fastest telemetry. Who
/// writes more waits for the oldest.
const MOST: usize = 1_024;

/// Receipts to come, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Ahead(VecDeque<Publishing>);

impl Ahead {
    /// Whether none is to come.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the receipts that have come.
    ///
    /// # Errors
    /// The first failure, once; what comes behind it is still to be taken.
    pub(crate) fn take(&mut self) -> Result<(), PublishError> {
        while let Some(outcome) = self.0.front().and_then(Publishing::outcome) {
            self.0.pop_front();
            outcome?;
        }
        Ok(())
    }

    /// Waits for all of them.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn wait(&mut self) -> Result<(), PublishError> {
        let all = std::mem::take(&mut self.0).into_iter().map(Publishing::wait);
        // Whatever becomes of the first.
        let all: Vec<_> = all.collect();
        all.into_iter().try_for_each(|outcome| outcome.map(drop))
    }

    /// Adds one; gives its receipt where it has come already.
    ///
    /// # Errors
    /// Why it was not taken; where there are too many, what became of the oldest.
    pub(crate) fn add(&mut self, publishing: Publishing) -> Result<Option<Receipt>, PublishError> {
        if let Some(outcome) = publishing.outcome() {
            return outcome.map(Some);
        }
        self.0.push_back(publishing);
        match self.0.len() > MOST {
            true => self.0.pop_front().map_or(Ok(None), |oldest| oldest.wait().map(|_| None)),
            false => Ok(None),
        }
    }
}
