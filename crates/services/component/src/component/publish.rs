//! What a component says, and the topics that it says it on: acknowledgements, the audit, events
//! that every component has.
//!
//! Everything goes through the [outbox](super::outbox), but for the heartbeat: nobody wants a late
//! one, and it has a thread that may wait.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use helio_bus::{Bus, Message, PublishError, Publisher, TopicError, TopicSpec};
use helio_core::sal::TopicKind;
use helio_core::schema::HasSchema;
use helio_core::{Codec, Headers, ProducerName, TopicName, Value};

use super::generics::LogLevel;
use super::outbox::{Entry, Line, Missing, Refused, Then};
use super::shell::{Shell, locked};
use crate::fields::Fields;
use crate::interface::Shape;
use crate::lease::{Refusal, WeakLease};
use crate::protocol::controller::{Address, AuditEntry, Phase};
use crate::protocol::{AckCode, AckHeaders, Acknowledgement};
use crate::records::{AuditPhase, AuditRecord};
use crate::send::{Tried, send, try_send};
use crate::topic::{self, WriteError};
use crate::write::{Beside, Update, WriteTopic};

/// How long what is left is waited for when a component ends: as long as a publish waits for a lock
/// whose holder is stopped.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The event of log messages.
pub(super) const LOG: &str = "logMessage";

/// Something to be published.
pub(super) enum Notice {
    Audit(Box<AuditRecord>),
    Acknowledge(Box<Answer>),
    Event { name: &'static str, values: Vec<(&'static str, Value)>, how: How },
}

/// An acknowledgement.
pub(super) struct Answer {
    pub to: Address,
    /// The command's number, as `cmdtype` has it.
    pub command: i32,
    pub ack: Acknowledgement,
}

/// When an event is published: always, or where it has changed.
pub(super) type How = fn(Update<'_>) -> Update<'_>;

impl Entry for Notice {
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

impl Shell {
    /// Publishes what was put into the outbox. Never under the protocol's lock.
    pub(super) fn publish(self: &Arc<Self>) {
        let begun = self.outbox.publish(|notice| {
            let sent = self.sent(notice, self.try_notice(notice));
            if let (Line::Log, Ok(Tried::Done | Tried::Underway(_))) = (notice.line(), &sent) {
                self.say_unlogged();
            }
            sent
        });
        for line in begun {
            if line == Line::Audit {
                self.look_at_audit();
            }
            let shell = Arc::clone(self);
            self.lines.run(Box::new(move || shell.catch_up(line)));
        }
    }

    /// Publishes what waits in a line, however long that takes.
    fn catch_up(self: &Arc<Self>, line: Line) {
        let publish = |notice: &Notice| {
            let published = self.publish_notice(notice).map(|()| Tried::Done);
            self.sent(notice, published).map(drop)
        };
        let missing = self.outbox.catch_up(line, publish);
        if line == Line::Audit {
            self.look_at_audit();
        }
        if missing.reason.is_none() {
            self.recovered(line.words());
        }
        let lost = missing.passed + missing.shed;
        if line == Line::Log {
            // A log message that says so would fail as these did, and that one's as well.
            self.unlogged.fetch_add(lost, Ordering::Relaxed);
        } else if lost > 0 {
            let text = format!("{} could not be published: {missing}", line.words());
            self.log(LogLevel::Warning, &text, "");
        }
    }

    /// Log messages can be published: tells how many before could not be.
    fn say_unlogged(&self) {
        let lost = self.unlogged.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let text = format!("{lost} {} before could not be published", Line::Log.words());
            self.say_log(LogLevel::Warning, &text, "");
        }
    }

    /// Tells the controller whether the audit is written, as it is when the controller hears it. A
    /// component that has ended has said its last.
    fn look_at_audit(self: &Arc<Self>) {
        self.input(|controller, now| match self.outbox.holds(Line::Audit) {
            Some(true) => controller.audit_lost(now),
            Some(false) => controller.audit_back(),
            None => {}
        });
    }

    /// Publishes what is left, for a time, and says what could not be.
    pub(super) fn publish_last(self: &Arc<Self>) {
        self.publish();
        self.outbox.flush(FLUSH_TIMEOUT);
        for (line, missing) in self.outbox.close() {
            let (identity, what) = (&self.identity, line.words());
            eprintln!("{identity}: {what} could not be published: {missing}");
        }
    }

    /// Waits, for a time, for the receipts of telemetry that went ahead of them, and says what did
    /// not arrive: no later write does.
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

    fn try_notice(&self, notice: &Notice) -> Result<Tried, WriteError> {
        match notice {
            Notice::Audit(record) => self.audit.try_publish(record),
            Notice::Acknowledge(answer) => self.acks.try_publish(answer),
            Notice::Event { name, values, how } => {
                let topic = self.topic(TopicKind::Event, name)?;
                how(with(&topic, values)).try_write()
            }
        }
    }

    fn publish_notice(&self, notice: &Notice) -> Result<(), WriteError> {
        match notice {
            Notice::Audit(record) => self.audit.publish(record),
            Notice::Acknowledge(answer) => self.acks.publish(answer),
            Notice::Event { name, values, how } => {
                let topic = self.topic(TopicKind::Event, name)?;
                how(with(&topic, values)).write().map(drop)
            }
        }
    }

    /// What becomes of a notice. A refusal is told; its end is noted, so that another one is told.
    fn sent(&self, notice: &Notice, sent: Result<Tried, WriteError>) -> Result<Tried, Refused> {
        let what = notice.line().words();
        if matches!(sent, Ok(Tried::Done)) {
            self.recovered(what);
        }
        sent.map_err(|error| {
            let reason = error.to_string();
            self.complain(what, &reason);
            // Who is replaced says nothing any more, whatever else is in the way.
            let replaced = matches!(self.weak.refusal(), Some(Refusal::Over(_)));
            let then = if replaced { Then::Drop } else { after(&error) };
            Refused { reason, then }
        })
    }
}

/// What is to be done after a refusal.
fn after(error: &WriteError) -> Then {
    match error {
        WriteError::Field(_) | WriteError::Interface(_) | WriteError::NotLive { .. } => Then::Drop,
        // The topic's policy, or the disk, may be another in a second.
        WriteError::Open { .. } => Then::Retry,
        WriteError::Publish { source, .. } | WriteError::Lost { source, .. } => Then::after(source),
    }
}

impl Line {
    /// What waits there, for people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Audit => "records of the audit",
            Self::Acks => "acknowledgements",
            Self::Log => "log messages",
            Self::Event(name) => name,
        }
    }
}

