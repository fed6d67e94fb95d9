//! Avro schemas with the attributes of observatories: units, array lengths, enumerations, SAL
//! types.
//!
//! A [`Schema`] is a checked, immutable tree (recursive types allowed) in one arena:
//! [`Schema::root`] is its top [`Node`], a node's [`Type`] names its children by [`NodeId`], and
//! [`Schema::node`] looks them up. It is cheap to clone. Sources are JSON text ([`Schema::parse`]),
//! several files that name each other ([`SchemaSet`]), and code ([`build`]). Outputs are JSON text,
//! Avro's Parsing Canonical Form, the CRC-64-AVRO [fingerprint](Schema::fingerprint) and the
//! [identity](Schema::id).
//!
//! The rules are those of the Avro specification 1.11, with two later relaxations: a default may
//! match any branch of a union, and a plain name is also searched outside its namespace. A field
//! may have `units` (text), `description` (text; `doc` is accepted too), `length` (number of
//! elements of its array), `enumeration` (labels and their numbers, for integers) and `salType`
//! (text). All other attributes are stored unchanged.
//!
//! Beside Avro's logical types there are integers of other ranges and arrays of raw elements:
//! [`LogicalType::Integer`], [`LogicalType::NdArray`].

pub mod build;
mod default;
mod fingerprint;
mod logical;
mod ndarray;
mod parse;
mod set;
mod write;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value as Json};
use thiserror::Error;

use crate::SchemaId;

pub use build::HasSchema;
pub(crate) use default::number_word;
pub use fingerprint::crc64_avro;
pub use logical::LogicalType;
pub(crate) use ndarray::Reads;
pub use ndarray::{DType, MAX_DIMENSIONS, NdArray};
pub(crate) use parse::shorten;
pub use set::SchemaSet;

/// The longest schema text, in bytes: Rubin's largest topic, default arrays included, has about 100
/// kB.
pub const MAX_SCHEMA_BYTES: usize = 4 << 20;
/// The limit of types and fields in one schema: as many as 4 MiB of sensible text can hold.
pub const MAX_SCHEMA_NODES: usize = 100_000;
/// The limit of branches of one union: a value's branch is found by a scan over all.
pub const MAX_BRANCHES: usize = 1_000;
/// The limit of nesting of a schema's JSON (a record in a record counts three). It keeps recursion
/// safe, and any JSON parser can read the text, as the usual limit is 128.
pub const MAX_SCHEMA_DEPTH: usize = 120;
/// The limit of an array's `length` and a `fixed`'s `size`, so that it fits in a payload.
pub const MAX_LENGTH: usize = 1 << 30;

/// The error of an invalid schema. `at` names the place: a field of a record, with the file's name
/// if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// The text is no JSON, or is nested deeper than 128 levels.
    #[error("{at}: invalid JSON: {problem}")]
    Json {
        /// The text's name.
        at: String,
        /// The JSON parser's error.
        problem: String,
    },
    /// The schema is larger than one of this module's limits.
    #[error("the schema exceeds the limit of {limit} {what}; split it")]
    Limit {
        /// The kind of the excess.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A type is used and not defined.
    #[error("{at}: the type {name:?} is defined nowhere{remedy}")]
    UnknownType {
        /// The name as it is in the schema.
        name: String,
        /// Where it is used.
        at: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A name is invalid in Avro.
    #[error(
        "{at}: invalid Avro name {name:?}; use letters, digits and '_', not starting with a digit"
    )]
    Name {
        /// The name.
        name: String,
        /// Its place.
        at: String,
    },
    /// A type, field, symbol or branch is duplicated.
    #[error("{at}: the {what} {name:?} is defined twice")]
    Duplicate {
        /// The kind of the duplicate.
        what: &'static str,
        /// Its name.
        name: String,
        /// The place of the second one.
        at: String,
    },
    /// An attribute is missing or has an invalid value.
    #[error("{at}: the attribute {attribute:?} {problem}")]
    Attribute {
        /// The attribute's name.
        attribute: &'static str,
        /// The cause.
        problem: String,
        /// Its place.
        at: String,
    },
    /// The JSON is no schema: for example, a number in place of a type.
    #[error("{at}: {found} is no type; a name, an object with \"type\" or an array (union) is")]
    NoType {
        /// The JSON found.
        found: String,
        /// Its place.
        at: String,
    },
    /// A union contains a union.
    #[error("{at}: a union directly in a union; list all branches in one")]
    NestedUnion {
        /// Its place.
        at: String,
    },
    /// A default does not match its type.
    #[error("{at}: the default is no value of its type: {problem}")]
    Default {
        /// Its place.
        at: String,
        /// The cause.
        problem: String,
    },
    /// A record contains itself in every value, so it has no value.
    #[error(
        "the record {name:?} contains itself without a union, array or map between: it has no value"
    )]
    Endless {
        /// The record's full name.
        name: String,
    },
    /// A set of files has no single root, or not the requested one.
    #[error("{problem}; the types are: {names}")]
    Root {
        /// The requested one.
        problem: String,
        /// The existing ones.
        names: String,
    },
}

