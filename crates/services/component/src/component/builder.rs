//! Building and starting a component.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use helio_bus::{Bus, ThreadPool, TopicError};
use helio_core::sal::TopicKind;
use helio_core::{ProducerName, Value};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::command::{Command, Failed, Handler};
use super::command_loop::{CommandLoop, LapsedRequests, RunError, Running};
use super::config::{ConfigError, ConfigFolder};
use super::engine::{CommandEntry, Engine, Execution, Hook, HookPhase, Protocol, Threads};
use super::generics::{LogLevel, MIDDLEWARE, SoftwareVersions};
use super::messages::{Acks, Audit};
use super::outbox::Outbox;
use super::outputs::Outputs;
use super::periodic;
use super::policy::PolicyFile;
use super::shutdown::Shutdown;
use super::subscriptions::Subscriptions;
use super::{Component, StartError};
use crate::interface::{Interface, InterfaceError};
use crate::lease::{Lease, LeaseOptions};
use crate::protocol::caller::MissingFields;
use crate::protocol::checks::Limits;
use crate::protocol::controller::{
    CommandSpec, Controller, ControllerOptions, Lane, LeaseState, MAX_CONCURRENT, StreamSpec,
};
use crate::protocol::{Done, Policy, StateCommand, SummaryState};
use crate::records::{self, ControlRecord};
use crate::topic::{self, WriteError};
use crate::write::{WriteTopic, WriterIdentity};

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
    commands: HashMap<String, CommandDeclaration>,
    hooks: HashMap<(StateCommand, HookPhase), Vec<Hook>>,
    configuration: Option<(ConfigFolder, Configure)>,
    folder: Option<ConfigFolder>,
    state: SummaryState,
    versions: SoftwareVersions,
    simulation_mode: i32,
    log_level: LogLevel,
    policy: Option<PathBuf>,
    missing: Option<MissingFields>,
}

type Configure = Box<dyn Fn(&Command, Json) -> Result<(), ConfigureError> + Send + Sync>;

/// Why a configuration was rejected.
enum ConfigureError {
    /// The values do not have the component's type.
    Values(String),
    /// The component rejected it.
    Refused(Failed),
}

/// The declared properties of a command.
struct CommandDeclaration {
    handler: Option<Arc<dyn Handler>>,
    execution: Execution,
    lane: Lane,
    stream: Option<(String, Duration)>,
    limits: Vec<(String, Limits)>,
}

