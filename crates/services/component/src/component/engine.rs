//! The controller behind its lock, and the execution of its effects.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use helio_bus::{Bus, Tai, WaitSetWaker};
use helio_core::ProducerName;
use helio_core::sal::TopicKind;

use super::Component;
use super::command::{Cancel, Command, Failed, Handler, ReceivedCommand};
use super::generics::{LogLevel, SoftwareVersions};
use super::outbox::Outbox;
use super::policy::PolicyFile;
use super::pool::Pool;
use super::publish::{AckMessage, Acks, Audit, OutboxMessage, audit_record};
use crate::interface::{Interface, InterfaceError, Shape};
use crate::lease::{Lease, LeaseStanding, WeakLease};
use crate::protocol::controller::{Address, Controller, Effect, LeaseState};
use crate::protocol::{
    Acknowledgement, CallNumber, Checks, Done, Ending, Failure, StateCommand, StreamStats,
    SummaryState, Transition,
};
use crate::write::{WriteTopic, WriterIdentity};

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

/// A command of the interface.
pub(super) struct CommandEntry {
    pub shape: Arc<Shape>,
    pub checks: Checks,
    pub handler: Option<Arc<dyn Handler>>,
    pub execution: Execution,
    /// The field with the time of a stream command, in TAI seconds.
    pub time_at: Option<usize>,
    pub number: i32,
}

pub(super) struct Engine {
    pub bus: Bus,
    pub interface: Interface,
    pub index: i32,
    pub identity: String,
    pub producer: ProducerName,
    pub lease: Mutex<Option<Lease>>,
    /// The lease for writers; it does not keep the lease alive.
    pub weak: WeakLease,
    pub known: HashMap<String, CommandEntry>,
    pub hooks: HashMap<(StateCommand, HookPhase), Vec<Hook>>,
    pub protocol: Mutex<Protocol>,
    pub outbox: Outbox<OutboxMessage>,
    pub acks: Acks,
    pub audit: Audit,
    pub topics: Mutex<HashMap<(TopicKind, String), WriteTopic>>,
    pub versions: SoftwareVersions,
    pub simulation_mode: i32,
    pub configurations: Option<super::config::ConfigFolder>,
    pub policy: Mutex<Option<PolicyFile>>,
    pub state: AtomicI32,
    pub log_level: AtomicI32,
    pub handlers: Pool,
    pub changes: Pool,
    /// Threads that publish for blocked topics.
    pub lines: Pool,
    /// Threads that reopen topics that could not be read.
    pub openings: Pool,
    /// Threads of the periodic tasks.
    pub beats: Pool,
    pub waker: OnceLock<WaitSetWaker>,
    pub stopping: AtomicBool,
    /// Whether the controller has been notified that the lease is unconfirmed.
    pub unsure: AtomicBool,
    /// Ends the periodic tasks.
    pub ended: Cancel,
    /// The last reported reason for each topic that cannot be published.
    pub complaints: Mutex<HashMap<String, String>>,
    /// The number of log messages that failed since the last published one.
    pub unlogged: AtomicU64,
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

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    pub(super) fn state(&self) -> SummaryState {
        let number = self.state.load(Ordering::Acquire);
        SummaryState::from_number(number).unwrap_or(SummaryState::Offline)
    }

    pub(super) fn author(&self) -> WriterIdentity {
        WriterIdentity {
            identity: self.identity.clone(),
            index: self.index,
            producer: Some(self.producer.clone()),
            lease: Some(self.weak.clone()),
        }
    }

    /// A topic for writing; always the same object for a name.
    pub(super) fn topic(&self, kind: TopicKind, name: &str) -> Result<WriteTopic, InterfaceError> {
        let mut topics = locked(&self.topics);
        if let Some(topic) = topics.get(&(kind, name.to_owned())) {
            return Ok(topic.clone());
        }
        let shape = self.interface.shape(kind, name)?;
        let topic = WriteTopic::new(&self.bus, shape, self.author());
        topics.insert((kind, name.to_owned()), topic.clone());
        Ok(topic)
    }

