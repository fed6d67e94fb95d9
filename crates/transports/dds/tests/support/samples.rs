//! Schemas for the tests of types, and values of them.

use std::path::Path;

use helio_bus::read_interfaces;
use helio_core::codec::Value;
use helio_core::schema::{Field, NodeId, Schema, Type};

/// Names a folder of SAL interfaces whose topics are all tested, instead of a few of our own.
const INTERFACES_VARIABLE: &str = "HELIO_DDS_INTERFACES";

pub(crate) const EVERY_TYPE_SCHEMA: &str =
    include_str!("../../../../core/tests/golden/cdr/every.avsc");

/// A schema with all types, a keyless topic with nested records, and topics of SAL.
pub(crate) fn schemas() -> Vec<Schema> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/interfaces");
    if let Some(folder) = std::env::var_os(INTERFACES_VARIABLE) {
        let all = read_interfaces(Path::new(&folder)).unwrap();
        return all.topics().map(|topic| topic.schema().unwrap()).collect();
    }
    let interfaces = read_interfaces(&own).unwrap();
    let few = ["ESS", "Camera"].map(|name| interfaces.component(name).unwrap());
    let topics = few.iter().flat_map(|component| component.topics());
    let mut all: Vec<_> = topics.map(|topic| topic.schema().unwrap()).collect();
    all.push(Schema::parse(EVERY_TYPE_SCHEMA).unwrap());
    all.push(
        Schema::parse(
            r#"{"type": "record", "name": "obs.Keyless", "fields": [
                {"name": "outer", "type": {"type": "record", "name": "Outer", "fields": [
                    {"name": "list", "type": {"type": "array", "items":
                        {"type": "record", "name": "Middle", "fields": [
                            {"name": "pair", "type": {"type": "array", "items":
                                {"type": "record", "name": "Leaf", "fields": [
                                    {"name": "at", "type": "double"},
                                    {"name": "of", "type": ["null", "int"]}]}}, "length": 2}
                        ]}}}]}}]}"#,
        )
        .unwrap(),
    );
    all
}

/// A value that fits every type: small numbers, all different.
pub(crate) fn value(schema: &Schema, id: NodeId, length: Option<usize>, next: &mut i32) -> Value {
    *next = (*next + 1) % 120;
    let number = *next;
    match &schema.node(id).kind {
        Type::Boolean => (number % 2 == 0).into(),
        Type::Int => number.into(),
        Type::Long => i64::from(number).into(),
        Type::Float => (number as f32 / 4.0).into(),
        Type::Double => (f64::from(number) / 4.0).into(),
        Type::Bytes => vec![number as u8; 3].into(),
        Type::String => format!("n° {number}").as_str().into(),
        Type::Fixed(fixed) => vec![number as u8; fixed.size].into(),
        Type::Enum(of) => Value::Enum(number as u32 % of.symbols.len() as u32),
        Type::Array(item) => {
            let count = length.unwrap_or(3);
            let items = (0..count).map(|_| value(schema, *item, None, next)).collect::<Vec<_>>();
            Value::Array(items)
        }
        Type::Union(branches) => {
            let branch = number as usize % branches.len();
            Value::Union(branch as u32, Box::new(value(schema, branches[branch], length, next)))
        }
        Type::Record(record) => {
            let of = |field: &Field| value(schema, field.kind, field.length, next);
            Value::Record(record.fields.iter().map(of).collect())
        }
        Type::Null => Value::Null,
        Type::Map(_) => unreachable!("IDL has none"),
    }
}
