//! Clocks, passed in as values: the system's clock, or a simulated one for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use helio_core::Tai;

/// A bus's source of time.
pub trait Clock: Send + Sync + 'static {
    /// The present time, in TAI.
    fn now(&self) -> Tai;
    /// Time since a fixed instant; never decreases.
    fn monotonic(&self) -> Duration;
    /// Time since an instant common to all users of an engine, such as the processes of a machine.
    /// It never decreases, and continues while a process is stopped or the machine sleeps. Leases
    /// use it.
    fn uptime(&self) -> Duration {
        self.monotonic()
    }
}

/// How long a difference between TAI and UTC is cached: leap seconds are at the end of an hour, so
/// no cached value spans one.
const UTC_OFFSET_CACHE_NANOS: i64 = 3600 * 1_000_000_000;

/// The operating system's clock (`CLOCK_REALTIME`), with the leap second offset cached by the hour.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    /// The hour since 1970 and TAI - UTC in seconds during it, in one word so that they agree.
    cached: AtomicI64,
}

/// Bits of the cached word that hold the offset in seconds.
const OFFSET_BITS: u32 = 12;

impl SystemClock {
    /// A clock, which all buses of a process may share.
    #[must_use]
    pub fn new() -> Self {
        Self { started: Instant::now(), cached: AtomicI64::new(i64::MIN) }
    }

    fn offset(&self, unix: i64) -> i64 {
        let hour = unix.div_euclid(UTC_OFFSET_CACHE_NANOS);
        let cached = self.cached.load(Ordering::Relaxed);
        if cached >> OFFSET_BITS == hour {
            return (cached & ((1 << OFFSET_BITS) - 1)) * 1_000_000_000;
        }
        let offset = Tai::from_unix_nanos(unix).nanos() - unix;
        let seconds = offset / 1_000_000_000;
        let fits = (0..1 << OFFSET_BITS).contains(&seconds);
        if fits && seconds * 1_000_000_000 == offset {
            self.cached.store((hour << OFFSET_BITS) | seconds, Ordering::Relaxed);
        }
        offset
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Tai {
        let unix = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
        };
        Tai::from_nanos(unix.saturating_add(self.offset(unix)))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn uptime(&self) -> Duration {
        let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(since_boot).unwrap_or_default()
    }
}

/// A clock that a test advances.
#[derive(Debug, Clone, Default)]
pub struct TestClock(Arc<TestTime>);

#[derive(Debug, Default)]
struct TestTime {
    tai: AtomicI64,
    monotonic: AtomicU64,
}

impl TestClock {
    /// A clock at the time `now`.
    #[must_use]
    pub fn new(now: Tai) -> Self {
        let clock = Self::default();
        clock.0.tai.store(now.nanos(), Ordering::SeqCst);
        clock
    }

    /// Advances both time scales.
    pub fn advance(&self, by: Duration) {
        let ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX / 2);
        self.0.monotonic.fetch_add(ns, Ordering::SeqCst);
        self.0.tai.fetch_add(i64::try_from(ns).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Steps the time of day, as an operator or NTP does; monotonic time is unchanged.
    pub fn set(&self, now: Tai) {
        self.0.tai.store(now.nanos(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Tai {
        Tai::from_nanos(self.0.tai.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.0.monotonic.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_tai() {
        let clock = SystemClock::new();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
        let ahead = clock.now().nanos() - unix;
        assert!((37_000_000_000..97_000_000_000).contains(&ahead), "{ahead}");
        assert!(clock.now() >= Tai::from_unix_nanos(unix));
    }

    #[test]
    fn the_leap_second_falls_between_two_hours() {
        let clock = SystemClock::new();
        let leap = 1_483_228_800_i64 * 1_000_000_000;
        for unix in [leap - 1, leap, leap - 1, leap + 1] {
            assert_eq!(unix + clock.offset(unix), Tai::from_unix_nanos(unix).nanos());
        }
    }

    #[test]
    fn a_test_clock_is_turned_by_hand() {
        let clock = TestClock::new(Tai::from_nanos(5));
        clock.advance(Duration::from_nanos(7));
        assert_eq!(
            (clock.now(), clock.monotonic()),
            (Tai::from_nanos(12), Duration::from_nanos(7))
        );
        clock.set(Tai::from_nanos(1));
        assert_eq!((clock.now(), clock.monotonic()), (Tai::from_nanos(1), Duration::from_nanos(7)));
    }
}
