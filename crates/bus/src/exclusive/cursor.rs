//! A position among the committed records, which waits for the next one.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{ExclusiveError, ExclusiveLog, Watermark};

/// Follows the committed records of a log. It holds no record and no queue: a slow one costs
/// nothing, until the records that it has not read are trimmed.
pub struct LogCursor {
    log: Arc<dyn ExclusiveLog>,
    next: u64,
}

impl std::fmt::Debug for LogCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogCursor").field("next", &self.next).finish_non_exhaustive()
    }
}

impl LogCursor {
    /// A cursor before the record at an offset, which may be a later one than any so far.
    #[must_use]
    pub fn new(log: Arc<dyn ExclusiveLog>, next: u64) -> Self {
        Self { log, next }
    }

    /// The offset of the next record; it may be left out.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.next
    }

    /// Visits committed records until the visitor breaks, without waiting; returns their number. It
    /// moves behind the record at which the visitor broke.
    ///
    /// # Errors
    /// [`ExclusiveError::Trimmed`]: the cursor was too slow; as [`ExclusiveLog::scan`].
    pub fn poll(
        &mut self,
        visit: &mut dyn FnMut(u64, Bytes) -> ControlFlow<()>,
    ) -> Result<u64, ExclusiveError> {
        let mut count = 0;
        let next = &mut self.next;
        let end = self.log.scan(*next..u64::MAX, Watermark::Committed, &mut |offset, record| {
            (count, *next) = (count + 1, offset + 1);
            visit(offset, record)
        })?;
        self.next = self.next.max(end);
        Ok(count)
    }

    /// Blocks until a record at or behind the position is committed.
    ///
    /// # Errors
    /// As [`ExclusiveLog::wait`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), ExclusiveError> {
        self.log.wait(Watermark::Committed, self.next.saturating_add(1), timeout).map(drop)
    }

    /// Calls back once a record at or behind the position is committed, as
    /// [`ExclusiveLog::notify`].
    pub fn notify(&self, call: super::OnWatermark) {
        self.log.notify(Watermark::Committed, self.next.saturating_add(1), call);
    }
}
