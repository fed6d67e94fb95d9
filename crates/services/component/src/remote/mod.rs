//! A component as its callers see it: its topics to read, and its commands to send.
//!
//! Constraints. Nothing is opened before it is used. No thread is started: whoever waits for a call
//! reads the acknowledgements itself, which costs one wake-up, and of several who wait one reads
//! for all. Calls, and what is yet to be told of them, are bounded by
//! [`MAX_PENDING`](crate::protocol::caller::MAX_PENDING).
//!
//! Operation. Before a command is sent the lease is looked at: where nobody is there the call ends
//! at once, and nothing is published. While one waits it is looked at every [`LOOK_EVERY`], and a
//! call whose component went away ends after a last look for its acknowledgement. A component
//! without a lease is not ours; it is sent to as long as its heartbeats do not say otherwise.

mod call;
mod dialogue;

use std::sync::Arc;
use std::time::{Duration, Instant};

use helio_bus::Bus;
use helio_core::sal::TopicKind;

use crate::host;
use crate::interface::{Interface, InterfaceError};
use crate::protocol::caller::{CallerOptions, Cause, DEFAULT_STREAM_LEAD, Presence};
use crate::protocol::{AckCode, Acknowledgement, Action, StateCommand, SummaryState, path};
use crate::read::{ReadTopic, Reading};
use crate::topic::TopicReadError;

pub use call::{Call, CallBuilder, CommandError};
pub use dialogue::LOOK_EVERY;

use dialogue::Dialogue;

/// How long a command that changes the state may take until it says otherwise: a configuration is
/// read, hardware is connected.
pub const STATE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an instance that is there may take to tell its first state: it does so as soon as it
/// has its lease.
const STATE_WAIT: Duration = Duration::from_secs(10);

/// Who calls, where it is another than user@host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteOptions {
    /// `private_identity` of commands: a component's `Name` or `Name:index`.
    pub identity: Option<String>,
    /// Who commands, for authorization and audit, where that is another than the identity.
    pub caller: Option<String>,
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
    dialogue: Arc<Dialogue>,
}

impl Remote {
    /// A component's instance; `index` is 0 where it is not indexed, or to read what all of its
    /// instances publish: commands then have nobody to go to. Nothing is opened yet.
    ///
    /// # Errors
    /// [`InterfaceError::Index`].
    pub fn open(bus: &Bus, interface: &Interface, index: i32) -> Result<Self, InterfaceError> {
        Self::with_options(bus, interface, index, RemoteOptions::default())
    }

    /// The same, called by somebody else than user@host.
    ///
    /// # Errors
    /// [`InterfaceError::Index`].
    pub fn with_options(
        bus: &Bus,
        interface: &Interface,
        index: i32,
        options: RemoteOptions,
    ) -> Result<Self, InterfaceError> {
        if index != 0 {
            interface.check_index(index)?;
        }
        let options = CallerOptions {
            component: interface.identity(index),
            identity: options.identity.unwrap_or_else(host::user_at_host),
            origin: host::origin(),
            caller: options.caller,
            seed: (u128::from(host::random()) << 64) | u128::from(host::random()),
            stream_lead: DEFAULT_STREAM_LEAD,
        };
        let dialogue = Dialogue::new(bus, interface, index, options);
        Ok(Self { dialogue: Arc::new(dialogue) })
    }

