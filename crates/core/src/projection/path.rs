//! Paths to parts of a datum: `diaSource.snr`, `prvDiaSources[].psfFlux`.

use super::ShapeError;

/// The limit of names and `[]` in one path.
const MAX_SEGMENTS: usize = 64;
/// The longest part of a path in an error, in characters.
const SHOWN: usize = 200;

/// One step of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Segment<'a> {
    /// A record's field, or a branch of a union.
    Name(&'a str),
    /// The elements of an array: `[]`.
    Items,
}

/// Splits a path; `*` is the whole datum.
pub(super) fn parse(path: &str) -> Result<Vec<Segment<'_>>, ShapeError> {
    let wrong = || ShapeError::Path { path: path.chars().take(SHOWN).collect() };
    let mut out = Vec::new();
    if path == "*" {
        return Ok(out);
    }
    for part in path.split('.') {
        let (name, marks) = part.split_at(part.find('[').unwrap_or(part.len()));
        let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.is_empty();
        if !is_name || !marks.replace("[]", "").is_empty() || out.len() > MAX_SEGMENTS {
            return Err(wrong());
        }
        out.push(Segment::Name(name));
        out.extend((0..marks.len() / 2).map(|_| Segment::Items));
    }
    if out.len() > MAX_SEGMENTS { Err(wrong()) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_names_and_brackets() {
        use Segment::{Items, Name};
        assert_eq!(parse("a.b[].c"), Ok(vec![Name("a"), Name("b"), Items, Name("c")]));
        assert_eq!(parse("a[][]"), Ok(vec![Name("a"), Items, Items]));
        assert_eq!(parse("*"), Ok(vec![]));
        for wrong in ["", ".", "a.", "a..b", "[]", "a[", "a]", "a[3]", "a[]b", "a[][", "a.[]"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse(&"a.".repeat(100)).is_err() && parse(&"[]".repeat(1 << 20)).is_err());
        assert!(parse(&format!("a{}", "[]".repeat(65))).is_err());
    }
}
