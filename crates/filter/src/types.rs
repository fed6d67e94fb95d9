//! Types of expressions, their common types and literals.

use std::fmt;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, StringArray,
    new_null_array,
};
use arrow_schema::DataType;

/// The type of an expression; columns of other Arrow types can be selected, but not computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// `BOOLEAN`
    Bool,
    /// `INT`, 32 bits
    Int32,
    /// `BIGINT`, 64 bits
    Int64,
    /// `REAL`, 32 bits
    Float32,
    /// `DOUBLE`, 64 bits
    Float64,
    /// Text in UTF-8
    Utf8,
}

impl Type {
    /// The type of an Arrow column, if expressions can use it.
    #[must_use]
    pub fn of(arrow: &DataType) -> Option<Self> {
        Some(match arrow {
            DataType::Boolean => Self::Bool,
            DataType::Int32 => Self::Int32,
            DataType::Int64 => Self::Int64,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Utf8 => Self::Utf8,
            _ => return None,
        })
    }

    /// The Arrow type of a column of this type.
    #[must_use]
    pub fn arrow(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Utf8 => DataType::Utf8,
        }
    }

    pub(crate) fn is_number(self) -> bool {
        !matches!(self, Self::Bool | Self::Utf8)
    }

    pub(crate) fn is_integer(self) -> bool {
        matches!(self, Self::Int32 | Self::Int64)
    }

    /// The type in which two values are compared or combined: `DataFusion`'s rule.
    pub(crate) fn common(self, other: Self) -> Option<Self> {
        if self == other {
            return Some(self);
        }
        // By their order: an integer beside a float becomes that float, whatever its width.
        (self.is_number() && other.is_number()).then(|| self.max(other))
    }

    /// The type in which functions such as `sqrt` compute.
    pub(crate) fn to_float(self) -> Self {
        if self == Self::Float32 { self } else { Self::Float64 }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "BOOLEAN",
            Self::Int32 => "INT",
            Self::Int64 => "BIGINT",
            Self::Float32 => "REAL",
            Self::Float64 => "DOUBLE",
            Self::Utf8 => "TEXT",
        })
    }
}

/// A constant. Floats are compared and hashed by their bits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int32(i32),
    Int64(i64),
    Float32(u32),
    Float64(u64),
    Text(Arc<str>),
}

impl Literal {
    pub(crate) fn double(value: f64) -> Self {
        Self::Float64(value.to_bits())
    }

    /// An array of one element.
    pub(crate) fn array(&self, ty: Type) -> ArrayRef {
        match self {
            Self::Null => new_null_array(&ty.arrow(), 1),
            Self::Bool(value) => Arc::new(BooleanArray::from(vec![*value])),
            Self::Int32(value) => Arc::new(Int32Array::from(vec![*value])),
            Self::Int64(value) => Arc::new(Int64Array::from(vec![*value])),
            Self::Float32(bits) => Arc::new(Float32Array::from(vec![f32::from_bits(*bits)])),
            Self::Float64(bits) => Arc::new(Float64Array::from(vec![f64::from_bits(*bits)])),
            Self::Text(text) => Arc::new(StringArray::from(vec![text.as_ref()])),
        }
    }

    /// The first element of an array of a type that expressions have.
    pub(crate) fn first(array: &ArrayRef) -> Self {
        use arrow_array::cast::AsArray;
        use arrow_array::types as t;
        if array.is_null(0) {
            return Self::Null;
        }
        match array.data_type() {
            DataType::Boolean => Self::Bool(array.as_boolean().value(0)),
            DataType::Int32 => Self::Int32(array.as_primitive::<t::Int32Type>().value(0)),
            DataType::Int64 => Self::Int64(array.as_primitive::<t::Int64Type>().value(0)),
            DataType::Float32 => {
                Self::Float32(array.as_primitive::<t::Float32Type>().value(0).to_bits())
            }
            DataType::Float64 => {
                Self::Float64(array.as_primitive::<t::Float64Type>().value(0).to_bits())
            }
            _ => Self::Text(array.as_string::<i32>().value(0).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_types_are_those_of_datafusion() {
        use Type::{Bool, Float32, Float64, Int32, Int64, Utf8};
        assert_eq!(Int32.common(Int64), Some(Int64));
        assert_eq!(Int64.common(Float32), Some(Float32));
        assert_eq!(Float32.common(Float64), Some(Float64));
        assert_eq!(Utf8.common(Utf8), Some(Utf8));
        assert_eq!(Bool.common(Int32), None);
        assert_eq!(Utf8.common(Int32), None);
    }
}
