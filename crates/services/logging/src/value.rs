//! Values of arguments and data pairs: the types of OpenTelemetry's `AnyValue`.

use std::fmt;

use crate::wire::{Bytes, Malformed, put_bytes, put_signed, put_varint};

/// The deepest nesting of arrays and maps. Reading is recursive, so this bounds the stack.
pub const MAX_DEPTH: usize = 16;

/// A typed value: OpenTelemetry's `AnyValue` (`common.proto`).
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Values in order.
    Array(Vec<Value>),
    /// Values by name, in order.
    Map(Vec<(String, Value)>),
}

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const DOUBLE: u8 = 4;
pub(crate) const TEXT: u8 = 5;
const BYTES: u8 = 6;
const ARRAY: u8 = 7;
const MAP: u8 = 8;

impl Value {
    /// The depth of nesting; 1 for a value without elements.
    #[must_use]
    pub fn depth(&self) -> usize {
        let inner = match self {
            Self::Array(values) => values.iter().map(Self::depth).max(),
            Self::Map(pairs) => pairs.iter().map(|(_, value)| value.depth()).max(),
            _ => None,
        };
        1 + inner.unwrap_or(0)
    }

    /// Writes the value. Values below [`MAX_DEPTH`] are written as their text.
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        self.write_at(into, 1);
    }

    fn write_at(&self, into: &mut Vec<u8>, depth: usize) {
        match self {
            Self::Null => into.push(NULL),
            Self::Bool(value) => into.push(if *value { TRUE } else { FALSE }),
            Self::Int(value) => put_int(into, *value),
            Self::Double(value) => put_double(into, *value),
            Self::Text(value) => put_text(into, value),
            Self::Bytes(value) => {
                into.push(BYTES);
                put_bytes(into, value);
            }
            Self::Array(_) | Self::Map(_) if depth == MAX_DEPTH => {
                put_text(into, &self.to_string())
            }
            Self::Array(values) => {
                into.push(ARRAY);
                put_varint(into, values.len() as u64);
                values.iter().for_each(|value| value.write_at(into, depth + 1));
            }
            Self::Map(pairs) => {
                into.push(MAP);
                put_varint(into, pairs.len() as u64);
                for (name, value) in pairs {
                    put_bytes(into, name.as_bytes());
                    value.write_at(into, depth + 1);
                }
            }
        }
    }

    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Result<Self, Malformed> {
        Self::read_at(bytes, 1)
    }

    fn read_at(bytes: &mut Bytes<'_>, depth: usize) -> Result<Self, Malformed> {
        if depth > MAX_DEPTH {
            return Err(Malformed);
        }
        Ok(match bytes.byte()? {
            NULL => Self::Null,
            FALSE => Self::Bool(false),
            TRUE => Self::Bool(true),
            INT => Self::Int(bytes.signed()?),
            DOUBLE => Self::Double(f64::from_le_bytes(bytes.array()?)),
            TEXT => Self::Text(bytes.text()?.to_owned()),
            BYTES => Self::Bytes(bytes.bytes()?.to_vec()),
            ARRAY => {
                let values = (0..bytes.count()?).map(|_| Self::read_at(bytes, depth + 1));
                Self::Array(values.collect::<Result<_, _>>()?)
            }
            MAP => {
                let pairs = (0..bytes.count()?)
                    .map(|_| Ok((bytes.text()?.to_owned(), Self::read_at(bytes, depth + 1)?)));
                Self::Map(pairs.collect::<Result<_, _>>()?)
            }
            _ => return Err(Malformed),
        })
    }
}

pub(crate) fn put_int(into: &mut Vec<u8>, value: i64) {
    into.push(INT);
    put_signed(into, value);
}

pub(crate) fn put_double(into: &mut Vec<u8>, value: f64) {
    into.push(DOUBLE);
    into.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_text(into: &mut Vec<u8>, value: &str) {
    into.push(TEXT);
    put_bytes(into, value.as_bytes());
}

/// Shows texts unchanged and bytes in hexadecimal digits.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Double(value) => value.fmt(f),
            Self::Text(value) => f.pad(value),
            Self::Bytes(value) => value.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Array(values) => {
                f.write_str("[")?;
                for (place, value) in values.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}{value}")?;
                }
                f.write_str("]")
            }
            Self::Map(pairs) => {
                f.write_str("{")?;
                for (place, (name, value)) in pairs.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}{name}: {value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

macro_rules! from {
    ($($type:ty => |$value:ident| $made:expr;)*) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $made
            }
        })*
    };
}

from! {
    bool => |value| Self::Bool(value);
    i64 => |value| Self::Int(value);
    i32 => |value| Self::Int(value.into());
    u32 => |value| Self::Int(value.into());
    f64 => |value| Self::Double(value);
    &str => |value| Self::Text(value.to_owned());
    String => |value| Self::Text(value);
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::from(value as u64)
    }
}

/// Numbers above the range of [`Value::Int`] become a text.
impl From<u64> for Value {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or_else(|_| Self::Text(value.to_string()), Self::Int)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            (-1e300..1e300).prop_map(Value::Double),
            ".{0,12}".prop_map(Value::Text),
            proptest::collection::vec(any::<u8>(), 0..12).prop_map(Value::Bytes),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let pair = (".{0,6}", inner.clone());
            prop_oneof![
                proptest::collection::vec(inner, 0..4).prop_map(Value::Array),
                proptest::collection::vec(pair, 0..4).prop_map(Value::Map),
            ]
        })
    }

    fn written(value: &Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        value.write(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn values_come_back(value in values()) {
            let bytes = written(&value);
            let mut read = Bytes(&bytes);
            prop_assert_eq!(Value::read(&mut read), Ok(value));
            prop_assert!(read.is_empty());
        }

        #[test]
        fn foreign_bytes_are_a_value_or_malformed(bytes: Vec<u8>) {
            let mut read = Bytes(&bytes);
            if let Ok(value) = Value::read(&mut read) {
                prop_assert!(value.depth() <= MAX_DEPTH);
            }
        }
    }

    #[test]
    fn what_lies_too_deep_becomes_the_text_that_shows_it() {
        let deep = (0..40).fold(Value::Int(7), |inner, _| Value::Array(vec![inner]));
        assert_eq!(deep.depth(), 41);
        let bytes = written(&deep);
        let read = Value::read(&mut Bytes(&bytes)).unwrap();
        assert_eq!(read.depth(), MAX_DEPTH);
        assert_eq!(read.to_string(), deep.to_string());
        let hostile = [[ARRAY, 1]; 1 << 16].concat();
        assert_eq!(Value::read(&mut Bytes(&hostile)), Err(Malformed));
    }

    #[test]
    fn numbers_above_the_largest_whole_one_are_kept_as_text() {
        assert_eq!(Value::from(7_u64), Value::Int(7));
        assert_eq!(Value::from(u64::MAX), Value::Text("18446744073709551615".to_owned()));
    }
}
