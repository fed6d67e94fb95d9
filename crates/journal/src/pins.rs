//! Payloads that readers keep in place: pinned segments, bounded by their size.
//!
//! Constraints: a pinned segment's bytes below the tail never change (see `segment`). A pin counts
//! its whole segment, because the disk and the address space hold the whole segment for it. Beyond
//! the limit nothing is pinned.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::segment::{Segment, StableRange};

/// The least that a segment counts, so that pinned segments are limited in number, too.
const MIN_COUNTED_BYTES: u64 = 1 << 20;

/// A limit of pinned segments, shared by readers.
#[derive(Debug)]
pub struct PinLimit {
    max_bytes: u64,
    used: AtomicU64,
}

impl PinLimit {
    /// A limit in bytes of segments; each counts as 1 MiB at least.
    #[must_use]
    pub fn new(max_bytes: u64) -> Arc<Self> {
        Arc::new(Self { max_bytes, used: AtomicU64::new(0) })
    }

    /// Returns how many bytes of segments are pinned now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.max_bytes);
        self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }
}

/// A segment that is pinned for payloads.
#[derive(Debug)]
pub struct PinnedSegment {
    segment: Arc<Segment>,
    bytes: u64,
    limit: Arc<PinLimit>,
}

impl Drop for PinnedSegment {
    fn drop(&mut self) {
        self.limit.used.fetch_sub(self.bytes, Relaxed);
    }
}

impl PinnedSegment {
    /// A segment that counts towards no limit, for the one process that has it open.
    pub(crate) fn unlimited(segment: Segment) -> Arc<Self> {
        Arc::new(Self { segment: Arc::new(segment), bytes: 0, limit: PinLimit::new(0) })
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Keeps bytes in place that a reader has returned from this segment; `None` for others.
    #[must_use]
    pub fn pin(self: &Arc<Self>, bytes: &[u8]) -> Option<PinnedBytes> {
        let range = self.segment.stable_range(bytes)?;
        Some(PinnedBytes { segment: Arc::clone(self), range })
    }
}

/// Bytes of a segment that stay as they are while this exists, whatever becomes of the log.
#[derive(Debug)]
pub struct PinnedBytes {
    segment: Arc<PinnedSegment>,
    range: StableRange,
}

impl AsRef<[u8]> for PinnedBytes {
    fn as_ref(&self) -> &[u8] {
        self.segment.segment.stable(&self.range)
    }
}

/// A reader's pins: the limit, and the segment that it reads.
pub(crate) struct Pins {
    limit: Arc<PinLimit>,
    current: Option<Arc<PinnedSegment>>,
}

impl Pins {
    pub(crate) fn new(limit: &Arc<PinLimit>) -> Self {
        Self { limit: Arc::clone(limit), current: None }
    }

    /// Pins a segment; `None` if that exceeds the limit.
    pub(crate) fn of(&mut self, segment: &Arc<Segment>) -> Option<&Arc<PinnedSegment>> {
        if self.current.as_ref().is_none_or(|pinned| !Arc::ptr_eq(&pinned.segment, segment)) {
            self.current = None;
            let bytes = segment.head.capacity.max(MIN_COUNTED_BYTES);
            let pin = || PinnedSegment {
                segment: Arc::clone(segment),
                bytes,
                limit: Arc::clone(&self.limit),
            };
            self.current = self.limit.take(bytes).then(|| Arc::new(pin()));
        }
        self.current.as_ref()
    }
}
