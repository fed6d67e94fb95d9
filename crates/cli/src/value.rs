//! Payloads as JSON values, by their schemas.

use std::collections::HashMap;
use std::path::Path;

use helio_bus::{Bus, SchemaId, SchemaText};
use helio_core::codec::Codec;
use helio_core::schema::Schema;
use serde_json::Value;

use crate::error::{CliError, CliResult};

/// Decodes payloads by the bus's schemas; each schema is looked up and compiled once.
pub(crate) struct Values {
    bus: Bus,
    codecs: HashMap<SchemaId, Codec>,
}

impl Values {
    /// Values of a bus.
    pub(crate) fn new(bus: &Bus) -> Self {
        Self { bus: bus.clone(), codecs: HashMap::new() }
    }

    /// The value of a payload; `None` without a schema.
    pub(crate) fn decode(&mut self, schema: SchemaId, payload: &[u8]) -> CliResult<Option<Value>> {
        if schema == SchemaId::BYTES {
            return Ok(None);
        }
        let codec = self.codec(schema)?;
        let value = codec.decode(payload).map_err(|e| damaged(schema, &e))?;
        codec.value_to_json(&value).map(Some).map_err(|e| damaged(schema, &e))
    }

    /// The codec of a schema.
    pub(crate) fn codec(&mut self, schema: SchemaId) -> CliResult<&Codec> {
        // Two look-ups, because a borrow from the first would last to the end.
        if !self.codecs.contains_key(&schema) {
            let text = self.bus.schema_text(schema)?.text;
            self.codecs.insert(schema, Codec::new(&parse(&text)?));
        }
        Ok(&self.codecs[&schema])
    }
}

fn damaged(schema: SchemaId, error: &dyn std::fmt::Display) -> CliError {
    CliError::Failure(format!("a payload is invalid for its schema {schema}: {error}"))
}

/// Parses a schema's text.
pub(crate) fn parse(text: &str) -> CliResult<Schema> {
    Schema::parse(text).map_err(|e| CliError::Refused(e.to_string()))
}

/// Encodes values by one schema.
pub(crate) struct Encoder(Codec);

impl Encoder {
    /// Compiles a schema.
    pub(crate) fn new(text: &str) -> CliResult<Self> {
        Ok(Self(Codec::new(&parse(text)?)))
    }

    /// Compiles a parsed schema.
    pub(crate) fn of(schema: &Schema) -> Self {
        Self(Codec::new(schema))
    }

    /// The schema.
    pub(crate) fn schema(&self) -> &Schema {
        self.0.schema()
    }

    /// Appends a value's Avro bytes.
    pub(crate) fn encode(&self, value: &Value, to: &mut Vec<u8>) -> CliResult {
        let refused = |e: &dyn std::fmt::Display| {
            CliError::Refused(format!("the value does not fit its schema: {e}"))
        };
        let value = self.0.value_from_json(value).map_err(|e| refused(&e))?;
        self.0.encode(&value, to).map_err(|e| refused(&e))
    }

    /// Checks that bytes are a datum.
    pub(crate) fn check(&self, payload: &[u8]) -> CliResult {
        let checked = self.0.check(payload);
        checked.map_err(|e| CliError::Refused(format!("the bytes do not fit the schema: {e}")))
    }
}

/// Reads an Avro schema from a file.
pub(crate) fn schema_file(path: &Path) -> CliResult<SchemaText> {
    Ok(schema_text(&crate::schema::files(&[path.to_owned()])?))
}

/// A schema's text with its identity.
pub(crate) fn schema_text(schema: &Schema) -> SchemaText {
    SchemaText { id: schema.id(), text: schema.to_json().to_string().into() }
}
