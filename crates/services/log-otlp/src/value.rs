//! Converts values to and from OTLP.

use helio_logging::{Level, MAX_DEPTH, Value};

use crate::proto::{AnyValue, KeyValue, Kind, Pairs, Values};

/// Converts a value to OTLP. Values of records are not deeper than [`MAX_DEPTH`].
pub(crate) fn any_value(value: &Value) -> AnyValue {
    let kind = match value {
        Value::Null => return AnyValue { value: None },
        Value::Bool(value) => Kind::Bool(*value),
        Value::Int(number) => Kind::Int(*number),
        Value::Double(number) => Kind::Double(*number),
        Value::Text(text) => Kind::Text(text.clone()),
        Value::Bytes(bytes) => Kind::Bytes(bytes.clone()),
        Value::Array(values) => Kind::Array(array(values)),
        Value::Map(pairs) => Kind::Map(Pairs { values: attributes(pairs) }),
    };
    AnyValue { value: Some(kind) }
}

pub(crate) fn array(values: &[Value]) -> Values {
    Values { values: values.iter().map(any_value).collect() }
}

pub(crate) fn attributes(pairs: &[(String, Value)]) -> Vec<KeyValue> {
    pairs.iter().map(|(name, value)| attribute(name, any_value(value))).collect()
}

pub(crate) fn attribute(name: &str, value: AnyValue) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(value) }
}

pub(crate) fn text(text: &str) -> AnyValue {
    AnyValue { value: Some(Kind::Text(text.to_owned())) }
}

pub(crate) fn int(number: i64) -> AnyValue {
    AnyValue { value: Some(Kind::Int(number)) }
}

/// Converts a value from OTLP. Values below [`MAX_DEPTH`] become their text, as in a packet.
pub(crate) fn value_of(value: Option<AnyValue>) -> Value {
    value_at(value, 1)
}

fn value_at(value: Option<AnyValue>, depth: usize) -> Value {
    match value.and_then(|value| value.value) {
        None => Value::Null,
        Some(Kind::Text(text)) => Value::Text(text),
        Some(Kind::Bool(value)) => Value::Bool(value),
        Some(Kind::Int(number)) => Value::Int(number),
        Some(Kind::Double(number)) => Value::Double(number),
        Some(Kind::Bytes(bytes)) => Value::Bytes(bytes),
        Some(kind) if depth == MAX_DEPTH => Value::Text(unbounded(kind).to_string()),
        Some(kind) => nested(kind, depth + 1),
    }
}

/// Converts an array or a map whose values are at a depth.
fn nested(kind: Kind, depth: usize) -> Value {
    match kind {
        Kind::Array(Values { values }) => {
            Value::Array(values.into_iter().map(|value| value_at(Some(value), depth)).collect())
        }
        Kind::Map(Pairs { values }) => Value::Map(pairs_at(values, depth)),
        kind => value_at(Some(AnyValue { value: Some(kind) }), depth),
    }
}

/// Converts without a limit of depth; the message's decoder bounds it to about 50.
fn unbounded(kind: Kind) -> Value {
    // No limit applies from this depth on.
    nested(kind, MAX_DEPTH + 1)
}

fn pairs_at(values: Vec<KeyValue>, depth: usize) -> Vec<(String, Value)> {
    let pair = |KeyValue { key, value }| (key, value_at(value, depth));
    values.into_iter().map(pair).collect()
}

/// Attributes as the pairs of a map.
pub(crate) fn map_of(values: Vec<KeyValue>) -> Vec<(String, Value)> {
    pairs_at(values, 2)
}

/// The level of a severity, with the number and the text if the level does not determine them.
///
/// A text that is a level's name selects among the number's levels; otherwise the number decides.
pub(crate) fn level(number: i32, text: &str) -> (Level, Option<i32>, Option<String>) {
    let named = text.parse::<Level>().ok();
    let level = match named {
        Some(level) if number == 0 || i32::from(level.severity()) == number => level,
        _ => Level::from_severity(number),
    };
    let number = (number != 0 && number != i32::from(level.severity())).then_some(number);
    let text = (!text.is_empty() && named != Some(level)).then(|| text.to_owned());
    (level, number, text)
}
