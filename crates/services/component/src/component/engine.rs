//! The controller behind its lock, and the execution of its effects.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use helio_bus::transport::locked;
use helio_bus::{Bus, Tai, ThreadPool, Topic, TopicError};

use super::Component;
use super::command::{Command, Failed, Handler, ReceivedCommand};
use super::config::ConfigFolder;
use super::generics::LogLevel;
use super::outputs::Outputs;
use super::policy::PolicyFile;
use super::shutdown::Shutdown;
use crate::interface::Shape;
use crate::lease::{Lease, LeaseStanding};
use crate::protocol::caller::MissingFields;
use crate::protocol::controller::{Controller, Effect, LeaseState};
use crate::protocol::{
    CallNumber, Checks, Done, Ending, Failure, StateCommand, StreamStats, Transition,
};
use crate::topic;

/// A function that runs before or after a state change.
pub(super) type Hook = Box<dyn Fn(&Command) -> Result<(), Failed> + Send + Sync>;

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum HookPhase {
    Begin,
    End,
}

/// Where a handler runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Execution {
    /// On one of the component's threads.
    Thread,
    /// On the thread that reads the commands.
    Inline,
}

/// `cmdtype` in acknowledgements of commands that the interface does not have.
const UNKNOWN_COMMAND: i32 = -1;

/// A command of the interface.
pub(super) struct CommandEntry {
    pub shape: Arc<Shape>,
    pub checks: Checks,
    pub handler: Option<Arc<dyn Handler>>,
    pub execution: Execution,
    /// The field with the time of a stream command, in TAI seconds.
    pub time_at: Option<usize>,
    pub number: i32,
    /// What becomes of fields that the callers' interface does not have.
    pub missing: MissingFields,
}

impl CommandEntry {
    /// Opens its topic.
    pub(super) fn topic(&self, bus: &Bus) -> Result<Topic, TopicError> {
        topic::open_command(bus, &self.shape, self.missing)
    }
}

pub(super) struct Engine {
    pub outputs: Outputs,
    pub shutdown: Arc<Shutdown>,
    pub threads: Threads,
    pub commands: HashMap<String, CommandEntry>,
    pub hooks: HashMap<(StateCommand, HookPhase), Vec<Hook>>,
    pub protocol: Mutex<Protocol>,
    pub lease: Mutex<Option<Lease>>,
    /// Whether the controller has been notified that the lease is unconfirmed.
    pub unconfirmed: AtomicBool,
    pub configurations: Option<ConfigFolder>,
    pub policy: Mutex<Option<PolicyFile>>,
}

/// The threads of a component beside the command thread, by their work.
pub(super) struct Threads {
    pub handlers: ThreadPool,
    pub state_changes: ThreadPool,
    /// Publish for blocked topics.
    pub outbox_lines: ThreadPool,
    /// Reopen topics that could not be read.
    pub reopening: ThreadPool,
    pub periodic: ThreadPool,
}

/// The state behind the lock.
pub(super) struct Protocol {
    pub controller: Controller,
    pub taken: HashMap<CallNumber, Arc<ReceivedCommand>>,
}

/// A task that runs outside the lock.
#[derive(Debug, Clone, Copy)]
pub(super) enum Task {
    Run(CallNumber),
    Validate(CallNumber),
    Change(CallNumber, Transition, HookPhase),
}

impl Task {
    fn call(self) -> CallNumber {
        match self {
            Self::Run(call) | Self::Validate(call) | Self::Change(call, ..) => call,
        }
    }
}

impl Engine {
    pub(super) fn now(&self) -> Tai {
        self.outputs.bus.clock().now()
    }

    pub(super) fn stream(&self, command: &str) -> Option<StreamStats> {
        locked(&self.protocol).controller.stream(command)
    }

    /// Publishes a log message if its level is high enough.
    pub(super) fn log(self: &Arc<Self>, level: LogLevel, message: &str, traceback: &str) {
        self.outputs.queue_log(level, message, traceback);
        self.publish();
    }