    /// The component's interface.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.dialogue.interface
    }

    /// Its index; 0 where it is not indexed.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.dialogue.index
    }

    /// A reader of an event: it begins with the newest value.
    ///
    /// # Errors
    /// [`TopicReadError`].
    pub fn event(&self, name: &str) -> Result<ReadTopic, TopicReadError> {
        self.reader(TopicKind::Event, name)
    }

    /// A reader of telemetry: it begins with the newest value.
    ///
    /// # Errors
    /// [`TopicReadError`].
    pub fn telemetry(&self, name: &str) -> Result<ReadTopic, TopicReadError> {
        self.reader(TopicKind::Telemetry, name)
    }

    fn reader(&self, kind: TopicKind, name: &str) -> Result<ReadTopic, TopicReadError> {
        let shape = self.interface().shape(kind, name)?;
        ReadTopic::open(&self.dialogue.bus, shape, self.index(), &self.dialogue.warnings)
    }

    /// Whether it is there now.
    ///
    /// # Errors
    /// [`TopicReadError`] where the lease cannot be looked at.
    pub fn presence(&self) -> Result<Presence, TopicReadError> {
        self.dialogue.look(Duration::ZERO)
    }

    /// The summary state that it told last; `None` where it never told any. Where an instance is
    /// there, it is what that one said: one that has just started is waited for, 10 s at the most,
    /// and `None` is that it said nothing.
    ///
    /// # Errors
    /// [`TopicReadError`].
    pub fn state(&self) -> Result<Option<SummaryState>, TopicReadError> {
        self.state_within(STATE_WAIT)
    }

    fn state_within(&self, timeout: Duration) -> Result<Option<SummaryState>, TopicReadError> {
        let mut event = self.event("summaryState")?;
        let until = Instant::now() + timeout;
        loop {
            let presence = self.dialogue.look(until.saturating_duration_since(Instant::now()))?;
            let told = event.newest()?.map(|told| (summary_state(told), told.producer().clone()));
            // Who is not there has told its last, and of a foreign one nobody knows.
            let is_there = matches!(presence, Presence::Here { .. });
            let state = match told {
                Some((state, producer)) if !is_there || event.has_writer(&producer)? => state,
                None if !is_there => None,
                _ => match until.checked_duration_since(Instant::now()) {
                    Some(left) => {
                        event.wait_newer(left.min(LOOK_EVERY))?;
                        continue;
                    }
                    None => None,
                },
            };
            return Ok(state);
        }
    }

    /// A command that is being put together.
    pub fn command(&self, name: &str) -> CallBuilder {
        CallBuilder::new(&self.dialogue, name)
    }

    /// The fewest commands that lead it to a state; none where it is there.
    ///
    /// # Errors
    /// [`CommandError`] where nobody is there; [`CommandError::NoPath`] where its state is unknown,
    /// or no commands lead there.
    pub fn path_to(&self, target: SummaryState) -> Result<Vec<StateCommand>, CommandError> {
        let component = || self.interface().identity(self.index());
        if self.dialogue.look(STATE_TIMEOUT)? == Presence::Gone {
            // The state that it told last is not its state any more.
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

    /// A command that changes the state; `with` is the configuration that `start` takes, empty for
    /// none. It is given [`STATE_TIMEOUT`].
    pub fn state_command(&self, command: StateCommand, with: &str) -> CallBuilder {
        let call = self.command(command.name()).timeout(STATE_TIMEOUT);
        match command {
            StateCommand::Start => call.set("configurationOverride", with),
            _ => call,
        }
    }

    /// Leads it to a state by the fewest commands; `with` is the configuration that `start` takes,
    /// empty for none.
    ///
    /// # Errors
    /// [`CommandError`] of the command that failed, or as [`path_to`](Self::path_to) has them.
    pub fn set_state(&self, target: SummaryState, with: &str) -> Result<(), CommandError> {
        for command in self.path_to(target)? {
            self.state_command(command, with).send().wait()?;
        }
        Ok(())
    }

    /// Has it take no commands but this caller's, for a time; locked again, the time begins anew.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn lock(&self, time: Duration) -> Result<Acknowledgement, CommandError> {
        let seconds = time.as_secs_f64();
        self.command("").act(Action::Lock { seconds }).wait()
    }

    /// Has it take commands of all callers again.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn unlock(&self) -> Result<Acknowledgement, CommandError> {
        self.command("").act(Action::Unlock).wait()
    }

    /// Has a function called with each warning: commands of a stream that were sent late,
    /// acknowledgements that cannot be read, samples that never came. Until then they go to
    /// standard error. It is called by whoever uses the remote or a reader of its, in the middle of
    /// that, and must not use them itself.
    pub fn on_warning(&self, call: impl Fn(&str) + Send + Sync + 'static) {
        self.dialogue.warnings.go_to(call);
    }

    /// How many commands of streams were sent less than 50 ms before their time.
    #[must_use]
    pub fn late_sent(&self) -> u64 {
        self.dialogue.late_sent()
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
