//! Samples between Avro's bytes and CDR's, without a value between.
//!
//! Format: OMG DDS-XTypes 1.3, section 7.4. Four bytes of encapsulation say the version and the
//! byte order; then each member at a multiple of its size, at most 8 (XCDR1) or 4 (XCDR2). XCDR2
//! puts the size in front of appendable structs and of collections of anything but numbers, and a
//! flag in front of optional members, where XCDR1 has a parameter's header. Written is XCDR2 (XCDR1
//! for foreign types), little-endian; read are both, in both byte orders.
//!
//! Constraints: nothing is allocated that the bytes do not hold, but defaults of members that an
//! older writer does not have, which have a budget. Any bytes give a sample or an error.

mod decode;
mod encode;
mod wire;

use thiserror::Error;

use crate::codec::WireError;

use super::Integer;

pub(super) use wire::{Input, Output};

/// The most bytes of defaults of one member that is missing.
pub(super) const MAX_DEFAULT_BYTES: usize = 1 << 20;

/// How values lie in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Plain CDR, the first version.
    Xcdr1,
    /// The second version.
    Xcdr2,
}

/// Why a sample cannot be transcoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CdrProblem {
    /// The Avro bytes are no datum of the schema.
    #[error(transparent)]
    Avro(#[from] WireError),
    /// The CDR bytes end before the value does.
    #[error("the CDR ends within a value: truncated, or of another type")]
    Truncated,
    /// Bytes are left after the value.
    #[error("{0} bytes are left after the value: damaged, or of another type")]
    Trailing(usize),
    /// An encapsulation that is not read.
    #[error("the encapsulation {0:#06x} is neither CDR nor CDR2")]
    Encapsulation(u16),
    /// A byte that is no truth value.
    #[error("the byte {0} is no boolean: damaged, or of another type")]
    Boolean(u8),
    /// A text without its end, or no UTF-8.
    #[error("a text is not UTF-8, or has no end: damaged, or of another type")]
    Text,
    /// An enumeration's value that no symbol has.
    #[error("the enumeration has no value {0}")]
    Symbol(u32),
    /// A size that is not that of what it is in front of.
    #[error("a size is not that of what is behind it: damaged, or of another type")]
    Size,
    /// A number that its type does not hold.
    #[error("the number {number} does not fit {}", .kind.word())]
    Range {
        /// The number.
        number: i64,
        /// The type.
        kind: Integer,
    },
    /// An array with another number of elements.
    #[error("{found} elements, but the field's length is {expected}")]
    Length {
        /// The field's length.
        expected: u32,
        /// The array's.
        found: usize,
    },
    /// A text with a NUL within.
    #[error("a text with a NUL within, which IDL's strings cannot have")]
    Nul,
    /// A text longer than its bound.
    #[error("a text of {bytes} bytes, but the field's maxLength is {bound}")]
    Bound {
        /// The text's.
        bytes: usize,
        /// The field's.
        bound: u32,
    },
    /// More than fits a sample of DDS.
    #[error("more than 4 GiB, which no sample of DDS holds")]
    TooLarge,
    /// A member that its writer does not have and for which there is no default.
    #[error("the writer has no such member, and it has no default of at most 1 MiB")]
    Missing,
}

/// A sample could not be transcoded; nothing was appended.
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
