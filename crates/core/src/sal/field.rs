//! Fields of topics and their types.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::{Enumeration, MAX_ELEMENTS, SalCause};

/// The types that an item of an interface file may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SalType {
    /// True or false.
    Boolean,
    /// An 8-bit integer; Avro's `int`.
    Byte,
    /// A 16-bit integer; Avro's `int`.
    Short,
    /// A 32-bit integer.
    Int,
    /// A 32-bit integer, despite its name; Avro's `int`.
    Long,
    /// A 64-bit integer; Avro's `long`.
    LongLong,
    /// An unsigned 16-bit integer; Avro's `int`.
    UnsignedShort,
    /// An unsigned 32-bit integer; Avro's `long`.
    UnsignedInt,
    /// A 32-bit floating point number.
    Float,
    /// A 64-bit floating point number.
    Double,
    /// Text; never an array.
    String,
}

/// The types with their names in SAL and in Avro.
const TYPES: [(SalType, &str, &str); 11] = [
    (SalType::Boolean, "boolean", "boolean"),
    (SalType::Byte, "byte", "int"),
    (SalType::Short, "short", "int"),
    (SalType::Int, "int", "int"),
    (SalType::Long, "long", "int"),
    (SalType::LongLong, "long long", "long"),
    (SalType::UnsignedShort, "unsigned short", "int"),
    (SalType::UnsignedInt, "unsigned int", "long"),
    (SalType::Float, "float", "float"),
    (SalType::Double, "double", "double"),
    (SalType::String, "string", "string"),
];

impl SalType {
    /// Returns the type of that name in an interface file, for example `unsigned short`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let words = || name.split_ascii_whitespace();
        TYPES.iter().find(|(_, sal, _)| words().eq(sal.split(' '))).map(|row| row.0)
    }

    /// Its name in an interface file.
    #[must_use]
    pub fn name(self) -> &'static str {
        TYPES[self as usize].1
    }

    /// The Avro type that carries it.
    #[must_use]
    pub fn avro_name(self) -> &'static str {
        TYPES[self as usize].2
    }

    /// Whether it is one of the integers.
    #[must_use]
    pub fn is_integer(self) -> bool {
        matches!(self.avro_name(), "int" | "long")
    }

    /// Returns the default value of a field of the type.
    pub(super) fn default_value(self) -> Value {
        match self {
            Self::Boolean => Value::Bool(false),
            Self::String => Value::String(String::new()),
            Self::Float | Self::Double => Value::from(0.0),
            _ => Value::from(0),
        }
    }
}

/// The contents of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldType {
    /// A type of the XML interface files.
    Sal(SalType),
    /// A field of an `.avsc` interface file: its whole JSON object.
    Avro(Value),
}

/// A public field of a topic. Clones share the texts, because generics are cloned for each
/// component.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: Arc<str>,
    /// Its contents.
    pub field_type: FieldType,
    /// Number of elements: 1 for a scalar, more for an array of that length.
    pub count: u32,
    /// Units, `unitless` if there are none.
    pub units: Arc<str>,
    /// Its description.
    pub description: Arc<str>,
    /// The values' labels: the item's own list, or the set's enumeration that has the field's name.
    pub enumeration: Option<Arc<Enumeration>>,
}

impl Field {
    /// The item's type, if it comes from an XML interface file.
    #[must_use]
    pub fn sal_type(&self) -> Option<SalType> {
        match self.field_type {
            FieldType::Sal(sal) => Some(sal),
            FieldType::Avro(_) => None,
        }
    }

    /// Whether its interface file declares a default. XML and YAML files cannot; the zeros of
    /// SAL's schemas are not declared by anyone.
    #[must_use]
    pub fn has_default(&self) -> bool {
        matches!(&self.field_type, FieldType::Avro(whole) if whole.get("default").is_some())
    }
}

/// The public fields of a topic during reading: unique names, bounded elements.
#[derive(Default)]
pub(super) struct FieldList {
    fields: Vec<Field>,
    names: HashSet<Arc<str>>,
    elements: u32,
}

impl FieldList {
    pub(super) fn push(&mut self, field: Field) -> Result<(), SalCause> {
        self.elements += field.count;
        if self.elements > MAX_ELEMENTS {
            return Err(SalCause::Elements);
        }
        if is_private(&field.name) || !self.names.insert(field.name.clone()) {
            return Err(SalCause::FieldTwice(field.name.to_string()));
        }
        self.fields.push(field);
        Ok(())
    }

