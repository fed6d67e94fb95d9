//! Types described at run time: the same types that an IDL compiler makes.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::Arc;

use cyclors::{
    dds_dynamic_member_descriptor, dds_dynamic_type_descriptor, dds_dynamic_type_kind,
    dds_dynamic_type_spec, dds_dynamic_type_t, dds_entity_t, dds_topic_descriptor_t,
    dds_typeinfo_t,
};

use super::DdsError;
use super::error::{checked, text};

/// Ids follow the order of the members.
const AUTOMATIC_ID: u32 = 0x0f00_0000;
const LAST_INDEX: u32 = u32::MAX;

/// A type of IDL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// `boolean`
    Boolean,
    /// `octet`
    Octet,
    /// `int8`
    Int8,
    /// `uint8`
    UInt8,
    /// `short`
    Int16,
    /// `unsigned short`
    UInt16,
    /// `long`
    Int32,
    /// `unsigned long`
    UInt32,
    /// `long long`
    Int64,
    /// `unsigned long long`
    UInt64,
    /// `float`
    Float32,
    /// `double`
    Float64,
    /// `char`
    Char,
    /// `string`, with an optional bound in bytes.
    String(Option<u32>),
    /// `sequence`, with an optional bound in elements.
    Sequence(Box<Type>, Option<u32>),
    /// An array, with its dimensions.
    Array(Box<Type>, Vec<u32>),
    /// `enum`
    Enumeration(Arc<Enumeration>),
    /// `struct`
    Struct(Arc<Struct>),
}

/// An enumeration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Enumeration {
    /// Its name, with its modules: `helio::Colour`.
    pub name: String,
    /// Its symbols and their numbers; the first is the default.
    pub literals: Vec<(String, i32)>,
    /// `@appendable` or `@final`.
    pub extensibility: Extensibility,
}

/// A structure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Struct {
    /// Its name, with its modules: `helio::Envelope`.
    pub name: String,
    /// What may change in later versions.
    pub extensibility: Extensibility,
    /// Whether it is only nested in others, and never a topic's type.
    pub nested: bool,
    /// Its members, in order.
    pub members: Vec<Member>,
}

/// A member of a structure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Type,
    /// Whether it is `@key`.
    pub key: bool,
    /// Whether it is `@optional`.
    pub optional: bool,
}

impl Member {
    /// A member that is neither optional nor a key.
    #[must_use]
    pub fn new(name: &str, of: Type) -> Self {
        Self { name: name.to_owned(), of, key: false, optional: false }
    }

    /// The same as `@key`.
    #[must_use]
    pub fn key(self) -> Self {
        Self { key: true, ..self }
    }

    /// The same as `@optional`.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

/// What may change in later versions of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extensibility {
    /// Nothing.
    Final,
    /// Members may be added at the end.
    Appendable,
    /// Anything.
    Mutable,
}

impl Extensibility {
    fn native(self) -> cyclors::dds_dynamic_type_extensibility {
        match self {
            Self::Final => cyclors::dds_dynamic_type_extensibility_DDS_DYNAMIC_TYPE_EXT_FINAL,
            Self::Appendable => {
                cyclors::dds_dynamic_type_extensibility_DDS_DYNAMIC_TYPE_EXT_APPENDABLE
            }
            Self::Mutable => cyclors::dds_dynamic_type_extensibility_DDS_DYNAMIC_TYPE_EXT_MUTABLE,
        }
    }
}

/// A topic descriptor, freed when dropped.
pub(super) struct Descriptor(*mut dds_topic_descriptor_t);

impl Descriptor {
    pub(super) fn native(&self) -> *const dds_topic_descriptor_t {
        self.0
    }

