//! Globs: patterns of names with slashes between their parts, such as loggers.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The most parts of a glob: more than any name has, and few enough to match long foreign texts
/// quickly.
pub const MAX_GLOB_PARTS: usize = 64;

/// A case-sensitive pattern of names with parts separated by slashes.
///
/// | in the pattern | stands for |
/// | --- | --- |
/// | `*` in a part | any characters of that part, or none |
/// | `*` as the last part | one part or more: all that is below |
/// | `**` as a part | any number of parts, also none |
///
/// So `CONTROL/DV11/*` is all that is below `CONTROL/DV11`, at any depth, and not `CONTROL/DV11`
/// itself, which `CONTROL/DV11/**` has, too. `*/Mount` is the `Mount` of every first part, and
/// `**/Mount` every `Mount`.
///
/// ```
/// use helio_logging::Glob;
///
/// let below: Glob = "CONTROL/DV*/*".parse()?;
/// assert!(below.matches("CONTROL/DV11/Mount/Azimuth"));
/// assert!(!below.matches("CONTROL/DV11"));
/// # Ok::<(), helio_logging::GlobError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Glob {
    text: String,
    parts: Vec<Part>,
}

/// An invalid glob.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GlobError {
    /// The glob is empty.
    #[error("an empty pattern matches nothing; write * for everything")]
    Empty,
    /// The glob has more parts than [`MAX_GLOB_PARTS`].
    #[error("the pattern has {0} parts, the limit is {MAX_GLOB_PARTS}")]
    Parts(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    /// Any number of parts.
    Any,
    /// One part: the pieces between its stars.
    One(Vec<String>),
}

impl Glob {
    /// The glob's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a name matches. An empty name matches no pattern.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        !name.is_empty() && self.matches_parts(name)
    }

    /// The leading parts without a star, at most `parts`, with their slashes. All matching names
    /// begin with them.
    pub(super) fn beginning(&self, parts: usize) -> String {
        let literal = |part: &Part| match part {
            Part::One(pieces) if pieces.len() == 1 => pieces.first().cloned(),
            Part::One(_) | Part::Any => None,
        };
        self.parts.iter().take(parts).map_while(literal).collect::<Vec<_>>().join("/")
    }

    /// After a `**` the parts up to the next `**` are searched from the left. The leftmost match
    /// suffices for all later parts.
    fn matches_parts(&self, name: &str) -> bool {
        let mut parts = self.parts.as_slice();
        let mut rest = Some(name);
        // The position to retry from, if the parts after the last `**` do not match here.
        let mut again: Option<(&[Part], &str)> = None;
        loop {
            match (parts, rest) {
                ([], None) => return true,
                ([Part::Any], _) => return true,
                ([Part::Any, behind @ ..], _) => {
                    parts = behind;
                    again = rest.map(|rest| (behind, rest));
                    continue;
                }
                ([Part::One(pieces), behind @ ..], Some(text)) => {
                    let (part, after) = split(text);
                    if holds(pieces, part) {
                        (parts, rest) = (behind, after);
                        continue;
                    }
                }
                _ => {}
            }
            let Some((behind, text)) = again else { return false };
            let Some(next) = split(text).1 else { return false };
            (parts, rest, again) = (behind, Some(next), Some((behind, next)));
        }
    }
}

/// Splits the first part from a name.
fn split(name: &str) -> (&str, Option<&str>) {
    name.split_once('/').map_or((name, None), |(part, after)| (part, Some(after)))
}

/// Whether a part contains these pieces in order, the first at its start and the last at its end.
fn holds(pieces: &[String], part: &str) -> bool {
    let [first, middle @ .., last] = pieces else {
        return pieces.first().is_some_and(|only| only == part);
    };
    let Some(mut rest) = part.strip_prefix(first.as_str()) else { return false };
    for piece in middle {
        let Some(at) = rest.find(piece.as_str()) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last.as_str())
}

impl FromStr for Glob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        let count = text.split('/').count();
        if text.is_empty() {
            return Err(GlobError::Empty);
        }
        if count > MAX_GLOB_PARTS {
            return Err(GlobError::Parts(count));
        }
        let part = |part: &str| match part {
            "**" => Part::Any,
            part => Part::One(part.split('*').map(str::to_owned).collect()),
        };
        let mut parts: Vec<_> = text.split('/').map(part).collect();
        if text == "*" || text.ends_with("/*") {
            parts.push(Part::Any);
        }
        Ok(Self { text: text.to_owned(), parts })
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(glob: &str, name: &str) -> bool {
        glob.parse::<Glob>().unwrap().matches(name)
    }

    #[test]
    fn stars_stand_for_what_is_written_above() {
        let below = "CONTROL/DV11/Mount/Azimuth";
        for glob in [
            "*",
            "**",
            "CONTROL/*",
            "CONTROL/DV11/*",
            "CONTROL/**",
            "CONTROL/**/Azimuth",
            "**/Azimuth",
            "**/DV11/**",
            "*/*/*/*",
            "C*L/D*1*/Mo*t/*z*m*",
            below,
            "CONTROL/DV11/Mount/Azimuth/**",
            "CONTROL/**/**/Azimuth",
        ] {
            assert!(matches(glob, below), "{glob}");
        }
        for glob in [
            "CONTROL",
            "CONTROL/DV11",
            "CONTROL/DV11/*/Mount",
            "control/*",
            "*/Azimuth",
            "**/Mount",
            "CONTROL/DV11/Mount/Azimuth/*",
            "CONTROL/DV11/Mount/Azimuth/Motor",
            "C*C*/**",
        ] {
            assert!(!matches(glob, below), "{glob}");
        }
        assert!(matches("CONTROL/**", "CONTROL") && !matches("CONTROL/*", "CONTROL"));
        assert!(matches("dv*", "dv11-abm") && !matches("dv*", "dv11/abm"));
        assert!(!matches("aa*a", "aa") && matches("aa*a", "aaa"));
        assert!(!matches("*", "") && !matches("**", ""));
    }

    #[test]
    fn patterns_have_limits() {
        assert_eq!("".parse::<Glob>(), Err(GlobError::Empty));
        let long = "a/".repeat(MAX_GLOB_PARTS);
        assert_eq!(long.parse::<Glob>(), Err(GlobError::Parts(MAX_GLOB_PARTS + 1)));
    }

    /// The table above, tried in every way.
    fn slowly(glob: &[&str], name: &[&str]) -> bool {
        match (glob, name) {
            ([], []) => true,
            (["**", rest @ ..], _) => (0..=name.len()).any(|skip| slowly(rest, &name[skip..])),
            (["*"], [_, ..]) => true,
            ([part, rest @ ..], [first, names @ ..]) => {
                let (part, first): (Vec<_>, Vec<_>) =
                    (part.chars().collect(), first.chars().collect());
                slowly_part(&part, &first) && slowly(rest, names)
            }
            _ => false,
        }
    }

    fn slowly_part(glob: &[char], part: &[char]) -> bool {
        match (glob, part) {
            ([], []) => true,
            (['*', rest @ ..], _) => (0..=part.len()).any(|skip| slowly_part(rest, &part[skip..])),
            ([c, rest @ ..], [first, others @ ..]) => c == first && slowly_part(rest, others),
            _ => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn one_way_finds_what_all_ways_find(glob in "[ab*/]{1,8}", name in "[ab/]{1,8}") {
            let parts: Vec<_> = glob.split('/').collect();
            let names: Vec<_> = name.split('/').collect();
            prop_assert_eq!(matches(&glob, &name), slowly(&parts, &names));
        }
    }
}
