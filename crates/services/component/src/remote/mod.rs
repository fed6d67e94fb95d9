//! A client's handle to a component: its topics for reading, and its commands for sending.
//!
//! Constraints. Topics are opened on first use. There is no thread: a caller that waits reads the
//! acknowledgements itself, which costs one wake-up; of several, one reads for all. Calls and their
//! unread events are bounded by [`MAX_PENDING`](crate::protocol::caller::MAX_PENDING).
//!
//! Operation. Before a command is sent, the lease is checked. If no instance is live, the call ends
//! at once and nothing is published. While a caller waits, the lease is polled every
//! [`PRESENCE_POLL_INTERVAL`]. If the component goes away, its acknowledgements are read once more,
//! and then the call ends. A component without a lease is foreign; commands are sent to it unless
//! its heartbeats show that it is gone.

mod call;
mod command_client;

use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::Bus;
use helio_core::sal::TopicKind;

use crate::interface::{Interface, InterfaceError};
use crate::process_identity;
use crate::protocol::caller::{CallerOptions, Cause, DEFAULT_STREAM_LEAD, MissingFields, Presence};
use crate::protocol::{
    AckCode, Acknowledgement, Action, CallerKey, StateCommand, SummaryState, path,
};
use crate::read::{ReadTopic, Reading};
use crate::topic::TopicReadError;

pub use call::{Call, CallBuilder, CommandError};
pub use command_client::PRESENCE_POLL_INTERVAL;

use command_client::CommandClient;

/// The timeout of commands that change the state, until the component acknowledges a longer one:
/// they read configurations and connect hardware.
pub const STATE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a live instance may take to publish its first state, which it does as soon as it has
/// its lease.
const STATE_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The identity of a caller, if it is not user@host, and how it sends commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteOptions {
    /// `private_identity` of commands: a component's `Name` or `Name:index`.
    pub identity: Option<String>,
    /// The caller for authorization and audit, if it is not the identity.
    pub caller: Option<String>,
    /// What becomes of a command's fields that are not set; without a choice
    /// [`MissingFields::VARIABLE`] decides, else they are refused.
    pub missing_fields: Option<MissingFields>,
    /// The caller's key, which signs the commands; see [`read_caller_key`](crate::read_caller_key).
    pub key: Option<CallerKey>,
}

impl MissingFields {
    /// The choice of the environment: [`VARIABLE`](Self::VARIABLE), else to refuse.
    ///
    /// # Errors
    /// [`InterfaceError::MissingFields`] for an unknown name.
    pub fn of_environment() -> Result<Self, InterfaceError> {
        match std::env::var_os(Self::VARIABLE) {
            Some(name) if !name.is_empty() => {
                let name = name.to_string_lossy();
                let choice = Self::from_name(&name);
                choice.ok_or_else(|| InterfaceError::MissingFields(name.into_owned()))
            }
            _ => Ok(Self::Refuse),
        }
    }
}

/// A component as its callers see it. Cloning shares it.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use helio_bus::Bus;
/// use helio_component::{Interface, Remote};
/// use helio_component::protocol::SummaryState;
///
/// let interfaces = helio_bus::read_interfaces("examples/interfaces")?;
/// let bus = Bus::connect("journal:site")?;
/// let mount = Remote::open(&bus, &Interface::of(&interfaces, "MTMount")?, 0)?;
/// mount.set_state(SummaryState::Enabled, "")?;
/// let done = mount.command("moveToTarget").set("azimuth", 90.0).set("elevation", 45.0).send();
/// println!("{}", done.wait()?.result);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Remote {
    client: Arc<CommandClient>,
}

impl Remote {
    /// A handle to an instance of a component. `index` is 0 if the component is not indexed, or to
    /// read the topics of all instances; commands then have no target. Nothing is opened yet.
    ///
    /// # Errors
    /// [`InterfaceError::Index`], [`InterfaceError::MissingFields`].
    pub fn open(bus: &Bus, interface: &Interface, index: i32) -> Result<Self, InterfaceError> {
        Self::with_options(bus, interface, index, RemoteOptions::default())
    }

    /// Like [`open`](Self::open), with another identity than user@host, or for unset fields.
    ///
    /// # Errors
    /// [`InterfaceError::Index`], [`InterfaceError::MissingFields`].
    pub fn with_options(
        bus: &Bus,
        interface: &Interface,
        index: i32,
        options: RemoteOptions,
    ) -> Result<Self, InterfaceError> {
        if index != 0 {
            interface.check_index(index)?;
        }
        let missing = options.missing_fields.map_or_else(MissingFields::of_environment, Ok)?;
        let options = CallerOptions {
            component: interface.identity(index),
            identity: options.identity.unwrap_or_else(process_identity::user_at_host),
            origin: process_identity::origin(),
            caller: options.caller,
            key: options.key,
            seed: (u128::from(process_identity::random()) << 64)
                | u128::from(process_identity::random()),
            stream_lead: DEFAULT_STREAM_LEAD,
        };
        let client = CommandClient::new(bus, interface, index, options, missing);
        Ok(Self { client: Arc::new(client) })
    }

