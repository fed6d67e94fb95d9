//! Schemas of writers and readers: declaration, and conversion of payloads.

use std::collections::HashMap;
use std::sync::Arc;

use helio_core::qos::History;
use helio_core::{Resolution, Schema, SchemaId, confluent};

use crate::error::{TopicError, TransportError};
use crate::evolution::{
    Evolution, SchemaOrder, SchemaRules, StoredHistory, may_meet, may_read, may_write,
};
use crate::schema_text::SchemaText;
use crate::topic_core::TopicCore;
use crate::transport::{Declared, RegisterError, Transport};

/// How often a declaration is retried after concurrent declarations. Fewer processes start on one
/// topic at one moment.
const MAX_DECLARE_ATTEMPTS: usize = 64;

/// Declares a publisher's schema after comparing it with the topic's.
pub(crate) fn declare(
    topic: &Arc<TopicCore>,
    schema: &SchemaText,
    policy: Option<Evolution>,
) -> Result<(), TopicError> {
    if schema.id == SchemaId::BYTES {
        return Ok(());
    }
    let history = match topic.transport.qos().history {
        History::None => StoredHistory::No,
        _ => StoredHistory::Yes,
    };
    let mut checked = 0;
    for _ in 0..MAX_DECLARE_ATTEMPTS {
        let known = topic.transport.schemas()?;
        if known.contains(&schema.id) {
            let transport = &topic.bus.transport;
            if !matches!(transport.schema(schema.id), Ok(Some(_))) {
                transport.put_schema(schema.id, &schema.text)?;
            }
            return register(topic, schema);
        }
        let new = parse(topic, schema)?;
        for id in known.iter().skip(checked).filter(|_| is_compared(policy)) {
            let old = stored(topic, *id)?;
            may_write(policy, history, &old, &new)
                .map_err(|reason| incompatible(topic, schema, reason))?;
        }
        checked = known.len();
        topic.bus.transport.put_schema(schema.id, &schema.text)?;
        register(topic, schema)?;
        if topic.transport.declare_schema(schema.id, checked)? == Declared::Yes {
            return Ok(());
        }
    }
    Err(TopicError::Transport(TransportError::Outage {
        transport: topic.bus.transport.capabilities().transport.clone(),
        cause: format!("too many concurrent declarations of schemas for {}", topic.name),
    }))
}

/// Whether a policy compares schemas. If not, a missing or edited text of another schema does not
/// matter.
fn is_compared(policy: Option<Evolution>) -> bool {
    policy != Some(Evolution::None)
}

/// Registers a schema outside the bus.
fn register(topic: &TopicCore, schema: &SchemaText) -> Result<(), TopicError> {
    topic.transport.register_schema(schema).map_err(|error| match error {
        RegisterError::Refused(reason) => incompatible(topic, schema, reason),
        RegisterError::Transport(error) => error.into(),
    })
}

fn incompatible(topic: &TopicCore, schema: &SchemaText, reason: String) -> TopicError {
    TopicError::Incompatible { topic: topic.name.clone(), schema: schema.id, reason }
}

fn parse(topic: &TopicCore, schema: &SchemaText) -> Result<Schema, TopicError> {
    Schema::parse(&schema.text).map_err(|error| TopicError::Schema {
        topic: topic.name.clone(),
        schema: schema.id,
        reason: error.to_string(),
    })
}

fn stored(topic: &TopicCore, id: SchemaId) -> Result<Schema, TopicError> {
    let stored = topic.bus.transport.schema(id)?;
    let text = stored.ok_or(TransportError::NoSchema { schema: id })?;
    parse(topic, &SchemaText { id, text: text.into() })
}

/// Converts payloads of all schemas of a topic to one.
pub(crate) struct Resolver {
    target: Schema,
    id: SchemaId,
    rules: SchemaRules,
    /// The schemas declared before the resolver's own.
    before: Vec<SchemaId>,
    /// The order of all other schemas.
    others: SchemaOrder,
    plans: HashMap<SchemaId, Plan>,
    hot: SchemaId,
    scratch: Vec<u8>,
    reports: UndecodableReports,
}