    pub(super) fn stream(&self, command: &str) -> Option<StreamStats> {
        locked(&self.protocol).controller.stream(command)
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    /// Wakes the command thread.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
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
                    !self.unsure.swap(true, Ordering::AcqRel)
                });
                if news {
                    // No log message can be published now.
                    eprintln!("{}: nothing is run for now: {}", self.identity, lease.outage());
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
                self.unsure.store(false, Ordering::Release);
                controller.lease(now, LeaseState::Held { incarnation: lease.incarnation() });
            }
        });
    }

    /// Passes an input to the controller, executes its effects in order, publishes its messages,
    /// and runs its tasks.
    pub(super) fn input<R>(self: &Arc<Self>, input: impl FnOnce(&mut Controller, Tai) -> R) -> R {
        let mut protocol = locked(&self.protocol);
        let result = input(&mut protocol.controller, self.bus.clock().now());
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
        let call = input(&mut protocol.controller, self.bus.clock().now());
        protocol.taken.insert(call, Arc::new(taken));
        let work = self.execute(&mut protocol);
        drop(protocol);
        self.publish();
        self.run(work);
    }

    fn execute(&self, protocol: &mut Protocol) -> VecDeque<Task> {
        let mut work = VecDeque::new();
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
                // The engine asks the controller nothing.
                Effect::Answer { .. } => {}
                Effect::Acknowledge { address, ack } => self.queue_ack(address, ack),
                Effect::Error { code, report } => self.queue_fault(code, &report, ""),
                Effect::State(state) => self.queue_state(state),
                Effect::Audit(entry) => {
                    let record = audit_record(self.interface.name(), self.index, entry);
                    self.outbox.put(OutboxMessage::Audit(record));
                }
                Effect::Warn(text) => self.queue_log(LogLevel::Warning, &text, ""),
                Effect::Quit => self.stop(),
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
                    pool.run(Box::new(move || {
                        let more = engine.perform(next);
                        engine.run(more);
                    }));
                }
            }
        }
    }

    /// The pool for a task; `None` to run it here.
    fn pool(&self, task: Task) -> Option<&Pool> {
        match task {
            Task::Change(_, transition, phase) => {
                let hooks = self.hooks.get(&(transition.command, phase));
                hooks.is_some_and(|hooks| !hooks.is_empty()).then_some(&self.changes)
            }
            Task::Run(call) | Task::Validate(call) => {
                let taken = locked(&self.protocol).taken.get(&call).cloned()?;
                let inline = self.known.get(&taken.name)?.execution == Execution::Inline;
                (!inline).then_some(&self.handlers)
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
        let now = self.bus.clock().now();
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
        let now = self.bus.clock().now();
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
        if self.stopping.load(Ordering::Acquire) && idle {
            // The command thread waits for this.
            self.stop();
        }
        work
    }

    fn handle(&self, task: Task, command: &Command) -> Result<Done, Failed> {
        let handler = self.known.get(command.name()).and_then(|known| known.handler.as_ref());
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

    fn queue_state(&self, state: SummaryState) {
        let before = self.state.swap(state.number(), Ordering::AcqRel);
        if before == SummaryState::Fault.number() && state != SummaryState::Fault {
            self.queue_error(0, "", "");
        }
        self.queue_summary(state);
    }

    /// Publishes the error code; the state follows.
    pub(super) fn queue_fault(&self, code: i32, report: &str, traceback: &str) {
        self.queue_error(code, report, traceback);
        self.queue_log(LogLevel::Error, &format!("fault {code}: {report}"), traceback);
    }

    fn queue_ack(&self, to: Address, ack: Acknowledgement) {
        let known = to.command.as_ref().and_then(|name| self.known.get(name));
        let command = known.map_or(-1, |known| known.number);
        self.outbox.put(OutboxMessage::Acknowledge(Box::new(AckMessage { to, command, ack })));
    }

    /// Reports a failure on stderr because the bus cannot carry it. The same reason is reported
    /// once: a refused topic would otherwise repeat it with each heartbeat.
    pub(super) fn complain(&self, what: &str, reason: &str) {
        if self.stopping.load(Ordering::Acquire) {
            return;
        }
        let before = locked(&self.complaints).insert(what.to_owned(), reason.to_owned());
        if before.is_none_or(|before| before != reason) {
            eprintln!("{}: {what} could not be published: {reason}", self.identity);
        }
    }

    /// Marks a topic as published again, so that its next failure is reported.
    pub(super) fn recovered(&self, what: &str) {
        locked(&self.complaints).remove(what);
    }
}
