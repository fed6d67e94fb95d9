//! Encodes a field's default, which a schema has as JSON.

use serde_json::Value;

use super::plan::{Node, NodeId, Plan};

/// Appends the datum of a default; `None` if it does not fit its type.
pub(super) fn encode(plan: &Plan, node: NodeId, value: &Value, out: &mut Vec<u8>) -> Option<()> {
    match plan.node(node) {
        Node::Null => value.as_null()?,
        Node::Boolean => out.push(value.as_bool()?.into()),
        Node::Int | Node::IntEnum(_) => {
            long(i32::try_from(value.as_i64()?).ok()?.into(), out);
        }
        Node::Integer(of) => {
            let number = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from))?;
            long(Some(number).filter(|n| of.dtype.holds(*n))? as i64, out);
        }
        Node::NdArray(of) => {
            let raw = latin1(value).filter(|raw| of.array.holds(raw.len()))?;
            size(raw.len(), out);
            out.extend(raw);
        }
        Node::Long | Node::Time => long(value.as_i64()?, out),
        Node::Float => out.extend_from_slice(&(number(value)? as f32).to_le_bytes()),
        Node::Double => out.extend_from_slice(&number(value)?.to_le_bytes()),
        Node::Bytes => {
            let raw = latin1(value)?;
            size(raw.len(), out);
            out.extend(raw);
        }
        Node::Fixed(length) => out.extend(latin1(value).filter(|raw| raw.len() == *length)?),
        Node::String => text(value.as_str()?, out),
        Node::Enum(of) => long((*of.index.get(value.as_str()?)?).into(), out),
        Node::Array(of) => {
            let items = value.as_array()?;
            if of.length.is_some_and(|length| length != items.len()) {
                return None;
            }
            block(items.len(), out);
            items.iter().try_for_each(|item| encode(plan, of.item, item, out))?;
            out.push(0);
        }
        Node::Map(values) => {
            let items = value.as_object()?;
            block(items.len(), out);
            for (key, item) in items {
                text(key, out);
                encode(plan, *values, item, out)?;
            }
            out.push(0);
        }
        Node::Union(branches) => union(plan, branches, value, out)?,
        Node::Record(record) => {
            let given = value.as_object()?;
            for field in &record.fields {
                match (given.get(&field.text), &field.default) {
                    (Some(item), _) => encode(plan, field.node, item, out)?,
                    (None, default) => out.extend_from_slice(default.as_ref()?),
                }
            }
        }
        Node::Logical(logical) => encode(plan, logical.base, value, out)?,
    }
    Some(())
}

/// The first branch by the older specification, any that fits by the newer one.
fn union(plan: &Plan, branches: &[NodeId], value: &Value, out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    for (index, branch) in branches.iter().enumerate() {
        size(index, out);
        if encode(plan, *branch, value, out).is_some() {
            return Some(());
        }
        out.truncate(start);
    }
    None
}

fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("INF" | "Infinity") => Some(f64::INFINITY),
        Some("-INF" | "-Infinity") => Some(f64::NEG_INFINITY),
        _ => value.as_f64(),
    }
}

/// Bytes are written as text whose code points 0 to 255 are the bytes.
fn latin1(value: &Value) -> Option<Vec<u8>> {
    value.as_str()?.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

fn text(text: &str, out: &mut Vec<u8>) {
    size(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

fn size(size: usize, out: &mut Vec<u8>) {
    long(i64::try_from(size).expect("a schema's text is shorter than 2^63 bytes"), out);
}

fn block(count: usize, out: &mut Vec<u8>) {
    if count > 0 {
        size(count, out);
    }
}

fn long(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
