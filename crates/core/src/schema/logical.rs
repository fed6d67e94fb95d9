//! Avro's logical types.

use std::fmt;

use serde_json::{Map, Value as Json};

use super::ndarray::{DType, NdArray, Reads};
use super::{Node, Type};

/// A logical type that is valid on its base type; others stay plain attributes, as Avro requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogicalType {
    /// A decimal number: the two's-complement unscaled value, big-endian, in `bytes` or `fixed`.
    Decimal {
        /// Number of digits, at least 1.
        precision: u32,
        /// Number of digits after the point, at most `precision`.
        scale: u32,
    },
    /// A UUID as text, or as 16 bytes.
    Uuid,
    /// Days since 1970-01-01.
    Date,
    /// Milliseconds since midnight.
    TimeMillis,
    /// Microseconds since midnight.
    TimeMicros,
    /// Milliseconds since 1970-01-01T00:00:00Z.
    TimestampMillis,
    /// Microseconds since 1970-01-01T00:00:00Z.
    TimestampMicros,
    /// Nanoseconds since 1970-01-01T00:00:00Z (Avro 1.12).
    TimestampNanos,
    /// Milliseconds since 1970-01-01T00:00:00 in an unnamed local zone.
    LocalTimestampMillis,
    /// Microseconds since 1970-01-01T00:00:00 in an unnamed local zone.
    LocalTimestampMicros,
    /// Nanoseconds since 1970-01-01T00:00:00 in an unnamed local zone (Avro 1.12).
    LocalTimestampNanos,
    /// Months, days and milliseconds as three little-endian 32-bit numbers in a `fixed` of 12
    /// bytes.
    Duration,
    /// An integer of another range than its base type's: `int8`, `uint8`, `int16`, `uint16` in an
    /// `int`, `uint32` in a `long`; `uint64` is the `long` of the same 64 bits.
    Integer(DType),
    /// An n-dimensional array of raw elements in `bytes`.
    NdArray(NdArray),
}

impl fmt::Display for LogicalType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(dtype) => write!(f, "{dtype}"),
            Self::NdArray(array) => write!(f, "ndarray {array}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Returns the logical type that `attributes` name, if it is valid on `base`.
pub(super) fn logical(base: &Type, attributes: &Map<String, Json>) -> Option<LogicalType> {
    use LogicalType as L;
    let name = attributes.get("logicalType")?.as_str()?;
    Some(match (name, base) {
        ("decimal", Type::Bytes | Type::Fixed(_)) => return decimal(attributes),
        ("uuid", Type::String) => L::Uuid,
        ("uuid", Type::Fixed(fixed)) if fixed.size == 16 => L::Uuid,
        ("date", Type::Int) => L::Date,
        ("time-millis", Type::Int) => L::TimeMillis,
        ("time-micros", Type::Long) => L::TimeMicros,
        ("timestamp-millis", Type::Long) => L::TimestampMillis,
        ("timestamp-micros", Type::Long) => L::TimestampMicros,
        ("timestamp-nanos", Type::Long) => L::TimestampNanos,
        ("local-timestamp-millis", Type::Long) => L::LocalTimestampMillis,
        ("local-timestamp-micros", Type::Long) => L::LocalTimestampMicros,
        ("local-timestamp-nanos", Type::Long) => L::LocalTimestampNanos,
        ("duration", Type::Fixed(fixed)) if fixed.size == 12 => L::Duration,
        ("int8" | "uint8" | "int16" | "uint16", Type::Int) | ("uint32" | "uint64", Type::Long) => {
            L::Integer(DType::from_name(name)?)
        }
        ("ndarray", Type::Bytes) => {
            L::NdArray(NdArray::from_json(attributes.get("dtype")?, attributes.get("shape")?)?)
        }
        _ => return None,
    })
}

impl Node {
    /// Returns the range of an integer: its base type's, or its logical type's.
    pub(crate) fn integer(&self) -> Option<DType> {
        match (&self.kind, self.logical) {
            (Type::Int | Type::Long, Some(LogicalType::Integer(dtype))) => Some(dtype),
            (Type::Int, _) => Some(DType::Int32),
            (Type::Long, _) => Some(DType::Int64),
            _ => None,
        }
    }

    /// Returns which of this writer's values a reader's type has, if one of the two is an integer
    /// of another range or an array of raw elements.
    pub(crate) fn reads_as(&self, reader: &Self) -> Option<Reads> {
        use LogicalType as L;
        match (self.logical, reader.logical) {
            // The branches are compared by themselves.
            _ if [self, reader].iter().any(|node| matches!(node.kind, Type::Union(_))) => None,
            (Some(L::NdArray(from)), Some(L::NdArray(to))) => Some(from.reads_as(&to)),
            (Some(L::NdArray(_)), _) if reader.kind == Type::Bytes => Some(Reads::Always),
            (_, Some(L::NdArray(_))) if self.kind == Type::Bytes => Some(Reads::Sometimes),
            (Some(L::NdArray(_)), _) | (_, Some(L::NdArray(_))) => Some(Reads::Never),
            (Some(L::Integer(from)), to) => match (reader.integer(), to) {
                (Some(to), None | Some(L::Integer(_))) => Some(integers(from, to)),
                _ => None,
            },
            (None, Some(L::Integer(to))) => self.integer().map(|from| integers(from, to)),
            _ => None,
        }
    }

    /// Returns the type's name in messages: the logical one where it decides on compatibility.
    pub(crate) fn title(&self) -> String {
        match self.logical {
            Some(logical @ (LogicalType::Integer(_) | LogicalType::NdArray(_))) => {
                logical.to_string()
            }
            _ => self.kind.to_string(),
        }
    }
}

fn integers(from: DType, to: DType) -> Reads {
    let (Some((least, most)), Some((low, high))) = (from.range(), to.range()) else {
        return Reads::Never;
    };
    if low <= least && most <= high { Reads::Always } else { Reads::Sometimes }
}

fn decimal(attributes: &Map<String, Json>) -> Option<LogicalType> {
    let number = |key| attributes.get(key).map(|n| n.as_u64().and_then(|n| u32::try_from(n).ok()));
    let precision = number("precision")??;
    let scale = number("scale").unwrap_or(Some(0))?;
    (precision > 0 && scale <= precision).then_some(LogicalType::Decimal { precision, scale })
}
