//! Confluent's schema registry: the bytes before a datum, and the compatibility levels. No client:
//! nothing here contacts a registry.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::resolve::{Resolution, ResolveOptions, UnitsPolicy};
use crate::schema::Schema;

/// The bytes before a framed datum: a zero, and the schema's number, big-endian.
pub const FRAME_BYTES: usize = 5;

/// Writes a payload behind its schema's number; replaces the contents of `into`.
pub fn frame(number: u32, payload: &[u8], into: &mut Vec<u8>) {
    into.clear();
    into.reserve(FRAME_BYTES + payload.len());
    into.push(0);
    into.extend_from_slice(&number.to_be_bytes());
    into.extend_from_slice(payload);
}

/// Returns the schema's number and the datum of a framed payload; `None` if it is not framed.
#[must_use]
pub fn unframe(payload: &[u8]) -> Option<(u32, &[u8])> {
    let (frame, datum) = payload.split_first_chunk::<FRAME_BYTES>()?;
    let [0, number @ ..] = frame else { return None };
    Some((u32::from_be_bytes(*number), datum))
}

/// Compatibility level of a subject, in the registry's terms: which schemas may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compatibility {
    /// All.
    None,
    /// Those that can read data of the newest.
    Backward,
    /// Those that can read data of all.
    BackwardTransitive,
    /// Those whose data the newest can read.
    Forward,
    /// Those whose data all can read.
    ForwardTransitive,
    /// Both, of the newest.
    Full,
    /// Both, of all.
    FullTransitive,
}

/// An unknown level.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "unknown compatibility level {0:?}; there are NONE, BACKWARD, FORWARD, FULL, and the last \
     three with _TRANSITIVE"
)]
pub struct CompatibilityError(String);

impl Compatibility {
    /// All levels.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Backward,
        Self::BackwardTransitive,
        Self::Forward,
        Self::ForwardTransitive,
        Self::Full,
        Self::FullTransitive,
    ];

    /// Returns the registry's term, as [`FromStr`] reads it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Backward => "BACKWARD",
            Self::BackwardTransitive => "BACKWARD_TRANSITIVE",
            Self::Forward => "FORWARD",
            Self::ForwardTransitive => "FORWARD_TRANSITIVE",
            Self::Full => "FULL",
            Self::FullTransitive => "FULL_TRANSITIVE",
        }
    }

    /// Returns why a schema may not follow others, oldest first; `None` if it may. The rules are
    /// [`Resolution`]'s: Avro's, and fixed array lengths.
    #[must_use]
    pub fn objections(self, old: &[Schema], new: &Schema) -> Vec<String> {
        let newest = old.len().saturating_sub(1);
        let held = match self {
            Self::None => &[],
            Self::Backward | Self::Forward | Self::Full => &old[newest..],
            _ => old,
        };
        let backward = !matches!(self, Self::Forward | Self::ForwardTransitive);
        let forward = !matches!(self, Self::Backward | Self::BackwardTransitive);
        let options = ResolveOptions { units: UnitsPolicy::Report };
        let mut objections = Vec::new();
        for old in held {
            if let Some(error) =
                Resolution::with_options(old, new, options).err().filter(|_| backward)
            {
                objections
                    .push(format!("the new schema cannot read what an old one wrote: {error}"));
            }
            if let Some(error) =
                Resolution::with_options(new, old, options).err().filter(|_| forward)
            {
                objections
                    .push(format!("an old schema could not read what the new one writes: {error}"));
            }
        }
        objections
    }
}

impl fmt::Display for Compatibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compatibility {
    type Err = CompatibilityError;

    fn from_str(text: &str) -> Result<Self, CompatibilityError> {
        let found = Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| CompatibilityError(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::build::{TypeSpec, double, int, record};

    #[test]
    fn a_frame_is_a_zero_and_the_number() {
        let mut framed = vec![9];
        frame(900, b"datum", &mut framed);
        assert_eq!(framed, b"\0\0\0\x03\x84datum");
        assert_eq!(unframe(&framed), Some((900, &b"datum"[..])));
        assert_eq!(unframe(&framed[..5]), Some((900, &b""[..])));
        assert_eq!((unframe(&framed[..4]), unframe(b"\x01\0\0\0\x01")), (None, None));
    }

    #[test]
    fn words_are_read_in_either_case() {
        for level in Compatibility::ALL {
            assert_eq!(level.name().to_lowercase().parse(), Ok(level));
        }
        assert!("BOTH".parse::<Compatibility>().unwrap_err().to_string().contains("_TRANSITIVE"));
    }

    #[test]
    fn levels_look_one_way_or_both_at_the_newest_or_all() {
        let of = |kind: TypeSpec| record("W").field("a", kind).default(0).schema().unwrap();
        // Doubles read integers; integers do not read doubles.
        let (narrow, wide) = (of(int()), of(double()));
        let refused = |level: Compatibility, old: &[&Schema], new: &Schema| {
            let old: Vec<_> = old.iter().map(|schema| (*schema).clone()).collect();
            !level.objections(&old, new).is_empty()
        };
        use Compatibility::{
            Backward, BackwardTransitive, Forward, ForwardTransitive, Full, FullTransitive, None,
        };
        for level in Compatibility::ALL {
            assert!(!refused(level, &[], &wide), "{level}");
            let widens = matches!(level, Forward | ForwardTransitive | Full | FullTransitive);
            assert_eq!(refused(level, &[&narrow], &wide), widens, "{level}");
            let narrows = matches!(level, Backward | BackwardTransitive | Full | FullTransitive);
            assert_eq!(refused(level, &[&wide], &narrow), narrows, "{level}");
            let all = matches!(level, BackwardTransitive | FullTransitive);
            assert_eq!(refused(level, &[&wide, &narrow], &narrow), all, "{level}");
        }
        assert_eq!(None.to_string(), "NONE");
    }
}