/// The index of a type in its schema. The root is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The root's index.
    pub const ROOT: Self = Self(0);

    /// Returns the index, below [`Schema::len`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A type in a schema, with its attributes.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The type.
    pub kind: Type,
    /// The logical type.
    pub logical: Option<LogicalType>,
    /// All other attributes of the type as in the text, with `logicalType`.
    pub attributes: Map<String, Json>,
}

/// An Avro type.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// No value, no bytes.
    Null,
    /// One byte, 0 or 1.
    Boolean,
    /// A 32-bit signed number.
    Int,
    /// A 64-bit signed number.
    Long,
    /// A 32-bit IEEE 754 number.
    Float,
    /// A 64-bit IEEE 754 number.
    Double,
    /// Bytes of any number.
    Bytes,
    /// UTF-8 text.
    String,
    /// Any number of elements of one type.
    Array(NodeId),
    /// Values of one type under text keys.
    Map(NodeId),
    /// One of several types, by the branch's number.
    Union(Vec<NodeId>),
    /// Named fields in order.
    Record(Record),
    /// One of several symbols.
    Enum(Enum),
    /// Bytes of one number.
    Fixed(Fixed),
}

/// A record type.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The full name, namespace included.
    pub name: String,
    /// Further full names under which this type reads data.
    pub aliases: Vec<String>,
    /// Avro's documentation.
    pub doc: Option<String>,
    /// Our documentation.
    pub description: Option<String>,
    /// The fields in order.
    pub fields: Vec<Field>,
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The name.
    pub name: String,
    /// Further names under which this field reads data.
    pub aliases: Vec<String>,
    /// Its type.
    pub kind: NodeId,
    /// The reader's value if the writer has no such field, as Avro's JSON.
    pub default: Option<Json>,
    /// Its sort order; `None` is ascending.
    pub order: Option<Order>,
    /// Avro's documentation.
    pub doc: Option<String>,
    /// Our documentation; see also [`Field::text`].
    pub description: Option<String>,
    /// The unit of its numbers.
    pub units: Option<String>,
    /// The number of elements that its array always has.
    pub length: Option<usize>,
    /// Labels of its integers, in the order of the text.
    pub enumeration: Option<Vec<(String, i64)>>,
    /// The SAL type it comes from, for example `unsigned short`.
    pub sal_type: Option<String>,
    /// All other attributes as in the text.
    pub attributes: Map<String, Json>,
}

impl Field {
    /// Returns the field's description, else its `doc`.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.description.as_deref().or(self.doc.as_deref())
    }
}

/// The sort order of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Small values first.
    Ascending,
    /// Large values first.
    Descending,
    /// The field is ignored.
    Ignore,
}

