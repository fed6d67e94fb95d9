//! A bounded number of pending receipts.

use std::collections::VecDeque;

use helio_bus::PendingPublish;

use crate::error::{CliError, CliResult};

/// The pending receipts of a publisher.
pub(crate) struct Receipts {
    window: usize,
    pending: VecDeque<PendingPublish>,
    acknowledged: u64,
}

impl Receipts {
    /// At most `window` receipts are pending; 1 waits for each.
    pub(crate) fn new(window: usize) -> Self {
        Self { window, pending: VecDeque::new(), acknowledged: 0 }
    }

    /// Adds a receipt, and waits for the oldest ones beyond the window.
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

    /// Counts receipts that were awaited elsewhere.
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

    /// Waits for all pending receipts; returns the number of receipts so far.
    pub(crate) fn finish(&mut self) -> CliResult<u64> {
        while !self.pending.is_empty() {
            self.oldest()?;
        }
        Ok(self.acknowledged)
    }
}