    /// The type's identities, minimal and complete, and those of its parts.
    pub(super) fn information(&self) -> Vec<u8> {
        // SAFETY: the descriptor is complete, and its bytes live as long as it does.
        unsafe {
            let information = (*self.0).type_information;
            if information.data.is_null() {
                return Vec::new();
            }
            std::slice::from_raw_parts(information.data, information.sz as usize).to_vec()
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created in `describe`, freed once.
        unsafe { cyclors::dds_delete_topic_descriptor(self.0) };
    }
}

/// Registers a type in a participant's domain, and describes topics of it.
pub(super) fn describe(participant: dds_entity_t, of: &Struct) -> Result<Descriptor, DdsError> {
    let mut building = TypeBuilder { participant, known: BTreeMap::new() };
    let mut made = building.structure(of)?;
    let described = registered(&mut made).and_then(|info| {
        let mut descriptor = null_mut();
        let scope = cyclors::dds_find_scope_DDS_FIND_SCOPE_LOCAL_DOMAIN;
        // SAFETY: the type information is valid; the call writes the pointer on success.
        let code = unsafe {
            let (info, to) = (info.0, &raw mut descriptor);
            cyclors::dds_create_topic_descriptor(scope, participant, info, 0, to)
        };
        checked("describe the type", code).map(|_| Descriptor(descriptor))
    });
    // SAFETY: released once; the topic descriptor has copies.
    unsafe { cyclors::dds_dynamic_type_unref(&raw mut made) };
    described
}

/// The identity of a registered type, freed when dropped.
struct TypeInfo(*mut dds_typeinfo_t);

impl Drop for TypeInfo {
    fn drop(&mut self) {
        // SAFETY: created in `registered`, freed once.
        unsafe { cyclors::dds_free_typeinfo(self.0) };
    }
}

/// Registers a complete type.
fn registered(made: &mut dds_dynamic_type_t) -> Result<TypeInfo, DdsError> {
    let mut info = null_mut();
    // SAFETY: the call writes the pointer on success.
    let code = unsafe { cyclors::dds_dynamic_type_register(made, &raw mut info) };
    checked("register the type", code).map(|_| TypeInfo(info))
}

struct TypeBuilder {
    participant: dds_entity_t,
    /// Named types that were created already: each name is one type.
    known: BTreeMap<String, dds_dynamic_type_t>,
}

impl Drop for TypeBuilder {
    fn drop(&mut self) {
        for known in self.known.values_mut() {
            // SAFETY: each type is released once; its users have their own references.
            unsafe { cyclors::dds_dynamic_type_unref(known) };
        }
    }
}

impl TypeBuilder {
    fn structure(&mut self, of: &Struct) -> Result<dds_dynamic_type_t, DdsError> {
        let name = text(&of.name)?;
        let mut made = self.create(|new| {
            new.kind = cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_STRUCTURE;
            new.name = name.as_ptr();
        })?;
        // SAFETY: the type is under construction.
        unsafe {
            let extensibility = of.extensibility.native();
            let code = cyclors::dds_dynamic_type_set_extensibility(&raw mut made, extensibility);
            checked("set the type's extensibility", code)?;
            let code = cyclors::dds_dynamic_type_set_nested(&raw mut made, of.nested);
            checked("make the type nested", code)?;
        }
        for (id, member) in (0..).zip(&of.members) {
            self.member(&mut made, id, member)?;
        }
        Ok(made)
    }

    fn member(
        &mut self,
        of: &mut dds_dynamic_type_t,
        id: u32,
        member: &Member,
    ) -> Result<(), DdsError> {
        let name = text(&member.name)?;
        let spec = self.spec(&member.of)?;
        // SAFETY: all zeros are a valid empty descriptor. The name is copied, and the structure
        // takes the member's type.
        unsafe {
            let mut new: dds_dynamic_member_descriptor = std::mem::zeroed();
            (new.name, new.id, new.index, new.type_) =
                (name.as_ptr(), AUTOMATIC_ID, LAST_INDEX, spec);
            checked("add a member", cyclors::dds_dynamic_type_add_member(of, new))?;
            if member.key {
                checked("set a key", cyclors::dds_dynamic_member_set_key(of, id, true))?;
            }
            if member.optional {
                let code = cyclors::dds_dynamic_member_set_optional(of, id, true);
                checked("make a member optional", code)?;
            }
        }
        Ok(())
    }

    fn spec(&mut self, of: &Type) -> Result<dds_dynamic_type_spec, DdsError> {
        // SAFETY: all zeros are a valid empty specification.
        let mut spec: dds_dynamic_type_spec = unsafe { std::mem::zeroed() };
        if let Some(kind) = primitive(of) {
            spec.kind = cyclors::dds_dynamic_type_spec_kind_DDS_DYNAMIC_TYPE_KIND_PRIMITIVE;
            spec.type_.primitive = kind;
        } else {
            spec.kind = cyclors::dds_dynamic_type_spec_kind_DDS_DYNAMIC_TYPE_KIND_DEFINITION;
            spec.type_.type_ = self.definition(of)?;
        }
        Ok(spec)
    }

