//! Values of any schema.

/// A value of any schema. Records hold their fields' values in the schema's order.
///
/// Arrays of numbers have variants of their own: decoding returns [`Value::Floats`] and the like;
/// encoding also accepts [`Value::Array`].
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `boolean`.
    Boolean(bool),
    /// `int`; also accepted for `long`.
    Int(i32),
    /// `long`; of the logical type `uint64` the same 64 bits, which `as u64` gives.
    Long(i64),
    /// `float`; also accepted for `double`.
    Float(f32),
    /// `double`.
    Double(f64),
    /// `bytes` or `fixed`; the little-endian elements of a raw array.
    Bytes(Vec<u8>),
    /// `string`; also accepted for an `enum`'s symbol.
    String(String),
    /// `enum`: the symbol's index.
    Enum(u32),
    /// `array` of any other type.
    Array(Vec<Value>),
    /// `array` of `boolean`.
    Booleans(Vec<bool>),
    /// `array` of `int`; also accepted for `long`.
    Ints(Vec<i32>),
    /// `array` of `long`.
    Longs(Vec<i64>),
    /// `array` of `float`.
    Floats(Vec<f32>),
    /// `array` of `double`.
    Doubles(Vec<f64>),
    /// `map`, in the order of the bytes.
    Map(Vec<(String, Value)>),
    /// `union`: the branch and its value. Encoding also accepts a bare value that matches one
    /// branch.
    Union(u32, Box<Value>),
    /// `record`: the fields' values in order.
    Record(Vec<Value>),
}

impl Value {
    /// Returns the value inside a union, however deeply nested; otherwise the value itself.
    #[must_use]
    pub fn bare(&self) -> &Self {
        match self {
            Self::Union(_, inner) => inner.bare(),
            other => other,
        }
    }

    /// Returns the name of its type, as in schemas.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "boolean",
            Self::Int(_) => "int",
            Self::Long(_) => "long",
            Self::Float(_) => "float",
            Self::Double(_) => "double",
            Self::Bytes(_) => "bytes",
            Self::String(_) => "string",
            Self::Enum(_) => "enum",
            Self::Array(_) => "array",
            Self::Booleans(_) => "array of boolean",
            Self::Ints(_) => "array of int",
            Self::Longs(_) => "array of long",
            Self::Floats(_) => "array of float",
            Self::Doubles(_) => "array of double",
            Self::Map(_) => "map",
            Self::Union(..) => "union",
            Self::Record(_) => "record",
        }
    }

    /// Number of elements of an array.
    pub(super) fn elements(&self) -> Option<usize> {
        Some(match self {
            Self::Array(all) => all.len(),
            Self::Booleans(all) => all.len(),
            Self::Ints(all) => all.len(),
            Self::Longs(all) => all.len(),
            Self::Floats(all) => all.len(),
            Self::Doubles(all) => all.len(),
            _ => return None,
        })
    }
}

macro_rules! from {
    ($($rust:ty => $kind:ident)*) => {$(
        impl From<$rust> for Value {
            fn from(value: $rust) -> Self {
                Self::$kind(value)
            }
        }
    )*};
}

from! {
    bool => Boolean
    i32 => Int
    i64 => Long
    f32 => Float
    f64 => Double
    Vec<u8> => Bytes
    String => String
    Vec<bool> => Booleans
    Vec<i32> => Ints
    Vec<i64> => Longs
    Vec<f32> => Floats
    Vec<f64> => Doubles
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}
