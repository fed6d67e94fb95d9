//! Layers of configuration, each overriding the previous one: `_init`, the site's, the override.

use serde_json::{Map, Value};
use thiserror::Error;

/// The deepest nesting of a configuration, so that recursion over it is safe.
pub const MAX_DEPTH: usize = 64;

/// The key of a layer that describes the file rather than the component.
const METADATA: &str = "metadata";

/// Why layers contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayerError {
    /// A layer has a value of another type than the layers before.
    #[error("{layer}: {path} is {found}, and was {expected} before; give it the same type")]
    Type {
        /// The layer.
        layer: String,
        /// The keys of the value, separated by dots.
        path: String,
        /// Its type, with an article.
        found: &'static str,
        /// The previous type.
        expected: &'static str,
    },
    /// A layer is nested too deeply.
    #[error("{layer}: {path} is nested deeper than {MAX_DEPTH} levels; make it flatter")]
    Depth {
        /// The layer.
        layer: String,
        /// The keys of the value, separated by dots.
        path: String,
    },
}

/// Merges named layers in their order. Maps are merged key by key. Any other value is replaced by
/// one of the same type; null may be replaced by anything. The key `metadata` of a layer is
/// removed.
///
/// # Errors
/// [`LayerError`] names the layer and the path of a value whose type changes.
pub fn merge<'a>(
    layers: impl IntoIterator<Item = (&'a str, Map<String, Value>)>,
) -> Result<Map<String, Value>, LayerError> {
    let mut merged = Map::new();
    for (layer, mut values) in layers {
        values.shift_remove(METADATA);
        merge_map(layer, &mut Vec::new(), &mut merged, values)?;
    }
    Ok(merged)
}

fn merge_map(
    layer: &str,
    path: &mut Vec<String>,
    into: &mut Map<String, Value>,
    values: Map<String, Value>,
) -> Result<(), LayerError> {
    if path.len() >= MAX_DEPTH {
        return Err(LayerError::Depth { layer: layer.to_owned(), path: path.join(".") });
    }
    for (key, value) in values {
        path.push(key.clone());
        merge_value(layer, path, into.entry(key).or_insert(Value::Null), value)?;
        path.pop();
    }
    Ok(())
}

fn merge_value(
    layer: &str,
    path: &mut Vec<String>,
    into: &mut Value,
    value: Value,
) -> Result<(), LayerError> {
    let (expected, found) = (word(into), word(&value));
    match (into, value) {
        (Value::Object(into), Value::Object(values)) => merge_map(layer, path, into, values),
        (into @ Value::Null, Value::Object(values)) => {
            let mut merged = Map::new();
            merge_map(layer, path, &mut merged, values)?;
            *into = Value::Object(merged);
            Ok(())
        }
        (into, value) if into.is_null() || expected == found => {
            *into = value;
            Ok(())
        }
        _ => {
            Err(LayerError::Type { layer: layer.to_owned(), path: path.join("."), found, expected })
        }
    }
}

fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(layers: &[(&str, Value)]) -> Result<Value, LayerError> {
        let maps = layers.iter().map(|(name, value)| (*name, value.as_object().unwrap().clone()));
        merge(maps).map(Value::Object)
    }

    #[test]
    fn later_layers_win_key_by_key() {
        let init = json!({"metadata": {"by": "x"}, "host": "a", "axes": {"az": 1, "el": [1, 2]}});
        let site = json!({"axes": {"el": [3]}, "metadata": "y", "extra": null});
        let over = json!({"axes": {"az": 2.5}, "extra": {"a": 1}});
        let expected = json!({"host": "a", "axes": {"az": 2.5, "el": [3]}, "extra": {"a": 1}});
        assert_eq!(merged(&[("_init", init), ("_site", site), ("o", over)]), Ok(expected));
    }

    #[test]
    fn a_change_of_type_is_refused_by_path() {
        let init = json!({"axes": {"az": 1}});
        let error = merged(&[("_init", init), ("o.yaml", json!({"axes": {"az": "1"}}))]);
        let text = "o.yaml: axes.az is a text, and was a number before; give it the same type";
        assert_eq!(error.unwrap_err().to_string(), text);
        let null = json!({"a": null});
        assert!(merged(&[("1", json!({"a": {"b": 1}})), ("2", null)]).is_err());
    }

    #[test]
    fn a_deep_layer_is_refused() {
        let deep = (0..MAX_DEPTH).fold(json!({}), |inner, _| json!({ "a": inner }));
        assert!(matches!(merged(&[("x", deep)]), Err(LayerError::Depth { .. })));
    }
}