impl Default for CommandDeclaration {
    fn default() -> Self {
        let (handler, stream, limits) = (None, None, Vec::new());
        Self { handler, execution: Execution::Thread, lane: Lane::Serial, stream, limits }
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
            missing: None,
        }
    }

    fn declared(&mut self, command: &str) -> &mut CommandDeclaration {
        self.commands.entry(command.to_owned()).or_default()
    }

    /// Runs a command with a handler, one at a time, on a separate thread; the handler may block.
    pub fn on(mut self, command: &str, handler: impl Handler) -> Self {
        self.declared(command).handler = Some(Arc::new(handler));
        self
    }

    /// Like [`on`](Self::on), for a handler that takes microseconds and never blocks. It runs on
    /// the thread that reads the commands; everything else waits while it runs.
    pub fn inline(mut self, command: &str, handler: impl Handler) -> Self {
        self = self.on(command, handler);
        self.declared(command).execution = Execution::Inline;
        self
    }

    /// Permits several calls of a command to run at the same time.
    pub fn concurrent(mut self, command: &str) -> Self {
        self.declared(command).lane = Lane::Concurrent;
        self
    }

    /// Declares a stream command. `field` holds the TAI time, in seconds, that each command is for.
    /// A command that arrives less than `margin` before that time is ignored, counted and reported.
    pub fn stream(mut self, command: &str, field: &str, margin: Duration) -> Self {
        self.declared(command).stream = Some((field.to_owned(), margin));
        self
    }

    /// Limits of a numeric field beyond those of the interface.
    pub fn limit(mut self, command: &str, field: &str, limits: Limits) -> Self {
        self.declared(command).limits.push((field.to_owned(), limits));
        self
    }

    /// Runs before a command changes the state; if it fails, the state does not change.
    pub fn begin(
        mut self,
        command: StateCommand,
        hook: impl Fn(&Command) -> Result<(), Failed> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.entry((command, HookPhase::Begin)).or_default().push(Box::new(hook));
        self
    }

    /// Runs after a command changed the state; if it fails, the previous state is restored.
    pub fn end(
        mut self,
        command: StateCommand,
        hook: impl Fn(&Command) -> Result<(), Failed> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.entry((command, HookPhase::End)).or_default().push(Box::new(hook));
        self
    }

    /// Makes the command `start` configure the component. The configuration consists of a folder's
    /// layers and the override that the command names, deserialized into the component's type.
    /// Errors are reported before the state changes.
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

    /// The initial state; the default is STANDBY.
    pub fn initial_state(mut self, state: SummaryState) -> Self {
        self.state = state;
        self
    }

    /// The versions of its software.
    pub fn versions(mut self, versions: SoftwareVersions) -> Self {
        self.versions = versions;
        self
    }

    /// The simulation mode of its hardware; 0 for no simulation.
    pub fn simulation_mode(mut self, mode: i32) -> Self {
        self.simulation_mode = mode;
        self
    }

    /// The lowest level of published log messages, until `setLogLevel` changes it.
    pub fn log_level(mut self, level: LogLevel) -> Self {
        self.log_level = level;
        self
    }

    /// The authorization file; it is read again when it changes.
    pub fn policy(mut self, file: impl AsRef<Path>) -> Self {
        self.policy = Some(file.as_ref().to_owned());
        self
    }

    /// What becomes of a command's fields that the caller's interface does not have, and for which
    /// this one declares no default: the command is refused, or they are zero. Without a choice
    /// [`MissingFields::VARIABLE`] decides, else the command is refused.
    pub fn missing_fields(mut self, choice: MissingFields) -> Self {
        self.missing = Some(choice);
        self
    }

    /// Runs it until it ends.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(self) -> Result<(), RunError> {
        self.start()?.wait()
    }

    /// Starts the component; when this returns, it accepts commands.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub fn start(self) -> Result<Running, StartError> {
        let command_loop = self.command_loop()?;
        let name = command_loop.engine.outputs.identity().to_owned();
        spawn(command_loop, std::thread::Builder::new().name(name))
    }

    /// Everything but the threads.
    pub(super) fn command_loop(mut self) -> Result<CommandLoop, StartError> {
        self.interface.check_index(self.index)?;
        if self.versions.interface.is_empty() {
            self.interface.release().clone_into(&mut self.versions.interface);
        }
        self.check_names()?;
        self.add_generics();
        let (policy_file, policy) = self.open_policy()?;
        let (versions, simulation_mode) = (self.versions.clone(), self.simulation_mode);
        let known = self.known()?;
        let instance = [(&self.interface, self.index)];
        let made = crate::create_topics::create_topics(&self.bus, instance, |_, _| {});
        made.map_err(|error| failed(self.interface.name(), &error))?;
        let identity = self.interface.identity(self.index);
        let producer = Some(producer(&identity)?);

        // Subscribe before taking the lease: a caller that sees the lease may send.
        let listening = Subscriptions::open(&self.bus, &self.interface, self.index, known.iter());
        let listening = listening.map_err(|error| failed(self.interface.name(), &error));
        let Subscriptions { set, sources, refused } = listening?;
        let lease = self.claim()?;
        let weak = Some(lease.downgrade());
        let author = WriterIdentity { identity, index: self.index, producer, lease: weak };
        let held = LeaseState::Held { incarnation: lease.incarnation() };
        let engine = self.engine(author, known, policy_file, lease.clone());
        // A foreign instance that comes now ends the lease; then no topic can be written.
        let engine = engine.map_err(|error| lease.foreign().map_or(error, StartError::Lease));
        let engine = Arc::new(engine?);
        engine.shutdown.set_waker(set.waker());
        engine.outputs.open_first();
        engine.input(|controller, now| {
            controller.set_policy(policy);
            controller.lease(now, held);
        });
        engine.outputs.queue_first(&versions, simulation_mode);
        for reason in refused {
            let text = format!("commands of this release are refused to callers: {reason}");
            engine.outputs.queue_log(LogLevel::Warning, &text, "");
        }
        engine.publish();
        let (failed_sources, opened, resumed) = (Vec::new(), channel(), HashMap::new());
        let control = records::codec::<ControlRecord>();
        Ok(CommandLoop {
            engine,
            set,
            sources,
            control,
            lapses: 0,
            lapsed: LapsedRequests::default(),
            failed_sources,
            opened,
            resumed,
        })
    }

    fn open_policy(&self) -> Result<(Option<PolicyFile>, Policy), StartError> {
        let Some(path) = &self.policy else { return Ok((None, Policy::default())) };
        match PolicyFile::open(path) {
            Ok((file, policy)) => Ok((Some(file), policy)),
            Err(reason) => Err(StartError::Policy { path: path.clone(), reason }),
        }
    }

    /// Commands that the builder names must exist.
    fn check_names(&self) -> Result<(), InterfaceError> {
        for name in self.commands.keys() {
            self.interface.shape(TopicKind::Command, name)?;
        }
        Ok(())
    }

    /// Adds the commands of every component.
    fn add_generics(&mut self) {
        if self.interface.has(TopicKind::Command, "setLogLevel") {
            let declared = self.commands.entry("setLogLevel".to_owned()).or_default();
            if declared.handler.is_none() {
                declared.handler = Some(Arc::new(set_log_level));
                declared.execution = Execution::Inline;
            }
        }
        let Some((folder, configure)) = self.configuration.take() else { return };
        let with = folder.clone();
        let hook = move |command: &Command| configured(command, &with, &configure);
        let hooks = self.hooks.entry((StateCommand::Start, HookPhase::Begin)).or_default();
        hooks.insert(0, Box::new(hook));
        self.folder = Some(folder);
    }

    fn known(&self) -> Result<HashMap<String, CommandEntry>, StartError> {
        let mut known = HashMap::new();
        let missing = self.missing.map_or_else(MissingFields::of_environment, Ok)?;
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
            let execution = declared.map_or(Execution::Thread, |declared| declared.execution);
            let number = self.interface.command_number(name).unwrap_or(-1);
            known.insert(
                name.to_owned(),
                CommandEntry { shape, checks, handler, execution, time_at, number, missing },
            );
        }
        Ok(known)
    }

    fn specs(&self, known: &HashMap<String, CommandEntry>) -> Vec<CommandSpec> {
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

    fn engine(
        self,
        author: WriterIdentity,
        commands: HashMap<String, CommandEntry>,
        policy: Option<PolicyFile>,
        lease: Lease,
    ) -> Result<Engine, StartError> {
        let specs = self.specs(&commands);
        let most_handlers = most_handlers(&specs);
        let controller = Controller::new(ControllerOptions {
            component: self.interface.name().to_owned(),
            index: self.index,
            commands: specs,
            state: self.state,
        });
        let acks = self.interface.shape(TopicKind::Ack, TopicKind::Ack.segment())?;
        let acks = WriteTopic::new(&self.bus, acks, author.clone());
        acks.open()?;
        let producer = author.producer.clone();
        let producer = producer.unwrap_or_else(|| self.bus.producer().clone());
        let name = self.interface.name();
        let audit = Audit::open(&self.bus, name, producer, lease.downgrade(), self.key());
        let audit = audit.map_err(|error| failed(name, &error))?;
        let shutdown = Arc::new(Shutdown::default());
        let outputs = Outputs {
            bus: self.bus,
            interface: self.interface,
            author,
            outbox: Outbox::new(),
            acks: Acks::new(acks),
            audit,
            topics: Mutex::default(),
            state: AtomicI32::new(self.state.number()),
            log_level: AtomicI32::new(self.log_level as i32),
            failures: Mutex::default(),
            unlogged: AtomicU64::new(0),
            shutdown: Arc::clone(&shutdown),
        };
        let pool = |name, max_threads| ThreadPool::new(name, max_threads, || ());
        let threads = Threads {
            handlers: pool("helio-handler", most_handlers),
            state_changes: pool("helio-state", 1),
            outbox_lines: pool("helio-outbox", MAX_LINE_THREADS),
            reopening: pool("helio-open", commands.len() + 1),
            periodic: pool("helio-beat", periodic::PERIODIC_THREADS),
        };
        Ok(Engine {
            outputs,
            shutdown,
            threads,
            commands,
            hooks: self.hooks,
            protocol: Mutex::new(Protocol { controller, taken: HashMap::new() }),
            lease: Mutex::new(Some(lease)),
            unconfirmed: AtomicBool::new(false),
            configurations: self.folder,
            policy: Mutex::new(policy),
        })
    }
}

