//! Arithmetic on instants and durations; instants are arguments.

use std::time::Duration;

use helio_core::Tai;

/// The instant after an interval, saturating.
pub(super) fn after(instant: Tai, span: Duration) -> Tai {
    Tai::from_nanos(instant.nanos().saturating_add(whole_nanos(span)))
}

/// An interval in nanoseconds, saturating.
pub(super) fn whole_nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// The instant after a number of seconds; invalid numbers count as 0.
pub(super) fn after_seconds(instant: Tai, seconds: f64) -> Tai {
    // The conversion saturates, and converts NaN to 0.
    Tai::from_nanos(instant.nanos().saturating_add((seconds.max(0.0) * 1e9) as i64))
}

/// Nanoseconds from one instant to another; negative if the second is earlier.
pub(super) fn nanos(from: Tai, to: Tai) -> i64 {
    to.nanos().saturating_sub(from.nanos())
}

/// Seconds from one instant to another; negative if the second is earlier.
pub(super) fn seconds(from: Tai, to: Tai) -> f64 {
    nanos(from, to) as f64 * 1e-9
}

/// An interval for people, such as `120 ms` or `2.5 s`.
pub(super) fn readable(nanos: i64) -> String {
    let seconds = nanos as f64 * 1e-9;
    match seconds {
        s if s >= 1.0 => format!("{} s", (s * 10.0).round() / 10.0),
        s if s >= 0.01 => format!("{} ms", (s * 1e3).round()),
        s => format!("{} ms", (s * 1e5).round() / 1e2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_readable() {
        let texts = [2_500_000_000, 10_000_000_000, 120_400_000, 1_250_000, 0].map(readable);
        assert_eq!(texts, ["2.5 s", "10 s", "120 ms", "1.25 ms", "0 ms"]);
    }

    #[test]
    fn instants_do_not_overflow() {
        let now = Tai::from_nanos(i64::MAX - 1);
        assert_eq!(after(now, Duration::MAX).nanos(), i64::MAX);
        assert_eq!(after_seconds(now, f64::INFINITY).nanos(), i64::MAX);
        assert_eq!(after_seconds(now, f64::NAN), now);
        assert_eq!(nanos(Tai::from_nanos(i64::MIN), now), i64::MAX);
    }
}
