//! Names of topics, users, filters and lists.

use std::fmt;
use std::str::FromStr;

use helio_bus::{TopicError, TopicSpec};
use thiserror::Error;

/// The longest name of a user, filter or list, so that topics' names have room for it.
pub const MAX_NAME_BYTES: usize = 64;

/// The error of an invalid name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "invalid name {0:?}; use 1 to {MAX_NAME_BYTES} letters, digits, '_', '-' and '.', and begin \
     with a letter or digit"
)]
pub struct NameError(String);

/// Checks the name of a user, filter or list: it becomes part of a topic's name, or of a key.
///
/// # Errors
/// [`NameError`].
pub fn check_name(name: &str) -> Result<(), NameError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let begins = name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    let fits = name.len() <= MAX_NAME_BYTES && name.chars().all(legal);
    if begins && fits { Ok(()) } else { Err(NameError(name.chars().take(80).collect())) }
}

/// A version of a user's filter; its text is `user/name@version`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterId {
    /// The user.
    pub user: String,
    /// The filter's name, unique for the user.
    pub name: String,
    /// The version, from 1.
    pub version: u32,
}

impl FilterId {
    /// The filter's name and version, as results carry them: `name@version`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// The version of a user's filter with a [label](Self::label).
    ///
    /// # Errors
    /// [`NameError`].
    pub fn of_label(user: &str, label: &str) -> Result<Self, NameError> {
        format!("{user}/{label}").parse()
    }
}

impl fmt::Display for FilterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.user, self.name, self.version)
    }
}

impl FromStr for FilterId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = || NameError(text.chars().take(80).collect());
        let (user, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (name, version) = rest.rsplit_once('@').ok_or_else(wrong)?;
        check_name(user)?;
        check_name(name)?;
        let version = version.parse().map_err(|_| wrong())?;
        Ok(Self { user: user.to_owned(), name: name.to_owned(), version })
    }
}

/// The names of the service's topics beside a topic of alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics {
    alerts: String,
}

impl Topics {
    /// Those beside a topic of alerts.
    #[must_use]
    pub fn of(alerts: &str) -> Self {
        Self { alerts: alerts.to_owned() }
    }

    /// The alerts.
    #[must_use]
    pub fn alerts(&self) -> &str {
        &self.alerts
    }

    /// Filters' versions, activations and reports, compacted.
    #[must_use]
    pub fn filters(&self) -> String {
        format!("{}/filters", self.alerts)
    }

    /// Watch lists and regions, compacted.
    #[must_use]
    pub fn lists(&self) -> String {
        format!("{}/lists", self.alerts)
    }

    /// The log that decides: active filters, claims and partials of each visit.
    #[must_use]
    pub fn decisions(&self) -> String {
        format!("{}/decisions", self.alerts)
    }

    /// A visit's statistics, by visit.
    #[must_use]
    pub fn summaries(&self) -> String {
        format!("{}/decisions/summaries", self.alerts)
    }

    /// The publisher's lease, and its checkpoint.
    #[must_use]
    pub fn publisher(&self) -> String {
        format!("{}/decisions/publisher", self.alerts)
    }

    /// A user's results.
    #[must_use]
    pub fn results(&self, user: &str) -> String {
        format!("{}/results/{user}", self.alerts)
    }
}

pub(crate) fn spec(name: &str) -> Result<TopicSpec, TopicError> {
    TopicSpec::new(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_topics() {
        let id = FilterId { user: "a.b".into(), name: "snr-10".into(), version: 3 };
        assert_eq!(id.to_string(), "a.b/snr-10@3");
        assert_eq!(id.to_string().parse(), Ok(id.clone()));
        assert_eq!(FilterId::of_label("a.b", &id.label()), Ok(id));
        for wrong in ["", ".a", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
        assert!("a/b@x".parse::<FilterId>().is_err() && "ab@1".parse::<FilterId>().is_err());
    }
}
