//! What is kept, and until when.

use crate::JournalError;
use crate::partition::Partition;

/// How much log may lie behind the newest snapshot of the keys index: what recovery replays.
const SNAPSHOT_BYTES: u64 = 32 << 20;

impl Partition {
    /// Prepares what the next append may need.
    pub(crate) fn prepare(&self) -> Result<(), JournalError> {
        Ok(())
    }

    /// Applies retention, and keeps the way back after power loss short.
    pub(crate) fn keep(&self) -> Result<(), JournalError> {
        let upto = self.control.keys_upto().load(std::sync::atomic::Ordering::Acquire);
        let saved = self.control.snap_pos().load(std::sync::atomic::Ordering::Acquire);
        if upto > saved.saturating_add(SNAPSHOT_BYTES) {
            self.save_keys()?;
        }
        Ok(())
    }
}
