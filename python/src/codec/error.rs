//! The path to the disagreement between a value and its schema; built while the error propagates.

use pyo3::prelude::*;

/// One step of the path to a value.
#[derive(Debug)]
enum Step {
    Field(String),
    Index(usize),
    Key(String),
}

/// A value that does not fit its schema, or bytes that are not a datum.
#[derive(Debug)]
pub(crate) struct CodecError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    /// From the innermost step outwards.
    steps: Vec<Step>,
    expected: String,
    found: String,
    cause: Option<PyErr>,
}

impl CodecError {
    /// The schema expects `expected`, but there is `found`.
    pub(crate) fn new(expected: impl Into<String>, found: impl Into<String>) -> Self {
        let inner =
            Inner { steps: vec![], expected: expected.into(), found: found.into(), cause: None };
        Self(Box::new(inner))
    }

    /// A Python value where the schema expects `expected`.
    pub(crate) fn value(expected: impl Into<String>, value: &Bound<'_, PyAny>) -> Self {
        Self::new(expected, describe(value))
    }

    /// An exception that foreign code (a property, a sequence) raised.
    pub(crate) fn raised(expected: impl Into<String>, cause: PyErr) -> Self {
        let mut error = Self::new(expected, cause.to_string());
        error.0.cause = Some(cause);
        error
    }

    pub(crate) fn at_field(mut self, name: &str) -> Self {
        self.0.steps.push(Step::Field(name.to_owned()));
        self
    }

    pub(crate) fn at_index(mut self, index: usize) -> Self {
        self.0.steps.push(Step::Index(index));
        self
    }

    pub(crate) fn at_key(mut self, key: &str) -> Self {
        self.0.steps.push(Step::Key(key.to_owned()));
        self
    }

    /// The path as `field.inner[3]["key"]`.
    fn path(&self) -> String {
        let mut path = String::new();
        for step in self.0.steps.iter().rev() {
            match step {
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => path.extend([".", name]),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Key(key) => path.push_str(&format!("[{key:?}]")),
            }
        }
        path
    }

    /// The Python exception of class `class` (EncodeError or DecodeError) for the schema's name.
    pub(crate) fn into_py(self, py: Python<'_>, class: &Bound<'_, PyAny>, schema: &str) -> PyErr {
        let path = self.path();
        let place =
            if path.is_empty() { schema.to_owned() } else { format!("{schema}: field {path}") };
        let Inner { expected, found, cause, .. } = *self.0;
        let message = format!("{place}: expected {expected}, found {found}");
        match class.call1((message, path, expected, found)) {
            Ok(error) => {
                let error = PyErr::from_value(error);
                error.set_cause(py, cause);
                error
            }
            Err(error) => error,
        }
    }
}

/// The longest part of a value's text that a message shows, in characters.
const SHOWN_MAX_CHARS: usize = 60;

/// A value's class and the beginning of its text.
fn describe(value: &Bound<'_, PyAny>) -> String {
    let class = value.get_type().name().map_or_else(|_| "object".to_owned(), |n| n.to_string());
    let Ok(text) = value.repr().map(|text| text.to_string()) else { return class };
    if value.is_none() {
        return text;
    }
    let short: String = text.chars().take(SHOWN_MAX_CHARS).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{class} {short}{more}")
}
