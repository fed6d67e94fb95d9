//! Quantities on the command line: durations and sizes with their units, parsed once.

use std::time::Duration;

/// Parses `30`, `30s`, `250ms`, `5m`, `2h`, `7d`; the default unit is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("invalid duration {text:?}; write 30s, 250ms, 5m or 2h");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(number * scale).map_err(|_| wrong())
}

/// Parses a duration of at least a millisecond.
pub fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_millis(1) => {
            Err(format!("{text:?} is too short; the minimum is 1ms"))
        }
        long => Ok(long),
    }
}

/// Parses `6144`, `6k`, `1M`, `1MiB`: powers of 1,024 with `k`, `M`, `G`, and an optional `iB` or
/// `B`.
pub fn bytes(text: &str) -> Result<usize, String> {
    let wrong = || format!("invalid size {text:?}; write 256, 6k or 1M");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: usize = number.trim().parse().map_err(|_| wrong())?;
    let shift = match unit.trim_end_matches('B').trim_end_matches('i') {
        "" => 0,
        "k" | "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Parses a rate in hertz: finite and above zero.
pub fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(hz) if hz.is_finite() && hz > 0.0 => Ok(hz),
        _ => Err(format!("invalid rate {text:?}; write hertz above zero, such as 20")),
    }
}

/// Formats a number of bytes: `139.1 kB`, `3.2 MB` (powers of 1,000).
pub fn human_bytes(bytes: f64) -> String {
    let (mut value, mut unit) = (bytes, "B");
    for next in ["kB", "MB", "GB", "TB"] {
        if value.abs() < 1000.0 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    if unit == "B" { format!("{value:.0} B") } else { format!("{value:.1} {unit}") }
}

/// Formats a count with thousands separators: `1,234,567`.
pub fn human_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_with_their_units() {
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(bytes("256"), Ok(256));
        assert_eq!(bytes("6k"), Ok(6144));
        assert_eq!(bytes("1MiB"), Ok(1 << 20));
        assert_eq!(interval("1ms"), Ok(Duration::from_millis(1)));
        assert!(interval("999us").is_err());
        assert_eq!(rate("0.5"), Ok(0.5));
        for bad in ["", "-1s", "5 weeks", "inf", "s"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "-1", "1.5k", "5T", "99999999999999999999"] {
            assert!(bytes(bad).is_err(), "{bad:?}");
        }
        for bad in ["0", "-1", "inf", "nan", ""] {
            assert!(rate(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn numbers_are_printed_for_people() {
        assert_eq!(human_count(1), "1");
        assert_eq!(human_count(1_234_567), "1,234,567");
        assert_eq!(human_count(123_456), "123,456");
        assert_eq!(human_bytes(999.0), "999 B");
        assert_eq!(human_bytes(139_056.0), "139.1 kB");
    }
}
