//! The topics that a component writes, behind its outbox.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use helio_bus::Bus;
use helio_bus::transport::locked;
use helio_core::Value;
use helio_core::sal::TopicKind;

use super::messages::{AckMessage, Acks, Audit, OutboxMessage, audit_record};
use super::outbox::{FailureAction, Outbox, OutboxItem, PublishFailure};
use super::shutdown::Shutdown;
use crate::interface::{Interface, InterfaceError};
use crate::lease::{WeakLease, WriteRefusal};
use crate::protocol::controller::{Address, AuditEntry};
use crate::protocol::{Acknowledgement, SummaryState};
use crate::send::TrySend;
use crate::topic::WriteError;
use crate::write::{Update, WriteTopic, WriterIdentity};

/// What a component publishes. Everything except the heartbeat and what handlers write goes through
/// the outbox.
pub(super) struct Outputs {
    pub bus: Bus,
    pub interface: Interface,
    /// Its lease does not keep the component's lease alive.
    pub author: WriterIdentity,
    pub outbox: Outbox<OutboxMessage>,
    pub acks: Acks,
    pub audit: Audit,
    pub topics: Mutex<HashMap<(TopicKind, String), WriteTopic>>,
    /// The summary state that was queued last.
    pub state: AtomicI32,
    pub log_level: AtomicI32,
    /// The last reported reason for each topic that cannot be published.
    pub failures: Mutex<HashMap<String, String>>,
    /// The number of log messages that failed since the last published one.
    pub unlogged: AtomicU64,
    pub shutdown: Arc<Shutdown>,
}

impl Outputs {
    pub(super) fn identity(&self) -> &str {
        &self.author.identity
    }

    pub(super) fn state(&self) -> SummaryState {
        let number = self.state.load(Ordering::Acquire);
        SummaryState::from_number(number).unwrap_or(SummaryState::Offline)
    }

    /// A topic for writing; always the same object for a name.
    pub(super) fn topic(&self, kind: TopicKind, name: &str) -> Result<WriteTopic, InterfaceError> {
        let mut topics = locked(&self.topics);
        if let Some(topic) = topics.get(&(kind, name.to_owned())) {
            return Ok(topic.clone());
        }
        let shape = self.interface.shape(kind, name)?;
        let topic = WriteTopic::new(&self.bus, shape, self.author.clone());
        topics.insert((kind, name.to_owned()), topic.clone());
        Ok(topic)
    }

    /// Queues an acknowledgement of the command with that number.
    pub(super) fn queue_ack(&self, to: Address, command: i32, ack: Acknowledgement) {
        self.outbox.put(OutboxMessage::Acknowledge(Box::new(AckMessage { to, command, ack })));
    }

    pub(super) fn queue_audit(&self, entry: AuditEntry) {
        let record = audit_record(self.interface.name(), self.author.index, entry);
        self.outbox.put(OutboxMessage::Audit(record));
    }

    /// Publishes a message unless that would block.
    pub(super) fn try_publish(&self, message: &OutboxMessage) -> Result<TrySend, PublishFailure> {
        let sent = match message {
            OutboxMessage::Audit(record) => self.audit.try_publish(record),
            OutboxMessage::Acknowledge(answer) => self.acks.try_publish(answer),
            OutboxMessage::Event { name, values, how } => {
                let topic = self.topic(TopicKind::Event, name);
                let topic = topic.map_err(WriteError::from);
                topic.and_then(|topic| how(with(&topic, values)).try_write())
            }
        };
        self.settle(message, sent)
    }

    /// Publishes a message, however long that takes.
    pub(super) fn publish(&self, message: &OutboxMessage) -> Result<(), PublishFailure> {
        let sent = match message {
            OutboxMessage::Audit(record) => self.audit.publish(record),
            OutboxMessage::Acknowledge(answer) => self.acks.publish(answer),
            OutboxMessage::Event { name, values, how } => {
                let topic = self.topic(TopicKind::Event, name).map_err(WriteError::from);
                topic.and_then(|topic| how(with(&topic, values)).write().map(drop))
            }
        };
        self.settle(message, sent.map(|()| TrySend::Done)).map(drop)
    }

    /// Reports a failed publish, and marks a topic as recovered after a successful one.
    fn settle(
        &self,
        message: &OutboxMessage,
        sent: Result<TrySend, WriteError>,
    ) -> Result<TrySend, PublishFailure> {
        let what = message.line().words();
        if matches!(sent, Ok(TrySend::Done)) {
            self.recovered(what);
        }
        sent.map_err(|error| {
            let reason = error.to_string();
            self.complain(what, &reason);
            // A replaced instance publishes nothing, whatever else failed.
            let refusal = self.author.lease.as_ref().and_then(WeakLease::refusal);
            let replaced = matches!(refusal, Some(WriteRefusal::Ended(_)));
            let action = if replaced { FailureAction::Drop } else { action_after(&error) };
            PublishFailure { reason, action }
        })
    }

    /// Reports a failure on stderr because the bus cannot carry it. The same reason is reported
    /// once: a refused topic would otherwise repeat it with each heartbeat.
    pub(super) fn complain(&self, what: &str, reason: &str) {
        if self.shutdown.is_requested() {
            return;
        }
        let before = locked(&self.failures).insert(what.to_owned(), reason.to_owned());
        if before.is_none_or(|before| before != reason) {
            eprintln!("{}: {what} could not be published: {reason}", self.identity());
        }
    }

    /// Marks a topic as published again, so that its next failure is reported.
    pub(super) fn recovered(&self, what: &str) {
        locked(&self.failures).remove(what);
    }
}

/// What follows a failed publish.
fn action_after(error: &WriteError) -> FailureAction {
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

/// An update with the fields that the interface has.
fn with<'a>(topic: &'a WriteTopic, values: &[(&'static str, Value)]) -> Update<'a> {
    let known = values.iter().filter(|(name, _)| topic.shape().place(name).is_some());
    known.fold(topic.update(), |update, (name, value)| update.tell(name, value.clone()))
}
