//! Publishing of the outbox's messages, and the last messages of a component that ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_core::sal::TopicKind;

use super::engine::Engine;
use super::generics::LogLevel;
use super::outbox::{Line, OutboxItem};
use crate::send::TrySend;

/// How long the end of a component waits for pending messages: as long as a publish waits for a
/// lock whose holder is stopped.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

impl Engine {
    /// Publishes the outbox's messages. It must not be called under the protocol's lock.
    pub(super) fn publish(self: &Arc<Self>) {
        let outputs = &self.outputs;
        let begun = outputs.outbox.publish(|message| {
            let sent = outputs.try_publish(message);
            if let (Line::Log, Ok(TrySend::Done | TrySend::Pending(_))) = (message.line(), &sent) {
                outputs.queue_unlogged();
            }
            sent
        });
        for line in begun {
            if line == Line::Audit {
                self.check_audit();
            }
            let engine = Arc::clone(self);
            self.threads.outbox_lines.run(move || engine.catch_up(line));
        }
    }

    /// Publishes the pending messages of a line, however long that takes.
    fn catch_up(self: &Arc<Self>, line: Line) {
        let outputs = &self.outputs;
        let missing = outputs.outbox.catch_up(line, |message| outputs.publish(message));
        if line == Line::Audit {
            self.check_audit();
        }
        if missing.reason.is_none() {
            outputs.recovered(line.words());
        }
        let lost = missing.transient + missing.shed;
        if line == Line::Log {
            // A log message about lost log messages would fail as well.
            outputs.unlogged.fetch_add(lost, Ordering::Relaxed);
        } else if lost > 0 {
            let text = format!("{} could not be published: {missing}", line.words());
            self.log(LogLevel::Warning, &text, "");
        }
    }

    /// Notifies the controller whether the audit can be written at present. A closed outbox has no
    /// further news.
    fn check_audit(self: &Arc<Self>) {
        self.input(|controller, now| match self.outputs.outbox.holds(Line::Audit) {
            Some(true) => controller.audit_lost(now),
            Some(false) => controller.audit_back(),
            None => {}
        });
    }

    /// Publishes the pending messages, for a limited time, and reports the others on stderr.
    pub(super) fn publish_last(self: &Arc<Self>) {
        self.publish();
        self.outputs.outbox.flush(FLUSH_TIMEOUT);
        for (line, missing) in self.outputs.outbox.close() {
            let (identity, what) = (self.outputs.identity(), line.words());
            eprintln!("{identity}: {what} could not be published: {missing}");
        }
    }

    /// Waits, for a limited time, for pending receipts of telemetry and reports samples that did
    /// not arrive; there is no later write to report them.
    pub(super) fn settle_last(self: &Arc<Self>) {
        let until = Instant::now() + FLUSH_TIMEOUT;
        let topics = locked(&self.outputs.topics).clone();
        let telemetry = topics.iter().filter(|((kind, _), _)| *kind == TopicKind::Telemetry);
        for (_, topic) in telemetry {
            let left = until.saturating_duration_since(Instant::now());
            if let Err(error) = topic.settle(left) {
                eprintln!("{}: {error}", self.outputs.identity());
                self.log(LogLevel::Warning, &error.to_string(), "");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use helio_core::Value;

    use super::super::messages::{LOG, OutboxMessage};
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
        let ended = || component.0.outputs.outbox.holds(Line::Log) == Some(false);
        let told = || locked(&component.0.outputs.failures).contains_key(Line::Log.words());
        component.log(LogLevel::Info, "the first");
        assert_eq!(next(&mut log), "the first");
        until(ended);
        for outage in 0..2 {
            cable.break_topic(&topic("event/logMessage"));
            component.log(LogLevel::Info, "lost");
            until(|| component.0.outputs.unlogged.load(Ordering::Relaxed) == 1);
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
        let told = || locked(&component.0.outputs.failures).contains_key("heartbeat");
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
        let mut message =
            OutboxMessage::Event { name: "simulationMode", values, how: |update| update };
        let written = || {
            component.0.outputs.publish(&message).unwrap();
            component.event("simulationMode").unwrap().update().write().unwrap().seq_num
        };
        assert_eq!(written(), 1);
        message.force();
        component.0.outputs.publish(&message).unwrap();
        let number = component.event("simulationMode").unwrap().update().write().unwrap().seq_num;
        assert_eq!(number, 2);
        component.stop().unwrap();
    }
}
