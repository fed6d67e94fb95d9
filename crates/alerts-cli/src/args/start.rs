//! Where a reader starts, as text.

use helio_alerts::reader::Start;

/// Parses where a reader starts.
pub(super) fn start(text: &str) -> Result<Start, String> {
    let wrong = || {
        format!(
            "invalid start {text:?}; write latest, earliest, committed, visit:N, night:2026-11-25, \
             time:2026-11-26T03:00:00Z, alert:ID or checkpoint:NAME"
        )
    };
    let (word, rest) = text.split_once(':').map_or((text, None), |(w, r)| (w, Some(r)));
    match (word, rest) {
        ("latest", None) => Ok(Start::Latest),
        ("earliest", None) => Ok(Start::Earliest),
        ("committed", None) => Ok(Start::Committed),
        ("visit", Some(visit)) => visit.parse().map(Start::Visit).map_err(|_| wrong()),
        ("night", Some(night)) => {
            night.parse().map(Start::Night).map_err(|error| format!("{error}"))
        }
        ("time", Some(time)) => time.parse().map(Start::Time).map_err(|_| wrong()),
        ("alert", Some(id)) => id.parse().map(Start::Alert).map_err(|_| wrong()),
        ("checkpoint", Some(name)) if !name.is_empty() => Ok(Start::Checkpoint(name.to_owned())),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_parsed() {
        assert_eq!(start("latest"), Ok(Start::Latest));
        assert_eq!(start("visit:7"), Ok(Start::Visit(7)));
        assert_eq!(start("alert:-7"), Ok(Start::Alert(-7)));
        assert_eq!(start("checkpoint:a:b"), Ok(Start::Checkpoint("a:b".to_owned())));
        assert!(matches!(start("night:2026-11-25"), Ok(Start::Night(_))));
        assert!(matches!(start("time:2026-11-26T03:00:00Z"), Ok(Start::Time(_))));
        for bad in ["", "visit", "visit:x", "night:tonight", "time:noon", "checkpoint:", "last:1"] {
            assert!(start(bad).is_err(), "{bad}");
        }
    }
}