/// How often an unreadable schema is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UndecodableReports {
    /// With its first sample.
    Once,
    /// With each sample, for readers that answer each. Opening such a subscription checks no
    /// schema.
    Each,
}

enum Plan {
    /// The bytes are the same.
    Copy,
    /// They are converted.
    Rewrite(Box<Resolution>),
    /// They are converted, and lack required fields.
    Lacking { resolution: Box<Resolution>, fields: String, reported: bool },
    /// They cannot be read. The reason is taken when it is reported once and for all.
    Impossible(Option<String>),
    /// The schema's text is missing or edited; it is looked up again at increasing intervals.
    Unknown { samples: u64, reason: String },
}

/// A sample that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable<'a> {
    /// Converted to that schema, for want of required fields only.
    Lacking { schema: SchemaId, payload: &'a [u8], reason: String },
    /// For a reason to report.
    Unreported(String),
    /// Because of its schema, which was reported before.
    Reported,
}

impl Unreadable<'_> {
    pub(crate) fn into_reason(self) -> String {
        match self {
            Self::Lacking { reason, .. } | Self::Unreported(reason) => reason,
            Self::Reported => "its schema cannot be read".to_owned(),
        }
    }
}

/// The reason for a sample whose writer's schema lacks required fields.
fn lacking_reason(fields: &str) -> String {
    format!("no value for {fields}: the schema that it was written with has no such field")
}

/// The reason for a sample without a schema.
fn bytes_reason(payload: &[u8]) -> String {
    let reason = "it was published as bytes, without a schema".to_owned();
    match confluent::unframe(payload) {
        None => reason,
        Some((number, _)) => format!(
            "{reason}; if it is framed as Confluent's serializers do it, there is no registry that \
             knows the schema {number} (the option schema.registry.url names one)"
        ),
    }
}

/// The most schemas of one topic for which a subscription caches plans.
const MAX_RESOLUTION_PLANS: usize = 1024;

impl Resolver {
    /// A resolver to a subscription's schema, after the policy's check.
    pub(crate) fn new(
        topic: &Arc<TopicCore>,
        schema: &SchemaText,
        rules: &SchemaRules,
        reports: UndecodableReports,
    ) -> Result<Self, TopicError> {
        let target = parse(topic, schema)?;
        let mut before = topic.transport.schemas()?;
        let others = match before.iter().position(|id| *id == schema.id) {
            Some(own) => {
                // Its schema may be written again, whatever was declared later.
                before.truncate(own);
                SchemaOrder::After
            }
            None => {
                if let Some(newest) = before.last()
                    && reports == UndecodableReports::Once
                    && is_compared(rules.evolution)
                {
                    may_read(rules.evolution, &stored(topic, *newest)?, &target)
                        .map_err(|reason| incompatible(topic, schema, reason))?;
                }
                SchemaOrder::Meanwhile
            }
        };
        let (id, plans) = (schema.id, HashMap::from([(schema.id, Plan::Copy)]));
        let (hot, scratch, rules) = (schema.id, Vec::new(), rules.clone());
        Ok(Self { target, id, rules, before, others, plans, hot, scratch, reports })
    }