impl std::fmt::Display for Missing {
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

/// Acknowledgements of all commands of a component.
pub(super) struct Acks {
    topic: WriteTopic,
    /// The places of ack, error, result, identity, origin, cmdtype, timeout.
    places: [usize; 7],
}

/// The public fields of acknowledgements, as every component has them.
const ACK_FIELDS: [&str; 7] =
    ["ack", "error", "result", "identity", "origin", "cmdtype", "timeout"];

impl Acks {
    pub(super) fn new(topic: WriteTopic) -> Self {
        let shape = Arc::clone(topic.shape());
        // SAL's loader gives every component these fields.
        let places = ACK_FIELDS.map(|name| shape.place(name).unwrap_or_default());
        Self { topic, places }
    }

    pub(super) fn shape(&self) -> &Arc<Shape> {
        self.topic.shape()
    }

    fn publish(&self, answer: &Answer) -> Result<(), WriteError> {
        let headers = self.headers(&answer.ack)?;
        self.topic.publish(self.fill(answer), &beside(&answer.to, &headers)).map(drop)
    }

    fn try_publish(&self, answer: &Answer) -> Result<Tried, WriteError> {
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

    fn fill(&self, answer: &Answer) -> impl FnOnce(&mut Fields) + use<> {
        let (places, Answer { to, command, ack }) = (self.places, answer);
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

fn beside<'a>(to: &Address, headers: &'a Headers) -> Beside<'a> {
    Beside { seq_num: Some(to.seq_num), trace: to.trace, headers: headers.as_ref() }
}

/// The topic of the audit.
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
        (producer, lease): (ProducerName, WeakLease),
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
            // It was fenced, and could not be opened again then.
            let (topic, opened) = (self.name.to_string(), self.publisher());
            let failed = |error: TopicError| WriteError::Open { topic, reason: error.to_string() };
            *publisher = Some(opened.map_err(failed)?);
        }
        let message = Message::new(&payload).key(&self.key);
        let sent = send(&mut publisher, Some(&self.lease), || self.publisher(), message);
        sent.map(drop).map_err(|source| self.failed(source))
    }

    fn try_publish(&self, record: &AuditRecord) -> Result<Tried, WriteError> {
        let Some(publisher) = self.try_locked() else { return Ok(Tried::HeldUp) };
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

/// A record as the audit has it.
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
        let mut notice = Notice::Event { name: "simulationMode", values, how: |update| update };
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
