//! Who and where this process is, and time as SAL has it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use helio_core::Tai;

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
