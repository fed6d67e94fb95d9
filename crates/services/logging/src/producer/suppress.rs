//! Limits the rate of records from one call site. Records beyond it are dropped, counted, and
//! reported by one record.
//!
//! Constraints. The publishing thread decides, at no cost to logging threads. Suppressed records
//! count as shed. ERROR and above are never dropped. Time is that of the thread's turns, so clocks
//! may jump.

use std::time::Duration;

use crate::lanes::Lanes;
use crate::level::Level;

use super::NO_SITE;
use super::ring::Head;

/// The longest delay of a report on suppressed records.
const SUPPRESSION_REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The parts of a token, as nanoseconds are parts of a second.
const PARTS: u64 = 1_000_000_000;

/// The limit on published records of one call site, below ERROR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suppress {
    /// Records a second in the long run.
    pub per_second: u32,
    /// The burst: records at once.
    pub burst: u32,
}

/// The suppressed records of a call site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Suppressed {
    pub(super) site: u32,
    /// The newest record's logger.
    pub(super) logger: u32,
    /// The highest level.
    pub(super) level: Level,
    pub(super) count: u64,
    /// The time since the first one.
    pub(super) span: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// The parts of tokens at a time.
    parts: u64,
    at: Duration,
    /// The records suppressed since the last report.
    count: u64,
    since: Duration,
    level: Level,
    logger: u32,
}

/// The buckets of all call sites.
#[derive(Debug)]
pub(super) struct Suppressor {
    limits: Suppress,
    /// By number; full buckets are removed.
    buckets: Vec<Option<Bucket>>,
    /// Sites with unreported suppressed records.
    untold: Vec<u32>,
}

impl Suppressor {
    pub(super) fn new(limits: Suppress) -> Self {
        Self { limits, buckets: Vec::new(), untold: Vec::new() }
    }

    pub(super) fn limits(&self) -> Suppress {
        self.limits
    }

    /// Whether a record is suppressed. A record without a registered site never is.
    pub(super) fn suppresses(&mut self, head: &Head, now: Duration) -> bool {
        if head.site == NO_SITE || Lanes::lane(head.level) >= Level::ERROR {
            return false;
        }
        let place = head.site as usize;
        if place >= self.buckets.len() {
            self.buckets.resize(place + 1, None);
        }
        let full = Bucket {
            parts: self.most(),
            at: now,
            count: 0,
            since: now,
            level: head.level,
            logger: head.logger,
        };
        let (most, per_second) = (self.most(), self.limits.per_second);
        let bucket = self.buckets[place].get_or_insert(full);
        bucket.fill(now, per_second, most);
        if let Some(left) = bucket.parts.checked_sub(PARTS) {
            bucket.parts = left;
            return false;
        }
        if bucket.count == 0 {
            (bucket.since, bucket.level) = (now, head.level);
            self.untold.push(head.site);
        }
        bucket.count += 1;
        bucket.level = bucket.level.max(head.level);
        bucket.logger = head.logger;
        true
    }

    /// The reports that are due: for sites whose bucket is full again, or that have waited for a
    /// second; or all.
    pub(super) fn told(&mut self, now: Duration, all: bool) -> Vec<Suppressed> {
        let (most, per_second) = (self.most(), self.limits.per_second);
        let mut told = Vec::new();
        let buckets = &mut self.buckets;
        self.untold.retain(|site| {
            let Some(bucket) = &mut buckets[*site as usize] else { return false };
            bucket.fill(now, per_second, most);
            let span = now.saturating_sub(bucket.since);
            if !all && span < SUPPRESSION_REPORT_INTERVAL && bucket.parts < most {
                return true;
            }
            let Bucket { logger, level, count, .. } = *bucket;
            told.push(Suppressed { site: *site, logger, level, count, span });
            bucket.count = 0;
            false
        });
        told
    }

    fn most(&self) -> u64 {
        u64::from(self.limits.burst.max(1)) * PARTS
    }
}

impl Bucket {
    fn fill(&mut self, now: Duration, per_second: u32, most: u64) {
        let elapsed = u64::try_from(now.saturating_sub(self.at).as_nanos()).unwrap_or(u64::MAX);
        let more = elapsed.saturating_mul(per_second.into());
        (self.parts, self.at) = (self.parts.saturating_add(more).min(most), now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::Destinations;
    use super::*;
    use helio_core::Tai;

    fn head(site: u32, level: Level) -> Head {
        let goes = Destinations { published: true, printed: false };
        Head { time: Tai::from_nanos(0), logger: 7, site, audiences: 0, level, goes }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn beyond_the_burst_it_is_the_rate_that_passes() {
        let mut sites = Suppressor::new(Suppress { per_second: 10, burst: 5 });
        let mut passed = |site, at: u64, records: usize| {
            let all = (0..records).filter(|_| !sites.suppresses(&head(site, Level::INFO), ms(at)));
            all.count()
        };
        assert_eq!(passed(0, 0, 100), 5);
        assert_eq!(passed(3, 0, 4), 4, "each site has its own");
        assert_eq!(passed(0, 100, 100), 1);
        assert_eq!(passed(0, 350, 100), 2);
        assert_eq!(passed(0, 400, 100), 1, "parts of tokens are kept");
        assert_eq!(passed(0, 60_000, 100), 5, "no more than the burst is gathered");
        assert_eq!(passed(0, 59_000, 100), 0, "time that goes back gives nothing");
    }

    #[test]
    fn what_is_suppressed_is_told_after_a_second_or_when_it_is_over() {
        let mut sites = Suppressor::new(Suppress { per_second: 10, burst: 5 });
        let suppressed = |sites: &mut Suppressor, level, at| {
            (0..8).filter(|_| sites.suppresses(&head(2, level), ms(at))).count() as u64
        };
        assert_eq!(suppressed(&mut sites, Level::INFO, 0), 3);
        assert_eq!(suppressed(&mut sites, Level::NOTICE, 0), 8);
        assert_eq!(sites.told(ms(400), false), []);
        let told = |count, span, level| Suppressed { site: 2, logger: 7, level, count, span };
        assert_eq!(sites.told(ms(500), false), [told(11, ms(500), Level::NOTICE)], "full again");
        assert_eq!(sites.told(ms(500), true), [], "it is told once");
        assert_eq!(suppressed(&mut sites, Level::INFO, 500), 3);
        assert_eq!(sites.told(ms(600), true), [told(3, ms(100), Level::INFO)]);
        let mut slow = Suppressor::new(Suppress { per_second: 1, burst: 5 });
        assert_eq!(suppressed(&mut slow, Level::INFO, 0), 3);
        assert_eq!(slow.told(ms(999), false), []);
        assert_eq!(slow.told(ms(1_000), false), [told(3, ms(1_000), Level::INFO)], "a second");
    }

    #[test]
    fn errors_and_records_of_no_site_pass_always() {
        let mut sites = Suppressor::new(Suppress { per_second: 1, burst: 1 });
        let reserved = Level::new(7).unwrap();
        for level in [Level::ERROR, Level::EMERGENCY, reserved] {
            assert!((0..9).all(|_| !sites.suppresses(&head(0, level), ms(0))));
        }
        assert!((0..9).all(|_| !sites.suppresses(&head(NO_SITE, Level::TRACE), ms(0))));
        assert_eq!(sites.told(ms(0), true), []);
    }
}