    /// Converts a payload to the subscription's schema; returns it with its schema's identity.
    pub(crate) fn resolve<'a>(
        &'a mut self,
        transport: &dyn Transport,
        schema: SchemaId,
        payload: &'a [u8],
    ) -> Result<(SchemaId, &'a [u8]), Unreadable<'a>> {
        if schema == self.id {
            return Ok((schema, payload));
        }
        if schema != self.hot {
            self.learn(transport, schema, payload).map_err(Unreadable::Unreported)?;
            self.hot = schema;
        }
        match self.plans.get_mut(&schema) {
            Some(Plan::Copy) => Ok((self.id, payload)),
            Some(Plan::Rewrite(resolution)) => {
                self.scratch.clear();
                let rewritten = resolution.transcode(payload, &mut self.scratch);
                rewritten.map_err(|error| Unreadable::Unreported(error.to_string()))?;
                Ok((self.id, &self.scratch))
            }
            Some(Plan::Lacking { resolution, fields, reported }) => {
                if std::mem::replace(reported, true) && self.reports == UndecodableReports::Once {
                    return Err(Unreadable::Reported);
                }
                self.scratch.clear();
                let rewritten = resolution.transcode(payload, &mut self.scratch);
                rewritten.map_err(|error| Unreadable::Unreported(error.to_string()))?;
                let (payload, reason) = (&*self.scratch, lacking_reason(fields));
                Err(Unreadable::Lacking { schema: self.id, payload, reason })
            }
            Some(Plan::Impossible(reason)) => {
                let unreported = match self.reports {
                    UndecodableReports::Once => reason.take(),
                    UndecodableReports::Each => reason.clone(),
                };
                Err(unreported.map_or(Unreadable::Reported, Unreadable::Unreported))
            }
            Some(Plan::Unknown { samples, reason }) => {
                *samples += 1;
                // A lookup for each sample would read the disk each time.
                if samples.is_power_of_two() {
                    self.hot = self.id;
                }
                if *samples > 1 && self.reports == UndecodableReports::Once {
                    return Err(Unreadable::Reported);
                }
                Err(Unreadable::Unreported(reason.clone()))
            }
            None => Err(Unreadable::Unreported("the schema has no plan".to_owned())),
        }
    }

    fn learn(
        &mut self,
        transport: &dyn Transport,
        schema: SchemaId,
        payload: &[u8],
    ) -> Result<(), String> {
        let samples = match self.plans.get(&schema) {
            Some(Plan::Unknown { samples, .. }) => *samples,
            Some(_) => return Ok(()),
            None => 0,
        };
        if self.plans.len() >= MAX_RESOLUTION_PLANS {
            self.plans.retain(|id, _| *id == self.id);
        }
        let missing = || TransportError::NoSchema { schema };
        let text = transport.schema(schema).and_then(|text| text.ok_or_else(missing));
        let plan = match text {
            _ if schema == SchemaId::BYTES => Plan::Impossible(Some(bytes_reason(payload))),
            Ok(text) => self.plan(&text),
            Err(
                error @ (TransportError::NoSchema { .. } | TransportError::SchemaEdited { .. }),
            ) => Plan::Unknown { samples, reason: error.to_string() },
            // The next sample may succeed.
            Err(error) => return Err(error.to_string()),
        };
        self.plans.insert(schema, plan);
        Ok(())
    }

    fn plan(&self, text: &str) -> Plan {
        let written = match Schema::parse(text) {
            Ok(written) => written,
            Err(error) => return Plan::Impossible(Some(format!("its schema is damaged: {error}"))),
        };
        let before = self.before.contains(&written.id());
        let came = if before { SchemaOrder::Before } else { self.others };
        if let Err(reason) = may_meet(self.rules.evolution, came, &written, &self.target) {
            return Plan::Impossible(Some(format!("of its schema {}: {reason}", written.id())));
        }
        match Resolution::new(&written, &self.target) {
            Ok(resolution) => {
                let mut lacks = resolution.defaulted_fields();
                lacks.retain(|name| self.rules.required.iter().any(|required| required == name));
                match lacks.join(", ") {
                    fields if !fields.is_empty() => {
                        let resolution = Box::new(resolution);
                        Plan::Lacking { resolution, fields, reported: false }
                    }
                    _ if resolution.is_identity() => Plan::Copy,
                    _ => Plan::Rewrite(Box::new(resolution)),
                }
            }
            Err(error) => {
                Plan::Impossible(Some(format!("its schema {} differs: {error}", written.id())))
            }
        }
    }
}
