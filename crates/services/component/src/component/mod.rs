//! A component: command handlers, summary states, and the topics that every component publishes.
//!
//! Constraints. The [`Controller`](crate::protocol::Controller) decides what happens to a command;
//! one lock protects it. Its acknowledgements and states go into the [outbox] under that lock, so
//! they are published in the order in which they were decided. Publishing itself happens outside
//! the lock: a slow topic cannot block the component. Handlers also run outside the lock, on a
//! bounded number of threads. State changes have a thread of their own, so a component whose
//! handlers all hang can still be disabled. A handler that is declared [inline](Builder::inline)
//! runs on the thread that reads the commands. This saves a wake-up, and blocks everything else
//! while the handler runs.
//!
//! Operation. One thread waits for all command topics. A topic that cannot be read is retried each
//! second; the others continue. [Other threads](periodic) publish the heartbeat and poll files. The
//! component ends on [`Running::stop`], on the command `exitControl`, when the lease is lost, and
//! when the bus is closed. It then accepts no further commands, interrupts handlers and waits for
//! them, publishes OFFLINE and the pending messages, and releases its lease.

mod builder;
mod cancel;
mod command;
mod command_loop;
mod config;
mod engine;
mod generics;
mod messages;
mod outbox;
mod outputs;
mod periodic;
mod policy;
mod publish;
mod receive;
mod shutdown;
mod subscriptions;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use helio_bus::{Bus, Tai};
use helio_core::sal::TopicKind;
use thiserror::Error;

use crate::interface::{Interface, InterfaceError};
use crate::lease::LeaseError;
use crate::protocol::{CallNumber, Progress, StreamStats, SummaryState};
use crate::topic::WriteError;
use crate::write::WriteTopic;

pub use builder::Builder;
pub use command::{Command, Failed, Handler};
pub use command_loop::{RunError, Running};
pub use config::{ConfigError, ConfigFolder};
pub use generics::{LogLevel, SoftwareVersions};

use self::engine::Engine;

/// Why a component could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Another instance is running, or the lease cannot be taken.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The interface has no such command, or the component has no such instance.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A topic cannot be opened or written.
    #[error(transparent)]
    Topic(#[from] WriteError),
    /// The authorization file is invalid or unreadable.
    #[error("the authorization file {path} cannot be used: {reason}")]
    Policy {
        /// The file's path.
        path: std::path::PathBuf,
        /// The cause.
        reason: String,
    },
    /// The command is declared as a stream, and the named field is not a number.
    #[error("{command} has no number {field} that could be its time; name one of its fields")]
    Stream {
        /// The command.
        command: String,
        /// The field that should hold the time.
        field: String,
    },
    /// The operating system refused a thread.
    #[error("no thread could be started: {0}")]
    Thread(std::io::Error),
}

/// A running component, as its handlers see it. Clones share it.
#[derive(Clone)]
pub struct Component(Arc<Engine>);

impl Component {
    /// Begins building a component; `index` is 0 for components that are not indexed.
    pub fn builder(bus: &Bus, interface: &Interface, index: i32) -> Builder {
        Builder::new(bus, interface, index)
    }

    /// Its interface.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.0.outputs.interface
    }

    /// The bus that the component uses.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.0.outputs.bus
    }

    /// Its index; 0 if it is not indexed.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.0.outputs.author.index
    }

    /// `Name`, or `Name:index` if the component is indexed.
    #[must_use]
    pub fn identity(&self) -> &str {
        self.0.outputs.identity()
    }

    /// The summary state.
    #[must_use]
    pub fn state(&self) -> SummaryState {
        self.0.outputs.state()
    }

    /// The current time, in TAI.
    #[must_use]
    pub fn now(&self) -> Tai {
        self.0.now()
    }

    /// An event topic for writing. It remembers the values of its fields.
    ///
    /// # Errors
    /// [`InterfaceError::NoTopic`].
    pub fn event(&self, name: &str) -> Result<WriteTopic, InterfaceError> {
        self.0.outputs.topic(TopicKind::Event, name)
    }

    /// A telemetry topic for writing. It remembers the values of its fields.
    ///
    /// # Errors
    /// [`InterfaceError::NoTopic`].
    pub fn telemetry(&self, name: &str) -> Result<WriteTopic, InterfaceError> {
        self.0.outputs.topic(TopicKind::Telemetry, name)
    }

    /// Reports a fault that needs a person: publishes `errorCode`, enters FAULT, and fails the
    /// pending state change, if there is one.
    pub fn fault(&self, code: i32, report: &str, traceback: &str) {
        self.0.fault(code, report, traceback);
    }

    /// Publishes a log message if its level is at least the component's log level.
    pub fn log(&self, level: LogLevel, message: &str) {
        self.0.log(level, message, "");
    }

    /// The counters of a stream command; `None` for other commands.
    #[must_use]
    pub fn stream(&self, command: &str) -> Option<StreamStats> {
        self.0.stream(command)
    }

    /// Requests the end of the component and returns at once; handlers may call it.
    pub fn stop(&self) {
        self.0.shutdown.request();
    }

    fn in_progress(&self, call: CallNumber, told: Progress) {
        self.0.input(|controller, now| controller.in_progress(now, call, told));
    }
}

impl std::fmt::Debug for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Component({}, {})", self.identity(), self.state())
    }
}
