//! Time: TAI nanoseconds since the Unix epoch, and its conversion to UTC.
//!
//! Samples are stamped in TAI because it has no leap seconds. The scale is that of the Rubin
//! Observatory's `current_tai`: nanoseconds of TAI since 1970-01-01T00:00:00 TAI. Leap seconds come
//! from the `hifitime` library's table (IERS Bulletin C).

use std::fmt;
use std::str::FromStr;

use hifitime::{Epoch, TimeScale, Unit};
use thiserror::Error;

/// An instant of International Atomic Time: nanoseconds since 1970-01-01T00:00:00 TAI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tai(i64);

/// An invalid ISO 8601 time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid time {0:?}; write it like 2026-11-21T03:00:00Z or 2026-11-21T03:00:37 TAI")]
pub struct TimeError(String);

impl Tai {
    /// Creates an instant from nanoseconds since 1970-01-01T00:00:00 TAI.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since 1970-01-01T00:00:00 TAI.
    #[must_use]
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Seconds since 1970-01-01T00:00:00 TAI, as in SAL's `private_sndStamp`.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 * 1e-9
    }

    /// Converts POSIX time (UTC without its leap seconds), as `clock_gettime(CLOCK_REALTIME)`
    /// returns it.
    #[must_use]
    pub fn from_unix_nanos(nanos: i64) -> Self {
        let utc = Epoch::from_unix_duration(nanos * Unit::Nanosecond);
        let since = utc.to_time_scale(TimeScale::TAI) - unix_reference();
        Self(saturating(since))
    }

    /// POSIX time in nanoseconds: UTC without its leap seconds.
    #[must_use]
    pub fn unix_nanos(self) -> i64 {
        // The library's inverse conversion applies a new leap second too early by TAI - UTC; its
        // forward conversion is right.
        let early = saturating(self.epoch().to_unix_duration());
        let next = early.saturating_add(1_000_000_000);
        if Self::from_unix_nanos(next) <= self { next } else { early }
    }

    /// The instant as ISO 8601 in UTC with nine decimals and a `Z`.
    #[must_use]
    pub fn to_utc_string(self) -> String {
        let utc = Epoch::from_unix_duration(self.unix_nanos() * Unit::Nanosecond);
        let (y, mo, d, h, mi, s, ns) = utc.to_gregorian_utc();
        format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{ns:09}Z")
    }

    fn epoch(self) -> Epoch {
        unix_reference() + self.0 * Unit::Nanosecond
    }
}

/// 1970-01-01T00:00:00 on the TAI scale.
fn unix_reference() -> Epoch {
    Epoch::from_gregorian_tai(1970, 1, 1, 0, 0, 0, 0)
}

fn saturating(duration: hifitime::Duration) -> i64 {
    let nanos = duration.total_nanoseconds();
    nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

impl FromStr for Tai {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let wrong = || TimeError(text.to_owned());
        // The library iterates over years, and panics at more than nine decimals.
        let digits = text.split(|c: char| !c.is_ascii_digit()).map(str::len);
        if digits.enumerate().any(|(place, count)| count > if place == 0 { 4 } else { 9 }) {
            return Err(wrong());
        }
        let epoch = Epoch::from_gregorian_str(text).map_err(|_| wrong())?;
        let nanos = (epoch.to_time_scale(TimeScale::TAI) - unix_reference()).total_nanoseconds();
        i64::try_from(nanos).map(Self).map_err(|_| wrong())
    }
}

impl fmt::Display for Tai {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_utc_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn tai_is_37_seconds_ahead_of_utc_since_2017() {
        let unix = 1_500_000_000_000_000_000;
        let tai = Tai::from_unix_nanos(unix);
        assert_eq!(tai.nanos() - unix, 37_000_000_000);
        assert_eq!(tai.unix_nanos(), unix);
        assert_eq!(tai.to_utc_string(), "2017-07-14T02:40:00.000000000Z");
        assert_eq!("2017-07-14T02:40:00Z".parse(), Ok(tai));
        assert_eq!("2017-07-14T02:40:37 TAI".parse(), Ok(tai));
    }

    #[test]
    fn the_leap_second_of_2016_is_counted() {
        let before: Tai = "2016-12-31T23:59:59Z".parse().unwrap();
        let after: Tai = "2017-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(after.nanos() - before.nanos(), 2_000_000_000);
        assert_eq!(after.unix_nanos() - before.unix_nanos(), 1_000_000_000);
        assert_eq!(before.to_utc_string(), "2016-12-31T23:59:59.000000000Z");
        for second in 1_483_228_760..1_483_228_840 {
            let unix = second * 1_000_000_000;
            assert_eq!(Tai::from_unix_nanos(unix).unix_nanos(), unix);
        }
    }

    #[test]
    fn bad_text_is_told() {
        let long = "2026-11-21T03:00:00.0000000001Z";
        for text in ["", "yesterday", "99999-01-01T00:00:00Z", "2026-11-21T25:00:00Z", long] {
            assert!(text.parse::<Tai>().is_err(), "{text}");
        }
    }
}