    /// The component's interface.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.client.interface
    }

    /// Its index; 0 if it is not indexed.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.client.index
    }

    /// A reader of an event; it begins with the newest value.
    ///
    /// # Errors
    /// [`TopicReadError`].
    pub fn event(&self, name: &str) -> Result<ReadTopic, TopicReadError> {
        self.reader(TopicKind::Event, name)
    }

    /// A reader of telemetry; it begins with the newest value.
    ///
    /// # Errors
    /// [`TopicReadError`].
    pub fn telemetry(&self, name: &str) -> Result<ReadTopic, TopicReadError> {
        self.reader(TopicKind::Telemetry, name)
    }

    fn reader(&self, kind: TopicKind, name: &str) -> Result<ReadTopic, TopicReadError> {
        let shape = self.interface().shape(kind, name)?;
        ReadTopic::open(&self.client.bus, shape, self.index(), &self.client.warnings)
    }

    /// Whether an instance is live now.
    ///
    /// # Errors
    /// [`TopicReadError`] if the lease cannot be read.
    pub fn presence(&self) -> Result<Presence, TopicReadError> {
        self.client.query_presence(Duration::ZERO)
    }

    /// The last published summary state; `None` if there is none. If an instance is live, it is
    /// that instance's state. One that has just started is waited for, at most 10 s; `None` then
    /// means that it published none.
    ///
    /// # Errors
    /// [`TopicReadError`].
    pub fn state(&self) -> Result<Option<SummaryState>, TopicReadError> {
        self.state_within(STATE_READ_TIMEOUT)
    }

    fn state_within(&self, timeout: Duration) -> Result<Option<SummaryState>, TopicReadError> {
        let mut event = self.event("summaryState")?;
        let until = Instant::now() + timeout;
        loop {
            let presence =
                self.client.query_presence(until.saturating_duration_since(Instant::now()))?;
            let told = event.newest()?.map(|told| (summary_state(told), told.producer().clone()));
            // An absent instance publishes nothing more, and a foreign one's incarnation is
            // unknown.
            let is_there = matches!(presence, Presence::Here { .. });
            let state = match told {
                Some((state, producer)) if !is_there || event.has_writer(&producer)? => state,
                None if !is_there => None,
                _ => match until.checked_duration_since(Instant::now()) {
                    Some(left) => {
                        event.wait_newer(left.min(PRESENCE_POLL_INTERVAL))?;
                        continue;
                    }
                    None => None,
                },
            };
            return Ok(state);
        }
    }

    /// Begins a command.
    pub fn command(&self, name: &str) -> CallBuilder {
        CallBuilder::new(&self.client, name)
    }

    /// The shortest sequence of commands that leads to a state; empty if it is reached.
    ///
    /// # Errors
    /// [`CommandError`] if no instance is live; [`CommandError::NoPath`] if its state is unknown,
    /// or no commands lead there.
    pub fn path_to(&self, target: SummaryState) -> Result<Vec<StateCommand>, CommandError> {
        let component = || self.interface().identity(self.index());
        if self.client.query_presence(STATE_TIMEOUT)? == Presence::Gone {
            // The last published state is outdated.
            let text = format!("nobody there: {} is not running", component());
            return Err(CommandError::Ended {
                component: component(),
                command: format!("the change to {target}"),
                ack: Box::new(Acknowledgement::new(AckCode::NoAck, text)),
                cause: Cause::NobodyThere,
            });
        }
        let from = self.state_within(STATE_TIMEOUT)?;
        let no_path = || CommandError::NoPath { component: component(), from, to: target };
        from.and_then(|from| path(from, target)).ok_or_else(no_path)
    }

    /// A command that changes the state; `with` is the configuration for `start`, empty for none.
    /// Its timeout is [`STATE_TIMEOUT`].
    pub fn state_command(&self, command: StateCommand, with: &str) -> CallBuilder {
        let call = self.command(command.name()).timeout(STATE_TIMEOUT);
        match command {
            StateCommand::Start => call.set("configurationOverride", with),
            _ => call,
        }
    }

    /// Brings the component to a state by the shortest sequence of commands; `with` is the
    /// configuration for `start`, empty for none.
    ///
    /// # Errors
    /// [`CommandError`] of the command that failed, or as for [`path_to`](Self::path_to).
    pub fn set_state(&self, target: SummaryState, with: &str) -> Result<(), CommandError> {
        for command in self.path_to(target)? {
            self.state_command(command, with).send().wait()?;
        }
        Ok(())
    }

    /// Makes the component refuse the commands of other callers for a time; a second lock restarts
    /// the time.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn lock(&self, time: Duration) -> Result<Acknowledgement, CommandError> {
        let seconds = time.as_secs_f64();
        self.command("").act(Action::Lock { seconds }).wait()
    }

    /// Makes the component accept commands of all callers again.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn unlock(&self) -> Result<Acknowledgement, CommandError> {
        self.command("").act(Action::Unlock).wait()
    }

    /// Sets the function that receives warnings: stream commands that were sent late,
    /// acknowledgements that cannot be read, lost samples. The default writes them to standard
    /// error. The function runs on the thread that uses the remote or one of its readers, inside
    /// that call, and must not use them itself.
    pub fn on_warning(&self, call: impl Fn(&str) + Send + Sync + 'static) {
        self.client.warnings.go_to(call);
    }

    /// The number of stream commands that were sent less than 50 ms before their time.
    #[must_use]
    pub fn late_sent(&self) -> u64 {
        self.client.late_sent()
    }
}

fn summary_state(told: &Reading) -> Option<SummaryState> {
    let number = i32::try_from(told.integer("summaryState")?).ok()?;
    SummaryState::from_number(number)
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remote({})", self.interface().identity(self.index()))
    }
}
