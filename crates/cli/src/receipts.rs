//! Receipts on their way, a bounded number of them.

use std::collections::VecDeque;

use helio_bus::PendingPublish;

use crate::error::{CliError, CliResult};

/// Receipts that have not come yet.
pub(crate) struct Receipts {
    window: usize,
    pending: VecDeque<PendingPublish>,
    acknowledged: u64,
}

impl Receipts {
    /// So many may be under way; 1 awaits each.
    pub(crate) fn new(window: usize) -> Self {
        Self { window, pending: VecDeque::new(), acknowledged: 0 }
    }

    /// Takes one more, and waits for the oldest where there are too many.
    pub(crate) fn take(&mut self, publishing: PendingPublish) -> CliResult {
        match publishing.outcome() {
            Some(Ok(_)) => self.acknowledged += 1,
            Some(Err(error)) => return Err(CliError::from(error)),
            None => self.pending.push_back(publishing),
        }
        while self.pending.len() >= self.window {
            self.oldest()?;
        }
        Ok(())
    }

    /// Counts receipts that were awaited otherwise.
    pub(crate) fn add(&mut self, acknowledged: u64) {
        self.acknowledged += acknowledged;
    }

    fn oldest(&mut self) -> CliResult {
        if let Some(publishing) = self.pending.pop_front() {
            publishing.wait()?;
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// Waits for all of them; gives how many have come by now.
    pub(crate) fn finish(&mut self) -> CliResult<u64> {
        while !self.pending.is_empty() {
            self.oldest()?;
        }
        Ok(self.acknowledged)
    }
}
