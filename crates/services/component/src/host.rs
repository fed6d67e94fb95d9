//! Who and where this process is, and clocks that count through its sleep.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;
use std::time::Duration;

use helio_bus::Bus;
use helio_core::Tai;
use rustix::time::{ClockId, clock_gettime};

/// The identity of a person's program: `user@host`, as SAL has it for whoever is no component.
#[must_use]
pub fn user_at_host() -> String {
    static IDENTITY: OnceLock<String> = OnceLock::new();
    IDENTITY.get_or_init(|| format!("{}@{}", user(), host())).clone()
}

fn user() -> String {
    let mut named = ["USER", "LOGNAME"].iter().filter_map(|name| std::env::var(name).ok());
    named.find(|name| !name.is_empty()).unwrap_or_else(|| "user".to_owned())
}

/// The machine's name.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The number of this process, as SAL's `private_origin` has it.
pub(crate) fn origin() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(i32::MAX)
}

/// A number that nobody can foresee.
pub(crate) fn random() -> u64 {
    // The standard library seeds its hash tables from the system's randomness, each anew.
    RandomState::new().build_hasher().finish()
}

/// Time that counts through whatever stops the process or the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elapsing {
    boot: Duration,
    bus: Duration,
}

impl Elapsing {
    /// A stopwatch that begins now.
    pub(crate) fn begin(bus: &Bus) -> Self {
        Self { boot: since_boot(), bus: bus.clock().monotonic() }
    }

    /// How long ago that was. The bus's own clock counts too, so that a test can turn it.
    pub(crate) fn elapsed(self, bus: &Bus) -> Duration {
        let boot = since_boot().saturating_sub(self.boot);
        boot.max(bus.clock().monotonic().saturating_sub(self.bus))
    }
}

/// `CLOCK_BOOTTIME` goes on while the process is stopped and while the machine sleeps.
fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// An instant as SAL's `private_sndStamp` and `private_efdStamp` have it: TAI and UTC, seconds
/// since 1970.
pub(crate) fn stamps(now: Tai) -> (f64, f64) {
    thread_local! {
        /// TAI - UTC in nanoseconds, and until when that was looked up: looking costs 200 ns.
        static OFFSET: std::cell::Cell<(i64, i64)> = const { std::cell::Cell::new((0, i64::MIN)) };
    }
    /// Leap seconds come at the end of an hour at the earliest.
    const HOUR: i64 = 3600 * 1_000_000_000;
    let nanos = now.nanos();
    let (mut offset, hour) = OFFSET.get();
    if nanos.div_euclid(HOUR) != hour {
        offset = nanos.saturating_sub(now.unix_nanos());
        // The hour of TAI in which a leap second falls is looked up each time.
        let end = Tai::from_nanos((nanos.div_euclid(HOUR) + 1) * HOUR - 1);
        if end.nanos().saturating_sub(end.unix_nanos()) == offset {
            OFFSET.set((offset, nanos.div_euclid(HOUR)));
        }
    }
    (now.seconds(), nanos.saturating_sub(offset) as f64 * 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_differ_by_the_leap_seconds() {
        let now = Tai::from_unix_nanos(1_500_000_000_500_000_000);
        for _ in 0..2 {
            let (tai, utc) = stamps(now);
            assert_eq!((tai, utc), (1_500_000_037.5, 1_500_000_000.5));
        }
        let leap = Tai::from_unix_nanos(1_483_228_800_000_000_000);
        for seconds in -3..3 {
            let at = Tai::from_nanos(leap.nanos() + seconds * 1_000_000_000);
            assert_eq!(stamps(at).1, at.unix_nanos() as f64 * 1e-9);
        }
    }

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random(), random());
        assert!(user_at_host().contains('@'));
    }
}
