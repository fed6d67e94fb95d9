//! Schemas between writers and readers.

use std::sync::Arc;

use helio_core::SchemaId;

use crate::error::TopicError;
use crate::topic::{SchemaText, TopicCore};

/// Declares a publisher's schema for a topic.
pub(crate) fn declare(topic: &Arc<TopicCore>, schema: &SchemaText) -> Result<(), TopicError> {
    if schema.id == SchemaId::BYTES {
        return Ok(());
    }
    topic.bus.transport.put_schema(schema.id, &schema.text)?;
    topic.transport.declare_schema(schema.id)?;
    Ok(())
}
