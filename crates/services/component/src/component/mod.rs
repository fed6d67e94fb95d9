//! A component: handlers for its commands, its states, and what every component publishes.
//!
//! Constraints. What becomes of a command is decided by the [`Controller`], which stands behind one
//! lock; what it has said is put into the [outbox] under that lock, so acknowledgements and states
//! come out in the order in which they were decided, and published outside of it, so that nothing
//! that a topic does to its writers holds up the component. Handlers run outside it too: on a
//! bounded number of threads, and changes of state on one of their own, so that a component whose
//! handlers all hang can still be disabled. A handler that is declared [inline](Builder::inline)
//! runs on the thread that reads the commands, which saves a wake-up and holds up everything else
//! meanwhile.
//!
//! Operation. One thread waits for all command topics; a topic that cannot be read is tried again
//! each second, and the others go on. [Others](beat) send the heartbeat and look at files. The
//! component ends when it is told to ([`Running::stop`], or the command `exitControl`), when the
//! lease is lost, and when the bus is closed. It then takes no more commands, interrupts handlers,
//! waits for them, publishes OFFLINE and what is left, and gives its lease back.

mod attend;
mod beat;
mod builder;
mod command;
mod config;
mod generics;
mod listen;
mod outbox;
mod policy;
mod pool;
mod publish;
mod receive;
mod shell;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use helio_bus::{Bus, Tai};
use helio_core::sal::TopicKind;
use thiserror::Error;

use crate::interface::{Interface, InterfaceError};
use crate::lease::LeaseError;
use crate::protocol::{CallNumber, PolicyError, Progress, StreamStats, SummaryState};
use crate::topic::WriteError;
use crate::write::WriteTopic;

pub use attend::{RunError, Running};
pub use builder::Builder;
pub use command::{Command, Failed, Handler};
pub use config::{ConfigError, ConfigFolder};
pub use generics::{LogLevel, SoftwareVersions};

use self::shell::Shell;

/// Why a component could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// It runs already, or its lease cannot be taken.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The interface has no such command, or no such instance.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A topic cannot be opened or written.
    #[error(transparent)]
    Topic(#[from] WriteError),
    /// The authorization file cannot be used.
    #[error("the authorization file {path} cannot be used: {reason}")]
    Policy {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A stream's command has no such number for its time.
    #[error("{command} has no number {field} that could be its time; name one of its fields")]
    Stream {
        /// The command.
        command: String,
        /// The field that was named.
        field: String,
    },
    /// The machine has no thread for it.
    #[error("no thread could be started: {0}")]
    Thread(std::io::Error),
}

impl StartError {
    fn policy(path: &std::path::Path, error: &PolicyError) -> Self {
        Self::Policy { path: path.to_owned(), reason: error.to_string() }
    }
}

/// A component that runs, as its handlers see it. Cloning shares it.
#[derive(Clone)]
pub struct Component(Arc<Shell>);

impl Component {
    /// A component that is being put together; `index` is 0 where it is not indexed.
    pub fn builder(bus: &Bus, interface: &Interface, index: i32) -> Builder {
        Builder::new(bus, interface, index)
    }

    /// Its interface.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.0.interface
    }

    /// The bus that it is on.
    #[must_use]
    pub fn bus(&self) -> &Bus {
        &self.0.bus
    }

    /// Its index; 0 where it is not indexed.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.0.index
    }

    /// `Name`, or `Name:index` where it is indexed.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// The summary state.
    #[must_use]
    pub fn state(&self) -> SummaryState {
        self.0.state()
    }

    /// The time, in TAI.
    #[must_use]
    pub fn now(&self) -> Tai {
        self.0.bus.clock().now()
    }

    /// An event, to be written; it remembers its values.
    ///
    /// # Errors
    /// [`InterfaceError::NoTopic`].
    pub fn event(&self, name: &str) -> Result<WriteTopic, InterfaceError> {
        self.0.topic(TopicKind::Event, name)
    }

    /// Telemetry, to be written; it remembers its values.
    ///
    /// # Errors
    /// [`InterfaceError::NoTopic`].
    pub fn telemetry(&self, name: &str) -> Result<WriteTopic, InterfaceError> {
        self.0.topic(TopicKind::Telemetry, name)
    }

    /// Something went wrong that needs a person: publishes `errorCode`, goes to FAULT, and fails
    /// the change of state that is under way, if there is one.
    pub fn fault(&self, code: i32, report: &str, traceback: &str) {
        self.0.fault(code, report, traceback);
    }

    /// Publishes a log message, where the log level lets it through.
    pub fn log(&self, level: LogLevel, message: &str) {
        self.0.log(level, message, "");
    }

    /// The counters of a stream's command; `None` where it is none.
    #[must_use]
    pub fn stream(&self, command: &str) -> Option<StreamStats> {
        self.0.stream(command)
    }

    /// Has it end, without waiting for that: a handler may call it.
    pub fn stop(&self) {
        self.0.stop();
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
