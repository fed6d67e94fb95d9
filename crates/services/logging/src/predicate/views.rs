//! Views: named predicates, one per audience.

use super::Predicate;

/// ACS's views (jlog's `audience` package), which are named after audiences.
const ACS: [(&str, &str); 3] = [
    (
        "Operator",
        "audience = Operator or audience = SciLog \
         or level >= WARNING and not audience = Developer",
    ),
    ("SciLog", "audience = SciLog and level = NOTICE"),
    ("Engineer", ""),
];

/// Named predicates, for the term `view NAME`. Names ignore case.
///
/// The default has ACS's three: `Operator` selects records for operators or the science log, and
/// warnings or worse that are not for developers; `SciLog` selects notices for the science log;
/// `Engineer` selects everything.
///
/// ```
/// use helio_logging::Views;
///
/// let mut views = Views::default();
/// views.define("Night", "view Operator and not logger = TEST/*".parse()?);
/// assert_eq!(views.names().collect::<Vec<_>>(), ["Operator", "SciLog", "Engineer", "Night"]);
/// # Ok::<(), helio_logging::PredicateError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Views(Vec<(String, Predicate)>);

impl Views {
    /// Adds a view, or replaces the one of that name.
    pub fn define(&mut self, name: &str, predicate: Predicate) {
        self.0.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.0.push((name.to_owned(), predicate));
    }

    /// The names, in the order in which they were defined.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The view with a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Predicate> {
        let found = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, predicate)| predicate)
    }
}

impl Default for Views {
    fn default() -> Self {
        let mut views = Self(Vec::new());
        for (name, text) in ACS {
            views.define(name, text.parse().expect("a test reads them"));
        }
        views
    }
}