    pub(super) fn into_fields(self) -> Vec<Field> {
        self.fields
    }
}

/// A private field: name, type, units, description.
pub(super) type Row = (&'static str, SalType, &'static str, &'static str);

/// `salIndex`, the first field of every topic of an indexed component.
///
/// These descriptions are part of the wire format: every schema that SAL registers contains them,
/// and its revision code is a hash of the schema's text.
pub(super) const SAL_INDEX: Row =
    ("salIndex", SalType::Long, "unitless", "SAL index (only present for indexed SAL components)");

/// The leading fields of every topic; see [`SAL_INDEX`] on their descriptions.
pub(super) const PRIVATE: [Row; 8] = [
    ("private_sndStamp", SalType::Double, "second", "Time of instance publication"),
    ("private_rcvStamp", SalType::Double, "second", "Time of instance reception"),
    (
        "private_efdStamp",
        SalType::Double,
        "second",
        "UTC time for EFD timestamp. An integer (the number of leap seconds) different from \
         private_sndStamp.",
    ),
    (
        "private_kafkaStamp",
        SalType::Double,
        "second",
        "TAI time at which the Kafka message was created.",
    ),
    ("private_seqNum", SalType::Long, "unitless", "Sequence number"),
    ("private_revCode", SalType::String, "unitless", "Revision hashcode"),
    (
        "private_identity",
        SalType::String,
        "unitless",
        "Identity of publisher: SAL component name for a CSC or user@host for a user",
    ),
    ("private_origin", SalType::Long, "unitless", "Process ID of publisher"),
];

/// The public fields of every component's acknowledgements; see [`SAL_INDEX`] on their
/// descriptions.
pub(super) const ACKNOWLEDGEMENT: [Row; 7] = [
    ("ack", SalType::Long, "unitless", "Acknowledgement code"),
    ("error", SalType::Long, "unitless", "An error code; only relevant if ack=FAILED"),
    ("result", SalType::String, "unitless", "Message"),
    (
        "identity",
        SalType::String,
        "unitless",
        "private_identity field of the command being acknowledged",
    ),
    ("origin", SalType::Long, "unitless", "private_origin field of the command being acknowledged"),
    (
        "cmdtype",
        SalType::Long,
        "unitless",
        "Index of command in alphabetical list of commands, with 0 being the first",
    ),
    (
        "timeout",
        SalType::Double,
        "second",
        "Estimated remaining duration of command; only relevant if ack=INPROGRESS",
    ),
];

/// The description of every component's acknowledgements; see [`SAL_INDEX`].
pub(super) const ACKNOWLEDGEMENT_DESCRIPTION: &str = "Command acknowledgement";

impl From<&Row> for Field {
    fn from((name, sal, units, description): &Row) -> Self {
        Self {
            name: (*name).into(),
            field_type: FieldType::Sal(*sal),
            count: 1,
            units: (*units).into(),
            description: (*description).into(),
            enumeration: None,
        }
    }
}

/// Returns whether that name is reserved.
pub(super) fn is_private(name: &str) -> bool {
    name == SAL_INDEX.0 || PRIVATE.iter().any(|row| row.0 == name)
}

/// The longest name of a field, in bytes (release v27.1.1 has one of 101).
const MAX_FIELD_NAME_BYTES: usize = 256;
/// The longest name of a component or a topic, in bytes: both must fit a
/// [`TopicName`](crate::TopicName) together.
const MAX_PART_BYTES: usize = 90;

/// Returns whether Avro allows the name.
pub(super) fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.len() <= MAX_FIELD_NAME_BYTES
        && name.starts_with(first)
        && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// Returns whether it is a valid name of a component or a topic.
pub(super) fn is_part(name: &str) -> bool {
    is_name(name) && name.len() <= MAX_PART_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_their_names() {
        for (index, (sal, name, _)) in TYPES.iter().enumerate() {
            assert_eq!(*sal as usize, index);
            assert_eq!(SalType::from_name(name), Some(*sal));
            assert_eq!(sal.name(), *name);
        }
        assert_eq!(SalType::from_name(" long  long "), Some(SalType::LongLong));
        for unknown in ["", "longlong", "uint", "char", "Double", "long long long"] {
            assert_eq!(SalType::from_name(unknown), None);
        }
    }
}
