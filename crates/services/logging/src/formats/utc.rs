//! Times in other formats: UTC as ISO 8601 (RFC 3339).

use helio_core::Tai;

const SECOND: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// A calendar time; the second is 60 in a leap second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    pub(crate) month: u32,
    pub(crate) day: u32,
    pub(crate) hour: u32,
    pub(crate) minute: u32,
    pub(crate) second: u32,
    pub(crate) nanos: u32,
}

impl Civil {
    /// Converts a time to UTC.
    pub(crate) fn of(time: Tai) -> Self {
        let unix = time.unix_nanos();
        // In a leap second POSIX time repeats the second before it.
        let leap = time.nanos().saturating_sub(Tai::from_unix_nanos(unix).nanos()) == SECOND;
        let seconds = unix.div_euclid(SECOND);
        let (year, month, day) = date(seconds.div_euclid(DAY_SECONDS));
        let of_day = seconds.rem_euclid(DAY_SECONDS) as u32;
        Self {
            year,
            month,
            day,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60 + u32::from(leap),
            nanos: unix.rem_euclid(SECOND) as u32,
        }
    }

    /// The instant, for a clock that is `offset` seconds ahead of UTC; none for an invalid or
    /// out-of-range time.
    pub(crate) fn to_tai(self, offset: i64) -> Option<Tai> {
        let right = (1..=12).contains(&self.month)
            && (1..=days_of_month(self.year, self.month)).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second <= 60
            && i64::from(self.nanos) < SECOND;
        if !right {
            return None;
        }
        let leap = i64::from(self.second / 60);
        let of_day = i64::from(self.hour * 3600 + self.minute * 60 + self.second) - leap;
        let days = days(self.year, self.month, self.day);
        let seconds = (days * DAY_SECONDS).checked_add(of_day)?.checked_sub(offset)?;
        let unix = seconds.checked_mul(SECOND)?.checked_add(self.nanos.into())?;
        Tai::from_unix_nanos(unix).nanos().checked_add(leap * SECOND).map(Tai::from_nanos)
    }
}

/// The date of a day since 1970-01-01 in the Gregorian calendar: years are counted from March, so
/// that a leap day is a year's last, in cycles of 400 years.
fn date(days: i64) -> (i64, u32, u32) {
    let from_march_0 = days + 719_468;
    let (cycle, day) = (from_march_0.div_euclid(146_097), from_march_0.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (cycle * 400 + year + i64::from(month <= 2), month as u32, of_month as u32)
}

/// The day since 1970-01-01 of a date.
fn days(year: i64, month: u32, day: u32) -> i64 {
    let year = year - i64::from(month <= 2);
    let (cycle, of_cycle) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = i64::from((month + 9) % 12);
    let of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    cycle * 146_097 + of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + of_year - 719_468
}

fn days_of_month(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// The digits of a second's fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Digits {
    /// Milliseconds, truncated.
    Three,
    /// Microseconds, truncated.
    Six,
    /// Nanoseconds.
    Nine,
}

/// Writes a time in UTC like 2026-11-21T03:00:00.123, without a zone.
pub(crate) fn put(into: &mut Vec<u8>, time: Tai, digits: Digits) {
    let civil = Civil::of(time);
    // All times of 64 bits of nanoseconds are of the years 1677 to 2262.
    let mut text = *b"0000-00-00T00:00:00.000000000";
    let parts = [
        (0..4, civil.year as u32),
        (5..7, civil.month),
        (8..10, civil.day),
        (11..13, civil.hour),
        (14..16, civil.minute),
        (17..19, civil.second),
        (20..29, civil.nanos),
    ];
    for (place, mut number) in parts {
        for digit in text[place].iter_mut().rev() {
            *digit += (number % 10) as u8;
            number /= 10;
        }
    }
    let length = match digits {
        Digits::Three => 23,
        Digits::Six => 26,
        Digits::Nine => 29,
    };
    into.extend_from_slice(&text[..length]);
}

/// Reads the output of [`put`], with any number of digits in the fraction and an optional zone.
/// Returns the calendar time and the zone's offset, in seconds ahead of UTC.
pub(crate) fn parse(text: &str) -> Option<(Civil, Option<i64>)> {
    let mut rest = Digit(text.as_bytes());
    let year = rest.number(4)?.into();
    let month = rest.behind(b"-")?.number(2)?;
    let day = rest.behind(b"-")?.number(2)?;
    let hour = rest.behind(b"T t")?.number(2)?;
    let minute = rest.behind(b":")?.number(2)?;
    let second = rest.behind(b":")?.number(2)?;
    let nanos = if rest.behind(b".,").is_some() { rest.fraction()? } else { 0 };
    let civil = Civil { year, month, day, hour, minute, second, nanos };
    let zone = match rest.0 {
        [] => None,
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), zone @ ..] => {
            let mut zone = Digit(zone);
            let hours = zone.number(2)?;
            _ = zone.behind(b":");
            let minutes = zone.number(2)?;
            if hours > 23 || minutes > 59 || !zone.0.is_empty() {
                return None;
            }
            let offset = i64::from(hours * 3600 + minutes * 60);
            Some(if *sign == b'-' { -offset } else { offset })
        }
        _ => return None,
    };
    Some((civil, zone))
}

