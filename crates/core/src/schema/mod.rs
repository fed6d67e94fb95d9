//! Avro schemas with what observatories add to them: units, array lengths, enumerations, SAL types.
//!
//! A [`Schema`] is a checked, immutable tree (recursive types allowed) in one arena:
//! [`Schema::root`] is its top [`Node`], a node's [`Type`] names its children by [`NodeId`], and
//! [`Schema::node`] looks them up. It is cheap to clone. It comes from JSON text
//! ([`Schema::parse`]), from several files that name each other ([`SchemaSet`]), or from code
//! ([`build`]); it goes out as JSON text, as Avro's Parsing Canonical Form, as the CRC-64-AVRO
//! [fingerprint](Schema::fingerprint) and as its [identity](Schema::id).
//!
//! The rules are those of the Avro specification 1.11, with two of its later liberties: a default
//! may match any branch of a union, and a plain name is also looked for outside its namespace. A
//! field may carry `units` (text), `description` (text; `doc` is understood too), `length` (number
//! of elements of its array), `enumeration` (labels and their numbers, for integers) and `salType`
//! (text). Every other attribute is kept as it is.

pub mod build;
mod default;
mod fingerprint;
mod logical;
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
pub(crate) use parse::shorten;
pub use set::SchemaSet;

/// The longest schema text, in bytes: Rubin's largest topic, default arrays included, has about 100
/// kB.
pub const MAX_SCHEMA_BYTES: usize = 4 << 20;
/// The most types and fields in one schema: what 4 MiB of sensible text can hold.
pub const MAX_SCHEMA_NODES: usize = 100_000;
/// The most branches of one union: a value's branch is found by a look at all of them.
pub const MAX_BRANCHES: usize = 1_000;
/// The deepest nesting of a schema's JSON (a record in a record counts three): so that its text can
/// be read again by any JSON parser, whose usual limit is 128, and so that recursion over it is
/// safe.
pub const MAX_SCHEMA_DEPTH: usize = 120;
/// The largest `length` of an array and `size` of a `fixed`: what fits a payload.
pub const MAX_LENGTH: usize = 1 << 30;

/// Why a schema was refused. `at` names the place: a field of a record, or a file's name with it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// The text is no JSON, or is nested deeper than 128 levels.
    #[error("{at} is no JSON: {problem}")]
    Json {
        /// The text's name.
        at: String,
        /// What the JSON parser says.
        problem: String,
    },
    /// The schema is larger than one of this module's limits.
    #[error("the schema exceeds the limit of {limit} {what}; split it")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A type is used that nothing defines.
    #[error("{at}: the type {name:?} is defined nowhere{remedy}")]
    UnknownType {
        /// The name as the schema has it.
        name: String,
        /// Where it is used.
        at: String,
        /// What might help.
        remedy: &'static str,
    },
    /// A name that Avro does not allow.
    #[error("{at}: {name:?} is no Avro name; letters, digits and '_', not starting with a digit")]
    Name {
        /// The name.
        name: String,
        /// Where it is.
        at: String,
    },
    /// Something is there twice: a type, a field, a symbol, a union's branch.
    #[error("{at}: the {what} {name:?} is defined twice")]
    Duplicate {
        /// What is there twice.
        what: &'static str,
        /// Its name.
        name: String,
        /// Where the second is.
        at: String,
    },
    /// An attribute is missing or has a value that it cannot have.
    #[error("{at}: the attribute {attribute:?} {problem}")]
    Attribute {
        /// The attribute's name.
        attribute: &'static str,
        /// What is wrong with it.
        problem: String,
        /// Where it is.
        at: String,
    },
    /// Not a schema at all: a number, for example, where a type is expected.
    #[error("{at}: {found} is no type; a name, an object with \"type\" or an array (union) is")]
    NoType {
        /// What is there instead.
        found: String,
        /// Where it is.
        at: String,
    },
    /// A union in a union.
    #[error("{at}: a union directly in a union; list all branches in one")]
    NestedUnion {
        /// Where it is.
        at: String,
    },
    /// A default that is no value of its type.
    #[error("{at}: the default is no value of its type: {problem}")]
    Default {
        /// Where it is.
        at: String,
        /// What is wrong.
        problem: String,
    },
    /// A record that contains itself in every value, so that it has none.
    #[error(
        "the record {name:?} contains itself without a union, array or map between: it has no value"
    )]
    Endless {
        /// The record's full name.
        name: String,
    },
    /// A set of files has no single root, or not the one that is asked for.
    #[error("{problem}; the types are: {names}")]
    Root {
        /// What is asked for.
        problem: String,
        /// What there is.
        names: String,
    },
}