    /// Checks the lease. The controller is notified at once when the lease is not held. The command
    /// thread notifies it when the lease is held again ([`resume_lease`](Self::resume_lease)).
    pub(super) fn check_lease(self: &Arc<Self>) -> LeaseStanding {
        let lease = locked(&self.lease).clone();
        let standing = lease.as_ref().map_or(LeaseStanding::Lost, Lease::standing);
        match (standing, lease) {
            (LeaseStanding::Held, _) => {}
            (LeaseStanding::Lapsed, Some(lease)) => {
                let told = LeaseState::Lapsed { incarnation: lease.incarnation() };
                let news = self.input(|controller, now| {
                    controller.lease(now, told);
                    !self.unconfirmed.swap(true, Ordering::AcqRel)
                });
                if news {
                    // No log message can be published now.
                    let identity = self.outputs.identity();
                    eprintln!("{identity}: no command runs for now: {}", lease.outage());
                }
            }
            _ => self.input(|controller, now| controller.lease(now, LeaseState::Lost)),
        }
        standing
    }

    /// Notifies the controller that the lease is held again, if it still is.
    pub(super) fn resume_lease(self: &Arc<Self>) {
        let Some(lease) = locked(&self.lease).clone() else { return };
        self.input(|controller, now| {
            if lease.known() == Some(LeaseStanding::Held) {
                self.unconfirmed.store(false, Ordering::Release);
                controller.lease(now, LeaseState::Held { incarnation: lease.incarnation() });
            }
        });
    }

    /// Passes an input to the controller, executes its effects in order, publishes its messages,
    /// and runs its tasks.
    pub(super) fn input<R>(self: &Arc<Self>, input: impl FnOnce(&mut Controller, Tai) -> R) -> R {
        let mut protocol = locked(&self.protocol);
        let result = input(&mut protocol.controller, self.now());
        let work = self.execute(&mut protocol);
        drop(protocol);
        self.publish();
        self.run(work);
        result
    }

    /// Like [`input`](Self::input), for a request; its values are stored until it runs.
    pub(super) fn request(
        self: &Arc<Self>,
        taken: ReceivedCommand,
        input: impl FnOnce(&mut Controller, Tai) -> CallNumber,
    ) {
        let mut protocol = locked(&self.protocol);
        let call = input(&mut protocol.controller, self.now());
        protocol.taken.insert(call, Arc::new(taken));
        let work = self.execute(&mut protocol);
        drop(protocol);
        self.publish();
        self.run(work);
    }

    fn execute(&self, protocol: &mut Protocol) -> VecDeque<Task> {
        let (mut work, outputs) = (VecDeque::new(), &self.outputs);
        let Protocol { controller, taken } = protocol;
        for effect in controller.effects() {
            match effect {
                Effect::Run { call } => work.push_back(Task::Run(call)),
                Effect::Validate { call } => work.push_back(Task::Validate(call)),
                Effect::Begin { call, transition } => {
                    work.push_back(Task::Change(call, transition, HookPhase::Begin));
                }
                Effect::End { call, transition } => {
                    work.push_back(Task::Change(call, transition, HookPhase::End));
                }
                Effect::Discard { call } => drop(taken.remove(&call)),
                Effect::Interrupt { call } => {
                    if let Some(taken) = taken.get(&call) {
                        taken.cancel.set();
                    }
                }
                // Only commands of the component to itself have answers; the engine sends none.
                Effect::Answer { .. } => {}
                Effect::Acknowledge { address, ack } => {
                    let command = address.command.as_ref().and_then(|name| self.commands.get(name));
                    let number = command.map_or(UNKNOWN_COMMAND, |command| command.number);
                    outputs.queue_ack(address, number, ack);
                }
                Effect::Error { code, report } => outputs.queue_fault(code, &report, ""),
                Effect::State(state) => outputs.queue_state(state),
                Effect::Audit(entry) => outputs.queue_audit(entry),
                Effect::Warn(text) => outputs.queue_log(LogLevel::Warning, &text, ""),
                Effect::Quit => self.shutdown.request(),
            }
        }
        work
    }

    /// Runs tasks here or on the threads of their pools.
    pub(super) fn run(self: &Arc<Self>, mut work: VecDeque<Task>) {
        while let Some(next) = work.pop_front() {
            match self.pool(next) {
                None => work.extend(self.perform(next)),
                Some(pool) => {
                    let engine = Arc::clone(self);
                    pool.run(move || {
                        let more = engine.perform(next);
                        engine.run(more);
                    });
                }
            }
        }
    }

