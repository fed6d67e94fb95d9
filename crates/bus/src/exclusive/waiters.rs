//! Pending waits for watermarks.

use std::sync::Mutex;

use super::{ExclusiveError, OnWatermark, Watermark, Watermarks};
use crate::bell::locked;

/// The most pending waits of a log: one a request of a busy service, with room to spare.
pub const MAX_WAITS: usize = 1 << 17;

struct Wait {
    mark: Watermark,
    end: u64,
    call: OnWatermark,
}

/// The waits that no watermark has reached yet.
#[derive(Default)]
pub(super) struct Waiters(Mutex<Vec<Wait>>);

impl Waiters {
    /// Adds a wait; the caller then [serves](Self::serve) all.
    pub(super) fn add(&self, mark: Watermark, end: u64, call: OnWatermark) {
        let mut waits = locked(&self.0);
        if waits.len() < MAX_WAITS {
            return waits.push(Wait { mark, end, call });
        }
        let (value, limit) = (waits.len() as u64 + 1, MAX_WAITS as u64);
        drop(waits);
        call(Err(ExclusiveError::Limit { what: "pending waits", value, limit }));
    }

    /// Calls back those that are reached.
    pub(super) fn serve(&self, now: &Watermarks) {
        let reached: Vec<_> =
            locked(&self.0).extract_if(.., |wait| now.of(wait.mark) >= wait.end).collect();
        reached.into_iter().for_each(|wait| (wait.call)(Ok(*now)));
    }

    /// Fails those that wait for more than an offset.
    pub(super) fn fail(&self, above: u64, why: impl Fn(u64) -> ExclusiveError) {
        let failed: Vec<_> = locked(&self.0).extract_if(.., |wait| wait.end > above).collect();
        failed.into_iter().for_each(|wait| (wait.call)(Err(why(wait.end))));
    }

    /// Fails those that wait for one watermark.
    pub(super) fn fail_mark(&self, mark: Watermark, error: &ExclusiveError) {
        let failed: Vec<_> = locked(&self.0).extract_if(.., |wait| wait.mark == mark).collect();
        failed.into_iter().for_each(|wait| (wait.call)(Err(error.clone())));
    }
}
