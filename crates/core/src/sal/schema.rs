//! Schemas of topics: SAL's, byte for byte, and ours with further attributes.
//!
//! SAL's schema is a record in the name space `lsst.sal.<component>` whose every field has a
//! default, a description and units. That of an `.avsc` file is the file's record, to whose fields
//! the private ones are appended. The revision code is the start of the MD5 of its text as
//! Python's `json.dumps(schema, indent=4)` writes it: keys in this order, 0.0 for a floating point
//! default and 0 for an integer one, and everything beyond ASCII escaped.
//!
//! Ours is the same record with the attributes `length`, `enumeration` and `salType` on fields: the
//! same Avro canonical form, hence the same bytes on the wire.

use std::io;

use md5::{Digest, Md5};
use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, PrettyFormatter};
use serde_json::{Map, Value, json};

use crate::schema::{Schema, SchemaError};

use super::field::{PRIVATE, SAL_INDEX};
use super::{Field, FieldType, SalNaming, SalType, Topic, avsc};

/// The attributes of fields in our schemas that SAL's lack.
pub(super) const OURS: [&str; 3] = ["length", "enumeration", "salType"];

/// A topic with its SAL schema and SAL's derived values, one line of `helio schema export FOLDER
/// --naming sal --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SalRecord {
    /// The component.
    pub component: String,
    /// Whether the component is indexed.
    pub indexed: bool,
    /// The topic as SAL's Python attribute, for example `cmd_trackTarget`.
    pub topic: String,
    /// The Kafka topic.
    pub kafka_name: String,
    /// Number of partitions.
    pub partitions: u32,
    /// SAL's revision code of the schema.
    pub revcode: String,
    /// Array fields and their lengths.
    pub array_fields: Map<String, Value>,
    /// SAL's Avro schema.
    pub schema: Value,
}

impl Topic {
    /// The Avro schema that SAL registers for the topic.
    #[must_use]
    pub fn sal_schema_json(&self) -> Value {
        self.record(sal_field)
    }

    /// The text of [`sal_schema_json`](Self::sal_schema_json) from which SAL computes the revision
    /// code.
    #[must_use]
    pub fn sal_schema_text(&self) -> String {
        python_json(&self.sal_schema_json())
    }

    /// SAL's revision code, which every sample carries as `private_revCode`: the first 8
    /// hexadecimal digits of the MD5 of [`sal_schema_text`](Self::sal_schema_text).
    #[must_use]
    pub fn revcode(&self) -> String {
        revcode_of(&self.sal_schema_text())
    }

    /// The Avro schema of the topic on the bus: SAL's, and on fields the attributes `length` (of
    /// arrays), `enumeration` and `salType`.
    #[must_use]
    pub fn helio_schema_json(&self) -> Value {
        self.record(helio_field)
    }

    /// [`helio_schema_json`](Self::helio_schema_json) as a [`Schema`].
    ///
    /// # Errors
    /// [`SchemaError`] if the topic has more fields than a schema may have.
    pub fn schema(&self) -> Result<Schema, SchemaError> {
        Schema::from_json(&self.helio_schema_json())
    }

    /// [`sal_schema_json`](Self::sal_schema_json) as a [`Schema`]: the writer's schema of SAL's own
    /// samples.
    ///
    /// # Errors
    /// [`SchemaError`] if the topic has more fields than a schema may have.
    pub fn sal_schema(&self) -> Result<Schema, SchemaError> {
        Schema::from_json(&self.sal_schema_json())
    }

    /// The topic with SAL's derived values.
    #[must_use]
    pub fn sal_record(&self, naming: &SalNaming) -> SalRecord {
        let schema = self.sal_schema_json();
        let arrays = self.fields().iter().filter(|field| field.count > 1);
        SalRecord {
            component: self.component().to_owned(),
            indexed: self.indexed(),
            topic: self.attribute(),
            kafka_name: self.kafka_name(naming),
            partitions: self.partitions(),
            revcode: revcode_of(&python_json(&schema)),
            array_fields: arrays.map(|f| (f.name.to_string(), Value::from(f.count))).collect(),
            schema,
        }
    }

