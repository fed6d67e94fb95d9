//! The forms in which ProtoJSON and OTLP differ from JSON: large numbers as texts, ids as
//! hexadecimal digits, bytes in base64, values by their kind.
//!
//! Sources: ProtoJSON's table of types, and OTLP's specification, "JSON Protobuf Encoding".

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{Error, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::proto::{AnyValue, Kind, Pairs, Values};

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// `null` is an absent value.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

pub(crate) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// An integer: a number, possibly with a point, or a text.
pub(crate) fn number<'de, D: Deserializer<'de>, T: TryFrom<i128>>(from: D) -> Result<T, D::Error> {
    struct IntegerVisitor;

    impl Visitor<'_> for IntegerVisitor {
        type Value = i128;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number, or a text of one")
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<i128, E> {
            Ok(number.into())
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<i128, E> {
            Ok(number.into())
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<i128, E> {
            let whole = number as i128;
            if whole as f64 == number { Ok(whole) } else { Err(E::custom("it is no whole number")) }
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<i128, E> {
            text.parse().map_err(|_| E::custom("it is no whole number"))
        }

        fn visit_unit<E: Error>(self) -> Result<i128, E> {
            Ok(0)
        }
    }

    let number = from.deserialize_any(IntegerVisitor)?;
    T::try_from(number).map_err(|_| D::Error::custom("the number is out of range"))
}

/// Numbers of 64 bits, which are written as texts.
macro_rules! texts {
    ($name:ident, $type:ty) => {
        pub(crate) mod $name {
            use serde::{Deserializer, Serializer};

            pub(crate) fn serialize<S: Serializer>(
                number: &$type,
                into: S,
            ) -> Result<S::Ok, S::Error> {
                into.collect_str(number)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<$type, D::Error> {
                super::number(from)
            }
        }
    };
}

texts!(u64_text, u64);
texts!(i64_text, i64);

/// Ids of traces and spans.
pub(crate) mod hex {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], into: S) -> Result<S::Ok, S::Error> {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        into.serialize_str(&digits)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = Option::<String>::deserialize(from)?.unwrap_or_default();
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let byte = |[high, low]: &[u8; 2]| {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            Some((digit(*high)? * 16 + digit(*low)?) as u8)
        };
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        let bytes = bytes.filter(|_| rest.is_empty());
        bytes.ok_or_else(|| D::Error::custom("an id is not in pairs of hexadecimal digits"))
    }
}

/// An integer value.
#[derive(Deserialize)]
struct Int(#[serde(with = "i64_text")] i64);

/// A floating-point value: a number, its text, `NaN`, `Infinity` or `-Infinity`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Double {
    Number(f64),
    Text(String),
}

impl Double {
    fn value<E: Error>(self) -> Result<f64, E> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Text(text) => match text.as_str() {
                "NaN" => Ok(f64::NAN),
                "Infinity" => Ok(f64::INFINITY),
                "-Infinity" => Ok(f64::NEG_INFINITY),
                text => {
                    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
                    number.ok_or_else(|| E::custom("doubleValue is no number"))
                }
            },
        }
    }
}

/// The members of a value, of which one is present.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members {
    string_value: Option<String>,
    bool_value: Option<bool>,
    int_value: Option<Int>,
    double_value: Option<Double>,
    array_value: Option<Values>,
    kvlist_value: Option<Pairs>,
    bytes_value: Option<String>,
}

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let members = Members::deserialize(from)?;
        let double = members.double_value.map(Double::value).transpose()?;
        let bytes = members.bytes_value.map(|text| {
            // ProtoJSON reads both alphabets.
            let text = text.replace('-', "+").replace('_', "/");
            BASE64.decode(text).map_err(|_| D::Error::custom("bytesValue is no base64"))
        });
        let kinds = [
            members.string_value.map(Kind::Text),
            members.bool_value.map(Kind::Bool),
            members.int_value.map(|Int(number)| Kind::Int(number)),
            double.map(Kind::Double),
            members.array_value.map(Kind::Array),
            members.kvlist_value.map(Kind::Map),
            bytes.transpose()?.map(Kind::Bytes),
        ];
        let mut kinds = kinds.into_iter().flatten();
        match (kinds.next(), kinds.next()) {
            (value, None) => Ok(Self { value }),
            _ => Err(D::Error::custom("a value is of two kinds")),
        }
    }
}

impl Serialize for AnyValue {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        let mut members = into.serialize_map(Some(usize::from(self.value.is_some())))?;
        match &self.value {
            None => {}
            Some(Kind::Text(text)) => members.serialize_entry("stringValue", text)?,
            Some(Kind::Bool(value)) => members.serialize_entry("boolValue", value)?,
            Some(Kind::Int(number)) => {
                members.serialize_entry("intValue", &number.to_string())?;
            }
            Some(Kind::Double(number)) => match number {
                number if number.is_finite() => members.serialize_entry("doubleValue", number)?,
                number if number.is_nan() => members.serialize_entry("doubleValue", "NaN")?,
                number if *number > 0.0 => members.serialize_entry("doubleValue", "Infinity")?,
                _ => members.serialize_entry("doubleValue", "-Infinity")?,
            },
            Some(Kind::Array(values)) => members.serialize_entry("arrayValue", values)?,
            Some(Kind::Map(pairs)) => members.serialize_entry("kvlistValue", pairs)?,
            Some(Kind::Bytes(bytes)) => {
                members.serialize_entry("bytesValue", &BASE64.encode(bytes))?;
            }
        }
        members.end()
    }
}
