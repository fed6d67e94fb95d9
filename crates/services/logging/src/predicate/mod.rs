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
//! `index_terms` decides about many records by an index of their terms.

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
/// The deepest nesting of parentheses and negations, as parsing is recursive.
const MAX_NESTING: usize = 32;
/// The most words of a phrase: each word of a message may be compared with all of them.
const MAX_PHRASE_WORDS: usize = 64;
/// The most regular expressions of a predicate, as each takes memory.
const MAX_REGEXES: usize = 16;

/// A condition on records: `level >= WARNING and logger = CONTROL/DV11/* and not "lost lock"`.
///
/// The grammar is in `docs/logging.md`. A predicate is displayed as a text that parses to the same
/// predicate. The default is the empty one, which every record matches.
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

/// An error in a predicate's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredicateError {
    /// The position of the error: the character, from 1. The end is one after the last character.
    pub column: usize,
    /// The expected input.
    pub expected: String,
    /// The beginning of the actual input; empty at the end.
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
    /// The conjunction of both predicates.
    ///
    /// # Errors
    /// [`PredicateError`] if the conjunction is longer or deeper than a predicate may be.
    pub fn and(&self, other: &Self) -> Result<Self, PredicateError> {
        match (self == &Self::default(), other == &Self::default()) {
            (true, _) => Ok(other.clone()),
            (_, true) => Ok(self.clone()),
            _ => format!("({self}) and ({other})").parse(),
        }
    }
}

/// The name of a field in predicates: `antenna`, `data.axis`, `args.0`.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldName(Field);

impl FieldName {
    /// The record's value as a text; none if absent. Of several audiences, or data pairs of one
    /// name, the first.
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
