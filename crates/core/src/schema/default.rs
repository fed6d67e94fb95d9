//! The check that a field's default is a value of its type.

use serde_json::Value as Json;

use super::parse::{field_place, shorten};
use super::{Node, NodeId, SchemaError, Type};

/// The limit of steps for the checks of one schema's defaults. Only nested unions of records need
/// more steps than the text has characters.
const MAX_STEPS: usize = super::MAX_SCHEMA_BYTES;

pub(super) fn check_defaults(nodes: &[Node]) -> Result<(), SchemaError> {
    let mut check = Check { nodes, steps: MAX_STEPS };
    for node in nodes {
        let Type::Record(record) = &node.kind else { continue };
        for field in &record.fields {
            let Some(default) = &field.default else { continue };
            let wrong = |problem| SchemaError::Default { at: field_place(record, field), problem };
            check.value(field.kind, default).map_err(wrong)?;
            if let (Some(length), Some(items)) = (field.length, default.as_array())
                && items.len() != length
                && !items.is_empty()
            {
                let found = items.len();
                return Err(wrong(format!("{found} elements, the length is {length}")));
            }
        }
    }
    Ok(())
}

/// A comparison of JSON (whose depth its parser has bounded) with types.
struct Check<'a> {
    nodes: &'a [Node],
    steps: usize,
}

impl Check<'_> {
    fn value(&mut self, id: NodeId, json: &Json) -> Result<(), String> {
        self.steps = self.steps.checked_sub(1).ok_or("it takes too long to check")?;
        let kind = &self.nodes[id.index()].kind;
        let fits = match (kind, json) {
            (Type::Array(item), Json::Array(items)) => {
                return items.iter().try_for_each(|json| self.value(*item, json));
            }
            (Type::Map(item), Json::Object(values)) => {
                return values.values().try_for_each(|json| self.value(*item, json));
            }
            (Type::Union(branches), json) => {
                branches.iter().any(|branch| self.value(*branch, json).is_ok())
            }
            (Type::Record(record), Json::Object(values)) => {
                for field in &record.fields {
                    match (values.get(&field.name), &field.default) {
                        (Some(json), _) => self.value(field.kind, json)?,
                        (None, Some(_)) => {}
                        (None, None) => {
                            return Err(format!("the field {:?} is missing", field.name));
                        }
                    }
                }
                true
            }
            (kind, json) => plain(kind, json),
        };
        if fits { Ok(()) } else { Err(format!("{} is no {kind}", shorten(json))) }
    }
}

fn plain(kind: &Type, json: &Json) -> bool {
    match (kind, json) {
        (Type::Null, Json::Null)
        | (Type::Boolean, Json::Bool(_))
        | (Type::String, Json::String(_))
        | (Type::Float | Type::Double, Json::Number(_)) => true,
        (Type::Float | Type::Double, Json::String(word)) => number_word(word).is_some(),
        (Type::Int, Json::Number(n)) => n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        (Type::Long, Json::Number(n)) => n.as_i64().is_some(),
        (Type::Bytes, Json::String(text)) => latin1(text),
        (Type::Fixed(fixed), Json::String(text)) => {
            latin1(text) && text.chars().count() == fixed.size
        }
        (Type::Enum(of), Json::String(symbol)) => of.symbols.contains(symbol),
        _ => false,
    }
}

fn latin1(text: &str) -> bool {
    text.chars().all(|c| u32::from(c) < 256)
}

/// Returns the floating-point number of a text for which JSON has no number.
pub(crate) fn number_word(word: &str) -> Option<f64> {
    match word {
        "NaN" => Some(f64::NAN),
        "Infinity" | "INF" => Some(f64::INFINITY),
        "-Infinity" | "-INF" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}
