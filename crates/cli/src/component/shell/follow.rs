//! Prints a component's events and changed telemetry during editing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use helio_bus::{Bus, Event, Lagging, Member, Sample, Start, Subscribe, WaitSet};
use helio_component::protocol::caller::Presence;
use helio_component::{Reading, Remote};
use helio_core::sal::{Topic, TopicKind};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;

use super::editor::Above;
use crate::component::watch::DISCOVERY_INTERVAL;
use crate::error::{CliError, CliResult};
use crate::open::existing;
use crate::stop::{STOP_POLL_INTERVAL, Stop, on_sigterm};
use crate::value::Values;

/// The longest value on a line.
const LINE_MAX: usize = 400;

/// Whether a kind of topic is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Yes,
    No,
}

/// Whether SIGTERM was received. Ctrl-C ends the running command and not the shell.
#[derive(Clone)]
pub(super) struct Ending {
    asked: Arc<AtomicBool>,
    stop: Stop,
}

impl Ending {
    /// Handles the signal.
    pub(super) fn on_sigterm(stop: &Stop) -> CliResult<Self> {
        Ok(Self { asked: on_sigterm()?, stop: stop.clone() })
    }

    /// Whether it was received.
    pub(super) fn is_due(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Interrupts the editor once it was received, because the editor reacts only to SIGINT.
    fn wake_editor(&self) {
        if self.is_due() {
            // Without an active editor, SIGINT requests the end instead of killing.
            self.stop.take();
            // A signal to this process cannot be refused.
            let _ = kill_process(getpid(), Signal::INT);
        }
    }
}

/// A thread that prints samples. Dropping it ends the thread.
pub(super) struct Follower {
    flags: Arc<Flags>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Flags {
    events: AtomicBool,
    telemetry: AtomicBool,
    ended: AtomicBool,
}

impl Flags {
    fn of(&self, kind: TopicKind) -> &AtomicBool {
        if kind == TopicKind::Telemetry { &self.telemetry } else { &self.events }
    }
}

impl Follower {
    /// Prints a component's events and presence, and telemetry on request. When the process must
    /// end, it interrupts the editor.
    pub(super) fn start(
        bus: &Bus,
        remote: &Remote,
        above: Above,
        ending: &Ending,
    ) -> CliResult<Self> {
        let flags = Arc::new(Flags::default());
        flags.events.store(true, Ordering::Relaxed);
        let mut follow = Follow {
            bus: bus.clone(),
            remote: remote.clone(),
            above,
            ending: ending.clone(),
            presence: remote.presence().ok(),
            flags: Arc::clone(&flags),
            set: bus.wait_set()?,
            topics: HashMap::new(),
            values: Values::new(bus),
            printed: HashMap::new(),
        };
        follow.look_up(Start::Latest)?;
        let begun = std::thread::Builder::new().name("follow".to_owned());
        let thread = begun.spawn(move || follow.run());
        let thread = thread.map_err(|e| CliError::Failure(format!("a thread: {e}")))?;
        Ok(Self { flags, thread: Some(thread) })
    }

    /// Enables or disables a kind of topics.
    pub(super) fn show(&self, kind: TopicKind, shown: Shown) {
        self.flags.of(kind).store(shown == Shown::Yes, Ordering::Relaxed);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.flags.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported already.
            let _ = thread.join();
        }
    }
}

struct Follow {
    bus: Bus,
    remote: Remote,
    above: Above,
    ending: Ending,
    presence: Option<Presence>,
    flags: Arc<Flags>,
    set: WaitSet,
    topics: HashMap<Member, Topic>,
    values: Values,
    /// The last printed text of each telemetry topic.
    printed: HashMap<String, Value>,
}

impl Follow {
    fn run(&mut self) {
        let mut looked = Instant::now();
        while !self.flags.ended.load(Ordering::Relaxed) {
            self.ending.wake_editor();
            if looked.elapsed() >= DISCOVERY_INTERVAL {
                // Topics appear with their first sample, which is shown, too.
                if self.look_up(Start::Earliest).and_then(|()| self.look_at_presence()).is_err() {
                    return;
                }
                looked = Instant::now();
            }
            if self.take().is_err() {
                return;
            }
        }
    }

