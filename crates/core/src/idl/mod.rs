//! Schemas as OMG IDL types, and their samples as CDR, for any DDS participant.
//!
//! A [`TopicType`] is compiled once from a [`Schema`]. It is the model of the type, for runtime
//! types. It prints as IDL 4.2 ([`TopicType::text`], [`document`]), and converts between a sample's
//! Avro bytes and CDR bytes without an intermediate value ([`TopicType::to_cdr`],
//! [`TopicType::from_cdr`]); numeric arrays are copied in one piece.
//!
//! | Avro | IDL |
//! | --- | --- |
//! | `boolean`, `float`, `double` | the same |
//! | `string` | the same; `string<N>` where the field has `maxLength` |
//! | `int` | `int32`; `octet`, `int16` or `uint16` where the field's `salType` says so |
//! | `long` | `int64`; `uint32` where the field's `salType` says so |
//! | `bytes`, `fixed` | `sequence<octet>`, `octet[N]` |
//! | enumeration | `enum`, with the symbols' places as values |
//! | array | `T[N]` where the field has a `length`, else `sequence<T>` |
//! | union with `null`, as a field | `@optional` |
//! | record | `struct`, `@appendable` |
//!
//! Types that IDL, or Cyclone DDS, cannot express are [`Unsayable`], with the field's name: maps,
//! other unions, recursion, roots that are no records. Such topics travel in the
//! [envelope](TopicType::envelope). Integers with labels stay integers, because values without a
//! label are legal; the labels become an enumeration beside the type.

pub mod cdr;
mod head;
mod names;
mod plan;
mod text;

use thiserror::Error;

use crate::Schema;

pub use head::Head;
pub use text::document;

/// The attribute of the root's fields that form the topic's key: `"key": true`.
pub const KEY_ATTRIBUTE: &str = "key";
/// The attribute that bounds a text field: its limit in bytes of UTF-8.
pub const MAX_LENGTH_ATTRIBUTE: &str = "maxLength";
/// The integer field that is a root's key if no field has [`KEY_ATTRIBUTE`]: SAL's index.
pub const KEY_FIELD: &str = "salIndex";
/// Cyclone DDS's limit of a type's or member's name in bytes.
pub const MAX_NAME_BYTES: usize = 254;
/// The limit of members of one topic's type, all structs together.
pub const MAX_MEMBERS: usize = 20_000;

/// Why a schema has no IDL type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{at}: IDL cannot say {what}")]
pub struct Unsayable {
    /// The field, for example `alert.sources[]`.
    pub at: String,
    /// The type found.
    pub what: String,
}

/// A topic's type: its structs and enumerations, each before those that use it.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicType {
    structs: Vec<Struct>,
    enums: Vec<Enum>,
    form: Form,
}

/// The layout of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Our header, then the schema's fields.
    Typed,
    /// Our header, then the Avro bytes.
    Envelope,
    /// The schema's fields alone: a foreign topic.
    Foreign,
}

/// The index of a struct in [`TopicType::structs`].
pub type StructPlace = usize;
/// The index of an enumeration in [`TopicType::enums`].
pub type EnumPlace = usize;

/// A struct.
#[derive(Debug, Clone, PartialEq)]
pub struct Struct {
    /// Its modules and name: `lsst::sal::ESS::temperature`.
    pub name: String,
    /// Its members.
    pub members: Vec<Member>,
    /// Whether members may be appended; else the type is final.
    pub appendable: bool,
    /// Its description.
    pub text: String,
}

/// A member of a struct.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Its index in the struct, which is its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// If it is optional: the index of `null` in the field's union, 0 or 1.
    pub optional: Option<usize>,
    /// Whether it is part of the key.
    pub key: bool,
    /// The unit of its numbers.
    pub units: String,
    /// Its description.
    pub text: String,
    /// The labels of its numbers.
    pub labels: Vec<(String, i64)>,
    /// The reader's Avro bytes if the writer has no such member: the field's default, else zeros;
    /// `None` if they are too many.
    default: Option<Vec<u8>>,
}

/// A member's type.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A `boolean`.
    Boolean,
    /// An integer.
    Integer(Integer),
    /// A `float`.
    Float,
    /// A `double`.
    Double,
    /// A `string`, of at most so many bytes.
    String(Option<u32>),
    /// Avro's `bytes`: a `sequence<octet>`.
    Bytes,
    /// Avro's `fixed`: an `octet[N]`.
    Fixed(u32),
    /// An enumeration.
    Enum(EnumPlace),
    /// A struct.
    Struct(StructPlace),
    /// A `sequence`.
    Sequence(Box<Kind>),
    /// An array of so many elements.
    Array(Box<Kind>, u32),
}

