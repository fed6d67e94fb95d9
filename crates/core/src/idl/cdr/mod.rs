//! Conversion of samples between Avro and CDR, without an intermediate value.
//!
//! Format: OMG DDS-XTypes 1.3, section 7.4. Four bytes of encapsulation give the version and the
//! byte order; then each member is at a multiple of its size, at most 8 (XCDR1) or 4 (XCDR2). XCDR2
//! has a size before appendable structs and before collections of anything but numbers. Before an
//! optional member XCDR2 has a flag, XCDR1 a parameter header. Samples are written as XCDR2 (XCDR1
//! for foreign types), little-endian; both versions are read, in both byte orders.
//!
//! Constraints: allocations are bounded by the input's bytes. The defaults of members that an older
//! writer lacks have a budget. Any bytes give a sample or an error.

mod decode;
mod encode;
mod wire;

use thiserror::Error;

use crate::codec::WireError;

use super::Integer;

pub(super) use wire::{Input, Output};

/// The limit of bytes of a missing member's default.
pub(super) const MAX_DEFAULT_BYTES: usize = 1 << 20;

/// Versions of the encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// XCDR1, plain CDR.
    Xcdr1,
    /// XCDR2.
    Xcdr2,
}

/// The cause of a conversion error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CdrProblem {
    /// The Avro bytes are not a datum of the schema.
    #[error(transparent)]
    Avro(#[from] WireError),
    /// The CDR bytes end before the value does.
    #[error("the CDR ends within a value: truncated, or of another type")]
    Truncated,
    /// Bytes are left after the value.
    #[error("{0} bytes are left after the value: damaged, or of another type")]
    Trailing(usize),
    /// The encapsulation is not supported.
    #[error("the encapsulation {0:#06x} is neither CDR nor CDR2")]
    Encapsulation(u16),
    /// A boolean's byte is neither 0 nor 1.
    #[error("the byte {0} is no boolean: damaged, or of another type")]
    Boolean(u8),
    /// A text has no terminator, or is not UTF-8.
    #[error("a text is not UTF-8, or has no end: damaged, or of another type")]
    Text,
    /// An enumeration's value has no symbol.
    #[error("the enumeration has no value {0}")]
    Symbol(u32),
    /// A size is not that of the value behind it.
    #[error("a size is not that of what is behind it: damaged, or of another type")]
    Size,
    /// A number is outside its type's range.
    #[error("the number {number} does not fit {}", .kind.word())]
    Range {
        /// The number.
        number: i64,
        /// The type.
        kind: Integer,
    },
    /// An array has the wrong number of elements.
    #[error("{found} elements, but the field's length is {expected}")]
    Length {
        /// The field's length.
        expected: u32,
        /// The array's length.
        found: usize,
    },
    /// A text contains a NUL.
    #[error("a text with a NUL within, which IDL's strings cannot have")]
    Nul,
    /// A text is longer than its bound.
    #[error("a text of {bytes} bytes, but the field's maxLength is {bound}")]
    Bound {
        /// The text's length.
        bytes: usize,
        /// The field's bound.
        bound: u32,
    },
    /// The sample is too large for DDS.
    #[error("more than 4 GiB, which no sample of DDS holds")]
    TooLarge,
    /// A missing member has no default.
    #[error("the writer has no such member, and it has no default of at most 1 MiB")]
    Missing,
}

/// A conversion error; nothing was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdrError(Box<(crate::codec::Place, CdrProblem)>);

located!(CdrError, CdrProblem);

impl From<WireError> for CdrError {
    #[cold]
    fn from(error: WireError) -> Self {
        Self::new(error)
    }
}

type Result<T> = std::result::Result<T, CdrError>;
