//! Statistics of stream commands, such as a mount's targets.

use std::time::Duration;

use helio_core::Tai;

use super::interval;

/// Counters of a stream command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamStats {
    /// Received commands, including late ones.
    pub received: u64,
    /// Commands that were received or started too late for their time, and did not run.
    pub late: u64,
    /// Commands that did not arrive, according to the bus.
    pub lost: u64,
    /// The current number of consecutive late or lost commands.
    pub missing: u64,
    /// The largest number of consecutive late or lost commands.
    pub most_missing: u64,
}

impl StreamStats {
    /// Counts lost commands.
    pub(super) fn lose(&mut self, commands: u64) {
        self.lost = self.lost.saturating_add(commands);
        self.miss(commands);
    }

    /// Counts a late command.
    pub(super) fn late(&mut self) {
        self.late += 1;
        self.miss(1);
    }

    /// Counts a command in time.
    pub(super) fn in_time(&mut self) {
        self.missing = 0;
    }

    fn miss(&mut self, commands: u64) {
        self.missing = self.missing.saturating_add(commands);
        self.most_missing = self.most_missing.max(self.missing);
    }
}

/// The shortest interval between warnings of a kind.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Rate limit of warnings: counts events, so that one line a second reports them.
#[derive(Debug, Clone, Default)]
pub(super) struct Throttle {
    last: Option<Tai>,
    untold: u64,
}

impl Throttle {
    /// Counts an event; returns the number to report, if a warning is due.
    pub(super) fn note(&mut self, now: Tai) -> Option<u64> {
        self.untold += 1;
        self.tick(now)
    }

    /// The number of unreported events, if a warning is due.
    pub(super) fn tick(&mut self, now: Tai) -> Option<u64> {
        let is_time = self.last.is_none_or(|last| interval::after(last, WARNING_INTERVAL) <= now);
        if !is_time || self.untold == 0 {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.untold))
    }

    /// When a warning is due.
    pub(super) fn due(&self) -> Option<Tai> {
        self.last.filter(|_| self.untold > 0).map(|last| interval::after(last, WARNING_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_run_of_missing_commands_is_kept() {
        let mut stats = StreamStats::default();
        stats.lose(2);
        stats.late();
        stats.in_time();
        stats.late();
        let expected = StreamStats { received: 0, late: 2, lost: 2, missing: 1, most_missing: 3 };
        assert_eq!(stats, expected);
    }

    #[test]
    fn warnings_come_once_a_second() {
        let at = |ms: i64| Tai::from_nanos(ms * 1_000_000);
        let mut throttle = Throttle::default();
        assert_eq!(throttle.note(at(0)), Some(1));
        assert_eq!((throttle.note(at(10)), throttle.note(at(20))), (None, None));
        assert_eq!(throttle.due(), Some(at(1_000)));
        assert_eq!(throttle.tick(at(1_000)), Some(2));
        assert_eq!((throttle.due(), throttle.tick(at(3_000))), (None, None));
    }
}
