//! Schemas between writers and readers: what may be published, and how it is read.

use std::collections::HashMap;
use std::sync::Arc;

use helio_core::qos::History;
use helio_core::{Resolution, Schema, SchemaId};

use crate::error::{TopicError, TransportError};
use crate::topic::{SchemaText, TopicCore};
use crate::transport::Transport;

/// Declares a publisher's schema for a topic, after holding it against those that the topic has.
///
/// Existing readers must be able to read what it writes; where the topic keeps a history, its own
/// readers must be able to read what is there.
pub(crate) fn declare(topic: &Arc<TopicCore>, schema: &SchemaText) -> Result<(), TopicError> {
    if schema.id == SchemaId::BYTES {
        return Ok(());
    }
    let known = topic.transport.schemas()?;
    if known.contains(&schema.id) {
        return Ok(());
    }
    let new = parse(topic, schema)?;
    let history = topic.transport.qos().history != History::None;
    agree(topic, schema, (&new, history), &known)?;
    topic.bus.transport.put_schema(schema.id, &schema.text)?;
    topic.transport.declare_schema(schema.id)?;
    // Others may have declared theirs meanwhile: whoever came first stays.
    let mut first = topic.transport.schemas()?;
    first.truncate(first.iter().position(|id| *id == schema.id).unwrap_or(first.len()));
    first.retain(|id| !known.contains(id));
    agree(topic, schema, (&new, history), &first)
}

/// Holds a schema against those that a topic has.
fn agree(
    topic: &TopicCore,
    schema: &SchemaText,
    (new, history): (&Schema, bool),
    known: &[SchemaId],
) -> Result<(), TopicError> {
    for id in known.iter().copied() {
        let old = stored(topic, id)?;
        let refused = |reason: String| TopicError::Incompatible {
            topic: topic.name.clone(),
            schema: schema.id,
            reason,
        };
        Resolution::new(new, &old).map_err(|error| {
            refused(format!("readers of the schema {id} could not read it: {error}"))
        })?;
        if history {
            Resolution::new(&old, new).map_err(|error| {
                refused(format!("its readers could not read what {id} wrote: {error}"))
            })?;
        }
    }
    Ok(())
}

fn parse(topic: &TopicCore, schema: &SchemaText) -> Result<Schema, TopicError> {
    Schema::parse(&schema.text).map_err(|error| TopicError::Schema {
        topic: topic.name.clone(),
        schema: schema.id,
        reason: error.to_string(),
    })
}

fn stored(topic: &TopicCore, id: SchemaId) -> Result<Schema, TopicError> {
    let missing = || TopicError::Schema {
        topic: topic.name.clone(),
        schema: id,
        reason: "the topic names it, and its text is not there".to_owned(),
    };
    let text = topic.bus.transport.schema(id)?.ok_or_else(missing)?;
    parse(topic, &SchemaText { id, text: text.into() })
}

/// Reads what others wrote as one schema.
pub(crate) struct Resolver {
    target: Schema,
    id: SchemaId,
    plans: HashMap<SchemaId, Plan>,
    hot: SchemaId,
    scratch: Vec<u8>,
}

enum Plan {
    /// The bytes are the same.
    Copy,
    /// They are rewritten.
    Rewrite(Box<Resolution>),
    /// They cannot be read, whatever they are.
    Impossible(String),
    /// Nobody knows the schema; looked up again after ever more samples.
    Unknown { samples: u64 },
}

/// The most schemas of one topic that a subscription keeps plans for.
const MAX_PLANS: usize = 1024;

impl Resolver {
    /// A resolver to a subscription's schema, which must be able to read the topic's newest.
    pub(crate) fn new(topic: &Arc<TopicCore>, schema: &SchemaText) -> Result<Self, TopicError> {
        let target = parse(topic, schema)?;
        if let Some(newest) = topic.transport.schemas()?.last()
            && *newest != schema.id
        {
            let written = stored(topic, *newest)?;
            Resolution::new(&written, &target).map_err(|error| TopicError::Incompatible {
                topic: topic.name.clone(),
                schema: schema.id,
                reason: format!("it cannot read what the topic's {newest} wrote: {error}"),
            })?;
        }
        let (id, plans) = (schema.id, HashMap::from([(schema.id, Plan::Copy)]));
        Ok(Self { target, id, plans, hot: schema.id, scratch: Vec::new() })
    }

    /// A payload as the subscription's schema has it, with the schema's identity.
    pub(crate) fn resolve<'a>(
        &'a mut self,
        transport: &dyn Transport,
        schema: SchemaId,
        payload: &'a [u8],
    ) -> Result<(SchemaId, &'a [u8]), String> {
        if schema == self.id {
            return Ok((schema, payload));
        }
        if schema != self.hot {
            self.learn(transport, schema)?;
            self.hot = schema;
        }
        match self.plans.get_mut(&schema) {
            Some(Plan::Copy) => Ok((self.id, payload)),
            Some(Plan::Rewrite(resolution)) => {
                self.scratch.clear();
                let rewritten = resolution.transcode(payload, &mut self.scratch);
                rewritten.map_err(|error| error.to_string())?;
                Ok((self.id, &self.scratch))
            }
            Some(Plan::Impossible(reason)) => Err(reason.clone()),
            Some(Plan::Unknown { samples }) => {
                *samples += 1;
                // Asking again each time would cost a look at the disk a sample.
                if samples.is_power_of_two() {
                    self.hot = self.id;
                }
                Err(format!("nobody has put the text of the schema {schema}"))
            }
            None => Err("the schema has no plan".to_owned()),
        }
    }

    fn learn(&mut self, transport: &dyn Transport, schema: SchemaId) -> Result<(), String> {
        let samples = match self.plans.get(&schema) {
            Some(Plan::Unknown { samples }) => *samples,
            Some(_) => return Ok(()),
            None => 0,
        };
        if self.plans.len() >= MAX_PLANS {
            self.plans.retain(|id, _| *id == self.id);
        }
        let text = transport.schema(schema).map_err(|error: TransportError| error.to_string())?;
        let plan = match text {
            _ if schema == SchemaId::BYTES => {
                Plan::Impossible("it was published as bytes, without a schema".to_owned())
            }
            None => Plan::Unknown { samples },
            Some(text) => self.plan(&text),
        };
        self.plans.insert(schema, plan);
        Ok(())
    }

    fn plan(&self, text: &str) -> Plan {
        let written = match Schema::parse(text) {
            Ok(written) => written,
            Err(error) => return Plan::Impossible(format!("its schema is damaged: {error}")),
        };
        match Resolution::new(&written, &self.target) {
            Ok(resolution) if resolution.is_identity() => Plan::Copy,
            Ok(resolution) => Plan::Rewrite(Box::new(resolution)),
            Err(error) => Plan::Impossible(error.to_string()),
        }
    }
}
