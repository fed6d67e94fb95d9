//! ALMA's ACS: reads and writes log entries as XML (`LogEntry` of its `loggingMI.xsd`; XML 1.0,
//! fifth edition).
//!
//! Constraints. The output is well-formed, and ACS's readers find their fields in it. Fields that
//! ACS does not have are attributes that these readers ignore, so a record that is written and read
//! is the same record. Input may be malformed anywhere: the reader reports what and where, and
//! continues. Its cost is proportional to the input.
//!
//! Format: `docs/logging.md`, "ACS XML". The element's name is the level, fields are attributes,
//! the message is CDATA, data are `<Data Name="...">`. Elements are in a document, or follow each
//! other as ACS's `loggingClient` prints them.
//!
//! Operation. [`write`](fn@write) adds an element; a document is [`DOCUMENT_START`], elements, and
//! [`DOCUMENT_END`]. A [`Reader`] takes bytes as they arrive; [`read`](fn@read) takes all at once.
//! `split` finds elements, `read` converts them.
//!
//! One value does not round-trip: a stack without an id and with level 0 or -1, which is how ACS
//! writes that there is none. Our reader preserves line ends; other readers see CR LF as LF, as XML
//! specifies.

mod read;
mod split;
mod write;

use thiserror::Error;

use crate::level::Level;
use crate::packet::MAX_RECORD_BYTES;

pub use read::{Reader, read};
pub use write::{DOCUMENT_END, DOCUMENT_START, write};

/// The largest element that is read, in bytes: six for each byte of a record, as for `&quot;`.
pub const MAX_ELEMENT_BYTES: usize = 6 * MAX_RECORD_BYTES;
/// The most attributes of an element: ACS defines 20, Heliograph 15 more, and sites add their own.
pub const MAX_ATTRIBUTES: usize = 64;

/// The elements of log entries, by the level's number.
const ELEMENTS: [(&str, Level); 10] = [
    ("Trace", Level::TRACE),
    ("Delouse", Level::DELOUSE),
    ("Debug", Level::DEBUG),
    ("Info", Level::INFO),
    ("Notice", Level::NOTICE),
    ("Warning", Level::WARNING),
    ("Error", Level::ERROR),
    ("Critical", Level::CRITICAL),
    ("Alert", Level::ALERT),
    ("Emergency", Level::EMERGENCY),
];
/// Other elements of ACS's programs and schema; their level is in Priority.
const OTHERS: [&str; 5] = ["Archive", "Alarm", "Startup", "Shutdown", "Unknown"];

/// Marks a replaced character: U+241B, the code in hexadecimal digits, a semicolon.
const ESCAPE: char = '\u{241b}';

/// Whether XML 1.0 forbids a character (section 2.2, "Char").
fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// An error in the input, and its position.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("at byte {position}: {problem}")]
pub struct XmlError {
    /// The first byte of the wrong element or text, from 0.
    pub position: u64,
    /// The error.
    pub problem: XmlProblem,
}

/// An error in XML.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum XmlProblem {
    /// Characters between entries.
    #[error("there is text where a log entry is expected: {0}")]
    Text(String),
    /// A document type declaration. It is refused, since entities can expand without bound.
    #[error("document type declarations are refused")]
    Dtd,
    /// A malformed or misplaced tag.
    #[error("the tag {0} cannot be here")]
    Tag(String),
    /// The element is larger than [`MAX_ELEMENT_BYTES`].
    #[error("the element has more than {MAX_ELEMENT_BYTES} bytes")]
    TooLarge,
    /// The element has more attributes than [`MAX_ATTRIBUTES`].
    #[error("the element has more than {MAX_ATTRIBUTES} attributes")]
    Attributes,
    /// The input ends in the element.
    #[error("the input ends within an element")]
    Cut,
    /// The element is not well-formed.
    #[error("the element is not well-formed: {0}")]
    Malformed(String),
    /// A reference to an unknown entity.
    #[error("the entity {0} is none of lt, gt, amp, quot and apos")]
    Entity(String),
    /// The element has no time.
    #[error("<{0}> has no TimeStamp; it is not a log entry")]
    NoTime(String),
    /// The element has an invalid time.
    #[error("invalid TimeStamp {0}; it is like 2026-11-21T03:00:00.123, in UTC")]
    Time(String),
}

#[cfg(test)]
mod tests;
