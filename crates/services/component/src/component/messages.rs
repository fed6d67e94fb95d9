//! The messages that go through the outbox, and the topics of acknowledgements and of the audit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use helio_bus::transport::locked;
use helio_bus::{Bus, Message, PublishError, Publisher, TopicError, TopicSpec};
use helio_core::{Codec, Headers, ProducerName, TopicName, Value};

use super::outbox::{Line, OutboxItem};
use crate::fields::Fields;
use crate::interface::Shape;
use crate::lease::WeakLease;
use crate::protocol::controller::{Address, AuditEntry, Phase};
use crate::protocol::{AckCode, AckHeaders, Acknowledgement};
use crate::records::{self, AuditPhase, AuditRecord};
use crate::send::{TrySend, send, try_send};
use crate::topic::{self, WriteError};
use crate::write::{SampleMetadata, Update, WriteTopic};

/// The event that carries log messages.
pub(super) const LOG: &str = "logMessage";

/// A message in the outbox.
pub(super) enum OutboxMessage {
    Audit(Box<AuditRecord>),
    Acknowledge(Box<AckMessage>),
    Event { name: &'static str, values: Vec<(&'static str, Value)>, how: PublishMode },
}

/// An acknowledgement.
pub(super) struct AckMessage {
    pub to: Address,
    /// The command's number, for the field `cmdtype`.
    pub command: i32,
    pub ack: Acknowledgement,
}

/// When an event is published: always, or when it has changed.
pub(super) type PublishMode = fn(Update<'_>) -> Update<'_>;

impl OutboxItem for OutboxMessage {
    fn line(&self) -> Line {
        match self {
            Self::Audit(_) => Line::Audit,
            Self::Acknowledge(_) => Line::Acks,
            Self::Event { name, .. } if *name == LOG => Line::Log,
            Self::Event { name, .. } => Line::Event(name),
        }
    }

    fn is_transient(&self) -> bool {
        match self {
            Self::Audit(_) => false,
            Self::Acknowledge(answer) => !answer.ack.code.is_final(),
            Self::Event { name, .. } => *name == LOG,
        }
    }

    fn force(&mut self) {
        if let Self::Event { how, .. } = self {
            *how = |update| update.force();
        }
    }
}

/// The topic for acknowledgements of all commands.
pub(super) struct Acks {
    topic: WriteTopic,
    /// The positions of ack, error, result, identity, origin, cmdtype and timeout.
    places: [usize; 7],
}

/// The public fields of acknowledgements, which every component has.
const ACK_FIELDS: [&str; 7] =
    ["ack", "error", "result", "identity", "origin", "cmdtype", "timeout"];

impl Acks {
    pub(super) fn new(topic: WriteTopic) -> Self {
        let shape = Arc::clone(topic.shape());
        // SAL's loader adds these fields to every component.
        let places = ACK_FIELDS.map(|name| shape.place(name).unwrap_or_default());
        Self { topic, places }
    }

    pub(super) fn shape(&self) -> &Arc<Shape> {
        self.topic.shape()
    }

    pub(super) fn publish(&self, answer: &AckMessage) -> Result<(), WriteError> {
        let headers = self.headers(&answer.ack)?;
        self.topic.publish(self.fill(answer), &beside(&answer.to, &headers)).map(drop)
    }

    pub(super) fn try_publish(&self, answer: &AckMessage) -> Result<TrySend, WriteError> {
        let headers = self.headers(&answer.ack)?;
        self.topic.try_publish(self.fill(answer), &beside(&answer.to, &headers))
    }

    fn headers(&self, ack: &Acknowledgement) -> Result<Headers, WriteError> {
        let headers = AckHeaders { progress: ack.progress, typed: ack.typed.clone() };
        let mut headers = headers.encode().map_err(|error| self.wrong(&error))?.into_iter();
        let all = headers.try_fold(Headers::new(), |all, (name, value)| all.with(name, value));
        all.map_err(|error| self.wrong(&error))
    }

    fn wrong(&self, error: &dyn std::error::Error) -> WriteError {
        let source = PublishError::Encode(error.to_string());
        WriteError::Publish { topic: self.shape().topic().to_string(), source }
    }

    fn fill(&self, answer: &AckMessage) -> impl FnOnce(&mut Fields) + use<> {
        let (places, AckMessage { to, command, ack }) = (self.places, answer);
        let values = [
            Value::Int(ack.code.number()),
            Value::Int(ack.error),
            Value::String(ack.result.clone()),
            Value::String(to.identity.clone()),
            Value::Int(to.origin),
            Value::Int(*command),
            Value::Double(ack.timeout_s),
        ];
        move |fields| {
            for (place, value) in places.into_iter().zip(values) {
                fields.record_mut()[place] = value;
            }
        }
    }
}

fn beside<'a>(to: &Address, headers: &'a Headers) -> SampleMetadata<'a> {
    SampleMetadata { seq_num: Some(to.seq_num), trace: to.trace, headers: headers.as_ref() }
}

