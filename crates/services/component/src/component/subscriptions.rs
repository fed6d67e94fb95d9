//! A component's subscriptions: its command topics and the control topic.

use std::collections::HashMap;
use std::sync::Arc;

use helio_bus::{
    Bus, Lagging, Member, Start, Subscribe, Subscription, Topic, TopicError, TopicSpec, WaitSet,
};

use super::engine::{CommandEntry, Engine};
use crate::interface::{Interface, Shape};
use crate::read::of_instance;
use crate::records::{self, ControlRecord};
use crate::topic;

/// The source of the samples of a member of the wait set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandSource {
    Command(String),
    Control,
}

impl std::fmt::Display for CommandSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command(name) => write!(f, "commands {name}"),
            Self::Control => f.write_str("control requests"),
        }
    }
}

/// The subscriptions of a component.
pub(super) struct Subscriptions {
    pub set: WaitSet,
    pub sources: HashMap<Member, CommandSource>,
    /// Why the schemas of some commands were not declared.
    pub refused: Vec<String>,
}

impl Subscriptions {
    /// Subscribes to all commands of an instance and to its control topic. The schemas are
    /// declared, so that incompatible callers are refused when they open a topic.
    pub(super) fn open<'a>(
        bus: &Bus,
        interface: &Interface,
        index: i32,
        commands: impl Iterator<Item = (&'a String, &'a CommandEntry)>,
    ) -> Result<Self, TopicError> {
        let (mut set, mut sources, mut refused) = (bus.wait_set()?, HashMap::new(), Vec::new());
        for (name, known) in commands {
            let topic = known.topic(bus)?;
            match topic.declare() {
                Ok(()) => {}
                // Callers of the previous release get an answer to each command.
                Err(error @ TopicError::Incompatible { .. }) => refused.push(error.to_string()),
                Err(error) => return Err(error),
            }
            let samples = of_command(&topic, &known.shape, index)?;
            sources.insert(set.add(samples), CommandSource::Command(name.clone()));
        }
        sources.insert(set.add(of_control(bus, interface, index)?), CommandSource::Control);
        Ok(Self { set, sources, refused })
    }
}

impl Engine {
    /// Resubscribes to a topic that could not be read, however long that takes.
    pub(super) fn listen(
        &self,
        source: &CommandSource,
    ) -> Result<Option<Subscription>, TopicError> {
        match source {
            CommandSource::Control => {
                of_control(&self.outputs.bus, &self.outputs.interface, self.outputs.author.index)
                    .map(Some)
            }
            CommandSource::Command(name) => match self.commands.get(name) {
                None => Ok(None),
                Some(known) => {
                    let topic = known.topic(&self.outputs.bus)?;
                    of_command(&topic, &known.shape, self.outputs.author.index).map(Some)
                }
            },
        }
    }
}

fn of_command(topic: &Topic, shape: &Arc<Shape>, index: i32) -> Result<Subscription, TopicError> {
    topic.subscribe(of_instance(options(), shape, index))
}

fn of_control(bus: &Bus, interface: &Interface, index: i32) -> Result<Subscription, TopicError> {
    let spec = TopicSpec::of(topic::beside(interface.name(), "control")?);
    let spec = spec.qos(ControlRecord::qos()).schema(records::codec::<ControlRecord>().schema());
    bus.topic(spec)?.subscribe(options().keys([topic::key(interface.indexed(), index)]))
}

/// Every command counts, however late it is read: an expired one is rejected by its expiry, and one
/// that cannot be decoded is refused, so that it does not block the others.
fn options() -> Subscribe {
    Subscribe::from(Start::Latest).lagging(Lagging::Lossless).each_undecodable()
}
