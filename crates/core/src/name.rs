//! Names of topics and producers: parsed once, at the edge, into valid types.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The limit of a topic's or producer's name in bytes: a file name must have room for it and a
/// suffix.
pub const MAX_NAME_BYTES: usize = 200;

/// The error of an invalid name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// The name is empty, or has an empty segment between two slashes.
    #[error("the name {0:?} has an empty segment; write it like MTMount/command/trackTarget")]
    Empty(String),
    /// The name is longer than [`MAX_NAME_BYTES`].
    #[error("the name has {0} bytes, the limit is {MAX_NAME_BYTES}")]
    TooLong(usize),
    /// A segment has a character outside the allowed set or is `.` or `..`.
    #[error(
        "the name {name:?} has {found:?} in it; letters, digits, '_', '-', '.', ':', '@' and '/' \
         between segments are allowed, and no segment may start with '.'"
    )]
    Character {
        /// The whole name as given.
        name: String,
        /// The first offending character.
        found: char,
    },
}

fn check(name: &str) -> Result<(), NameError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong(name.len()));
    }
    for segment in name.split('/') {
        if segment.is_empty() {
            return Err(NameError::Empty(name.to_owned()));
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || "_-.:@".contains(c);
        let wrong = segment.chars().find(|c| !legal(*c));
        if let Some(found) = wrong.or(segment.starts_with('.').then_some('.')) {
            return Err(NameError::Character { name: name.to_owned(), found });
        }
    }
    Ok(())
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses a name.
            ///
            /// # Errors
            /// [`NameError`] if it is empty, too long or has an illegal character.
            pub fn new(name: &str) -> Result<Self, NameError> {
                check(name)?;
                Ok(Self(name.into()))
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name_type!(
    /// A topic's name: segments of letters, digits, `_`, `-`, `.`, `:`, `@`, separated by `/`, for
    /// example `MTMount/command/trackTarget`.
    TopicName
);
name_type!(
    /// A producer's name, stable over its restarts, for example `MTMount` or `Script:12`.
    ProducerName
);

/// Returns whether a name matches a pattern. `*` matches any characters, also none and `/`.
///
/// ```
/// use helio_core::name::fits;
/// assert!(fits("MTM1M3/*", "MTM1M3/telemetry/forceActuatorData"));
/// assert!(!fits("*/command/*", "MTM1M3/telemetry/forceActuatorData"));
/// ```
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_once() {
        for good in ["a", "MTMount/command/trackTarget", "Script:12", "user@host.site"] {
            assert_eq!(TopicName::new(good).map(|n| n.to_string()).as_deref(), Ok(good));
        }
        for bad in ["", "/a", "a/", "a//b", "a b", "../x", "a/.hidden", "é", "a\0b"] {
            assert!(TopicName::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(TopicName::new(&"x".repeat(201)), Err(NameError::TooLong(201)));
    }

    #[test]
    fn patterns_fit_names() {
        for pattern in ["a/b/c", "*", "a/*", "*/c", "a*b*c", "**", "a/b/c*"] {
            assert!(fits(pattern, "a/b/c"), "{pattern}");
        }
        for pattern in ["", "a", "a/b", "b*", "*b", "a*x*c", "a/b/c/*"] {
            assert!(!fits(pattern, "a/b/c"), "{pattern}");
        }
        assert!(!fits("ab*ba", "aba"), "the ends may not overlap");
    }
}
