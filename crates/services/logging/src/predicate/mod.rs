//! Predicates that select records: one grammar for the command line, programs and pages.
//!
//! Constraints. A foreign text gives a predicate or an error with its position and cause, never a
//! panic. Its cost in time and memory has named limits. Fields at fixed positions are tested first,
//! whatever the order of the text; a body is decoded only if they do not decide. There is no clock:
//! the caller supplies the time for `-15m` and `now`.
//!
//! Operation. `parse` converts a text to a tree ([`Predicate`]), `tree` converts it back. `select`
//! inserts views and the present time and moves negations to the leaves ([`Selector`]).
//! `field_access` reads the fields of a record, as a value or in its packet; `compare` tests them.
//! `index_terms` tells what can be known of many records without reading them.

mod compare;
mod field_access;
mod glob;
mod index_terms;
mod parse;
mod select;
#[cfg(test)]
mod tests;
mod tree;
mod views;
mod words;

use std::fmt;
use std::str::FromStr;

pub use glob::{Glob, GlobError, MAX_GLOB_PARTS};
pub use index_terms::{IndexTerm, IndexTermKind, Outline, index_terms};
pub use select::{CompileError, Selected, Selector};
pub use views::Views;
pub use words::words;

use field_access::shown;
pub(crate) use parse::span;
use tree::{Expression, Field};

use crate::record::Record;

/// The most bytes of a predicate: a page of text.
pub const MAX_PREDICATE_BYTES: usize = 4_096;
/// How deep parentheses and negations may lie in each other: reading goes as deep as they do.
const MAX_NESTING: usize = 32;
/// The most words of a phrase: each word of a message may be held against all of them.
const MAX_PHRASE_WORDS: usize = 64;
/// The most regular expressions of a predicate: each has memory of its own.
const MAX_REGEXES: usize = 16;

/// What is asked of records: `level >= WARNING and logger = CONTROL/DV11/* and not "lost lock"`.
///
/// The grammar is in `docs/logging.md`. It is written as a text that is read as the same predicate;
/// the default is the empty one, which every record matches.
///
/// ```
/// use helio_core::Tai;
/// use helio_logging::{Level, Predicate, Record, Views};
///
/// let predicate: Predicate = "level>=warning logger=CONTROL/* (mount or dome)".parse()?;
/// assert_eq!(
///     predicate.to_string(),
///     "level >= WARNING and logger = CONTROL/* and (mount or dome)"
/// );
/// let now = "2026-11-21T03:00:00Z".parse()?;
/// let selector = predicate.compile(now, &Views::default())?;
/// let record = Record::new(now, Level::ERROR, "CONTROL/DV11", "Mount is off");
/// assert!(selector.matches(&record));
///
/// let error = "level >= LOUD".parse::<Predicate>().unwrap_err();
/// assert_eq!((error.column, error.found.as_str()), (10, "LOUD"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate(Expression);

/// A text that is no predicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredicateError {
    /// Where it is wrong: the character, from 1; one behind the last one is the end.
    pub column: usize,
    /// What was expected there.
    pub expected: String,
    /// The beginning of what is there; empty at the end.
    pub found: String,
}

impl fmt::Display for PredicateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, expected, found } = self;
        write!(f, "column {column}: expected {expected}; found ")?;
        if found.is_empty() { f.write_str("the end") } else { write!(f, "{found:?}") }
    }
}

impl std::error::Error for PredicateError {}

impl Predicate {
    /// What matches both.
    ///
    /// # Errors
    /// [`PredicateError`] where they are longer, or deeper, together than a predicate may be.
    pub fn and(&self, other: &Self) -> Result<Self, PredicateError> {
        match (self == &Self::default(), other == &Self::default()) {
            (true, _) => Ok(other.clone()),
            (_, true) => Ok(self.clone()),
            _ => format!("({self}) and ({other})").parse(),
        }
    }
}

/// The name of a field, as predicates have it: `antenna`, `data.axis`, `args.0`.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldName(Field);

impl FieldName {
    /// What a record has there, as it is shown; none where it has nothing. Of several audiences,
    /// or data of one name, it is the first.
    #[must_use]
    pub fn shown(&self, record: &Record) -> Option<String> {
        shown(&self.0, record).filter(|text| !text.is_empty())
    }
}

impl FromStr for FieldName {
    type Err = PredicateError;

    fn from_str(text: &str) -> Result<Self, PredicateError> {
        parse::field(text).map(Self)
    }
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Default for Predicate {
    fn default() -> Self {
        Self(Expression::All(Vec::new()))
    }
}

impl FromStr for Predicate {
    type Err = PredicateError;

    fn from_str(text: &str) -> Result<Self, PredicateError> {
        parse::parse(text).map(Self)
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
