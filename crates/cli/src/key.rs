//! Keys from a value's fields. The key of a typed value is the concatenated Avro encodings of the
//! fields, as in the typed APIs; the key of untyped JSON is the text of one field.

use helio_core::codec::Codec;
use helio_core::resolve::Resolution;
use helio_core::schema::Schema;
use serde_json::{Map, Value};

use crate::error::{CliError, CliResult};

/// The fields of a value that are its key.
pub(crate) enum KeyFields {
    /// Of a typed value: the projection to those fields.
    Typed(Box<Resolution>),
    /// Of JSON: one field, nested fields with dots.
    Json(String),
}

impl KeyFields {
    /// The fields of these names; `None` without names.
    pub(crate) fn new(schema: Option<&Schema>, names: &[String]) -> CliResult<Option<Self>> {
        match (schema, names) {
            (_, []) => Ok(None),
            (Some(schema), names) => {
                let key = projected(schema, names)?;
                let resolution = Resolution::new(schema, &key);
                let resolution = resolution.map_err(|e| CliError::Refused(e.to_string()))?;
                Ok(Some(Self::Typed(Box::new(resolution))))
            }
            (None, [name]) => Ok(Some(Self::Json(name.clone()))),
            (None, _) => {
                let text = "values without a schema have one --key-field; give --schema for more";
                Err(CliError::Usage(text.to_owned()))
            }
        }
    }

    /// The key of a payload.
    pub(crate) fn of(&self, payload: &[u8]) -> CliResult<Vec<u8>> {
        match self {
            Self::Typed(resolution) => {
                let mut key = Vec::new();
                let made = resolution.transcode(payload, &mut key);
                made.map_err(|e| CliError::Refused(format!("the key: {e}")))?;
                Ok(key)
            }
            Self::Json(field) => {
                let value = serde_json::from_slice(payload);
                let value = value.map_err(|e| CliError::Refused(format!("no JSON: {e}")))?;
                text_of(&value, field).map(String::into_bytes)
            }
        }
    }
}

/// The record of some of a record's fields, whose datum is the key.
fn projected(schema: &Schema, names: &[String]) -> CliResult<Schema> {
    let mut json = schema.to_json();
    let all = json.get("fields").and_then(Value::as_array).cloned().unwrap_or_default();
    let field = |name: &String| {
        let found = all.iter().find(|field| field["name"] == **name).cloned();
        found.ok_or_else(|| {
            let known: Vec<&str> = all.iter().filter_map(|field| field["name"].as_str()).collect();
            CliError::Usage(format!(
                "no field is named {name}; the fields are {}",
                known.join(", ")
            ))
        })
    };
    json["fields"] = Value::Array(names.iter().map(field).collect::<CliResult<_>>()?);
    Schema::from_json(&json).map_err(|e| CliError::Refused(format!("the key: {e}")))
}

/// The key of fields given as `NAME=VALUE`; a value is JSON, else text.
pub(crate) fn key_of(schema: Option<&Schema>, given: &[String]) -> CliResult<Vec<u8>> {
    let mut values = Map::new();
    for one in given {
        let (name, text) = one
            .split_once('=')
            .ok_or_else(|| CliError::Usage(format!("invalid field {one:?}; write NAME=VALUE")))?;
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        values.insert(name.to_owned(), value);
    }
    let names: Vec<String> = values.keys().cloned().collect();
    let Some(schema) = schema else {
        let text = "the topic has no schema, so its keys have no fields; use --key or --key-prefix";
        return Err(CliError::Usage(text.to_owned()));
    };
    let codec = Codec::new(&projected(schema, &names)?);
    let refused = |e: &dyn std::fmt::Display| CliError::Usage(format!("the key: {e}"));
    let value = codec.value_from_json(&Value::Object(values)).map_err(|e| refused(&e))?;
    let mut key = Vec::new();
    codec.encode(&value, &mut key).map_err(|e| refused(&e))?;
    Ok(key)
}

/// The text of a JSON field; nested fields with dots.
fn text_of(value: &Value, field: &str) -> CliResult<String> {
    let found = field.split('.').try_fold(value, |value, name| value.get(name));
    match found {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string()),
        Some(_) => Err(CliError::Refused(format!("the field {field} is neither text nor number"))),
        None => Err(CliError::Refused(format!("the value has no field {field} for its key"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn keys_of_json_are_a_field_s_text() {
        let of = |field: &str| {
            let fields = KeyFields::new(None, &names(&[field])).unwrap().unwrap();
            fields.of(br#"{"salIndex": 2, "origin": {"name": "camera"}, "list": []}"#)
        };
        assert_eq!(of("salIndex").unwrap(), b"2");
        assert_eq!(of("origin.name").unwrap(), b"camera");
        assert!(of("list").is_err() && of("origin.size").is_err());
        assert!(KeyFields::new(None, &names(&["a", "b"])).is_err());
        assert!(KeyFields::new(None, &[]).unwrap().is_none());
    }

    #[test]
    fn keys_of_typed_values_are_their_fields_encodings() {
        let schema = r#"{"type": "record", "name": "a", "fields": [
            {"name": "text", "type": "string"}, {"name": "n", "type": "int"}]}"#;
        let schema = Schema::parse(schema).unwrap();
        let of = |fields: &[&str]| {
            KeyFields::new(Some(&schema), &names(fields)).unwrap().unwrap().of(b"\x04ab\x06")
        };
        assert_eq!(of(&["n"]).unwrap(), b"\x06");
        assert_eq!(of(&["n", "text"]).unwrap(), b"\x06\x04ab");
        let same = key_of(Some(&schema), &names(&["n=3", "text=ab"])).unwrap();
        assert_eq!(same, of(&["n", "text"]).unwrap());
        assert!(KeyFields::new(Some(&schema), &names(&["x"])).is_err());
        assert!(key_of(Some(&schema), &names(&["n=many"])).is_err());
        assert!(key_of(None, &names(&["n=3"])).is_err());
    }
}
