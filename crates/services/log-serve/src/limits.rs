//! How much is taken from whom.

use std::time::{Duration, Instant};

use helio_logging::MAX_RECORD_BYTES;

/// So many a second, and so many at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Records a second.
    pub per_s: f64,
    /// Records that may come at once after a pause.
    pub burst: f64,
}

/// The limits of senders. Each has a default that a well-behaved one does not reach.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Of each sender: by default 50,000 a second, sixty times all of ALMA's mean.
    pub rate: Rate,
    /// Of each sender's urgent records, beside that: nobody has a thousand alerts a second to act
    /// on. What is over it counts as usual ones do.
    pub urgent: Rate,
    /// Bytes of a record, as a packet has it.
    pub record_bytes: usize,
    /// Connections of all senders together; no more than there are file descriptors.
    pub connections: usize,
    /// Connections of one sender.
    pub connections_per_sender: usize,
    /// How long a connection may say nothing. Syslog has no answer, so that a sender may lose what
    /// it writes into a connection that was closed: the limit is for those who have gone away.
    pub idle: Duration,
    /// How long a message may take from its first byte to its last.
    pub unfinished: Duration,
    /// How long one who sends in a stream, or waits for an answer, is held up while the bus takes
    /// less than comes, before records are dropped by level. Nobody is then until the bus goes on.
    pub hold: Duration,
    /// Senders that are told apart; those beyond it share their limits and counts.
    pub senders: usize,
    /// How often it is told what was dropped.
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

/// What is left of a rate at a moment: a token bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    /// A full one.
    pub(crate) fn new(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, at: now }
    }

    /// Takes one, if there is one.
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