    /// Reports when the component appears or disappears.
    fn look_at_presence(&mut self) -> CliResult {
        let Ok(presence) = self.remote.presence() else { return Ok(()) };
        let before = self.presence.replace(presence);
        if before == Some(presence) {
            return Ok(());
        }
        let name = self.remote.interface().identity(self.remote.index());
        match presence {
            Presence::Here { .. } => self.above.print(&format!("{name} is here")),
            Presence::Gone => self.above.print(&format!("{name} is gone")),
            Presence::Unknown => Ok(()),
        }
    }

    /// Subscribes to new topics.
    fn look_up(&mut self, start: Start) -> CliResult {
        let component = self.remote.interface().component().clone();
        for topic in component.topics() {
            let kind = topic.kind();
            if !matches!(kind, TopicKind::Event | TopicKind::Telemetry)
                || self.topics.values().any(|known| known.topic_name() == topic.topic_name())
            {
                continue;
            }
            let Some(opened) = existing(&self.bus, topic.topic_name())? else { continue };
            let lagging = match kind {
                TopicKind::Telemetry => Lagging::Conflate,
                _ => Lagging::Lossless,
            };
            let mut wanted = Subscribe::from(start).lagging(lagging).as_written();
            if self.remote.index() != 0 && topic.indexed() {
                let mut key = Vec::new();
                helio_core::codec::wire::put_long(&mut key, self.remote.index().into());
                wanted = wanted.keys([key]);
            }
            let member = self.set.add(opened.subscribe(wanted)?);
            self.topics.insert(member, topic.clone());
        }
        Ok(())
    }

    fn take(&mut self) -> CliResult {
        let Some((member, event)) = self.set.next_timeout(STOP_POLL_INTERVAL)? else {
            return Ok(());
        };
        let (Event::Sample(sample), Some(topic)) = (event, self.topics.get(&member)) else {
            return Ok(());
        };
        let quiet = topic.name() == "heartbeat";
        if quiet || !self.flags.of(topic.kind()).load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(value) = public(&mut self.values, &sample)? else { return Ok(()) };
        let attribute = topic.attribute();
        if topic.kind() == TopicKind::Telemetry {
            let before = self.printed.insert(attribute.clone(), value.clone());
            if before.as_ref().is_some_and(|before| rounded(before) == rounded(&value)) {
                return Ok(());
            }
        }
        let line: String = format!("{attribute} {value}").chars().take(LINE_MAX).collect();
        self.above.print(&line)
    }
}

/// The public fields of a sample.
fn public(values: &mut Values, sample: &Sample) -> CliResult<Option<Value>> {
    let mut value = values.decode(sample.header.schema, &sample.payload)?;
    if let Some(fields) = value.as_mut().and_then(Value::as_object_mut) {
        fields.retain(|name, _| !name.starts_with("private_") && name != "salIndex");
    }
    Ok(value)
}

/// Numbers with three digits, so that small changes of telemetry are not printed.
fn rounded(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(0.0);
            Value::from(format!("{number:.2e}"))
        }
        Value::Array(all) => all.iter().map(rounded).collect(),
        Value::Object(all) => all.iter().map(|(name, v)| (name.clone(), rounded(v))).collect(),
        other => other.clone(),
    }
}

/// A value as text.
pub(super) fn line(attribute: &str, reading: &Reading) -> String {
    format!("{attribute} {}", reading.to_json()).chars().take(LINE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn noise_is_no_change() {
        assert_eq!(rounded(&json!({"a": [1.0001, 2]})), rounded(&json!({"a": [1.0002, 2]})));
        assert_ne!(rounded(&json!({"a": 1.0})), rounded(&json!({"a": 1.1})));
        assert_ne!(rounded(&json!({"a": "x"})), rounded(&json!({"a": "y"})));
    }
}