/// The audit topic.
pub(super) struct Audit {
    bus: Bus,
    name: TopicName,
    spec: TopicSpec,
    codec: Codec,
    key: Vec<u8>,
    lease: WeakLease,
    publisher: Mutex<Option<Publisher>>,
}

impl Audit {
    /// Opens the topic.
    pub(super) fn open(
        bus: &Bus,
        component: &str,
        producer: ProducerName,
        lease: WeakLease,
        key: Vec<u8>,
    ) -> Result<Self, TopicError> {
        let codec = records::codec::<AuditRecord>();
        let name = topic::beside(component, "audit")?;
        let spec = TopicSpec::of(name.clone()).qos(AuditRecord::qos());
        let spec = spec.schema(codec.schema()).producer(producer);
        let (bus, publisher) = (bus.clone(), Mutex::default());
        let audit = Self { bus, name, spec, codec, key, lease, publisher };
        *locked(&audit.publisher) = Some(audit.publisher()?);
        Ok(audit)
    }

    fn publisher(&self) -> Result<Publisher, TopicError> {
        self.bus.topic(self.spec.clone()).and_then(|topic| topic.publisher())
    }

    pub(super) fn publish(&self, record: &AuditRecord) -> Result<(), WriteError> {
        let payload = self.encode(record)?;
        let mut publisher = locked(&self.publisher);
        if publisher.is_none() {
            // It was fenced, and reopening failed then.
            let (topic, opened) = (self.name.to_string(), self.publisher());
            let failed = |error: TopicError| WriteError::Open { topic, reason: error.to_string() };
            *publisher = Some(opened.map_err(failed)?);
        }
        let message = Message::new(&payload).key(&self.key);
        let sent = send(&mut publisher, Some(&self.lease), || self.publisher(), message);
        sent.map(drop).map_err(|source| self.failed(source))
    }

    pub(super) fn try_publish(&self, record: &AuditRecord) -> Result<TrySend, WriteError> {
        let Some(publisher) = self.try_locked() else { return Ok(TrySend::WouldBlock) };
        let payload = self.encode(record)?;
        let message = Message::new(&payload).key(&self.key);
        try_send(publisher.as_ref(), message).map_err(|source| self.failed(source))
    }

    fn try_locked(&self) -> Option<MutexGuard<'_, Option<Publisher>>> {
        match self.publisher.try_lock() {
            Ok(publisher) => Some(publisher),
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn encode(&self, record: &AuditRecord) -> Result<Vec<u8>, WriteError> {
        let mut payload = Vec::new();
        let encoded = self.codec.serialize(record, &mut payload);
        encoded.map_err(|error| self.failed(PublishError::Encode(error.to_string())))?;
        Ok(payload)
    }

    fn failed(&self, source: PublishError) -> WriteError {
        WriteError::Publish { topic: self.name.to_string(), source }
    }
}

/// The audit record of an entry.
pub(super) fn audit_record(component: &str, index: i32, entry: AuditEntry) -> Box<AuditRecord> {
    Box::new(AuditRecord {
        time: entry.time.into(),
        component: component.to_owned(),
        index,
        command: entry.command,
        seq_num: entry.seq_num,
        caller: entry.caller,
        identity: entry.identity,
        origin: entry.origin,
        phase: match entry.phase {
            Phase::Received => AuditPhase::Received,
            Phase::Finished => AuditPhase::Finished,
        },
        ack: entry.ack.map_or(0, AckCode::number),
        error: entry.error,
        result: entry.result,
        duration: entry.duration_s,
        arguments: entry.arguments,
    })
}
