//! Errors of checking, planning and running filters.

use std::fmt;

use crate::types::Type;

/// Where in a filter's text something stands, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a filter's text is rejected, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {reason}")]
pub struct CheckError {
    /// The place in the text.
    pub at: Position,
    /// The cause, and the remedy.
    pub reason: Reason,
}

/// Why a filter's text is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The text is no SQL.
    #[error("{0}")]
    Syntax(String),
    /// SQL that is not in the language of filters.
    #[error("{what} is not in the language of filters; {remedy}")]
    NotAllowed {
        /// The clause, operator or expression.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// The schema has no such column.
    #[error("no column {name} in the schema{}", hint(.near.as_deref()))]
    UnknownColumn {
        /// The name as written.
        name: String,
        /// A column of a similar name.
        near: Option<String>,
    },
    /// A column whose type expressions cannot use.
    #[error("{name} is {arrow}: it can be selected, not computed with")]
    Opaque {
        /// The column.
        name: String,
        /// Its Arrow type.
        arrow: String,
    },
    /// A column of history outside of a light-curve function, or a second one within.
    #[error("{name} has many values an alert: {remedy}")]
    History {
        /// The name as written.
        name: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// No such function.
    #[error("no function {name}{}", hint(.near.as_deref()))]
    UnknownFunction {
        /// The name as written.
        name: String,
        /// A function of a similar name.
        near: Option<String>,
    },
    /// A function with other arguments than it takes.
    #[error("write {usage}")]
    Arguments {
        /// The function with its arguments.
        usage: &'static str,
    },
    /// A value of the wrong type.
    #[error("{what} takes {takes}, not {found}; use CAST(… AS …)")]
    Type {
        /// The operator or function.
        what: String,
        /// The type, or the sort of types, that it takes.
        takes: String,
        /// The type that it has.
        found: Type,
    },
    /// Two types without a common one.
    #[error("{left} and {right} have no common type; use CAST(… AS …)")]
    NoCommonType {
        /// The first.
        left: Type,
        /// The second.
        right: Type,
    },
    /// A value that has to be a constant, within bounds.
    #[error("{what}")]
    Constant {
        /// What it has to be.
        what: String,
    },
    /// An expression of constants that fails, such as 1/0.
    #[error("this fails for every alert (division by zero, overflow, or a negative square root)")]
    AlwaysFails,
    /// A name of a region or watch list that is not known.
    #[error("no {kind} {name}{}", hint(.near.as_deref()))]
    UnknownName {
        /// `region` or `watch list`.
        kind: &'static str,
        /// The name as written.
        name: String,
        /// A similar name.
        near: Option<String>,
    },
    /// A limit of the language.
    #[error("{what}: {found}, at most {limit}")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// How many there are, or at least are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
}

impl Reason {
    pub(crate) fn at(self, at: Position) -> CheckError {
        CheckError { at, reason: self }
    }
}

fn hint(near: Option<&str>) -> String {
    near.map(|near| format!("; is it {near}?")).unwrap_or_default()
}

/// The name most similar to a wrong one.
pub(crate) fn nearest<'a>(
    name: &str,
    known: impl Iterator<Item = impl Into<String> + AsRef<str> + 'a>,
) -> Option<String> {
    let lower = name.to_lowercase();
    let score = |other: &str| strsim::jaro_winkler(&lower, &other.to_lowercase());
    let scored = known.map(|other| (score(other.as_ref()), other)).filter(|scored| scored.0 > 0.8);
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other.into())
}

/// Why a batch cannot be filtered. It concerns the batch, never single alerts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The batch lacks a column.
    #[error("the batch has no column {name}; read {needs}")]
    NoColumn {
        /// The column's name.
        name: String,
        /// Which list of the plan names it.
        needs: &'static str,
    },
    /// A column has another type than when the filters were checked.
    #[error("column {name} is {found} in the batch and was {planned} when the filter was checked")]
    ColumnType {
        /// The column's name.
        name: String,
        /// Its type in the batch.
        found: String,
        /// Its type in the catalog.
        planned: String,
    },
    /// More rows than a batch may have, or another number than needed.
    #[error("the batch has {found} rows, {takes}")]
    Rows {
        /// The rows of the batch.
        found: usize,
        /// How many it may or must have.
        takes: String,
    },
    /// A fault of ours: the kernels reject what was type-checked.
    #[error("a kernel rejected a checked expression: {0}")]
    Kernel(#[from] arrow_schema::ArrowError),
}

/// Why a plan cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Too many filters.
    #[error("{found} filters, at most {limit} in a plan; run a second service")]
    TooMany {
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Two filters of one name.
    #[error("two filters are called {0}")]
    Twice(String),
    /// A filter that was checked against another catalog.
    #[error("filter {name} was checked against another schema: {cause}")]
    Stale {
        /// The filter's name.
        name: String,
        /// What its check says now.
        cause: CheckError,
    },
}