    fn definition(&mut self, of: &Type) -> Result<dds_dynamic_type_t, DdsError> {
        match of {
            Type::String(bound) => self.create(|new| {
                new.kind = cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_STRING8;
                bounded(new, bound.as_slice());
            }),
            Type::Sequence(element, bound) => {
                self.collection("sequence", element, bound.as_slice(), |new| {
                    new.kind = cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_SEQUENCE;
                })
            }
            Type::Array(element, dimensions) => {
                self.collection("array", element, dimensions, |new| {
                    new.kind = cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_ARRAY;
                })
            }
            Type::Enumeration(of) => self.named(&of.name, |building| building.enumeration(of)),
            Type::Struct(of) => self.named(&of.name, |building| building.structure(of)),
            _ => Err(DdsError::NoValue),
        }
    }

    fn collection(
        &mut self,
        name: &str,
        element: &Type,
        bounds: &[u32],
        kind: impl FnOnce(&mut dds_dynamic_type_descriptor),
    ) -> Result<dds_dynamic_type_t, DdsError> {
        let (name, spec): (CString, _) = (text(name)?, self.spec(element)?);
        self.create(|new| {
            kind(new);
            (new.name, new.element_type) = (name.as_ptr(), spec);
            bounded(new, bounds);
        })
    }

    fn enumeration(&mut self, of: &Enumeration) -> Result<dds_dynamic_type_t, DdsError> {
        let name = text(&of.name)?;
        let mut made = self.create(|new| {
            new.kind = cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_ENUMERATION;
            new.name = name.as_ptr();
        })?;
        let explicit =
            cyclors::dds_dynamic_type_enum_value_kind_DDS_DYNAMIC_ENUM_LITERAL_VALUE_EXPLICIT;
        // SAFETY: the type is under construction; names are copied.
        unsafe {
            let extensibility = of.extensibility.native();
            let code = cyclors::dds_dynamic_type_set_extensibility(&raw mut made, extensibility);
            checked("set the enumeration's extensibility", code)?;
            for (literal, value) in &of.literals {
                let literal = text(literal)?;
                let value =
                    cyclors::dds_dynamic_enum_literal_value { value_kind: explicit, value: *value };
                let (made, literal) = (&raw mut made, literal.as_ptr());
                let code = cyclors::dds_dynamic_type_add_enum_literal(made, literal, value, false);
                checked("add a symbol of an enumeration", code)?;
            }
        }
        Ok(made)
    }

    /// A named type: created once, then referenced. It is registered at once, because a type that
    /// the domain already knows replaces the created one.
    fn named(
        &mut self,
        name: &str,
        make: impl FnOnce(&mut Self) -> Result<dds_dynamic_type_t, DdsError>,
    ) -> Result<dds_dynamic_type_t, DdsError> {
        let known = match self.known.get(name) {
            Some(known) => *known,
            None => {
                let mut made = make(self)?;
                registered(&mut made)?;
                self.known.insert(name.to_owned(), made);
                made
            }
        };
        // The caller gets a reference to the complete type, and none to the minimal one.
        let mut complete = dds_dynamic_type_t { x: [known.x[0], null_mut()], ret: known.ret };
        // SAFETY: `known` refers to the type until the builder is dropped.
        let again = unsafe { cyclors::dds_dynamic_type_ref(&raw mut complete) };
        checked("reference a type", again.ret).map(|_| again)
    }

    fn create(
        &self,
        describe: impl FnOnce(&mut dds_dynamic_type_descriptor),
    ) -> Result<dds_dynamic_type_t, DdsError> {
        // SAFETY: all zeros are a valid empty descriptor. What `describe` points to outlives the
        // call, which copies it.
        unsafe {
            let mut new: dds_dynamic_type_descriptor = std::mem::zeroed();
            describe(&mut new);
            let made = cyclors::dds_dynamic_type_create(self.participant, new);
            checked("create the type", made.ret).map(|_| made)
        }
    }
}

fn bounded(new: &mut dds_dynamic_type_descriptor, bounds: &[u32]) {
    new.num_bounds = u32::try_from(bounds.len()).unwrap_or(u32::MAX);
    new.bounds = bounds.as_ptr();
}

fn primitive(of: &Type) -> Option<dds_dynamic_type_kind> {
    Some(match of {
        Type::Boolean => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_BOOLEAN,
        Type::Octet => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_BYTE,
        Type::Int8 => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_INT8,
        Type::UInt8 => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_UINT8,
        Type::Int16 => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_INT16,
        Type::UInt16 => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_UINT16,
        Type::Int32 => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_INT32,
        Type::UInt32 => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_UINT32,
        Type::Int64 => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_INT64,
        Type::UInt64 => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_UINT64,
        Type::Float32 => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_FLOAT32,
        Type::Float64 => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_FLOAT64,
        Type::Char => cyclors::dds_dynamic_type_kind_DDS_DYNAMIC_CHAR8,
        _ => return None,
    })
}
