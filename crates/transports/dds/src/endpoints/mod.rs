//! The DDS topics of a bus topic, and the endpoints on them. One is for envelopes, and one for the
//! type of the topic's first schema, if IDL can express it.
//!
//! Constraints. A DDS topic has one type, and its name must identify that type. So envelopes always
//! have their own DDS topic beside the typed one. A topic may get its first schema long after its
//! endpoints were opened. Its writers may accept samples of further schemas, and bytes that are not
//! a value.
//!
//! Operation. A writer puts a sample on the typed topic if it has that schema, and if its key is
//! empty or equals the type's key fields. Any other sample is an envelope. A sample that follows
//! one on the other DDS topic is flagged (`OTHER_TOPIC`). Readers read both, and wait for the other
//! one.

mod reading;
mod writing;

use std::sync::Arc;

use helio_bus::TransportError;
use helio_bus::transport::locked;
use helio_core::idl::TopicType;
use helio_core::{Schema, SchemaId};

pub(crate) use reading::ReaderEndpoints;
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
        let Some(of) = topic_type(&text) else {
            *first = FirstSchema::NoIdlType(schema);
            return Ok(None);
        };
        let name = self.connection.names.dds(&self.name);
        let topic = self.connection.dds_topic(&name, &runtime_type(&of))?;
        let typed = Arc::new(TypedTopic { schema, of, topic });
        *first = FirstSchema::TypedTopic(Arc::clone(&typed));
        Ok(Some(typed))
    }
}
