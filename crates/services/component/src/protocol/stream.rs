//! What becomes of the commands of a stream, such as a mount's targets.

/// Counters of a stream of commands, each of which is for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamStats {
    /// Commands that came, late ones included.
    pub received: u64,
    /// Commands that came, or were taken, too late for their time, and were not run.
    pub late: u64,
    /// Commands that never came, as the bus tells from the callers' numbering.
    pub lost: u64,
    /// Commands in a row, up to now, that were late or lost.
    pub missing: u64,
    /// The most commands in a row that were late or lost.
    pub most_missing: u64,
}
