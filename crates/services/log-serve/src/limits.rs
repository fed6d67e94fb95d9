//! Limits on senders.

use std::time::{Duration, Instant};

use helio_logging::MAX_RECORD_BYTES;

/// A rate with a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Records a second.
    pub per_s: f64,
    /// Records at once after a pause.
    pub burst: f64,
}

/// The limits of senders. A well-behaved sender does not reach the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// The rate of each sender: by default 50,000 a second, sixty times the mean of all of ALMA.
    pub rate: Rate,
    /// The additional rate of each sender's urgent records: nobody can act on a thousand alerts a
    /// second. Records above it count as usual ones.
    pub urgent: Rate,
    /// The most bytes of a record in a packet.
    pub record_bytes: usize,
    /// The most connections of all senders, further limited by file descriptors.
    pub connections: usize,
    /// The most connections of one sender.
    pub connections_per_sender: usize,
    /// The idle timeout of a connection. Syslog has no acknowledgements, so a sender may lose what
    /// it writes to a closed connection: the timeout is only for vanished senders.
    pub idle: Duration,
    /// The timeout of a message, from its first byte to its last.
    pub unfinished: Duration,
    /// How long a stream, or a request, is blocked while the bus is too slow, before records are
    /// dropped by level. After that no sender is blocked until the bus accepts records again.
    pub hold: Duration,
    /// The most senders that are tracked separately; further ones share limits and counts.
    pub senders: usize,
    /// The interval of reports on dropped records.
    pub tell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate: Rate { per_s: 50_000.0, burst: 100_000.0 },
            urgent: Rate { per_s: 1_000.0, burst: 1_000.0 },
            record_bytes: MAX_RECORD_BYTES,
            connections: 4_096,
            connections_per_sender: 256,
            idle: Duration::from_secs(24 * 3600),
            unfinished: Duration::from_secs(60),
            hold: Duration::from_secs(1),
            senders: 4_096,
            tell: Duration::from_secs(10),
        }
    }
}

/// A token bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, at: now }
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, rate: Rate, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = rate.burst.min(self.left + passed * rate.per_s);
        self.at = self.at.max(now);
        let there = self.left >= 1.0;
        if there {
            self.left -= 1.0;
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_is_taken_at_once_and_the_rate_from_then_on() {
        let rate = Rate { per_s: 10.0, burst: 3.0 };
        let start = Instant::now();
        let mut bucket = Bucket::new(rate, start);
        let taken = |bucket: &mut Bucket, at_ms| {
            let now = start + Duration::from_millis(at_ms);
            (0..100).filter(|_| bucket.take(rate, now)).count()
        };
        assert_eq!(taken(&mut bucket, 0), 3);
        assert_eq!(taken(&mut bucket, 99), 0);
        assert_eq!(taken(&mut bucket, 200), 2);
        assert_eq!(taken(&mut bucket, 3_600_000), 3);
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate(steps in prop::collection::vec(0..50_u64, 1..300)) {
            let rate = Rate { per_s: 100.0, burst: 5.0 };
            let start = Instant::now();
            let mut bucket = Bucket::new(rate, start);
            let (mut passed_ms, mut taken) = (0, 0_u64);
            for step in steps {
                passed_ms += step;
                taken += u64::from(bucket.take(rate, start + Duration::from_millis(passed_ms)));
                let most = rate.burst + rate.per_s * passed_ms as f64 / 1e3 + 1e-6;
                prop_assert!(taken as f64 <= most);
            }
        }
    }
}
