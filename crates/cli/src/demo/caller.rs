//! Commands of the demo's script and pointing, each accounted for.

use std::time::Duration;

use helio_bus::Bus;
use helio_component::protocol::caller::Cause;
use helio_component::protocol::{AckCode, Acknowledgement};
use helio_component::{Call, CallBuilder, CommandError, Interface, Remote, RemoteOptions};
use helio_core::sal::Interfaces;

use super::accounting::CommandId;
use super::messages::{Called, ProcessMessage};
use crate::clock::monotonic_ns;
use crate::error::CliResult;
use crate::service_error::ServiceResult;
use crate::worker::say;

/// The timeout of each acknowledgement, long enough for a slow machine.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// A component as the demo calls it.
pub(crate) struct Callee {
    pub(crate) remote: Remote,
    identity: String,
}

/// A command in flight.
pub(crate) struct Sent {
    call: Call,
    called: Called,
    begun_ns: u64,
}

/// The outcome of a command for its caller.
pub(crate) struct Ended {
    pub(crate) called: Called,
    /// The source of the outcome; `None` if the command was not sent.
    pub(crate) cause: Option<Cause>,
    pub(crate) text: String,
}

impl Callee {
    /// A component for a caller of this name.
    pub(crate) fn open(
        bus: &Bus,
        interfaces: &Interfaces,
        (name, index): &(String, i32),
        identity: &str,
    ) -> CliResult<Self> {
        let options = RemoteOptions { identity: Some(identity.to_owned()), ..Default::default() };
        let interface = Interface::of(interfaces, name).or_cli()?;
        let remote = Remote::with_options(bus, &interface, *index, options).or_cli()?;
        Ok(Self { remote, identity: identity.to_owned() })
    }

    /// `Name`, or `Name:index`.
    pub(crate) fn name(&self) -> String {
        self.remote.interface().identity(self.remote.index())
    }

    /// A builder of a command.
    pub(crate) fn command(&self, name: &str) -> CallBuilder {
        self.remote.command(name).timeout(COMMAND_TIMEOUT)
    }

    /// Sends a command.
    pub(crate) fn send(&self, command: &str, call: CallBuilder) -> Sent {
        let begun_ns = monotonic_ns();
        let call = call.send();
        let id = call.seq_num().map(|seq_num| CommandId {
            component: self.remote.interface().name().to_owned(),
            index: self.remote.index(),
            identity: self.identity.clone(),
            origin: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
            seq_num,
        });
        let (command, code) = (command.to_owned(), AckCode::NoAck.number());
        let called = Called { id, command, code, acknowledged: false, met: false, took_ns: 0 };
        Sent { call, called, begun_ns }
    }

    /// Sends a command without fields and waits for its end.
    pub(crate) fn ask(&self, command: &str) -> Ended {
        self.send(command, self.command(command)).wait()
    }
}

impl Sent {
    /// The next acknowledgement that is not final.
    pub(crate) fn next(&mut self) -> Result<Acknowledgement, Box<Ended>> {
        match self.call.next() {
            Ok(Some(ack)) if !ack.code.is_final() => Ok(ack),
            told => Err(Box::new(self.end(told))),
        }
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> Ended {
        loop {
            if let Err(ended) = self.next() {
                return *ended;
            }
        }
    }

    fn end(&mut self, told: Result<Option<Acknowledgement>, CommandError>) -> Ended {
        let (cause, code, text) = match told {
            Ok(Some(ack)) => (Some(Cause::Acknowledged), ack.code, ack.result),
            Ok(None) => (None, AckCode::NoAck, "its end was told before".to_owned()),
            Err(error) => match (error.cause(), error.ack()) {
                (cause, Some(ack)) => (cause, ack.code, ack.result.clone()),
                (cause, None) => (cause, AckCode::NoAck, error.to_string()),
            },
        };
        let mut called = self.called.clone();
        called.took_ns = monotonic_ns().saturating_sub(self.begun_ns);
        called.acknowledged = cause == Some(Cause::Acknowledged);
        called.code = code.number();
        Ended { called, cause, text }
    }
}

impl Ended {
    /// Whether it was completed.
    pub(crate) fn completed(&self) -> bool {
        self.called.acknowledged && self.called.code == AckCode::Complete.number()
    }

    /// Reports the outcome, and whether it was the expected one.
    pub(crate) fn account(mut self, met: bool) -> CliResult {
        self.called.met = met;
        say(&ProcessMessage::Called(self.called))
    }
}