/// An Avro enumeration.
#[derive(Debug, Clone, PartialEq)]
pub struct Enum {
    /// The full name, namespace included.
    pub name: String,
    /// Further full names under which this type reads data.
    pub aliases: Vec<String>,
    /// Avro's documentation.
    pub doc: Option<String>,
    /// The symbols; their indices are their numbers on the wire.
    pub symbols: Vec<String>,
    /// The reader's symbol for an unknown one.
    pub default: Option<String>,
}

/// Bytes of one number.
#[derive(Debug, Clone, PartialEq)]
pub struct Fixed {
    /// The full name, namespace included.
    pub name: String,
    /// Further full names under which this type reads data.
    pub aliases: Vec<String>,
    /// Avro's documentation.
    pub doc: Option<String>,
    /// Number of bytes.
    pub size: usize,
}

impl Type {
    /// The full name of a record, enumeration or fixed.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Record(Record { name, .. })
            | Self::Enum(Enum { name, .. })
            | Self::Fixed(Fixed { name, .. }) => Some(name),
            _ => None,
        }
    }

    /// Returns the aliases of a record, enumeration or fixed.
    #[must_use]
    pub fn aliases(&self) -> &[String] {
        match self {
            Self::Record(Record { aliases, .. })
            | Self::Enum(Enum { aliases, .. })
            | Self::Fixed(Fixed { aliases, .. }) => aliases,
            _ => &[],
        }
    }

    /// Returns Avro's name of the type: `int`, `record`, `union`…
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Int => "int",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bytes => "bytes",
            Self::String => "string",
            Self::Array(_) => "array",
            Self::Map(_) => "map",
            Self::Union(_) => "union",
            Self::Record(_) => "record",
            Self::Enum(_) => "enum",
            Self::Fixed(_) => "fixed",
        }
    }

    /// Returns the type of that name, if it is a primitive one.
    #[must_use]
    pub fn primitive(word: &str) -> Option<Self> {
        Some(match word {
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "int" => Self::Int,
            "long" => Self::Long,
            "float" => Self::Float,
            "double" => Self::Double,
            "bytes" => Self::Bytes,
            "string" => Self::String,
            _ => return None,
        })
    }

    /// Iterates over the types directly inside this one.
    pub fn children(&self) -> impl Iterator<Item = NodeId> + '_ {
        let (one, branches, fields): (_, &[NodeId], &[Field]) = match self {
            Self::Array(item) | Self::Map(item) => (Some(*item), &[], &[]),
            Self::Union(branches) => (None, branches, &[]),
            Self::Record(record) => (None, &[], &record.fields),
            _ => (None, &[], &[]),
        };
        let fields = fields.iter().map(|field| field.kind);
        one.into_iter().chain(branches.iter().copied()).chain(fields)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} {name}", self.word()),
            None => f.write_str(self.word()),
        }
    }
}

/// A checked Avro schema. Cheap to clone. Schemas are equal if text, attributes and documentation
/// are.
#[derive(Clone)]
pub struct Schema(Arc<Inner>);

struct Inner {
    nodes: Vec<Node>,
    least_bytes: Vec<u32>,
    names: HashMap<String, NodeId>,
    canonical: OnceLock<String>,
    fingerprint: OnceLock<u64>,
    id: OnceLock<SchemaId>,
}

