//! Putting a component together, and starting it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use helio_bus::{Bus, TopicError};
use helio_core::sal::TopicKind;
use helio_core::{ProducerName, Value};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::attend::{Attendance, RunError, Running};
use super::beat;
use super::command::{Cancel, Command, Failed, Handler};
use super::config::{ConfigError, ConfigFolder};
use super::generics::{LogLevel, MIDDLEWARE, SoftwareVersions};
use super::listen::Listening;
use super::outbox::Outbox;
use super::policy::PolicyFile;
use super::pool::Pool;
use super::publish::{Acks, Audit, record_codec};
use super::shell::{Hook, Known, Moment, Place, Protocol, Shell};
use super::{Component, StartError};
use crate::interface::{Interface, InterfaceError};
use crate::lease::{Lease, LeaseOptions};
use crate::protocol::checks::Limits;
use crate::protocol::controller::{
    CommandSpec, Controller, ControllerOptions, Lane, LeaseState, MAX_CONCURRENT, StreamSpec,
};
use crate::protocol::{Done, Policy, StateCommand, SummaryState};
use crate::records::ControlRecord;
use crate::topic::{self, WriteError};
use crate::write::{Author, WriteTopic};

/// A component that is being put together.
///
/// ```no_run
/// use helio_bus::Bus;
/// use helio_component::{Command, Component, Failed, Interface};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let interfaces = helio_bus::read_interfaces("examples/interfaces")?;
/// let bus = Bus::connect("journal:site")?;
/// let mount = Interface::of(&interfaces, "MTMount")?;
/// Component::builder(&bus, &mount, 0)
///     .on("moveToTarget", |command: &Command| {
///         command.in_progress(Duration::from_secs(60), "moving", None);
///         command.pause(Duration::from_secs(30))?;
///         Ok::<_, Failed>("arrived")
///     })
///     .run()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing runs before `start` or `run`"]
pub struct Builder {
    bus: Bus,
    interface: Interface,
    index: i32,
    commands: HashMap<String, Declared>,
    hooks: HashMap<(StateCommand, Moment), Vec<Hook>>,
    configuration: Option<(ConfigFolder, Configure)>,
    folder: Option<ConfigFolder>,
    state: SummaryState,
    versions: SoftwareVersions,
    simulation_mode: i32,
    log_level: LogLevel,
    policy: Option<PathBuf>,
}

type Configure = Box<dyn Fn(&Command, Json) -> Result<(), ConfigureError> + Send + Sync>;

/// Why a configuration was not taken.
enum ConfigureError {
    /// It is none of the component's type.
    Values(String),
    /// The component refused it.
    Refused(Failed),
}

/// What was said of a command.
struct Declared {
    handler: Option<Arc<dyn Handler>>,
    place: Place,
    lane: Lane,
    stream: Option<(String, Duration)>,
    limits: Vec<(String, Limits)>,
}

impl Default for Declared {
    fn default() -> Self {
        let (handler, stream, limits) = (None, None, Vec::new());
        Self { handler, place: Place::Thread, lane: Lane::Serial, stream, limits }
    }
}

impl Builder {
    pub(super) fn new(bus: &Bus, interface: &Interface, index: i32) -> Self {
        Self {
            bus: bus.clone(),
            interface: interface.clone(),
            index,
            commands: HashMap::new(),
            hooks: HashMap::new(),
            configuration: None,
            folder: None,
            state: SummaryState::Standby,
            versions: SoftwareVersions::default(),
            simulation_mode: 0,
            log_level: LogLevel::Info,
            policy: None,
        }
    }

    fn declared(&mut self, command: &str) -> &mut Declared {
        self.commands.entry(command.to_owned()).or_default()
    }

    /// Runs a command with a handler, one at a time, on a thread of its own: it may block.
    pub fn on(mut self, command: &str, handler: impl Handler) -> Self {
        self.declared(command).handler = Some(Arc::new(handler));
        self
    }

    /// The same for a handler that takes microseconds and never waits: it runs on the thread that
    /// reads the commands, which everything else waits for meanwhile.
    pub fn inline(mut self, command: &str, handler: impl Handler) -> Self {
        self = self.on(command, handler);
        self.declared(command).place = Place::Inline;
        self
    }

    /// Lets a command run beside itself.
    pub fn concurrent(mut self, command: &str) -> Self {
        self.declared(command).lane = Lane::Concurrent;
        self
    }

    /// Makes a command a stream's: `field` has the TAI time in seconds that each is for, and one
    /// that comes less than `margin` before it is ignored, counted and told.
    pub fn stream(mut self, command: &str, field: &str, margin: Duration) -> Self {
        self.declared(command).stream = Some((field.to_owned(), margin));
        self
    }