    /// The pool for a task; `None` to run it here.
    fn pool(&self, task: Task) -> Option<&ThreadPool> {
        match task {
            Task::Change(_, transition, phase) => {
                let hooks = self.hooks.get(&(transition.command, phase));
                hooks.is_some_and(|hooks| !hooks.is_empty()).then_some(&self.threads.state_changes)
            }
            Task::Run(call) | Task::Validate(call) => {
                let taken = locked(&self.protocol).taken.get(&call).cloned()?;
                let inline = self.commands.get(&taken.name)?.execution == Execution::Inline;
                (!inline).then_some(&self.threads.handlers)
            }
        }
    }

    fn perform(self: &Arc<Self>, task: Task) -> VecDeque<Task> {
        let call = task.call();
        let taken = match self.take_up(task) {
            Ok(taken) => taken,
            Err(more) => return more,
        };
        let command = Command { component: Component(Arc::clone(self)), call, taken };
        let ended = match catch_unwind(AssertUnwindSafe(|| self.handle(task, &command))) {
            Ok(ended) => ended.map_err(|failed| failed.0),
            Err(panic) => Err(self.panicked(&command, &*panic)),
        };
        let mut protocol = locked(&self.protocol);
        let now = self.now();
        let controller = &mut protocol.controller;
        match task {
            Task::Change(_, _, HookPhase::Begin) => {
                let failed = ended.is_err();
                controller.begun(now, call, ended.map(drop));
                if failed {
                    protocol.taken.remove(&call);
                }
            }
            _ => {
                controller.finished(now, call, ended);
                protocol.taken.remove(&call);
            }
        }
        self.ended(protocol)
    }

    /// The values of a call that starts now. A call that waited too long for its thread, or was
    /// cancelled in the meantime, does not start; the error holds the tasks that follow.
    fn take_up(self: &Arc<Self>, task: Task) -> Result<Arc<ReceivedCommand>, VecDeque<Task>> {
        let call = task.call();
        // It may have waited long for its thread or its lane.
        self.check_lease();
        let mut protocol = locked(&self.protocol);
        let now = self.now();
        let begins = !matches!(task, Task::Change(.., HookPhase::End));
        if begins && !protocol.controller.take_up(now, call) {
            protocol.taken.remove(&call);
            return Err(self.ended(protocol));
        }
        protocol.taken.get(&call).cloned().ok_or_else(VecDeque::new)
    }

    /// Finishes a call; returns the tasks that follow.
    fn ended(self: &Arc<Self>, mut protocol: MutexGuard<'_, Protocol>) -> VecDeque<Task> {
        let work = self.execute(&mut protocol);
        let idle = protocol.controller.is_idle();
        drop(protocol);
        self.publish();
        if self.shutdown.is_requested() && idle {
            // The command thread waits for this.
            self.shutdown.wake();
        }
        work
    }

    fn handle(&self, task: Task, command: &Command) -> Result<Done, Failed> {
        let handler = self.commands.get(command.name()).and_then(|known| known.handler.as_ref());
        match (task, handler) {
            (Task::Run(_), Some(handler)) => handler.run(command),
            (Task::Validate(_), Some(handler)) => {
                handler.validate(command).map(|()| Done::default())
            }
            (Task::Change(_, transition, phase), _) => {
                let hooks = self.hooks.get(&(transition.command, phase));
                for hook in hooks.into_iter().flatten() {
                    hook(command)?;
                }
                Ok(Done::default())
            }
            // State commands have hooks and no handler.
            (_, None) => Ok(Done::default()),
        }
    }

    fn panicked(
        self: &Arc<Self>,
        command: &Command,
        panic: &(dyn std::any::Any + Send),
    ) -> Failure {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "it does not say why".to_owned());
        let name = command.name();
        self.log(LogLevel::Error, &format!("the handler of {name} panicked: {text}"), "");
        Failure::new(Ending::Failed, format!("the handler panicked: {text}"))
    }
}