impl Schema {
    /// Parses a schema from its JSON text; a primitive type's bare name (`int`) is accepted too.
    ///
    /// # Errors
    /// [`SchemaError`] names the record and field that is wrong.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        parse::one(text)
    }

    /// Parses a schema from JSON.
    ///
    /// # Errors
    /// [`SchemaError`] names the record and field that is wrong.
    pub fn from_json(json: &Json) -> Result<Self, SchemaError> {
        parse::one_json(json)
    }

    /// Creates a schema from nodes. The root is the first; the others are in the order of a walk
    /// from it.
    fn from_nodes(nodes: Vec<Node>, least_bytes: Vec<u32>) -> Self {
        let named = |(i, node): (usize, &Node)| {
            node.kind.name().map(|name| (name.to_owned(), NodeId(i as u32)))
        };
        let names = nodes.iter().enumerate().filter_map(named).collect();
        Self(Arc::new(Inner {
            nodes,
            least_bytes,
            names,
            canonical: OnceLock::new(),
            fingerprint: OnceLock::new(),
            id: OnceLock::new(),
        }))
    }

    /// The schema's top type.
    #[must_use]
    pub fn root(&self) -> &Node {
        &self.0.nodes[0]
    }

    /// Returns the type at an index of this schema.
    ///
    /// # Panics
    /// If `id` is of another, larger schema.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.0.nodes[id.index()]
    }

    /// Returns all types, each once, in the order of their indices.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.0.nodes
    }

    /// Returns the fewest bytes of a type's value, which bounds the number of an array's elements.
    #[must_use]
    pub fn least_bytes(&self, id: NodeId) -> usize {
        self.0.least_bytes[id.index()] as usize
    }

    /// Number of types.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.nodes.len()
    }

    /// Always false: a schema has a root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the root's full name, if it is a record, enumeration or fixed.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.root().kind.name()
    }

    /// Returns the root if it is a record.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        match &self.root().kind {
            Type::Record(record) => Some(record),
            _ => None,
        }
    }

    /// Returns the root record's fields in order; empty if the root is no record.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        self.record().map_or(&[], |record| &record.fields)
    }

    /// The root record's field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields().iter().find(|field| field.name == name)
    }

    /// The record, enumeration or fixed of that full name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<NodeId> {
        self.0.names.get(name).copied()
    }

    /// Returns the type of an array's elements, also of an array inside a union.
    #[must_use]
    pub fn items(&self, id: NodeId) -> Option<NodeId> {
        match &self.node(id).kind {
            Type::Array(items) => Some(*items),
            Type::Union(branches) => {
                branches.iter().find_map(|branch| match self.node(*branch).kind {
                    Type::Array(items) => Some(items),
                    _ => None,
                })
            }
            _ => None,
        }
    }

    /// Returns the other branch of a union of two with `null`, and the index of `null` (0 or 1).
    #[must_use]
    pub fn nullable(&self, id: NodeId) -> Option<(NodeId, usize)> {
        let Type::Union(branches) = &self.node(id).kind else { return None };
        let null = |branch: &NodeId| self.node(*branch).kind == Type::Null;
        match branches[..] {
            [a, b] if null(&a) && !null(&b) => Some((b, 0)),
            [a, b] if null(&b) && !null(&a) => Some((a, 1)),
            _ => None,
        }
    }

    /// The schema as JSON: parsing it gives an equal schema.
    #[must_use]
    pub fn to_json(&self) -> Json {
        write::json(self)
    }

    /// Avro's Parsing Canonical Form.
    #[must_use]
    pub fn canonical_form(&self) -> &str {
        self.0.canonical.get_or_init(|| write::canonical(self, write::Form::Avro))
    }

    /// CRC-64-AVRO of the Parsing Canonical Form: equal for schemas that write the same bytes.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        *self.0.fingerprint.get_or_init(|| crc64_avro(self.canonical_form().as_bytes()))
    }

    /// The schema's identity in samples: CRC-64-AVRO of the canonical form with array lengths,
    /// units, enumerations, SAL and logical types added. So schemas that differ only in these have
    /// different identities. Without any of them it equals [`Schema::fingerprint`].
    #[must_use]
    pub fn id(&self) -> SchemaId {
        let print = || crc64_avro(write::canonical(self, write::Form::Extended).as_bytes());
        *self.0.id.get_or_init(|| SchemaId(print()))
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.nodes == other.0.nodes
    }
}

impl fmt::Display for Schema {
    /// The schema as JSON text without white space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_json())
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({} {})", self.root().kind, self.id())
    }
}

impl FromStr for Schema {
    type Err = SchemaError;
    fn from_str(text: &str) -> Result<Self, SchemaError> {
        Self::parse(text)
    }
}
