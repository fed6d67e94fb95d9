//! Ranges of bytes in HTTP requests (RFC 9110, section 14).

use std::ops::Range;

/// The requested part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All of it. Several ranges are answered with all, too, as the RFC allows.
    Whole,
    /// A range that lies in it.
    Part(Range<usize>),
    /// A range behind its end.
    Unsatisfiable,
}

/// Reads the header `Range`, which is ignored if it is malformed, or of another unit.
pub(crate) fn wanted(header: Option<&str>, bytes: usize) -> Wanted {
    let spec = header.and_then(|header| header.trim().strip_prefix("bytes="));
    let Some((first, last)) = spec.and_then(|spec| spec.trim().split_once('-')) else {
        return Wanted::Whole;
    };
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        // A number beyond any file is as good as the largest one.
        is_number.then(|| text.parse().unwrap_or(usize::MAX))
    };
    let range = match (first, last) {
        ("", last) => number(last).map(|count: usize| bytes.saturating_sub(count)..bytes),
        (first, "") => number(first).map(|first| first..bytes),
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => {
                Some(first..last.saturating_add(1).min(bytes))
            }
            _ => None,
        },
    };
    match range {
        None => Wanted::Whole,
        Some(range) if range.start >= bytes || range.is_empty() => Wanted::Unsatisfiable,
        Some(range) => Wanted::Part(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_the_rfc() {
        for (header, expected) in [
            ("bytes=0-499", Wanted::Part(0..499 + 1)),
            ("bytes=500-999", Wanted::Part(500..1_000)),
            ("bytes=-500", Wanted::Part(500..1_000)),
            ("bytes=900-", Wanted::Part(900..1_000)),
            ("bytes=0-0", Wanted::Part(0..1)),
            ("bytes=-1", Wanted::Part(999..1_000)),
            ("bytes=-2000", Wanted::Part(0..1_000)),
            ("bytes=990-99999999999999999999999", Wanted::Part(990..1_000)),
            ("bytes=1000-", Wanted::Unsatisfiable),
            ("bytes=1000-1001", Wanted::Unsatisfiable),
            ("bytes=-0", Wanted::Unsatisfiable),
            ("bytes=5-4", Wanted::Whole),
            ("bytes=0-1,3-4", Wanted::Whole),
            ("bytes=", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("lines=0-1", Wanted::Whole),
        ] {
            assert_eq!(wanted(Some(header), 1_000), expected, "{header}");
        }
        assert_eq!(wanted(None, 1_000), Wanted::Whole);
        assert_eq!(wanted(Some("bytes=0-"), 0), Wanted::Unsatisfiable);
    }
}