/// The place of a type in its schema. The root is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The root's place.
    pub const ROOT: Self = Self(0);

    /// The place as an index below [`Schema::len`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A type in a schema: what it is, and what is said about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub kind: Type,
    /// What it means beyond its bytes.
    pub logical: Option<LogicalType>,
    /// All other attributes of the type as its text has them (`logicalType` included).
    pub attributes: Map<String, Json>,
}

/// What a type is.
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
    /// Full names that this type also answers to when it reads.
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
    /// Names that this field also answers to when it reads.
    pub aliases: Vec<String>,
    /// Its type.
    pub kind: NodeId,
    /// The value that a reader takes where the writer has no such field, as Avro's JSON.
    pub default: Option<Json>,
    /// How it sorts; `None` is ascending.
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
    /// All other attributes as the text has them.
    pub attributes: Map<String, Json>,
}

impl Field {
    /// What the field means: its description, or else its `doc`.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.description.as_deref().or(self.doc.as_deref())
    }
}

/// How a field sorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Small values first.
    Ascending,
    /// Large values first.
    Descending,
    /// The field does not count.
    Ignore,
}

/// An Avro enumeration.
#[derive(Debug, Clone, PartialEq)]
pub struct Enum {
    /// The full name, namespace included.
    pub name: String,
    /// Full names that this type also answers to when it reads.
    pub aliases: Vec<String>,
    /// Avro's documentation.
    pub doc: Option<String>,
    /// The symbols; their places are their numbers on the wire.
    pub symbols: Vec<String>,
    /// The symbol that a reader takes for one it does not know.
    pub default: Option<String>,
}

/// Bytes of one number.
#[derive(Debug, Clone, PartialEq)]
pub struct Fixed {
    /// The full name, namespace included.
    pub name: String,
    /// Full names that this type also answers to when it reads.
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

    /// The full names that a record, enumeration or fixed also answers to.
    #[must_use]
    pub fn aliases(&self) -> &[String] {
        match self {
            Self::Record(Record { aliases, .. })
            | Self::Enum(Enum { aliases, .. })
            | Self::Fixed(Fixed { aliases, .. }) => aliases,
            _ => &[],
        }
    }

    /// Avro's word for it: `int`, `record`, `union`…
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

    /// The type of that word, for those that need no more than a word.
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

    /// The types directly in this one.
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

/// A checked Avro schema. Cheap to clone; equal when text, attributes and documentation are.
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
    /// Reads one schema from its JSON text; a plain type's bare word (`int`) is understood too.
    ///
    /// # Errors
    /// [`SchemaError`] names the record and field that is wrong.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        parse::one(text)
    }

    /// Takes a schema that is JSON already.
    ///
    /// # Errors
    /// [`SchemaError`] names the record and field that is wrong.
    pub fn from_json(json: &Json) -> Result<Self, SchemaError> {
        parse::one_json(json)
    }

    /// Takes nodes whose root is the first, in the order in which a walk from it meets them.
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

    /// The type at a place that this schema gave.
    ///
    /// # Panics
    /// Where `id` is of another, larger schema.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.0.nodes[id.index()]
    }

    /// All types, each once; a type's place is its index.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.0.nodes
    }

    /// The fewest bytes that a value of a type takes: what bounds the number of an array's
    /// elements.
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

    /// The root's full name, where it is a record, enumeration or fixed.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.root().kind.name()
    }

    /// The root's record, where it is one.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        match &self.root().kind {
            Type::Record(record) => Some(record),
            _ => None,
        }
    }

    /// The root record's fields in order; none where the root is no record.
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

    /// The type of an array's elements, also of one in a union with `null` and the like.
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

    /// The one other branch of a union of it and `null`, with the place of `null` (0 or 1).
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

    /// What samples carry: CRC-64-AVRO of the canonical form with array lengths, units,
    /// enumerations, SAL and logical types added, so that schemas that differ only there are
    /// told apart; equal to [`Schema::fingerprint`] where there are none.
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