    /// Limits of a command's number beyond those of its interface.
    pub fn limit(mut self, command: &str, field: &str, limits: Limits) -> Self {
        self.declared(command).limits.push((field.to_owned(), limits));
        self
    }

    /// Runs before a command changes the state; where it fails, the state stays.
    pub fn begin(
        mut self,
        command: StateCommand,
        hook: impl Fn(&Command) -> Result<(), Failed> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.entry((command, Moment::Begin)).or_default().push(Box::new(hook));
        self
    }

    /// Runs after a command changed the state; where it fails, the state before is restored.
    pub fn end(
        mut self,
        command: StateCommand,
        hook: impl Fn(&Command) -> Result<(), Failed> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.entry((command, Moment::End)).or_default().push(Box::new(hook));
        self
    }

    /// Has the command `start` configure the component: with the layers of a folder and the
    /// override that the command names, read into a type of the component's. What is wrong with
    /// them is told before the state changes.
    pub fn configuration<T: DeserializeOwned>(
        mut self,
        folder: ConfigFolder,
        configure: impl Fn(&Command, T) -> Result<(), Failed> + Send + Sync + 'static,
    ) -> Self {
        let configure = move |command: &Command, values: Json| {
            let values = serde_json::from_value::<T>(values);
            let values = values.map_err(|error| ConfigureError::Values(error.to_string()))?;
            configure(command, values).map_err(ConfigureError::Refused)
        };
        self.configuration = Some((folder, Box::new(configure)));
        self
    }

    /// The state that it begins in, if not STANDBY.
    pub fn initial_state(mut self, state: SummaryState) -> Self {
        self.state = state;
        self
    }

    /// Versions of its software.
    pub fn versions(mut self, versions: SoftwareVersions) -> Self {
        self.versions = versions;
        self
    }

    /// How it simulates its hardware; 0 for not at all.
    pub fn simulation_mode(mut self, mode: i32) -> Self {
        self.simulation_mode = mode;
        self
    }