/// The most blocked topics that are retried at the same time: more than a component has of its own.
const MAX_LINE_THREADS: usize = 16;

/// The most handlers that run at the same time: as many as the protocol permits, so that none waits
/// for another command's handler. A command has one, a concurrent one [`MAX_CONCURRENT`], and so
/// have all validations together. Threads start when there is work for them.
fn most_handlers(specs: &[CommandSpec]) -> usize {
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

/// Starts the periodic tasks and the command loop. If a thread cannot be started, the component
/// ends immediately and in order: it has published its state and holds the lease.
fn spawn(command_loop: CommandLoop, thread: std::thread::Builder) -> Result<Running, StartError> {
    let component = Component(Arc::clone(&command_loop.engine));
    let begun = component.0.start_periodic();
    let begun = begun.and_then(|()| thread.spawn(move || command_loop.run()));
    let thread = begun.map_err(|error| {
        component.0.end(true);
        StartError::Thread(error)
    })?;
    Ok(Running { component, thread: Some(thread) })
}

/// The command `setLogLevel`, which every component has.
fn set_log_level(command: &Command) -> Result<Done, Failed> {
    let level = i32::try_from(command.integer("level"))?;
    let engine = &command.component().0;
    engine.outputs.log_level.store(level, Ordering::Relaxed);
    engine.outputs.queue_log_level();
    engine.publish();
    Ok(Done::default())
}

/// Configures the component before it enters DISABLED.
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
    let engine = &command.component().0;
    engine.outputs.queue_applied(folder, &loaded);
    engine.publish();
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
        let command_loop = builder.command_loop().unwrap();
        let engine = Arc::downgrade(&command_loop.engine);
        // No machine has room for such a stack.
        let error = spawn(command_loop, std::thread::Builder::new().stack_size(1 << 60));
        assert!(matches!(error, Err(StartError::Thread(_))));
        assert_eq!(engine.strong_count(), 0, "a thread of it is left");
        mount(&bus).start().unwrap().stop().unwrap();
    }
}
