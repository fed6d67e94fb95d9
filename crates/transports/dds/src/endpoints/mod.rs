//! The DDS topics of a bus topic, and the endpoints on them. One is for envelopes, and one for the
//! type of the topic's first schema, if IDL can express it.
//!
//! Constraints. A DDS topic has one type, and its name must identify that type. So envelopes always
//! have their own DDS topic beside the typed one. A topic may get its first schema long after its
//! endpoints were opened. Until then a typed reader has an endpoint of the type that it expects,
//! for foreign writers; no sample of a bus comes by it. A topic's writers may accept samples of
//! further schemas, and bytes that are not a value.
//!
//! Operation. A writer puts a sample on the typed topic if it has that schema, and if its key is
//! empty or equals the type's key fields. Any other sample is an envelope. A sample that follows
//! one on the other DDS topic is flagged (`OTHER_TOPIC`). Readers read both, and wait for the other
//! one.

mod reading;
mod writing;

use std::sync::Arc;

use helio_bus::transport::locked;
use helio_bus::{SchemaText, TransportError};
use helio_core::idl::TopicType;
use helio_core::{Schema, SchemaId};

pub(crate) use reading::{ReaderEndpoints, ReaderScope};
pub(crate) use writing::{PreviousSample, WriteError, WriterEndpoints};

use crate::dynamic_types::runtime_type;
use crate::entity::Topic;
use crate::envelope::envelope_type;
use crate::topic::TopicState;

/// The DDS topic of a schema's type.
#[derive(Debug)]
pub(crate) struct TypedTopic {
    pub(crate) schema: SchemaId,
    pub(crate) of: TopicType,
    pub(crate) topic: Arc<Topic>,
}

/// The type of a topic's first schema.
#[derive(Debug, Default)]
pub(crate) enum FirstSchema {
    /// The topic has no schema yet.
    #[default]
    Unknown,
    /// IDL cannot express the schema.
    NoIdlType(SchemaId),
    TypedTopic(Arc<TypedTopic>),
}

/// The IDL type of a schema; `None` if IDL cannot express it. Declaring a schema checks its text;
/// an invalid text counts as one that IDL cannot express.
fn topic_type(text: &str) -> Option<TopicType> {
    TopicType::new(&Schema::parse(text).ok()?).ok()
}

impl TopicState {
    /// The DDS topic of its envelopes.
    pub(crate) fn envelopes(&self) -> Result<Arc<Topic>, TransportError> {
        let name = self.connection.names.envelopes(&self.name);
        self.connection.dds_topic(&name, &envelope_type())
    }

    /// Its first schema, with its text.
    fn first_schema(&self) -> Option<(SchemaId, String)> {
        self.connection.announcements.with_state(|state| {
            let (schema, _) = state.schemas(&self.name).into_iter().next()?;
            Some((schema, state.text(schema)?.clone()))
        })
    }

    /// The IDL type's name of its first schema; `None` without a schema or an IDL type.
    pub(crate) fn type_name(&self) -> Option<String> {
        let (_, text) = self.first_schema()?;
        Some(topic_type(&text)?.name().to_owned())
    }

    /// The DDS topic of its first schema's type; `None` without a schema or an IDL type.
    pub(crate) fn typed(&self) -> Result<Option<Arc<TypedTopic>>, TransportError> {
        let Some((schema, text)) = self.first_schema() else { return Ok(None) };
        let mut first = locked(&self.first);
        match &*first {
            FirstSchema::NoIdlType(known) if *known == schema => return Ok(None),
            FirstSchema::TypedTopic(typed) if typed.schema == schema => {
                return Ok(Some(Arc::clone(typed)));
            }
            _ => {}
        }
        let typed = self.typed_by(schema, &text)?;
        *first = match &typed {
            Some(typed) => FirstSchema::TypedTopic(Arc::clone(typed)),
            None => FirstSchema::NoIdlType(schema),
        };
        Ok(typed)
    }

    /// The DDS topic of a schema's type, whether or not it is the topic's; `None` without an IDL
    /// type.
    fn typed_by(
        &self,
        schema: SchemaId,
        text: &str,
    ) -> Result<Option<Arc<TypedTopic>>, TransportError> {
        let Some(of) = topic_type(text) else { return Ok(None) };
        let name = self.connection.names.dds(&self.name);
        let topic = self.connection.dds_topic(&name, &runtime_type(&of))?;
        Ok(Some(Arc::new(TypedTopic { schema, of, topic })))
    }

    /// The DDS topic of the type that a reader expects as long as the topic has no schema.
    fn expected(
        &self,
        expected: Option<&SchemaText>,
    ) -> Result<Option<Arc<TypedTopic>>, TransportError> {
        match expected.filter(|_| self.first_schema().is_none()) {
            Some(expected) => self.typed_by(expected.id, &expected.text),
            None => Ok(None),
        }
    }
}
