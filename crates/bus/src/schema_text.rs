//! A schema as text, as transports store it and topics declare it.

use std::sync::Arc;

use helio_core::{Schema, SchemaId};

/// A schema as text, under the identity that samples carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaText {
    /// The identity.
    pub id: SchemaId,
    /// The Avro schema as JSON.
    pub text: Arc<str>,
}

impl From<&Schema> for SchemaText {
    fn from(schema: &Schema) -> Self {
        Self { id: schema.id(), text: schema.to_string().into() }
    }
}

impl From<Schema> for SchemaText {
    fn from(schema: Schema) -> Self {
        Self::from(&schema)
    }
}
