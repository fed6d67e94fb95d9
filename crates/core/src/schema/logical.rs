//! Avro's logical types.

use serde_json::{Map, Value as Json};

use super::Type;

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
        _ => return None,
    })
}

fn decimal(attributes: &Map<String, Json>) -> Option<LogicalType> {
    let number = |key| attributes.get(key).map(|n| n.as_u64().and_then(|n| u32::try_from(n).ok()));
    let precision = number("precision")??;
    let scale = number("scale").unwrap_or(Some(0))?;
    (precision > 0 && scale <= precision).then_some(LogicalType::Decimal { precision, scale })
}