    /// The lowest level of log messages that are published, until `setLogLevel` says another.
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = level;
        self
    }

    /// The file that says who may command what; it is read again when it changes.
    pub fn policy(mut self, file: impl AsRef<Path>) -> Self {
        self.policy = Some(file.as_ref().to_owned());
        self
    }

    /// Runs it until it ends.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(self) -> Result<(), RunError> {
        self.start()?.wait()
    }

    /// Starts it: when this returns, it takes commands.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub fn start(self) -> Result<Running, StartError> {
        let attendance = self.attendance()?;
        let name = attendance.shell.identity.clone();
        spawn(attendance, std::thread::Builder::new().name(name))
    }

    /// All but its threads.
    pub(super) fn attendance(mut self) -> Result<Attendance, StartError> {
        self.interface.check_index(self.index)?;
        if self.versions.interface.is_empty() {
            self.interface.release().clone_into(&mut self.versions.interface);
        }
        self.check_names()?;
        self.add_generics();
        let policy = self.policy.as_deref().map(PolicyFile::open).transpose()?;
        let (policy_file, policy) = match policy {
            Some((file, policy)) => (Some(file), policy),
            None => (None, Policy::default()),
        };
        let known = self.known()?;
        let instance = [(&self.interface, self.index)];
        let made = crate::making::make_topics(&self.bus, instance, |_, _| {});
        made.map_err(|error| failed(self.interface.name(), &error))?;
        let identity = self.interface.identity(self.index);
        let producer = Some(producer(&identity)?);

        // Commands are listened for before the lease is taken: whoever sees it may send.
        let commands = known.iter().map(|(name, known)| (name, &known.shape));
        let listening = Listening::open(&self.bus, (&self.interface, self.index), commands);
        let listening = listening.map_err(|error| failed(self.interface.name(), &error));
        let Listening { set, sources, refused } = listening?;
        let lease = self.claim()?;
        let weak = Some(lease.downgrade());
        let author = Author { identity, index: self.index, producer, lease: weak };
        let held = LeaseState::Held { incarnation: lease.incarnation() };
        let shell = Arc::new(self.shell(author, known, (policy_file, lease))?);
        let waker = set.waker();
        shell.waker.get_or_init(|| waker);
        shell.open_first();
        shell.input(|controller, now| {
            controller.set_policy(policy);
            controller.lease(now, held);
        });
        shell.say_first();
        for reason in refused {
            let text = format!("commands of this release are refused to callers: {reason}");
            shell.say_log(LogLevel::Warning, &text, "");
        }
        shell.publish();
        let (unread, opened, resumed) = (Vec::new(), channel(), HashMap::new());
        let control = record_codec::<ControlRecord>();
        Ok(Attendance { shell, set, sources, control, lapses: 0, unread, opened, resumed })
    }

    /// Commands that are named must be there.
    fn check_names(&self) -> Result<(), InterfaceError> {
        for name in self.commands.keys() {
            self.interface.shape(TopicKind::Command, name)?;
        }
        Ok(())
    }

    /// What every component does.
    fn add_generics(&mut self) {
        if self.interface.has(TopicKind::Command, "setLogLevel") {
            let declared = self.commands.entry("setLogLevel".to_owned()).or_default();
            if declared.handler.is_none() {
                declared.handler = Some(Arc::new(set_log_level));
                declared.place = Place::Inline;
            }
        }
        let Some((folder, configure)) = self.configuration.take() else { return };
        let with = folder.clone();
        let hook = move |command: &Command| configured(command, &with, &configure);
        let hooks = self.hooks.entry((StateCommand::Start, Moment::Begin)).or_default();
        hooks.insert(0, Box::new(hook));
        self.folder = Some(folder);
    }

    fn known(&self) -> Result<HashMap<String, Known>, StartError> {
        let mut known = HashMap::new();
        for name in self.interface.names(TopicKind::Command) {
            let shape = self.interface.shape(TopicKind::Command, name)?;
            let mut checks = shape.checks().clone();
            let declared = self.commands.get(name);
            for (field, limits) in declared.iter().flat_map(|declared| &declared.limits) {
                checks.limit(field, *limits).map_err(|error| {
                    let topic = shape.topic().to_string();
                    StartError::Interface(InterfaceError::Schema {
                        topic,
                        reason: error.to_string(),
                    })
                })?;
            }
            let time_at = match declared.and_then(|declared| declared.stream.as_ref()) {
                None => None,
                Some((field, _)) => {
                    let real = |place: &usize| matches!(shape.defaults()[*place], Value::Double(_));
                    let place = shape.place(field).filter(real);
                    let (command, field) = (name.to_owned(), field.clone());
                    Some(place.ok_or(StartError::Stream { command, field })?)
                }
            };
            let handler = declared.and_then(|declared| declared.handler.clone());
            let place = declared.map_or(Place::Thread, |declared| declared.place);
            let number = self.interface.command_number(name).unwrap_or(-1);
            known.insert(name.to_owned(), Known { shape, checks, handler, place, time_at, number });
        }
        Ok(known)
    }

    fn specs(&self, known: &HashMap<String, Known>) -> Vec<CommandSpec> {
        let mut names: Vec<_> = known.keys().collect();
        names.sort_unstable();
        let spec = |name: &&String| {
            let declared = self.commands.get(*name);
            let stream = declared.and_then(|declared| declared.stream.as_ref());
            CommandSpec {
                name: (*name).clone(),
                has_handler: known[*name].handler.is_some()
                    || StateCommand::from_name(name).is_some(),
                lane: declared.map_or(Lane::Serial, |declared| declared.lane),
                stream: stream.map(|(_, margin)| StreamSpec { margin: *margin }),
            }
        };
        names.iter().map(spec).collect()
    }

    fn key(&self) -> Vec<u8> {
        topic::key(self.interface.indexed(), self.index)
    }

    fn claim(&self) -> Result<Lease, StartError> {
        let versions = &self.versions;
        let software = match versions.component.as_str() {
            "" => MIDDLEWARE.to_owned(),
            version => format!("{version} ({MIDDLEWARE})"),
        };
        let options = LeaseOptions { software, interface: versions.interface.clone() };
        Ok(Lease::claim(&self.bus, &self.interface, self.index, options)?)
    }

    fn shell(
        self,
        author: Author,
        known: HashMap<String, Known>,
        (policy, lease): (Option<PolicyFile>, Lease),
    ) -> Result<Shell, StartError> {
        let specs = self.specs(&known);
        let threads = threads(&specs);
        let controller = Controller::new(ControllerOptions {
            component: self.interface.name().to_owned(),
            index: self.index,
            commands: specs,
            state: self.state,
        });
        let acks = self.interface.shape(TopicKind::Ack, TopicKind::Ack.segment())?;
        let acks = WriteTopic::new(&self.bus, acks, author.clone());
        acks.open()?;
        let Author { identity, producer, .. } = author;
        let producer = producer.unwrap_or_else(|| self.bus.producer().clone());
        let (name, writer) = (self.interface.name(), (producer.clone(), lease.downgrade()));
        let audit = Audit::open(&self.bus, name, writer, self.key());
        let audit = audit.map_err(|error| failed(name, &error))?;
        Ok(Shell {
            handlers: Pool::new("helio-handler", threads),
            changes: Pool::new("helio-state", 1),
            lines: Pool::new("helio-outbox", LINES),
            openings: Pool::new("helio-open", known.len() + 1),
            beats: Pool::new("helio-beat", beat::THREADS),
            outbox: Outbox::new(),
            ended: Cancel::default(),
            protocol: Mutex::new(Protocol { controller, taken: HashMap::new() }),
            acks: Acks::new(acks),
            state: AtomicI32::new(self.state.number()),
            log_level: AtomicI32::new(self.log_level as i32),
            policy: Mutex::new(policy),
            weak: lease.downgrade(),
            lease: Mutex::new(Some(lease)),
            topics: Mutex::default(),
            waker: OnceLock::new(),
            stopping: AtomicBool::new(false),
            unsure: AtomicBool::new(false),
            complaints: Mutex::default(),
            unlogged: AtomicU64::new(0),
            bus: self.bus,
            interface: self.interface,
            index: self.index,
            hooks: self.hooks,
            versions: self.versions,
            simulation_mode: self.simulation_mode,
            configurations: self.folder,
            identity,
            producer,
            known,
            audit,
        })
    }
}

