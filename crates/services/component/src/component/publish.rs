//! The messages of a component and the topics that carry them: acknowledgements, the audit, and the
//! events of every component.
//!
//! Everything except the heartbeat goes through the [outbox](super::outbox). A late heartbeat has
//! no value, and its thread may block.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use helio_bus::{Bus, Message, PublishError, Publisher, TopicError, TopicSpec};
use helio_core::sal::TopicKind;
use helio_core::schema::HasSchema;
use helio_core::{Codec, Headers, ProducerName, TopicName, Value};

use super::engine::{Engine, locked};
use super::generics::LogLevel;
use super::outbox::{FailureAction, Line, OutboxItem, PublishFailure, Unpublished};
use crate::fields::Fields;
use crate::interface::Shape;
use crate::lease::{WeakLease, WriteRefusal};
use crate::protocol::controller::{Address, AuditEntry, Phase};
use crate::protocol::{AckCode, AckHeaders, Acknowledgement};
use crate::records::{AuditPhase, AuditRecord};
use crate::send::{TrySend, send, try_send};
use crate::topic::{self, WriteError};
use crate::write::{SampleMetadata, Update, WriteTopic};

/// How long the end of a component waits for pending messages: as long as a publish waits for a
/// lock whose holder is stopped.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

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

    fn passes(&self) -> bool {
        match self {
            Self::Audit(_) => false,
            Self::Acknowledge(answer) => !answer.ack.code.is_final(),
            Self::Event { name, .. } => *name == LOG,
        }
    }

    fn insist(&mut self) {
        if let Self::Event { how, .. } = self {
            *how = |update| update.force();
        }
    }
}

impl Engine {
    /// Publishes the outbox's messages. It must not be called under the protocol's lock.
    pub(super) fn publish(self: &Arc<Self>) {
        let begun = self.outbox.publish(|notice| {
            let sent = self.sent(notice, self.try_notice(notice));
            if let (Line::Log, Ok(TrySend::Done | TrySend::Pending(_))) = (notice.line(), &sent) {
                self.queue_unlogged();
            }
            sent
        });
        for line in begun {
            if line == Line::Audit {
                self.check_audit();
            }
            let engine = Arc::clone(self);
            self.lines.run(Box::new(move || engine.catch_up(line)));
        }
    }

    /// Publishes the pending messages of a line, however long that takes.
    fn catch_up(self: &Arc<Self>, line: Line) {
        let publish = |notice: &OutboxMessage| {
            let published = self.publish_notice(notice).map(|()| TrySend::Done);
            self.sent(notice, published).map(drop)
        };
        let missing = self.outbox.catch_up(line, publish);
        if line == Line::Audit {
            self.check_audit();
        }
        if missing.reason.is_none() {
            self.recovered(line.words());
        }
        let lost = missing.passed + missing.shed;
        if line == Line::Log {
            // A log message about lost log messages would fail as well.
            self.unlogged.fetch_add(lost, Ordering::Relaxed);
        } else if lost > 0 {
            let text = format!("{} could not be published: {missing}", line.words());
            self.log(LogLevel::Warning, &text, "");
        }
    }

    /// Reports the number of lost log messages once messages can be published again.
    fn queue_unlogged(&self) {
        let lost = self.unlogged.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let text = format!("{lost} {} before could not be published", Line::Log.words());
            self.queue_log(LogLevel::Warning, &text, "");
        }
    }

    /// Notifies the controller whether the audit can be written at present. A closed outbox has no
    /// further news.
    fn check_audit(self: &Arc<Self>) {
        self.input(|controller, now| match self.outbox.holds(Line::Audit) {
            Some(true) => controller.audit_lost(now),
            Some(false) => controller.audit_back(),
            None => {}
        });
    }

    /// Publishes the pending messages, for a limited time, and reports the others on stderr.
    pub(super) fn publish_last(self: &Arc<Self>) {
        self.publish();
        self.outbox.flush(FLUSH_TIMEOUT);
        for (line, missing) in self.outbox.close() {
            let (identity, what) = (&self.identity, line.words());
            eprintln!("{identity}: {what} could not be published: {missing}");
        }
    }

    /// Waits, for a limited time, for pending receipts of telemetry and reports samples that did
    /// not arrive; there is no later write to report them.
    pub(super) fn settle_last(self: &Arc<Self>) {
        let until = Instant::now() + FLUSH_TIMEOUT;
        let topics = locked(&self.topics).clone();
        let telemetry = topics.iter().filter(|((kind, _), _)| *kind == TopicKind::Telemetry);
        for (_, topic) in telemetry {
            let left = until.saturating_duration_since(Instant::now());
            if let Err(error) = topic.settle(left) {
                eprintln!("{}: {error}", self.identity);
                self.log(LogLevel::Warning, &error.to_string(), "");
            }
        }
    }

    fn try_notice(&self, notice: &OutboxMessage) -> Result<TrySend, WriteError> {
        match notice {
            OutboxMessage::Audit(record) => self.audit.try_publish(record),
            OutboxMessage::Acknowledge(answer) => self.acks.try_publish(answer),
            OutboxMessage::Event { name, values, how } => {
                let topic = self.topic(TopicKind::Event, name)?;
                how(with(&topic, values)).try_write()
            }
        }
    }

    fn publish_notice(&self, notice: &OutboxMessage) -> Result<(), WriteError> {
        match notice {
            OutboxMessage::Audit(record) => self.audit.publish(record),
            OutboxMessage::Acknowledge(answer) => self.acks.publish(answer),
            OutboxMessage::Event { name, values, how } => {
                let topic = self.topic(TopicKind::Event, name)?;
                how(with(&topic, values)).write().map(drop)
            }
        }
    }

    /// Handles the result of publishing a message. A failure is reported; its end is noted, so that
    /// the next failure is reported too.
    fn sent(
        &self,
        notice: &OutboxMessage,
        sent: Result<TrySend, WriteError>,
    ) -> Result<TrySend, PublishFailure> {
        let what = notice.line().words();
        if matches!(sent, Ok(TrySend::Done)) {
            self.recovered(what);
        }
        sent.map_err(|error| {
            let reason = error.to_string();
            self.complain(what, &reason);
            // A replaced instance publishes nothing, whatever else failed.
            let replaced = matches!(self.weak.refusal(), Some(WriteRefusal::Ended(_)));
            let then = if replaced { FailureAction::Drop } else { after(&error) };
            PublishFailure { reason, then }
        })
    }
}