    fn record(&self, field_json: fn(&Field) -> Value) -> Value {
        let index = self.indexed().then_some(&SAL_INDEX);
        let index = index.map(|row| field_json(&Field::from(row)));
        let private = PRIVATE.iter().map(|row| field_json(&Field::from(row)));
        let public = self.fields().iter().map(field_json);
        if let Some(record) = &self.record {
            return avsc::with_fields(
                record,
                index.into_iter().chain(public).chain(private).collect(),
            );
        }
        let fields: Vec<Value> = index.into_iter().chain(private).chain(public).collect();
        json!({
            "type": "record",
            "name": self.sal_name(),
            "namespace": format!("lsst.sal.{}", self.component()),
            "fields": fields,
            "description": self.description(),
        })
    }
}

fn sal_field(field: &Field) -> Value {
    match &field.field_type {
        FieldType::Sal(sal) => Value::Object(sal_attributes(field, *sal)),
        FieldType::Avro(whole) => whole.clone(),
    }
}

fn sal_attributes(field: &Field, sal: SalType) -> Map<String, Value> {
    let (mut avro, mut default) = (Value::from(sal.avro_name()), sal.default_value());
    if field.count > 1 {
        avro = json!({"type": "array", "items": avro});
        default = Value::Array(vec![default; field.count as usize]);
    }
    Map::from_iter([
        ("name".to_owned(), Value::from(&*field.name)),
        ("type".to_owned(), avro),
        ("default".to_owned(), default),
        ("description".to_owned(), Value::from(&*field.description)),
        ("units".to_owned(), Value::from(&*field.units)),
    ])
}

fn helio_field(field: &Field) -> Value {
    let FieldType::Sal(sal) = field.field_type else { return sal_field(field) };
    let mut attributes = sal_attributes(field, sal);
    if field.count > 1 {
        attributes.insert("length".to_owned(), Value::from(field.count));
    }
    if let Some(enumeration) = field.enumeration.as_ref().filter(|_| sal.is_integer()) {
        let labels = enumeration.labels.iter().map(|(label, value)| (label.clone(), json!(value)));
        attributes.insert("enumeration".to_owned(), Value::Object(labels.collect()));
    }
    attributes.insert("salType".to_owned(), Value::from(sal.name()));
    Value::Object(attributes)
}

fn revcode_of(text: &str) -> String {
    Md5::digest(text.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// A value as Python's `json.dumps(value, indent=4)` writes it.
fn python_json(value: &Value) -> String {
    let mut text = Vec::new();
    let formatter = PythonFormatter(PrettyFormatter::with_indent(b"    "));
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    value.serialize(&mut serializer).expect("a JSON value is written to memory");
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// Pretty JSON with all but printable ASCII escaped.
struct PythonFormatter<'a>(PrettyFormatter<'a>);

macro_rules! delegate {
    ($($method:ident($($argument:ident: $kind:ty),*));+ $(;)?) => {
        $(fn $method<W: ?Sized + io::Write>(
            &mut self, writer: &mut W $(, $argument: $kind)*
        ) -> io::Result<()> {
            self.0.$method(writer $(, $argument)*)
        })+
    };
}

impl Formatter for PythonFormatter<'_> {
    delegate! {
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        begin_object_value();
        end_object_value();
        write_char_escape(escape: CharEscape);
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        for part in fragment.split_inclusive(|c: char| !(' '..='~').contains(&c)) {
            let end = part.char_indices().next_back().filter(|(_, c)| !(' '..='~').contains(c));
            let (plain, escaped) = part.split_at(end.map_or(part.len(), |(at, _)| at));
            writer.write_all(plain.as_bytes())?;
            for unit in escaped.encode_utf16() {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_written_as_python_writes_it() {
        let value =
            json!({"a": [], "b": {}, "c": [0.0, 0, false], "d": "é\n\u{7f}\u{1f600}\u{1}x"});
        let expected = "{\n    \"a\": [],\n    \"b\": {},\n    \"c\": [\n        0.0,\n        \
             0,\n        \
             false\n    ],\n    \"d\": \"\\u00e9\\n\\u007f\\ud83d\\ude00\\u0001x\"\n}";
        assert_eq!(python_json(&value), expected);
    }
}
