//! The description of a component for its controller.

use std::time::Duration;

use crate::protocol::SummaryState;

/// A component and its commands.
#[derive(Debug, Clone, PartialEq)]
pub struct ControllerOptions {
    /// The component's name.
    pub component: String,
    /// Its index; 0 if it is not indexed.
    pub index: i32,
    /// Its commands, including the state commands.
    pub commands: Vec<CommandSpec>,
    /// The initial state.
    pub state: SummaryState,
}

/// A command of a component.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandSpec {
    /// Its short name, for example `trackTarget`. Those of
    /// [`StateCommand`](crate::protocol::StateCommand) change the state and share one lane.
    pub name: String,
    /// Whether it has a handler; without one it is refused.
    pub has_handler: bool,
    /// Whether several calls may run at the same time.
    pub lane: Lane,
    /// The stream's properties, if it is a stream command.
    pub stream: Option<StreamSpec>,
}

impl CommandSpec {
    /// A command with a handler, one call at a time.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), has_handler: true, lane: Lane::Serial, stream: None }
    }
}

/// Whether several calls of a command may run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Lane {
    /// One at a time; further ones are queued.
    #[default]
    Serial,
    /// Up to [`MAX_CONCURRENT`](super::MAX_CONCURRENT) at a time.
    Concurrent,
}

/// The properties of a stream command, which is for a time and has no value after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StreamSpec {
    /// How long before its time a command must be accepted; a later one is late.
    pub margin: Duration,
}

/// The lease of the component: whether it is the live instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// It is the live instance.
    Held {
        /// Its incarnation: a later instance has a larger number.
        incarnation: u64,
    },
    /// It was, and cannot confirm it now: no command starts.
    Lapsed {
        /// Its incarnation.
        incarnation: u64,
    },
    /// Another instance is live, or none: commands are not for this one.
    Lost,
}
