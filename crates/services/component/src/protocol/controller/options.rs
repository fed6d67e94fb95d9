//! What a controller is told of its component.

use std::time::Duration;

use crate::protocol::SummaryState;

/// A component and its commands.
#[derive(Debug, Clone, PartialEq)]
pub struct ControllerOptions {
    /// The component's name.
    pub component: String,
    /// Its index; 0 where it is not indexed.
    pub index: i32,
    /// Its commands, those that change the state included.
    pub commands: Vec<CommandSpec>,
    /// The state it begins in.
    pub state: SummaryState,
}

/// A command of a component.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandSpec {
    /// Its short name, for example `trackTarget`. Those of
    /// [`StateCommand`](crate::protocol::StateCommand) change the state and share one lane.
    pub name: String,
    /// Whether something runs it; without, it is refused.
    pub has_handler: bool,
    /// Whether it may run beside itself.
    pub lane: Lane,
    /// What makes it a stream's command, if it is one.
    pub stream: Option<StreamSpec>,
}

impl CommandSpec {
    /// A command with a handler that runs one at a time.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), has_handler: true, lane: Lane::Serial, stream: None }
    }
}

/// Whether a command may run beside itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lane {
    /// One at a time; further ones wait.
    #[default]
    Serial,
    /// Up to [`MAX_CONCURRENT`](super::MAX_CONCURRENT) at a time.
    Concurrent,
}

/// What makes a command a stream's: each is for a time, and worth nothing after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StreamSpec {
    /// How long before its time a command must be taken; one that comes later is late.
    pub margin: Duration,
}

/// Whether the component is, by its lease, the one live instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// It is.
    Held {
        /// Which of the component's instances: a later one has a larger number.
        incarnation: u64,
    },
    /// It was, and whether it still is cannot be told now: nothing is begun.
    Lapsed {
        /// Which of the component's instances it was.
        incarnation: u64,
    },
    /// Another is, or nobody: commands are not this one's.
    Lost,
}
