//! Telemetry as `.avsc` files: a whole topic as an Avro record, as in SAL from v28 on.
//!
//! SAL registers the file's record as it is, with the private fields appended to its own. Here
//! Avro's `long` has 64 bits, and a field may be a union with null. The record's name is the
//! topic's SAL name.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::schema::Schema;

use super::field::{FieldType, is_name, is_part, is_private};
use super::topic::Template;
use super::{Field, SalCause, TopicKind};

/// Reads a topic.
pub(super) fn template(text: &str) -> Result<Template, (u32, SalCause)> {
    let record: Value = serde_json::from_str(text)
        .map_err(|error| (error.line() as u32, SalCause::Avro(error.to_string())))?;
    let mut template = read(&record).map_err(|cause| (1, cause))?;
    Schema::from_json(&record).map_err(|error| (1, SalCause::Avro(error.to_string())))?;
    if let Value::Object(record) = record {
        template.record = Some(Arc::new(record));
    }
    Ok(template)
}

/// SAL's schema of a topic: the file's record with these fields.
pub(super) fn with_fields(record: &Map<String, Value>, fields: Vec<Value>) -> Value {
    let mut schema = record.clone();
    schema.insert("fields".to_owned(), Value::Array(fields));
    Value::Object(schema)
}

fn read(record: &Value) -> Result<Template, SalCause> {
    let refused = |what: &str| SalCause::Avro(what.to_owned());
    if record["type"] != "record" {
        return Err(refused("\"type\" must be \"record\""));
    }
    let sal_name = record["name"].as_str().ok_or_else(|| refused("\"name\" is missing"))?;
    let (kind, name) = TopicKind::of_sal_name(sal_name);
    if !is_part(name) || kind == TopicKind::Ack {
        return Err(SalCause::Name(sal_name.chars().take(100).collect()));
    }
    let fields = record["fields"].as_array().ok_or_else(|| refused("\"fields\" is missing"))?;
    let fields: Vec<Field> = fields.iter().map(field).collect::<Result<_, _>>()?;
    let description = text_of(record, "description");
    Ok(Template { kind, name: name.into(), description, fields, record: None })
}

fn field(value: &Value) -> Result<Field, SalCause> {
    let name = value["name"].as_str().unwrap_or_default();
    if !is_name(name) {
        return Err(SalCause::Name(name.chars().take(100).collect()));
    }
    if is_private(name) {
        return Err(SalCause::FieldTwice(name.to_owned()));
    }
    if value.get("type").is_none() {
        return Err(SalCause::Avro(format!("the field {name:?} has no \"type\"")));
    }
    Ok(Field {
        name: name.into(),
        field_type: FieldType::Avro(value.clone()),
        count: 1,
        units: text_of(value, "units"),
        description: text_of(value, "description"),
        enumeration: None,
    })
}

fn text_of(value: &Value, key: &str) -> Arc<str> {
    value[key].as_str().unwrap_or_default().into()
}