/// The most topics that are caught up with at the same time: more than a component has of its own.
const LINES: usize = 16;

/// The most handlers that run at the same time: as many as the protocol lets, so that none waits
/// for another's. A command has one, a concurrent one [`MAX_CONCURRENT`], and so have all that are
/// validated together. Threads are started when there is work for them.
fn threads(specs: &[CommandSpec]) -> usize {
    let concurrent = specs.iter().filter(|spec| spec.lane == Lane::Concurrent).count();
    specs.len() + MAX_CONCURRENT * (concurrent + 1)
}

fn failed(component: &str, error: &TopicError) -> StartError {
    let (topic, reason) = (component.to_owned(), error.to_string());
    StartError::Topic(WriteError::Open { topic, reason })
}

fn producer(identity: &str) -> Result<ProducerName, StartError> {
    ProducerName::new(identity).map_err(|error| failed(identity, &error.into()))
}

/// Begins what a component does by itself. Where a thread cannot be started it ends at once, as one
/// does that ran: it has told its state, and has the lease.
fn spawn(attendance: Attendance, thread: std::thread::Builder) -> Result<Running, StartError> {
    let component = Component(Arc::clone(&attendance.shell));
    let begun = component.0.begin_beats();
    let begun = begun.and_then(|()| thread.spawn(move || attendance.run()));
    let thread = begun.map_err(|error| {
        component.0.end(true);
        StartError::Thread(error)
    })?;
    Ok(Running { component, thread: Some(thread) })
}

/// The command `setLogLevel`, as every component understands it.
fn set_log_level(command: &Command) -> Result<Done, Failed> {
    let level = i32::try_from(command.integer("level"))?;
    let shell = &command.component().0;
    shell.log_level.store(level, Ordering::Relaxed);
    shell.say_log_level();
    shell.publish();
    Ok(Done::default())
}

/// Configures the component before it goes to DISABLED.
fn configured(
    command: &Command,
    folder: &ConfigFolder,
    configure: &Configure,
) -> Result<(), Failed> {
    let loaded = folder.load(command.text("configurationOverride"))?;
    match configure(command, Json::Object(loaded.values.clone())) {
        Ok(()) => {}
        Err(ConfigureError::Refused(failed)) => return Err(failed),
        Err(ConfigureError::Values(reason)) => {
            return Err(ConfigError::Values { files: loaded.files, reason }.into());
        }
    }
    let shell = &command.component().0;
    shell.say_applied(&loaded);
    shell.publish();
    Ok(())
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Builder({})", self.interface.identity(self.index))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{failing_mount, mount};
    use super::*;

    #[test]
    fn a_component_whose_thread_cannot_be_started_is_not_there() {
        let (builder, bus, _cable) = failing_mount();
        let attendance = builder.attendance().unwrap();
        let shell = Arc::downgrade(&attendance.shell);
        // No machine has that much room for a stack.
        let error = spawn(attendance, std::thread::Builder::new().stack_size(1 << 60));
        assert!(matches!(error, Err(StartError::Thread(_))));
        assert_eq!(shell.strong_count(), 0, "a thread of it is left");
        mount(&bus).start().unwrap().stop().unwrap();
    }
}
