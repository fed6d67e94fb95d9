//! Schemas as Cyclone's run-time types: the types that an IDL compiler makes of the same IDL text.

use std::sync::Arc;

use helio_core::idl::{self, Integer, Kind, TopicType};

use crate::entity::{Enumeration, Extensibility, Member, Struct, Type};

/// A topic's type for Cyclone. Its XTypes identity is that of [`TopicType::text`].
#[must_use]
pub fn runtime_type(of: &TopicType) -> Arc<Struct> {
    let mut structs = Vec::with_capacity(of.structs().len());
    let enums: Vec<_> = of.enums().iter().map(enumeration).collect();
    for one in of.structs() {
        let members = one.members.iter().map(|member| Member {
            name: member.name.clone(),
            of: kind(&member.kind, &structs, &enums),
            key: member.key,
            optional: member.optional.is_some(),
        });
        let members = members.collect();
        let extensibility = extensibility(one.appendable);
        // IDL compilers leave types without an annotation usable for both.
        let nested = false;
        structs.push(Arc::new(Struct { name: one.name.clone(), extensibility, nested, members }));
    }
    structs.pop().expect("a type has its root")
}

fn extensibility(appendable: bool) -> Extensibility {
    if appendable { Extensibility::Appendable } else { Extensibility::Final }
}

fn enumeration(of: &idl::Enum) -> Arc<Enumeration> {
    let literals = of.symbols.iter().cloned().zip(0..).collect();
    let extensibility = extensibility(true);
    Arc::new(Enumeration { name: of.name.clone(), literals, extensibility })
}

fn kind(of: &Kind, structs: &[Arc<Struct>], enums: &[Arc<Enumeration>]) -> Type {
    let octets = || Box::new(Type::Octet);
    match of {
        Kind::Boolean => Type::Boolean,
        Kind::Integer(integer) => match integer {
            Integer::Octet => Type::Octet,
            Integer::Int16 => Type::Int16,
            Integer::Uint16 => Type::UInt16,
            Integer::Int32 => Type::Int32,
            Integer::Uint32 => Type::UInt32,
            Integer::Int64 => Type::Int64,
            Integer::Uint64 => Type::UInt64,
        },
        Kind::Float => Type::Float32,
        Kind::Double => Type::Float64,
        Kind::String(bound) => Type::String(*bound),
        Kind::Bytes => Type::Sequence(octets(), None),
        Kind::Fixed(size) => Type::Array(octets(), vec![*size]),
        Kind::Enum(place) => Type::Enumeration(Arc::clone(&enums[*place])),
        Kind::Struct(place) => Type::Struct(Arc::clone(&structs[*place])),
        Kind::Sequence(item) => Type::Sequence(Box::new(kind(item, structs, enums)), None),
        Kind::Array(item, count) => Type::Array(Box::new(kind(item, structs, enums)), vec![*count]),
    }
}
