//! The machine's clocks, and TAI converted to UTC.

use std::time::{Duration, Instant, SystemTime};

use helio_core::Tai;

/// Milliseconds of UTC.
pub(crate) fn utc_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A time by two clocks: one stops while a machine sleeps, the other can be set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DualClock {
    pub(crate) steady: Instant,
    pub(crate) utc: SystemTime,
}

impl DualClock {
    pub(crate) fn now() -> Self {
        Self { steady: Instant::now(), utc: SystemTime::now() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Self::now().since(self)
    }

    /// Whether it is later, by the clock that cannot be set.
    pub(crate) fn is_after(&self, other: &Self) -> bool {
        self.steady > other.steady
    }

    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let steady = self.steady.saturating_duration_since(earlier.steady);
        steady.max(self.utc.duration_since(earlier.utc).unwrap_or_default())
    }
}

/// Converts TAI to milliseconds of UTC. The offset is computed once per second of TAI.
#[derive(Default)]
pub(crate) struct UtcMillis {
    second: i64,
    /// TAI - UTC in that second, in nanoseconds; `None` before the first lookup.
    offset: Option<i64>,
}

impl UtcMillis {
    pub(crate) fn of(&mut self, time: Tai) -> i64 {
        let second = time.nanos().div_euclid(1_000_000_000);
        let offset = match self.offset.filter(|_| second == self.second) {
            Some(offset) => offset,
            None => time.nanos() - time.unix_nanos(),
        };
        (self.second, self.offset) = (second, Some(offset));
        (time.nanos() - offset).div_euclid(1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_is_looked_up_once_a_second() {
        let mut utc = UtcMillis::default();
        for nanos in [0, 1_800_000_000_123_456_789, 1_800_000_000_999_999_999, -1, 1_483_228_836] {
            let time = Tai::from_nanos(nanos);
            assert_eq!(utc.of(time), time.unix_nanos().div_euclid(1_000_000), "{nanos}");
        }
    }
}