/// Reads a time in the given zone, by default UTC.
pub(crate) fn parse_utc(text: &str) -> Option<Tai> {
    let (civil, zone) = parse(text)?;
    civil.to_tai(zone.unwrap_or(0))
}

/// Reads digits from the front.
pub(crate) struct Digit<'a>(pub(crate) &'a [u8]);

impl Digit<'_> {
    /// Skips the first byte if it is one of these.
    pub(crate) fn behind(&mut self, these: &[u8]) -> Option<&mut Self> {
        let (first, rest) = self.0.split_first()?;
        these.contains(first).then(|| self.0 = rest)?;
        Some(self)
    }

    /// A number of this many digits.
    pub(crate) fn number(&mut self, count: usize) -> Option<u32> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits.iter().try_fold(0, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0'))
        })
    }

    /// The nanoseconds of a fraction, truncated.
    pub(crate) fn fraction(&mut self) -> Option<u32> {
        let count = self.0.iter().take_while(|digit| digit.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        let nine = digits.iter().copied().chain(std::iter::repeat(b'0')).take(9);
        (count > 0).then(|| nine.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(time: Tai, digits: Digits) -> String {
        let mut bytes = Vec::new();
        put(&mut bytes, time, digits);
        String::from_utf8(bytes).unwrap()
    }

    /// 1973 to 2242: as far as the table of leap seconds has a way back.
    fn times() -> impl Strategy<Value = Tai> {
        (100_000_000 * SECOND..(1_i64 << 33) * SECOND).prop_map(Tai::from_nanos)
    }

    proptest! {
        #[test]
        fn times_come_back_and_are_those_of_the_core(time in times()) {
            let text = written(time, Digits::Nine);
            prop_assert_eq!(parse_utc(&text), Some(time));
            prop_assert_eq!(format!("{text}Z"), time.to_utc_string());
            prop_assert_eq!(&written(time, Digits::Three), &text[..23]);
        }

        #[test]
        fn dates_are_those_of_the_calendar(day in -150_000_i64..150_000) {
            let (year, month, of_month) = date(day);
            prop_assert_eq!(days(year, month, of_month), day);
            prop_assert!((1..=days_of_month(year, month)).contains(&of_month));
        }

        #[test]
        fn no_text_is_too_much(text: String, like in "[0-9]{4}-[0-9]{2}[-0-9T:.Z+ ]{0,30}") {
            for text in [text, like] {
                if let Some((civil, zone)) = parse(&text) {
                    _ = civil.to_tai(zone.unwrap_or(0));
                }
            }
        }
    }

    #[test]
    fn a_leap_second_has_a_60_and_comes_back() {
        let before = parse_utc("2016-12-31T23:59:59.25Z").unwrap();
        let leap = Tai::from_nanos(before.nanos() + SECOND);
        assert_eq!(written(leap, Digits::Three), "2016-12-31T23:59:60.250");
        assert_eq!(parse_utc("2016-12-31T23:59:60.250"), Some(leap));
        let after = parse_utc("2017-01-01T00:00:00.25").unwrap();
        assert_eq!(after.nanos() - leap.nanos(), SECOND);
    }

    #[test]
    fn zones_and_fractions_are_read() {
        let noon = parse_utc("2026-11-22T12:00:00Z");
        assert!(noon.is_some());
        for same in [
            "2026-11-22T12:00:00",
            "2026-11-22t12:00:00.000z",
            "2026-11-22 13:30:00+01:30",
            "2026-11-22T09:00:00,0000000000000-0300",
        ] {
            assert_eq!(parse_utc(same), noon, "{same}");
        }
        for wrong in [
            "2026-11-22",
            "2026-02-29T12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-11-22T24:00:00Z",
            "2026-11-22T12:00:61Z",
            "2026-11-22T12:00:00.Z",
            "2026-11-22T12:00:00+1",
            "2026-11-22T12:00:00+24:00",
            "2026-11-22T12:00:00Zulu",
            "9999-12-31T00:00:00Z",
        ] {
            assert_eq!(parse_utc(wrong), None, "{wrong}");
        }
    }
}
