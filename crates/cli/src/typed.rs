//! Synthetic messages of any schema.
//!
//! A message is filled once, field by field. From one to the next change its number, its times and
//! the first elements of its arrays, as in measurements. Each message is encoded.

use helio_core::codec::{Codec, Value};
use helio_core::schema::{Field, NodeId, Schema, Type};

use crate::error::{CliError, CliResult};

/// Elements of an array without a length in its schema.
const DEFAULT_ARRAY_ELEMENTS: usize = 10;
/// The depth of nesting that is filled; deeper values stay empty.
const MAX_DEPTH: usize = 8;

/// Generates the messages of one schema.
pub(crate) struct Messages {
    codec: Codec,
    value: Value,
    changing: Vec<(usize, Change)>,
    payload: Vec<u8>,
}

/// A value that changes from message to message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The number of the message.
    Number,
    /// Seconds since the first message.
    Seconds,
    /// A measured value.
    Measured,
    /// The index of the component.
    Index,
}

impl Messages {
    /// Messages of a record schema.
    pub(crate) fn new(schema: &Schema) -> CliResult<Self> {
        if schema.record().is_none() {
            let text = "only messages of a record can be made up; name a topic or a record";
            return Err(CliError::Refused(text.to_owned()));
        }
        let value = example(schema, NodeId::ROOT, None, MAX_DEPTH);
        let changing = schema.fields().iter().enumerate();
        let changing = changing.filter_map(|(i, f)| Some((i, change(schema, f)?))).collect();
        Ok(Self { codec: Codec::new(schema), value, changing, payload: Vec::new() })
    }

    /// The datum of a message, by its number from 0 and the index of its component.
    pub(crate) fn write(&mut self, number: u64, index: i32) -> CliResult<&[u8]> {
        let Value::Record(fields) = &mut self.value else { return Ok(&[]) };
        for (place, change) in &self.changing {
            fields[*place].change(*change, number, index);
        }
        self.payload.clear();
        let encoded = self.codec.encode(&self.value, &mut self.payload);
        encoded.map_err(|e| CliError::Refused(format!("a synthetic message: {e}")))?;
        Ok(&self.payload)
    }

    /// Decodes a datum.
    pub(crate) fn read(&self, payload: &[u8]) -> CliResult<Value> {
        let decoded = self.codec.decode(payload);
        decoded.map_err(|e| CliError::Failure(format!("a message cannot be decoded: {e}")))
    }

    /// The size of the last message.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len()
    }
}

fn change(schema: &Schema, field: &Field) -> Option<Change> {
    let name = field.name.to_ascii_lowercase();
    let kind = &schema.node(field.kind).kind;
    match (name.as_str(), kind) {
        ("salindex", _) => Some(Change::Index),
        ("private_seqnum", _) => Some(Change::Number),
        (name, Type::Double) if name.contains("stamp") => Some(Change::Seconds),
        (_, Type::Float | Type::Double | Type::Array(_)) => Some(Change::Measured),
        _ => None,
    }
}

/// A value between -1000 and 1000 that oscillates with the number.
fn measured(number: u64) -> f64 {
    1000.0 * (number as f64 * 0.02).sin()
}

trait Changing {
    fn change(&mut self, change: Change, number: u64, index: i32);
}

impl Changing for Value {
    fn change(&mut self, change: Change, number: u64, index: i32) {
        match (self, change) {
            (Self::Int(value), Change::Index) => *value = index,
            (Self::Long(value), Change::Index) => *value = index.into(),
            // SAL's numbers begin at 1 and wrap within 31 bits.
            (Self::Int(value), _) => *value = (number % 0x7fff_ffff) as i32 + 1,
            (Self::Long(value), _) => *value = number as i64 + 1,
            (Self::Double(value), Change::Seconds) => *value = number as f64 * 0.02,
            (Self::Double(value), _) => *value = measured(number),
            (Self::Float(value), _) => *value = measured(number) as f32,
            (Self::Floats(all), _) => all.iter_mut().take(1).for_each(|v| *v = number as f32),
            (Self::Doubles(all), _) => all.iter_mut().take(1).for_each(|v| *v = number as f64),
            (Self::Ints(all), _) => all.iter_mut().take(1).for_each(|v| *v = number as i32 & 0xff),
            _ => {}
        }
    }
}