/// The integers of IDL that SAL uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Integer {
    /// 0 to 255.
    Octet,
    /// 16 bits, signed.
    Int16,
    /// 16 bits.
    Uint16,
    /// 32 bits, signed.
    Int32,
    /// 32 bits.
    Uint32,
    /// 64 bits, signed.
    Int64,
    /// 64 bits, only in our header: an Avro `long` cannot represent it.
    Uint64,
}

/// An enumeration.
#[derive(Debug, Clone, PartialEq)]
pub struct Enum {
    /// Its modules and name.
    pub name: String,
    /// The symbols; their indices are their values.
    pub symbols: Vec<String>,
    /// Its description.
    pub text: String,
}

impl Member {
    /// A member without further attributes.
    fn new(name: &str, kind: Kind, text: &str) -> Self {
        Self {
            id: 0,
            name: name.to_owned(),
            kind,
            optional: None,
            key: false,
            units: String::new(),
            text: text.to_owned(),
            labels: Vec::new(),
            default: None,
        }
    }
}

impl Struct {
    /// A struct, whose members get their indices as ids.
    fn new(name: String, members: Vec<Member>, appendable: bool, text: &str) -> Self {
        let mut this = Self { name, members, appendable, text: text.to_owned() };
        this.number();
        this
    }

    fn number(&mut self) {
        for (place, member) in self.members.iter_mut().enumerate() {
            member.id = place as u32;
        }
    }
}

impl Integer {
    /// Its name in IDL.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Octet => "octet",
            Self::Int16 => "int16",
            Self::Uint16 => "uint16",
            Self::Int32 => "int32",
            Self::Uint32 => "uint32",
            Self::Int64 => "int64",
            Self::Uint64 => "uint64",
        }
    }

    /// Number of bytes.
    fn width(self) -> usize {
        match self {
            Self::Octet => 1,
            Self::Int16 | Self::Uint16 => 2,
            Self::Int32 | Self::Uint32 => 4,
            Self::Int64 | Self::Uint64 => 8,
        }
    }

    /// Returns whether it can represent that number.
    fn holds(self, number: i64) -> bool {
        match self {
            Self::Octet => u8::try_from(number).is_ok(),
            Self::Int16 => i16::try_from(number).is_ok(),
            Self::Uint16 => u16::try_from(number).is_ok(),
            Self::Int32 => i32::try_from(number).is_ok(),
            Self::Uint32 => u32::try_from(number).is_ok(),
            Self::Int64 | Self::Uint64 => true,
        }
    }

    /// Returns the number of its bytes, big-endian if `big`, else little-endian.
    fn read(self, bytes: &[u8], big: bool) -> i64 {
        let shift = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
        let bits = match big {
            true => bytes.iter().fold(0, shift),
            false => bytes.iter().rev().fold(0, shift),
        };
        match self {
            Self::Int16 => i64::from(bits as i16),
            Self::Int32 => i64::from(bits as i32),
            _ => bits as i64,
        }
    }
}

impl TopicType {
    /// Compiles the type of a topic of ours: [`Head`] first, then the schema's fields.
    ///
    /// # Errors
    /// [`Unsayable`] names the field.
    pub fn new(schema: &Schema) -> Result<Self, Unsayable> {
        plan::compile(schema, Form::Typed)
    }

    /// Compiles the type of a foreign topic: the schema's fields alone.
    ///
    /// # Errors
    /// [`Unsayable`] names the field.
    pub fn foreign(schema: &Schema) -> Result<Self, Unsayable> {
        plan::compile(schema, Form::Foreign)
    }

    /// Returns the type of topics of bytes, and of schemas that IDL cannot express.
    #[must_use]
    pub fn envelope() -> Self {
        plan::envelope()
    }

    /// The layout of a sample.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// The structs; the last is the topic's.
    #[must_use]
    pub fn structs(&self) -> &[Struct] {
        &self.structs
    }

    /// The enumerations.
    #[must_use]
    pub fn enums(&self) -> &[Enum] {
        &self.enums
    }

    /// The topic's struct.
    #[must_use]
    pub fn root(&self) -> &Struct {
        self.structs.last().expect("a type has its root")
    }

    /// The type's name in DDS.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.root().name
    }

    /// Returns whether the key consists of the schema's fields, and not of the header's octets.
    #[must_use]
    pub fn has_key_fields(&self) -> bool {
        self.fields().iter().any(|member| member.key)
    }

    /// Returns the root's members without our header.
    pub(crate) fn fields(&self) -> &[Member] {
        match self.form {
            Form::Foreign => &self.root().members,
            Form::Typed | Form::Envelope => &self.root().members[1..],
        }
    }

    /// Returns the type as IDL, with all types that it uses: see [`document`].
    #[must_use]
    pub fn text(&self) -> String {
        document([self])
    }
}
