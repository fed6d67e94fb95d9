//! The topics that a component listens to: its commands, and what else may be asked of it.

use std::collections::HashMap;
use std::sync::Arc;

use helio_bus::{
    Bus, Lagging, Member, Start, Subscribe, Subscription, Topic, TopicError, TopicSpec, WaitSet,
};

use super::publish::record_codec;
use super::shell::Shell;
use crate::interface::{Interface, Shape};
use crate::read::of_instance;
use crate::records::ControlRecord;
use crate::topic;

/// Whose samples a member of the wait set has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Command(String),
    Control,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command(name) => write!(f, "commands {name}"),
            Self::Control => f.write_str("what is asked besides commands"),
        }
    }
}

/// What a component waits for.
pub(super) struct Listening {
    pub set: WaitSet,
    pub sources: HashMap<Member, Source>,
    /// Why schemas of commands were not declared.
    pub refused: Vec<String>,
}

impl Listening {
    /// Subscribes to all commands of an instance, and to what else may be asked of it. Their
    /// schemas are declared, so that callers whose commands could not be read are refused.
    pub(super) fn open<'a>(
        bus: &Bus,
        (interface, index): (&Interface, i32),
        commands: impl Iterator<Item = (&'a String, &'a Arc<Shape>)>,
    ) -> Result<Self, TopicError> {
        let (mut set, mut sources, mut refused) = (bus.wait_set()?, HashMap::new(), Vec::new());
        for (name, shape) in commands {
            let topic = topic::open(bus, shape, None)?;
            match topic.declare() {
                Ok(()) => {}
                // Callers of the release that was there before are answered one by one.
                Err(error @ TopicError::Incompatible { .. }) => refused.push(error.to_string()),
                Err(error) => return Err(error),
            }
            let samples = of_command(&topic, shape, index)?;
            sources.insert(set.add(samples), Source::Command(name.clone()));
        }
        sources.insert(set.add(of_control(bus, interface, index)?), Source::Control);
        Ok(Self { set, sources, refused })
    }
}

impl Shell {
    /// Subscribes again to something that could not be read, however long that takes.
    pub(super) fn listen(&self, source: &Source) -> Result<Option<Subscription>, TopicError> {
        match source {
            Source::Control => of_control(&self.bus, &self.interface, self.index).map(Some),
            Source::Command(name) => match self.known.get(name) {
                None => Ok(None),
                Some(known) => {
                    let topic = topic::open(&self.bus, &known.shape, None)?;
                    of_command(&topic, &known.shape, self.index).map(Some)
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
    let spec = spec.qos(ControlRecord::qos()).schema(record_codec::<ControlRecord>().schema());
    bus.topic(spec)?.subscribe(options().keys([topic::key(interface.indexed(), index)]))
}

/// Every command counts, however late it is looked at: what expired says so itself, and one that
/// cannot be read is refused, so that it does not keep the component from the others.
fn options() -> Subscribe {
    Subscribe::from(Start::Latest).lagging(Lagging::Lossless).each_undecodable()
}