/// What follows a failure.
fn after(error: &WriteError) -> FailureAction {
    match error {
        WriteError::Field(_) | WriteError::Interface(_) | WriteError::NotLive { .. } => {
            FailureAction::Drop
        }
        // The topic's policy, or the disk, may change within a second.
        WriteError::Open { .. } => FailureAction::Retry,
        WriteError::Publish { source, .. } | WriteError::Lost { source, .. } => {
            FailureAction::after(source)
        }
    }
}

impl Line {
    /// A description of the line's messages for people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Audit => "records of the audit",
            Self::Acks => "acknowledgements",
            Self::Log => "log messages",
            Self::Event(name) => name,
        }
    }
}

impl std::fmt::Display for Unpublished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { waiting, passed, shed, reason } = self;
        let counts = [(*waiting as u64, "left"), (*passed, "passed"), (*shed, "too many")];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<_> = counts.map(|(count, word)| format!("{count} {word}")).collect();
        let reason = reason.as_deref().unwrap_or("held up");
        write!(f, "{} ({reason})", counts.join(", "))
    }
}

fn with<'a>(topic: &'a WriteTopic, values: &[(&'static str, Value)]) -> Update<'a> {
    let known = values.iter().filter(|(name, _)| topic.shape().place(name).is_some());
    known.fold(topic.update(), |update, (name, value)| update.tell(name, value.clone()))
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

    fn publish(&self, answer: &AckMessage) -> Result<(), WriteError> {
        let headers = self.headers(&answer.ack)?;
        self.topic.publish(self.fill(answer), &beside(&answer.to, &headers)).map(drop)
    }

    fn try_publish(&self, answer: &AckMessage) -> Result<TrySend, WriteError> {
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
        let codec = record_codec::<AuditRecord>();
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

    fn publish(&self, record: &AuditRecord) -> Result<(), WriteError> {
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

    fn try_publish(&self, record: &AuditRecord) -> Result<TrySend, WriteError> {
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

pub(super) fn record_codec<T: HasSchema>() -> Codec {
    Codec::new(&T::schema().expect("a test parses the schemas of our own records"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{failing_mount, interface, topic, until};
    use super::*;
    use crate::Remote;

    #[test]
    fn log_messages_that_cannot_be_published_are_told_by_the_next_one_that_can() {
        let (builder, bus, cable) = failing_mount();
        let component = builder.start().unwrap();
        let mut log = Remote::open(&bus, &interface(), 0).unwrap().event(LOG).unwrap();
        let next = |log: &mut crate::ReadTopic| {
            let reading = log.next(Duration::from_secs(30)).unwrap();
            reading.text("message").unwrap_or_default().to_owned()
        };
        let ended = || component.0.outbox.holds(Line::Log) == Some(false);
        let told = || locked(&component.0.complaints).contains_key(Line::Log.words());
        component.log(LogLevel::Info, "the first");
        assert_eq!(next(&mut log), "the first");
        until(ended);
        for outage in 0..2 {
            cable.break_topic(&topic("event/logMessage"));
            component.log(LogLevel::Info, "lost");
            until(|| component.0.unlogged.load(Ordering::Relaxed) == 1);
            assert!(ended(), "it is tried for ever");
            assert!(told(), "nobody was told of outage {outage}");
            cable.mend_topic(&topic("event/logMessage"));
            component.log(LogLevel::Info, "found");
            assert_eq!(next(&mut log), "found");
            assert_eq!(next(&mut log), "1 log messages before could not be published");
            until(|| !told());
        }
        component.stop().unwrap();
    }

    #[test]
    fn a_heartbeat_that_fails_again_is_told_again() {
        let (builder, _bus, cable) = failing_mount();
        let component = builder.start().unwrap();
        let told = || locked(&component.0.complaints).contains_key("heartbeat");
        for _ in 0..2 {
            cable.break_topic(&topic("event/heartbeat"));
            until(told);
            cable.mend_topic(&topic("event/heartbeat"));
            until(|| !told());
        }
        component.stop().unwrap();
    }

    #[test]
    fn an_event_that_did_not_arrive_is_published_though_nothing_changed() {
        let component = failing_mount().0.start().unwrap();
        let values = vec![("mode", Value::Int(0))];
        let mut notice =
            OutboxMessage::Event { name: "simulationMode", values, how: |update| update };
        let written = || {
            component.0.publish_notice(&notice).unwrap();
            component.event("simulationMode").unwrap().update().write().unwrap().seq_num
        };
        assert_eq!(written(), 1);
        notice.insist();
        component.0.publish_notice(&notice).unwrap();
        let number = component.event("simulationMode").unwrap().update().write().unwrap().seq_num;
        assert_eq!(number, 2);
        component.stop().unwrap();
    }
}
