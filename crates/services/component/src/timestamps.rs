//! Time in SAL's private fields.

use helio_core::Tai;

/// An instant for SAL's `private_sndStamp` and `private_efdStamp`: TAI and UTC, seconds since 1970.
pub(crate) fn stamps(now: Tai) -> (f64, f64) {
    thread_local! {
        /// TAI - UTC in nanoseconds, and the hour for which it is valid: a lookup costs 200 ns.
        static OFFSET: std::cell::Cell<(i64, i64)> = const { std::cell::Cell::new((0, i64::MIN)) };
    }
    /// Leap seconds occur only at the end of an hour.
    const HOUR: i64 = 3600 * 1_000_000_000;
    let nanos = now.nanos();
    let (mut offset, hour) = OFFSET.get();
    if nanos.div_euclid(HOUR) != hour {
        offset = nanos.saturating_sub(now.unix_nanos());
        // The hour of TAI with a leap second is looked up each time.
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
}
