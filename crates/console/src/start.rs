//! `--from`: where a subscription begins.

use helio_bus::Start;

/// Parses where a subscription begins.
pub fn start(text: &str) -> Result<Start, String> {
    let wrong = || {
        format!(
            "invalid start {text:?}; write latest, earliest, last, last:N, offset:N, \
             offset:PARTITION:N or time:2026-11-21T03:00:00Z"
        )
    };
    let (word, rest) = text.split_once(':').map_or((text, None), |(w, r)| (w, Some(r)));
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    match (word, rest) {
        ("latest", None) => Ok(Start::Latest),
        ("earliest", None) => Ok(Start::Earliest),
        ("last", None) => Ok(Start::Last(1)),
        ("last", Some(n)) => match n.parse() {
            Ok(n @ 1..=Start::MAX_LAST) => Ok(Start::Last(n)),
            Ok(_) => Err(format!("last:{n} is not last:1 to last:{}", Start::MAX_LAST)),
            Err(_) => Err(wrong()),
        },
        ("time", Some(time)) => Ok(Start::Time(time.parse().map_err(|_| wrong())?)),
        ("offset", Some(place)) => {
            let (partition, offset) = place.split_once(':').unwrap_or(("0", place));
            let partition = partition.parse().map_err(|_| wrong())?;
            Ok(Start::Offset { partition, offset: number(offset)? })
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_parsed() {
        assert_eq!(start("last"), Ok(Start::Last(1)));
        assert_eq!(start("last:5"), Ok(Start::Last(5)));
        assert_eq!(start("offset:7"), Ok(Start::Offset { partition: 0, offset: 7 }));
        assert_eq!(start("offset:2:7"), Ok(Start::Offset { partition: 2, offset: 7 }));
        assert!(matches!(start("time:2026-11-21T03:00:00Z"), Ok(Start::Time(_))));
        assert_eq!(start("last:255"), Ok(Start::Last(255)));
        for bad in ["", "first", "last:x", "last:0", "last:256", "offset", "time:noon", "latest:1"]
        {
            assert!(start(bad).is_err(), "{bad}");
        }
    }
}
