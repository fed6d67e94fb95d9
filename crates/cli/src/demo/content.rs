//! Contents of the demo's samples: SAL's number, the due time, the outcome of a command.

use std::collections::HashMap;

use helio_bus::{Bus, Sample, SchemaId, Tai};
use helio_component::protocol::AckCode;
use helio_component::{AuditPhase, AuditRecord};
use helio_core::schema::Schema;
use helio_core::{Codec, Value};

use super::accounting::CommandId;
use crate::error::{CliError, CliResult};
use crate::value::Values;

/// The contents of a sample.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    /// `private_seqNum` of an event or telemetry.
    pub(crate) number: Option<i64>,
    /// The start of its latency; for telemetry the due time. `None` in the burst.
    pub(crate) since: Option<Tai>,
    /// The command that it concerns.
    pub(crate) command: Option<OfCommand>,
}

/// A sample's part in a command.
#[derive(Debug, Clone)]
pub(crate) enum OfCommand {
    Sent(CommandId),
    /// The final acknowledgement, with its code.
    Acknowledged(CommandId, i32),
    /// Its outcome in the audit.
    Audited(CommandId, i32),
}

/// Reads samples by the bus's schemas.
pub(crate) struct Contents {
    values: Values,
    places: HashMap<SchemaId, Places>,
}

/// The positions of the fields in a schema.
#[derive(Debug, Clone, Copy)]
struct Places {
    index: Option<usize>,
    number: Option<usize>,
    /// Of the sample's writer.
    author: [Option<usize>; 2],
    ack: Option<usize>,
    /// Of the caller whose command is acknowledged.
    caller: [Option<usize>; 2],
    timestamp: Option<usize>,
}

impl Places {
    fn of(schema: &Schema) -> Self {
        let place = |name: &str| schema.fields().iter().position(|field| field.name == name);
        Self {
            index: place("salIndex"),
            number: place("private_seqNum"),
            author: [place("private_identity"), place("private_origin")],
            ack: place("ack"),
            caller: [place("identity"), place("origin")],
            timestamp: place("timestamp"),
        }
    }
}

/// A record's fields, by their places.
struct Fields<'a>(&'a [Value]);

impl Fields<'_> {
    fn at(&self, place: Option<usize>) -> Option<&Value> {
        self.0.get(place?)
    }

    fn integer(&self, place: Option<usize>) -> Option<i64> {
        match self.at(place)? {
            Value::Int(number) => Some(i64::from(*number)),
            Value::Long(number) => Some(*number),
            _ => None,
        }
    }

    fn int(&self, place: Option<usize>) -> Option<i32> {
        self.integer(place).and_then(|number| i32::try_from(number).ok())
    }

    fn command(&self, component: &str, at: &Places, who: [Option<usize>; 2]) -> Option<CommandId> {
        let Some(Value::String(identity)) = self.at(who[0]) else { return None };
        Some(CommandId {
            component: component.to_owned(),
            index: self.int(at.index).unwrap_or(0),
            identity: identity.clone(),
            origin: self.int(who[1])?,
            seq_num: self.int(at.number)?,
        })
    }
}

impl Contents {
    /// Samples of a bus.
    pub(crate) fn new(bus: &Bus) -> Self {
        Self { values: Values::new(bus), places: HashMap::new() }
    }

    /// The contents of a sample. A value that does not match its schema is an error.
    pub(crate) fn of(&mut self, sample: &Sample) -> CliResult<Content> {
        let since = Some(sample.header.time);
        let nothing = Content { number: None, since, command: None };
        let schema = sample.header.schema;
        if schema == SchemaId::BYTES {
            return Ok(nothing);
        }
        let codec = self.values.codec(schema)?;
        let (component, kind) = sample.topic.as_str().split_once('/').unwrap_or_default();
        if kind == "audit" {
            return Ok(Content { command: audited(codec, &sample.payload)?, ..nothing });
        }
        let value = codec.decode(&sample.payload).map_err(|e| damaged(sample, &e))?;
        let Value::Record(record) = value else { return Ok(nothing) };
        let at = self.places.entry(schema).or_insert_with(|| Places::of(codec.schema()));
        let fields = Fields(&record);
        Ok(match kind.split('/').next() {
            Some("telemetry") => {
                let since = match fields.at(at.timestamp) {
                    Some(Value::Double(0.0)) => None,
                    Some(Value::Double(due)) => Some(Tai::from_nanos((due * 1e9).round() as i64)),
                    _ => since,
                };
                Content { number: fields.integer(at.number), since, command: None }
            }
            Some("event") => Content { number: fields.integer(at.number), ..nothing },
            Some("command") => {
                let id = fields.command(component, at, at.author);
                Content { command: id.map(OfCommand::Sent), ..nothing }
            }
            Some("ackcmd") => {
                let code = fields.int(at.ack).and_then(AckCode::from_number);
                let code = code.filter(|code| code.is_final()).map(AckCode::number);
                let id = fields.command(component, at, at.caller);
                let end = id.zip(code).map(|(id, code)| OfCommand::Acknowledged(id, code));
                Content { command: end, ..nothing }
            }
            _ => nothing,
        })
    }
}

fn audited(codec: &Codec, payload: &[u8]) -> CliResult<Option<OfCommand>> {
    let record: AuditRecord = codec
        .deserialize(payload)
        .map_err(|e| CliError::Failure(format!("a record of the audit cannot be read: {e}")))?;
    let AuditRecord { component, index, identity, origin, seq_num, .. } = record;
    let id = CommandId { component, index, identity, origin, seq_num };
    let finished = record.phase == AuditPhase::Finished;
    Ok(finished.then_some(OfCommand::Audited(id, record.ack)))
}

fn damaged(sample: &Sample, error: &dyn std::fmt::Display) -> CliError {
    let (topic, schema) = (&sample.topic, sample.header.schema);
    CliError::Failure(format!("a payload of {topic} is no value of its schema {schema}: {error}"))
}