/// A value of a type.
fn example(schema: &Schema, id: NodeId, field: Option<&Field>, depth: usize) -> Value {
    let length = match (depth, field.and_then(|field| field.length)) {
        (0, _) => 0,
        (_, Some(length)) => length,
        (_, None) => DEFAULT_ARRAY_ELEMENTS,
    };
    let inner = |id| example(schema, id, None, depth.saturating_sub(1));
    match &schema.node(id).kind {
        Type::Null => Value::Null,
        Type::Boolean => Value::Boolean(true),
        Type::Int => Value::Int(1),
        Type::Long => Value::Long(1),
        Type::Float => Value::Float(1.5),
        Type::Double => Value::Double(1.5),
        Type::Bytes => Value::Bytes(vec![7; length]),
        Type::String => Value::String(field.map_or("text", |field| &field.name).to_owned()),
        Type::Array(items) => array(schema, *items, length, || inner(*items)),
        Type::Map(values) if depth > 0 => Value::Map(vec![("key".to_owned(), inner(*values))]),
        Type::Map(_) => Value::Map(Vec::new()),
        Type::Union(branches) => {
            let null = |id: &NodeId| schema.node(*id).kind == Type::Null;
            let shallow = branches.iter().position(null).filter(|_| depth == 0);
            let taken = shallow.or_else(|| branches.iter().position(|id| !null(id))).unwrap_or(0);
            let value = branches.get(taken).map_or(Value::Null, |id| inner(*id));
            Value::Union(taken as u32, Box::new(value))
        }
        Type::Record(record) => {
            let of =
                |field: &Field| example(schema, field.kind, Some(field), depth.saturating_sub(1));
            Value::Record(record.fields.iter().map(of).collect())
        }
        Type::Enum(_) => Value::Enum(0),
        Type::Fixed(fixed) => Value::Bytes(vec![7; fixed.size]),
    }
}

fn array(schema: &Schema, items: NodeId, length: usize, one: impl Fn() -> Value) -> Value {
    let places = || (0..length).map(|place| measured(place as u64));
    match &schema.node(items).kind {
        Type::Boolean => Value::Booleans(vec![true; length]),
        Type::Int => Value::Ints(places().map(|v| v as i32 & 0xff).collect()),
        Type::Long => Value::Longs(places().map(|v| v as i64).collect()),
        Type::Float => Value::Floats(places().map(|v| v as f32).collect()),
        Type::Double => Value::Doubles(places().collect()),
        _ if length == 0 => Value::Array(Vec::new()),
        _ => Value::Array(vec![one(); length]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sal;

    #[test]
    fn every_topic_of_our_own_can_be_made_up() {
        for topic in sal::folder_or_own(None).unwrap().topics() {
            let mut messages = Messages::new(&topic.schema().unwrap()).unwrap();
            let first = messages.write(0, 1).unwrap().to_vec();
            let second = messages.write(1, 2).unwrap().to_vec();
            assert_ne!(first, second, "{topic}");
            messages.read(&second).unwrap();
        }
    }

    #[test]
    fn force_actuator_data_has_its_size_on_the_wire() {
        let ours = sal::folder_or_own(None).unwrap();
        let topic = sal::topic(&ours, "MTM1M3_forceActuatorData").unwrap();
        let mut messages = Messages::new(&topic.schema().unwrap()).unwrap();
        let bytes = messages.write(0, 0).unwrap().len();
        assert!((3_300..3_450).contains(&bytes), "{bytes} bytes");
    }

    #[test]
    fn recursive_schemas_end() {
        let text = r#"{"type": "record", "name": "node", "fields": [
            {"name": "next", "type": ["null", "node"]},
            {"name": "more", "type": {"type": "array", "items": "node"}}]}"#;
        let schema = Schema::parse(text).unwrap();
        assert!(Messages::new(&schema).unwrap().write(0, 0).unwrap().len() < 1_000_000);
    }
}
